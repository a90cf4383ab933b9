"""Waits for a core: counted by the kernel, seen when a core is fought over, judged as a share of the run."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from dlcp.agents.core_waits import SoftirqMeter, WaitMeter, open_softirq_files
from dlcp.substrates.fidelity import core_waits, judge, late_computing, reasons

NO_COUNTS = "the kernel counts no waits for a core; run on one with CONFIG_SCHED_INFO (any distribution's)"
counted = pytest.mark.skipif(not Path("/proc/self/schedstat").exists(), reason=NO_COUNTS)

FIGHT = """
import os, sys, threading, time
from dlcp.agents.core_waits import WaitMeter
os.sched_setaffinity(0, {int(sys.argv[1])})
meter = WaitMeter()
end_s = time.monotonic() + 0.6
while time.monotonic() < end_s:
    pass
print(meter.read()["rest"]["wait_s"])
"""


def wait_beside(hogs: int) -> float:
    """Seconds that a process waits which computes for 0.6 s on a core that it shares with so many busy loops."""
    core = min(os.sched_getaffinity(0))
    loop = f"import os; os.sched_setaffinity(0, {{{core}}})\nwhile True: pass"
    others = [subprocess.Popen([sys.executable, "-c", loop]) for _ in range(hogs)]
    try:
        time.sleep(0.2)
        return float(subprocess.check_output([sys.executable, "-c", FIGHT, str(core)], text=True))
    finally:
        for other in others:
            other.kill()
            other.wait()


@counted
def test_meter__sees_a_core_that_is_fought_over() -> None:
    assert wait_beside(2) > 0.2


@counted
def test_meter__counts_what_each_thread_took() -> None:
    meter = WaitMeter()
    over = threading.Event()

    def work() -> None:
        end_s = time.thread_time() + 0.1
        while time.thread_time() < end_s:
            pass
        over.wait()

    thread = threading.Thread(target=work)
    thread.start()
    time.sleep(0.3)
    taken = meter.read()
    over.set()
    thread.join()
    assert taken is not None
    assert taken["rest"]["run_s"] > 0.09
    assert taken["engine"] == {"run_s": 0.0, "wait_s": 0.0, "turns": 0}


def test_softirq_meter__reads_what_was_opened_and_nothing_without(tmp_path: Path) -> None:
    assert SoftirqMeter([]).wait_s() is None
    path = tmp_path / "schedstat"
    path.write_text("1000000 2000000 3\n")
    files = [os.open(path, os.O_RDONLY), os.open(path, os.O_RDONLY)]
    try:
        meter = SoftirqMeter(files)
        path.write_text("5000000 9000000 7\n")
        assert meter.wait_s() == pytest.approx(0.007), "in the mean over cores"
    finally:
        for file in files:
            os.close(file)


def test_softirq_files__are_of_the_kernels_threads_or_none() -> None:
    files = open_softirq_files()
    try:
        assert all(len(os.pread(file, 100, 0).split()) == 3 for file in files)
    finally:
        for file in files:
            os.close(file)


def of_host(engine_s: float, rest_s: float) -> dict[str, dict[str, float]]:
    turns = 10 if engine_s else 0
    return {
        "engine": {"run_s": 1.0, "wait_s": engine_s, "turns": turns},
        "rest": {"run_s": 1.0, "wait_s": rest_s, "turns": 100},
    }


def test_core_waits__are_shares_of_the_run_in_the_mean_and_of_the_worst_host() -> None:
    values = core_waits({"h1": of_host(0.1, 0.3), "h2": of_host(0.3, 1.3)}, duration_s=10.0)
    assert values == {
        "core_wait": pytest.approx(0.1),
        "host_core_wait": pytest.approx(0.16),
        "engine_wait": pytest.approx(0.02),
    }


def test_core_waits__of_kernel_tcp_have_no_engine() -> None:
    assert set(core_waits({"h1": of_host(0.0, 0.3)}, 10.0)) == {"core_wait", "host_core_wait"}


def test_core_waits__are_unknown_when_one_host_does_not_count() -> None:
    assert core_waits({"h1": of_host(0.1, 0.3), "h2": None}, 10.0) == {}
    assert core_waits({}, 10.0) == {}


def test_judging__takes_times_in_lab_time_and_shares_as_they_are() -> None:
    values = {"timer_late_s": 0.006, "cpu_busy": 0.5}
    assert "timer_late_s" in reasons(judge(values))
    judged = judge(values, time_dilation=4.0)
    assert reasons(judged) == ""
    assert judged["timer_late_s"]["value"] == pytest.approx(0.0015)
    assert judged["cpu_busy"]["value"] == 0.5


def test_late_computing__is_of_the_latest_worker_and_of_declared_compute_alone() -> None:
    assert late_computing([0.01, None, 0.04]) == {"compute_late": 0.04}
    assert late_computing([None, None]) == {}
    assert "compute_late" in reasons(judge({"compute_late": 0.04}))

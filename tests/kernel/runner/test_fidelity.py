"""The monitors: bounds in both directions, sentences, and a real sample of this machine."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from dlcp.agents import machine_monitor
from dlcp.agents.machine_monitor import MachineMonitor, cores
from dlcp.agents.precise_waits import Deadlines
from dlcp.substrates.emulate.host_counters import HostLinks, vanished_packets
from dlcp.substrates.emulate.monitors import Saturation
from dlcp.substrates.fidelity import BOUNDS, judge, reasons, wake_ups


def test_values_inside_their_bounds_give_no_reason() -> None:
    judged = judge({"cpu_busy": 0.4, "unaccounted_packets": 0, "background_offered": 1.0})
    assert all(found["ok"] for found in judged.values())
    assert reasons(judged) == ""


def test_the_reason_names_monitor_value_and_bound() -> None:
    judged = judge({"cpu_busy": 0.97, "background_offered": 0.5, "rx_overflow": 0})
    assert [name for name, found in judged.items() if not found["ok"]] == ["cpu_busy", "background_offered"]
    assert "cpu_busy = 0.97 share (bound 0.95" in reasons(judged)


def test_a_monitor_without_a_bound_is_an_error() -> None:
    with pytest.raises(KeyError):
        judge({"luck": 1})


def test_the_machine_monitor_sees_a_busy_core() -> None:
    with MachineMonitor() as monitor:
        start_s = time.monotonic()
        while time.monotonic() < start_s + 0.8:
            pass
        end_s = time.monotonic()
    assert monitor.cpu_busy(start_s, end_s) > 0.1
    assert monitor.softnet_dropped() >= 0


def test_every_bound_says_what_it_means_and_where_it_is_from() -> None:
    for name, bound in BOUNDS.items():
        assert bound.meaning, name
        assert bound.source, name
    assert judge({"cpu_busy": 0.1})["cpu_busy"]["source"] == BOUNDS["cpu_busy"].source


def test_hogs_on_all_cores_make_a_run_suspect() -> None:
    hogs = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(cores())]
    try:
        with MachineMonitor() as monitor:
            time.sleep(0.3)
            start_s = time.monotonic()
            time.sleep(1.0)
            busy = monitor.cpu_busy(start_s, time.monotonic())
    finally:
        for hog in hogs:
            hog.kill()
            hog.wait()
    assert "cpu_busy" in reasons(judge({"cpu_busy": busy}))


LATE = """
import sys, time
from dlcp.agents import machine_monitor
from dlcp.agents.precise_waits import Deadlines
deadlines, due_s = Deadlines(), time.monotonic()
print("ready", flush=True)
for _ in range(50):
    due_s += 0.01
    deadlines.sleep_until(due_s)
print(deadlines.late_s())
"""


def test_a_process_that_is_stopped_for_a_while_wakes_late() -> None:
    """Its waits are short and many: what one long stop does to them shows at the 99th percentile."""
    process = subprocess.Popen([sys.executable, "-c", LATE], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    time.sleep(0.05)
    os.kill(process.pid, signal.SIGSTOP)
    time.sleep(0.2)
    os.kill(process.pid, signal.SIGCONT)
    late_s = float(process.stdout.read())
    assert process.wait() == 0
    assert "sched_late_s" in reasons(judge({"sched_late_s": late_s}))


PUNCTUAL = [[0.0003] * 60] * 15


@pytest.mark.parametrize(
    ("sixteenth", "bad"),
    [
        ([0.0003] * 59 + [0.03], []),  # one hiccup of one host, of 960 waits
        ([0.0003] * 51 + [0.02] * 9, ["host_late_s"]),  # one host starved: 0.9 % of all waits, 15 % of its own
        ([0.0003] * 45 + [0.02] * 15, ["sched_late_s", "host_late_s"]),
    ],
)
def test_wake_ups__of_all_hosts_together_and_of_the_latest_one(sixteenth: list[float], bad: list[str]) -> None:
    judged = judge(wake_ups([*PUNCTUAL, sixteenth]))
    assert [name for name, found in judged.items() if not found["ok"]] == bad


def test_wake_ups__a_few_late_at_every_host_are_many() -> None:
    judged = judge(wake_ups([[0.0003] * 58 + [0.02] * 2] * 16))
    assert [name for name, found in judged.items() if not found["ok"]] == ["sched_late_s"]


def test_softnet_drops_are_the_second_column_of_every_core(tmp_path: Path) -> None:
    file = tmp_path / "softnet_stat"
    file.write_text("0000ffff 00000003 00000000\n00000001 0000000a 00000000\n")
    assert machine_monitor._softnet_drops(file) == 13
    assert "softnet_dropped = 13 packets" in reasons(judge({"softnet_dropped": 13}))


def test_a_full_port_is_judged_from_many_stretches_only() -> None:
    assert Saturation(sent_bytes=10.0, expected_bytes=25.0, parts=5).share is None
    share = Saturation(sent_bytes=90.0, expected_bytes=100.0, parts=100).share
    assert share == pytest.approx(0.9)
    assert "saturated_rate" in reasons(judge({"saturated_rate": share or 0.0}))


def test_packets_from_end_to_end() -> None:
    row = {"dropped_wred_packets": 3, "dropped_tail_packets": 4}
    hosts = HostLinks(sent=1000, received=980) - HostLinks(sent=100, received=90)
    assert vanished_packets(hosts, [row, row], ["wred", "tail"], strays=0) == 10 - 14
    assert vanished_packets(HostLinks(100, 93), [row], ["wred", "tail"], strays=0) == 0


def test_no_wait_no_lateness() -> None:
    assert Deadlines().late_s() == 0.0

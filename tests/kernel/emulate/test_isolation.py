"""A fabric leaves nothing behind, however it ends, and does not touch another."""

from __future__ import annotations

import gc
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from traffic import at, leaf_spine, plain, udp
from waits import in_time, wait_until

from dlcp.errors import Problem
from dlcp.isolation.private_namespaces import start_private

HERE = Path(__file__).parent
GONE_WITHIN_S = 3.0

PARENT = """
import sys
from dlcp.isolation.private_namespaces import run_private
sys.exit(run_private("test_isolation:hold", sys.argv[1:]))
"""


def hold(arguments: list[str]) -> int:
    """Inside: a fabric with a detached child in a host, whose namespaces are written to a file; then waits for ever."""
    with leaf_spine(plain()) as fabric:
        subprocess.Popen(["mnexec", "-da", str(fabric.pids()["h1"]), "sleep", "1000"])
        names = {os.readlink(f"/proc/{pid}/ns/{kind}") for pid in ("self", *fabric.pids().values()) for kind in KINDS}
        Path(arguments[0]).write_text("\n".join(sorted(names)), encoding="ascii")
        signal.pause()
    return 0


KINDS = ("net", "mnt", "pid")


def survivors(pids: set[int], names: set[str], moment_ticks: int) -> dict[int, str]:
    """Processes that are one of `pids` or in one of the namespaces: pid → command line.

    Only those that were there at a moment: the kernel soon gives a number that is free to a stranger.
    """
    found = {}
    for process in Path("/proc").iterdir():
        if not process.name.isdigit():
            continue
        try:
            mine = int(process.name) in pids or names & namespaces_of(int(process.name))
            if mine and started_ticks(process) <= moment_ticks:
                found[int(process.name)] = (process / "cmdline").read_text().replace("\0", " ")
        except OSError:
            pass  # it has ended meanwhile
    return found


def started_ticks(process: Path) -> int:
    """When a process began, in clock ticks since boot (field 22 of stat)."""
    return int((process / "stat").read_text().rpartition(")")[2].split()[19])


def now_ticks() -> int:
    """This moment in the same units."""
    return int(time.clock_gettime(time.CLOCK_BOOTTIME) * os.sysconf("SC_CLK_TCK"))


def devices() -> set[str]:
    """Network devices of this namespace."""
    return set(os.listdir("/proc/sys/net/ipv4/conf"))


def descendants(pid: int) -> set[int]:
    """All processes below a process; none below one that has ended."""
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text(encoding="ascii").split()
    except OSError:
        return set()
    return {int(child) for child in children}.union(*(descendants(int(child)) for child in children))


def left_behind(pids: set[int], names: set[str], moment_ticks: int) -> dict[int, str]:
    """What of it still is there after a while; empty as soon as all is gone."""
    in_time(lambda: not survivors(pids, names, moment_ticks), GONE_WITHIN_S, every_s=0.02)
    return survivors(pids, names, moment_ticks)


@pytest.mark.parametrize("killed_after_s", [0.02, 0.15, 0.3, None], ids=lambda s: f"{s} s" if s else "running")
def test_kill_9_of_the_caller_leaves_nothing(tmp_path: Path, killed_after_s: float | None) -> None:
    mounts, links = Path("/proc/self/mounts").read_text(encoding="utf-8"), devices()
    told = tmp_path / "namespaces"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    parent = subprocess.Popen([sys.executable, "-c", PARENT, str(told)], env=environment, stderr=subprocess.PIPE)
    try:
        if killed_after_s is None:
            wait_until(told.exists, "the fabric is up")
            time.sleep(0.05)
        else:
            time.sleep(killed_after_s)
        pids = descendants(parent.pid)
        own = {os.readlink(f"/proc/self/ns/{kind}") for kind in KINDS}
        names = {name for pid in pids for name in namespaces_of(pid)} - own
        if killed_after_s is None:
            names |= set(told.read_text(encoding="ascii").split())
            assert len(names) >= 3 + 2 * 4, "the fabric and its four hosts have namespaces of their own"
    finally:
        moment = now_ticks()
        parent.kill()
        parent.wait()
    assert left_behind(pids, names, moment) == {}
    assert Path("/proc/self/mounts").read_text(encoding="utf-8") == mounts
    assert devices() == links


def namespaces_of(pid: int) -> set[str]:
    """The namespaces of a process; empty when it has ended."""
    try:
        return {os.readlink(f"/proc/{pid}/ns/{kind}") for kind in KINDS}
    except OSError:
        return set()


def test_stop_ends_everything_inside(tmp_path: Path) -> None:
    told = tmp_path / "namespaces"
    process = start_private(
        "test_isolation:hold", [str(told)], env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    )
    wait_until(told.exists, "the fabric is up")
    pids = descendants(process.pid)
    assert len(pids) >= 8
    moment = now_ticks()
    assert process.stop() == -signal.SIGKILL
    assert left_behind(pids, set(told.read_text(encoding="ascii").split()), moment) == {}


def packets_of_its_own(count: int) -> int:
    """Sends h1 → h2 slowly for half a second; what its own switch counted."""
    with leaf_spine(plain()) as fabric:
        sender = udp(fabric, "h1")
        for _ in range(count):
            sender.sendto(b"x", (fabric.address("h2"), 9))
            time.sleep(0.5 / count)
        assert fabric.conservation() == []
        return int(at(fabric, "l1-h2")[0, 0]["enqueued_packets"])


def test_two_fabrics_at_once_do_not_touch(inside: Callable[..., int]) -> None:
    with ThreadPoolExecutor(2) as pool:
        first = pool.submit(inside, packets_of_its_own, count=50)
        second = pool.submit(inside, packets_of_its_own, count=70)
        assert (first.result(), second.result()) == (50, 70)


def test_a_fabric_outside_of_private_namespaces_is_refused() -> None:
    with pytest.raises(Problem, match="private"), leaf_spine(plain()):
        pass


def failing() -> None:
    """A command that fails inside a host."""
    with leaf_spine(plain()) as fabric:
        fabric.namespace("h1").run(["ip", "link", "set", "dev", "nosuch", "up"])


def test_an_error_inside_comes_out_in_words(inside: Callable[..., None]) -> None:
    with pytest.raises(AssertionError, match=r"h1: `ip link set dev nosuch up` failed .*nosuch"):
        inside(failing)


def test_a_start_that_fails_closes_its_lifeline_once(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Closed twice, a descriptor that something else has opened in between would go."""
    unraisable: list[object] = []
    monkeypatch.setattr(sys, "unraisablehook", unraisable.append)
    open_after = []
    for _ in range(2):  # the first also takes what earlier tests left
        with pytest.raises(FileNotFoundError):
            start_private("dlcp.substrates.emulate.capabilities:main", cwd=tmp_path / "nowhere")
        gc.collect()
        open_after.append(len(os.listdir("/proc/self/fd")))
    assert unraisable == []
    assert open_after[0] == open_after[1]

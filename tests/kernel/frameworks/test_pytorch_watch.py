"""Ranks that die, leave or give up: every other rank is told at once, and of the first cause."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from lost_rank import NOTICED_WITHIN_S, lose_rank, slowest_survivor_s
from torch_ranks import open_group, ranks, small_model
from waits import in_time

import dlcp.frameworks.pytorch as dlcp
from dlcp.frameworks.pytorch.failure.peer_failure import Alarm
from dlcp.frameworks.pytorch.servers.watched_worker import rank_names

WITHIN_S = 20.0
LOOPBACK = "127.0.0.1"


@pytest.mark.parametrize("victim", [0, 1])
@pytest.mark.parametrize(
    ("how", "text"),
    [
        ("killed", "is gone: its process ended without leaving the group"),
        ("exits", "is gone: its process ended without leaving the group"),
        ("leaves", "left the group after all_reduce 1"),
    ],
)
def test_a_rank_that_is_lost__is_named_by_all_others_within_a_second(victim: int, how: str, text: str) -> None:
    found = ranks(4, lose_rank, "dlcp", victim, how, dies=(victim,))
    for rank, result in enumerate(found):
        if rank != victim:
            after_s, error = result
            assert f"rank {victim} {text}" in error
            assert "all_reduce 2 (500000 × float32)" in error
            assert after_s < NOTICED_WITHIN_S


@pytest.mark.long
@pytest.mark.parametrize("how", ["killed", "leaves"])
def test_the_median_of_ten__is_within_a_second(how: str, record_property: Any) -> None:
    """tests/bench/rank_death.py measures the same, and gloo in turn."""
    slowest_s = [slowest_survivor_s("dlcp", how) for _ in range(10)]
    record_property("seconds", slowest_s)
    print(f"{how}: median {statistics.median(slowest_s):.3f} s, worst {max(slowest_s):.3f} s")
    assert statistics.median(slowest_s) < NOTICED_WITHIN_S


def _gives_up(store: Any, rank: int, size: int) -> Any:
    open_group(store, rank, size, timeout_s=60.0 if rank else 1.0)
    if rank == 1:
        store.wait(["over/0"])  # its engine answers, its program does not go on
        time.sleep(0.5)
    started_s = time.monotonic()
    with pytest.raises(RuntimeError) as caught:
        dist.all_reduce(torch.ones(50_000))
    store.set(f"over/{rank}", "")
    return str(caught.value), time.monotonic() - started_s


def test_a_rank_whose_time_is_over__tells_all_others_why() -> None:
    """Also the one that was too late: it does not blame those who have given up."""
    found = ranks(3, _gives_up)
    for rank, (text, after_s) in enumerate(found):
        assert "all_reduce 1 (50000 × float32) did not end within 1 s" in text
        assert rank == 0 or "rank 0 failed" in text
        assert after_s < 1.0 + NOTICED_WITHIN_S
    assert found[1][1] < NOTICED_WITHIN_S


OWN_STORE = """
import os, signal, sys, time
import torch
import torch.distributed as dist
import dlcp.frameworks.pytorch
rank = int(os.environ["RANK"])
dist.init_process_group("dlcp")
dist.all_reduce(torch.ones(1000))
if rank == 0:
    time.sleep(0.5)
    os.kill(os.getpid(), signal.SIGKILL)
try:
    dist.all_reduce(torch.ones(1000))
except RuntimeError as error:
    print(error, flush=True)
time.sleep(3)
dist.destroy_process_group()
"""


@pytest.mark.long
def test_rank_0_and_its_store_die__and_each_survivor_says_one_sentence(tmp_path: Path) -> None:
    script = tmp_path / "own_store.py"
    script.write_text(OWN_STORE)
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port = probe.getsockname()[1]
    common = {**os.environ, "WORLD_SIZE": "3", "MASTER_ADDR": LOOPBACK, "MASTER_PORT": str(port)}
    children = [
        subprocess.Popen(
            [sys.executable, script],
            env={**common, "RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(3)
    ]
    said = [child.communicate(timeout=60) for child in children]
    for out, err in said[1:]:
        assert out.count("rank 0 is gone") == 1
        assert "Exception raised from" not in err, "a C++ stack trace"
        assert len(err.splitlines()) <= 3, err


def _optimizer(store: Any, rank: int, size: int, how: str) -> Any:
    open_group(store, rank, size, "gloo")
    model = small_model()
    optimizer = dlcp.DlcpOptimizer(model, lambda params: torch.optim.SGD(params, lr=0.01))
    for step in range(100_000):
        if rank == 1 and step == 3:
            if how == "killed":
                os.kill(os.getpid(), signal.SIGKILL)
            optimizer.close()
            return ""
        try:
            model(torch.ones(4, 100)).sum().backward()
            optimizer.step()
        except RuntimeError as error:
            return str(error)
    return "no error"


@pytest.mark.parametrize(
    ("how", "text"), [("killed", "rank 1 is gone"), ("leaves", "rank 1 left the group after iteration 3")]
)
def test_parameter_servers__a_lost_rank_is_named_by_its_own_number(how: str, text: str) -> None:
    found = ranks(3, _optimizer, how, dies=(1,))
    for error in (found[0], found[2]):
        assert text in error
        assert not any(f"rank {number}" in error for number in range(3, 6))


@pytest.mark.parametrize(
    ("endpoint", "text"),
    [
        (2, "rank 2 is gone"),  # a worker: it has the number of its rank
        (3, "rank 1 (its parameter server) is gone"),
        (4, "rank 1 (its parameter server) is gone"),  # a rank may hold two
        (5, "rank 0 (its parameter server) is gone"),
    ],
)
def test_a_server_that_is_gone__is_named_by_the_rank_that_holds_it(endpoint: int, text: str) -> None:
    """Three ranks, three servers: endpoints 3 to 5 are servers, and no rank has such a number."""
    assert rank_names(3, [1, 1, 0])(f"rank {endpoint} is gone") == text


def alarms(size: int) -> list[Alarm]:
    found = [Alarm(rank, size, LOOPBACK) for rank in range(size)]
    for one in found:
        one.join(77, [other.place or ("", 0) for other in found])
    return found


def test_the_first_cause__is_the_one_that_all_hear() -> None:
    group = alarms(5)
    try:
        assert group[2].sound("the first") == "rank 2 failed: the first"
        assert in_time(lambda: all(one.heard() == "rank 2 failed: the first" for one in group))
        assert group[4].sound("a consequence") == "rank 2 failed: the first"
    finally:
        for one in group:
            one.close()


def test_who_leaves__is_missed_only_by_those_who_want_more_of_it() -> None:
    group = alarms(3)
    try:
        for one in group[1:]:
            one.wanted = lambda: 7
        group[0].leave(7)
        group[0].close()
        time.sleep(0.3)
        assert [one.heard() for one in group[1:]] == [None, None]
        group[2].wanted = lambda: 8
        assert group[2].heard() == "rank 0 left the group after all_reduce 7"
    finally:
        for one in group:
            one.close()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\n",
        b"nonsense\n",
        b"7\n",
        b"[" * 5000 + b"\n",
        b"x" * 200_000,
        b'{"cookie": 77}\n',
        b'{"cookie": 78, "rank": 1}\n',
        b'{"cookie": 77, "rank": 0}\n',
        b'{"rank": 1, "cause": "forged"}\n',
    ],
)
def test_a_stranger__is_not_listened_to_and_harms_nobody(line: bytes) -> None:
    group = alarms(2)
    try:
        assert group[0].place is not None
        with socket.create_connection(group[0].place) as stranger, contextlib.suppress(ConnectionError):
            stranger.sendall(line)
            stranger.sendall(b'{"rank": 1, "cause": "forged"}\n' if line.endswith(b"\n") else b"")
        time.sleep(0.1)
        assert group[0].heard() is None
        group[1].sound("still heard")
        assert in_time(lambda: group[0].heard() == "rank 1 failed: still heard")
    finally:
        for one in group:
            one.close()


def test_a_neighbour_s_connection_that_ends__is_warned_of_and_the_other_still_listened_to(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A rank of 1e999 is no number; the thread must outlive it."""
    group = alarms(2)
    try:
        assert group[0].place is not None
        with socket.create_connection(group[0].place) as neighbour, contextlib.suppress(ConnectionError):
            neighbour.sendall(b'{"cookie": 77, "rank": 1}\n{"rank": 1e999, "left": 1}\n')
            neighbour.settimeout(WITHIN_S)
            assert neighbour.recv(1) == b""
        assert in_time(lambda: "rank 0 lost its connection to rank 1, but nothing says" in caplog.text)
        group[1].sound("still heard")
        assert in_time(lambda: group[0].heard() == "rank 1 failed: still heard")
    finally:
        for one in group:
            one.close()


def _sockets() -> int:
    places = [f"/proc/self/fd/{fd}" for fd in os.listdir("/proc/self/fd")]
    return sum(os.readlink(place).startswith("socket:") for place in places if os.path.islink(place))


def test_a_forked_child__keeps_no_connection_open() -> None:
    """A DataLoader's worker outlives its rank for a while; the others must see the rank's end all the same."""
    before = _sockets()
    group = alarms(2)
    child = os.fork()
    if child == 0:
        os._exit(0 if _sockets() == before else 1)
    status = os.waitpid(child, 0)[1]
    assert _sockets() > before
    for one in group:
        one.close()
    assert os.waitstatus_to_exitcode(status) == 0
    assert _sockets() == before

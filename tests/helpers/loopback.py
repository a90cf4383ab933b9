"""Several ranks in one process, over real sockets on loopback: rank r has the address 127.0.N.(r + 1).

N is of this worker of pytest-xdist, as agents use one port at every address: tests of two workers must not meet.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from dlcp.model.transport.settings import TransportSettings
from dlcp.patterns import pattern_of
from dlcp.patterns.base import PlannedTerms, Traffic
from dlcp.transport.aggregation import transpose as all_to_all
from dlcp.transport.aggregation.ring import connects_to, neighbours
from dlcp.transport.contract.declarations import declare_all
from dlcp.transport.contract.endpoint import Completion, Endpoint
from dlcp.transport.contract.mailbox import Mailbox
from dlcp.transport.factory import open_endpoint

COOKIE = 0x0123_4567_89AB_CDEF
LINK_RATE_BPS = 1e9


def _congestion_control() -> str:
    """What the schemes use, where this user may choose it; else what this machine uses anyway."""
    wanted = TransportSettings(kind="tcp").tcp_congestion_control
    with socket.socket() as sock:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, wanted.encode())
        except OSError:  # EPERM: not root, and the machine's owner allows others only
            return sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).split(b"\0")[0].decode()
    return wanted


CONGESTION_CONTROL = _congestion_control()
TCP = TransportSettings(kind="tcp", tcp_congestion_control=CONGESTION_CONTROL)
DLCP = TransportSettings(kind="dlcp", must_arrive_largest=0.1)
"""A tenth of the packets of a bounded push must arrive."""


WORKER = 1 + int(os.environ.get("PYTEST_XDIST_WORKER", "gw-1").removeprefix("gw"))
"""0 of a process that is no worker; processes that a test starts inherit it."""


def address(rank: int) -> str:
    """Return the loopback address of a rank."""
    return f"127.0.{WORKER}.{rank + 1}"


def agree(endpoints: Iterable[Endpoint], pattern: str, traffic: Traffic) -> None:
    """Agree the tensors of a job at all ranks, as its pattern's plan says."""
    declarations = pattern_of(pattern).declarations(traffic)
    for endpoint in endpoints:
        declare_all(endpoint, declarations)


def mailboxes(endpoints: Sequence[Endpoint], pattern: str, traffic: Traffic) -> list[Mailbox]:
    """Agree the tensors of a job at all ranks; return the ranks' mailboxes."""
    agree(endpoints, pattern, traffic)
    terms = PlannedTerms(pattern_of(pattern), traffic)
    return [Mailbox(endpoint, terms) for endpoint in endpoints]


def take(endpoint: Endpoint, count: int, timeout_s: float = 10.0) -> list[Completion]:
    """Return so many completions; fails when they have not come in time."""
    completions: list[Completion] = []
    deadline_s = time.monotonic() + timeout_s
    while len(completions) < count:
        assert time.monotonic() < deadline_s, f"{len(completions)} of {count} completions in {timeout_s} s"
        completions += endpoint.wait(0.2)
    return completions


def free_port() -> int:
    """A port that no TCP and no UDP socket uses on any loopback address."""
    while True:
        with (
            socket.socket(socket.AF_INET, socket.SOCK_STREAM) as stream,
            socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as datagram,
        ):
            stream.bind(("0.0.0.0", 0))
            port = int(stream.getsockname()[1])
            try:
                datagram.bind(("0.0.0.0", port))
            except OSError:
                continue
            return port


@contextmanager
def ranks(settings: TransportSettings, workers: int, servers: int) -> Iterator[list[Endpoint]]:
    """Endpoints of all ranks, workers first, each worker connected with each server."""
    worker_ranks, server_ranks = range(workers), range(workers, workers + servers)
    meets = {rank: (tuple(server_ranks), tuple(server_ranks)) for rank in worker_ranks}
    meets |= {rank: (tuple(worker_ranks), ()) for rank in server_ranks}
    with meeting(settings, meets) as endpoints:
        yield endpoints


@contextmanager
def ring(settings: TransportSettings, size: int) -> Iterator[list[Endpoint]]:
    """Endpoints of all ranks, each connected with its two neighbours."""
    with meeting(settings, {rank: (neighbours(rank, size), connects_to(rank, size)) for rank in range(size)}) as found:
        yield found


@contextmanager
def transpose(settings: TransportSettings, size: int) -> Iterator[list[Endpoint]]:
    """Endpoints of all ranks, each connected with all others."""
    meets = {rank: (all_to_all.others(rank, size), all_to_all.connects_to(rank, size)) for rank in range(size)}
    with meeting(settings, meets) as found:
        yield found


@contextmanager
def meeting(
    settings: TransportSettings, meets: dict[int, tuple[tuple[int, ...], tuple[int, ...]]]
) -> Iterator[list[Endpoint]]:
    """Endpoints of all ranks. meets: rank → (its peers, those that it connects to)."""
    port = free_port()

    def open_rank(rank: int) -> Endpoint:
        peers, connects = meets[rank]
        return open_endpoint(
            rank,
            address(rank),
            port,
            {peer: (address(peer), port) for peer in peers},
            settings,
            job_cookie=COOKIE,
            connects_to=connects,
            link_rate_bps=LINK_RATE_BPS,
        )

    endpoints = together([lambda rank=rank: open_rank(rank) for rank in meets])
    try:
        yield endpoints
    finally:
        together([endpoint.close for endpoint in endpoints])


def together(calls: list[Callable[[], Any]], timeout_s: float = 30.0) -> list[Any]:
    """Run calls at the same time, each in a thread; their results in order. The first failure is raised."""
    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(call) for call in calls]
        return [future.result(timeout_s) for future in futures]

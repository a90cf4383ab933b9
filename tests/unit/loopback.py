"""Several ranks in one process, over real sockets on loopback: rank r has the address 127.0.0.(r + 1)."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from dlcp.model.workload import TransportSettings
from dlcp.transport.endpoint import Endpoint
from dlcp.transport.opening import open_endpoint

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


def address(rank: int) -> str:
    return f"127.0.0.{rank + 1}"


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
    port = free_port()
    worker_ranks, server_ranks = range(workers), range(workers, workers + servers)

    def open_rank(rank: int) -> Endpoint:
        peers = server_ranks if rank in worker_ranks else worker_ranks
        return open_endpoint(
            rank,
            address(rank),
            port,
            {peer: (address(peer), port) for peer in peers},
            settings,
            job_cookie=COOKIE,
            connects_to=tuple(server_ranks) if rank in worker_ranks else (),
            link_rate_bps=LINK_RATE_BPS,
        )

    endpoints = together([lambda rank=rank: open_rank(rank) for rank in (*worker_ranks, *server_ranks)])
    try:
        yield endpoints
    finally:
        together([endpoint.close for endpoint in endpoints])


def together(calls: list[Callable[[], Any]], timeout_s: float = 30.0) -> list[Any]:
    """Run calls at the same time, each in a thread; their results in order. The first failure is raised."""
    with ThreadPoolExecutor(len(calls)) as pool:
        futures = [pool.submit(call) for call in calls]
        return [future.result(timeout_s) for future in futures]

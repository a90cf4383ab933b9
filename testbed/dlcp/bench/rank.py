"""One rank of an all-reduce bench: a process in which DLCP and gloo reduce the same data in turn."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import numpy as np
import torch
import torch.distributed as dist
from torch._C._distributed_c10d import TCPStore

from dlcp.bench.channel import Channel
from dlcp.bench.child import serve_child
from dlcp.model.workload import TransportSettings
from dlcp.transport.endpoint import Bound, TransportError
from dlcp.transport.engine import DlcpEndpoint
from dlcp.transport.ring import RingAllReduce, neighbours, segment_cuts

_LIMIT_S = 120.0
_TOLERANCE = 1e-5
"""Of a sum of a few float32, added in another order."""


class Rank:
    """Commands of the coordinator (allreduce.py): methods that take and return JSON data."""

    def __init__(self, channel: Channel) -> None:
        self._endpoint: DlcpEndpoint | None = None
        self._iteration = 0
        torch.set_num_threads(1)  # threads of the arithmetic would fight those that move packets

    def commands(self) -> dict[str, Callable[..., dict[str, Any]]]:
        """What may be asked for."""
        return {name: getattr(self, name) for name in ("close", "open", "store", "join", "run")}

    def open(
        self, *, rank: int, size: int, address: str, elements: int, bound: float, rate_bps: float, cookie: int,
        seed: int, settings: dict[str, Any],
    ) -> dict[str, Any]:  # fmt: skip
        """This rank's data, and its DLCP endpoint."""
        self._rank, self._size, self._address = rank, size, address
        parsed = TransportSettings.model_validate(settings)
        self._endpoint = DlcpEndpoint(rank, address, 0, {}, parsed, job_cookie=cookie, link_rate_bps=rate_bps)
        self._ring = RingAllReduce(self._endpoint, rank, size, bound=Bound(bound))
        self._cuts = segment_cuts(elements, size)
        for tensor, (start, stop) in enumerate(zip(self._cuts, self._cuts[1:], strict=False)):
            self._ring.declare(tensor, stop - start)
        self._own = values(seed, rank, elements)
        self._expected = sum((values(seed, one, elements) for one in range(1, size)), values(seed, 0, elements))
        self._buffer = np.empty(elements, np.float32)
        return {"port": self._endpoint.port}

    def store(self) -> dict[str, Any]:
        """Rank 0 holds the store through which gloo's ranks find each other."""
        self._store = TCPStore(self._address, 0, self._size, is_master=True, wait_for_workers=False)
        return {"port": self._store.port}

    def join(self, *, host: str, port: int, interface: str, peers: dict[str, tuple[str, int]]) -> dict[str, Any]:
        """Find the others."""
        assert self._endpoint is not None
        os.environ["GLOO_SOCKET_IFNAME"] = interface
        if self._rank:
            self._store = TCPStore(host, port, self._size, is_master=False)
        limit = timedelta(seconds=_LIMIT_S)
        dist.init_process_group("gloo", store=self._store, rank=self._rank, world_size=self._size, timeout=limit)
        for other in neighbours(self._rank, self._size):
            address, at = peers[str(other)]
            self._endpoint.add_peer(other, address, at)
        return {}

    def run(self, *, backend: str, count: int, check: bool) -> dict[str, Any]:
        """Reduce `count` times; check: count what of the sum is wrong. Tells when each began and was over."""
        assert self._endpoint is not None
        reduce = self._dlcp if backend == "dlcp" else self._gloo
        begins: list[float] = []
        ends: list[float] = []
        lost_bytes, copying_s = 0, 0.0
        dist.barrier()
        usage, before = resource.getrusage(resource.RUSAGE_SELF), self._endpoint.statistics()
        for _ in range(count):
            copied_s = time.thread_time()
            self._buffer[:] = self._own  # in place it would grow beyond all numbers
            copying_s += time.thread_time() - copied_s
            begins.append(time.monotonic())
            lost_bytes += reduce()
            ends.append(time.monotonic())
        after, used = self._endpoint.statistics(), resource.getrusage(resource.RUSAGE_SELF)
        return {
            "wrong_bytes": self._wrong_bytes() if check else 0,
            "begins_s": begins,
            "ends_s": ends,
            "cpu_s": used.ru_utime + used.ru_stime - usage.ru_utime - usage.ru_stime - copying_s,
            "lost_bytes": lost_bytes,
            "counters": {name: after[name] - before[name] for name, value in after.items() if isinstance(value, int)},
        }

    def close(self) -> dict[str, Any]:
        """Free what is open."""
        if self._endpoint is not None:
            self._endpoint.close()
            self._endpoint = None
            if dist.is_initialized():
                dist.destroy_process_group()
        return {}

    def _gloo(self) -> int:
        dist.all_reduce(torch.from_numpy(self._buffer))
        return 0

    def _dlcp(self) -> int:
        """All segments at once; returns the bytes that never came."""
        deadline_s = time.monotonic() + _LIMIT_S
        for tensor, (start, stop) in enumerate(zip(self._cuts, self._cuts[1:], strict=False)):
            self._ring.start(tensor, self._iteration, self._buffer[start:stop])
        self._iteration += 1
        left, lost = len(self._cuts) - 1, 0
        while left:
            found = self._ring.wait(max(0.0, deadline_s - time.monotonic()))
            if not found:
                raise TransportError(f"rank {self._rank}: not over in {_LIMIT_S:.0f} s: {self._ring.missing()[:3]}")
            left -= len(found)
            lost += sum(one.lost_bytes for one in found)
        return lost

    def _wrong_bytes(self) -> int:
        """Of the sum, whatever the reason."""
        differs = ~np.isclose(self._buffer, self._expected, rtol=_TOLERANCE, atol=_TOLERANCE)
        return int(np.count_nonzero(differs)) * self._buffer.itemsize


def values(seed: int, rank: int, elements: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """A rank's gradients, the same wherever they are made."""
    return np.random.default_rng((seed, rank)).standard_normal(elements, np.float32)


if __name__ == "__main__":
    serve_child(lambda channel: Rank(channel).commands())

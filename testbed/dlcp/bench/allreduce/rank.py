"""One rank of an all-reduce bench: a process in which the backends dlcp and gloo reduce the same data in turn."""

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

from dlcp.bench.child import serve_child
from dlcp.frameworks.pytorch import DlcpOptions, statistics

_LIMIT_S = 120.0
_TOLERANCE = 1e-5
"""Of a sum of a few float32, added in another order."""


class Rank:
    """Commands of the coordinator (benchmark.py): methods that take and return JSON data."""

    def __init__(self) -> None:
        self._groups: dict[str, dist.ProcessGroup | None] = {}
        torch.set_num_threads(1)  # threads of the arithmetic would fight those that move packets

    def commands(self) -> dict[str, Callable[..., dict[str, Any]]]:
        """What may be asked for."""
        return {name: getattr(self, name) for name in ("close", "open", "store", "join", "run")}

    def open(self, *, rank: int, size: int, address: str, elements: int, seed: int) -> dict[str, Any]:
        """This rank's data, and the sum that all should get."""
        self._rank, self._size, self._address = rank, size, address
        self._own = values(seed, rank, elements)
        self._expected = sum((values(seed, one, elements) for one in range(1, size)), values(seed, 0, elements))
        self._buffer = np.empty(elements, np.float32)
        return {}

    def store(self) -> dict[str, Any]:
        """Rank 0 holds the store through which the ranks find each other."""
        self._store = TCPStore(self._address, 0, self._size, is_master=True, wait_for_workers=False)
        return {"port": self._store.port}

    def join(self, *, host: str, port: int, interface: str, options: dict[str, Any]) -> dict[str, Any]:
        """Meet the others: a group of gloo, and one of dlcp with these DlcpOptions."""
        os.environ["GLOO_SOCKET_IFNAME"] = interface
        if self._rank:
            self._store = TCPStore(host, port, self._size, is_master=False)
        limit = timedelta(seconds=_LIMIT_S)
        dist.init_process_group("gloo", store=self._store, rank=self._rank, world_size=self._size, timeout=limit)
        chosen = DlcpOptions(address=self._address, strict=True, **options)
        ours: Any = dist.new_group(backend="dlcp", timeout=limit, pg_options=chosen)
        self._groups = {"gloo": None, "dlcp": ours}
        return {}

    def run(self, *, backend: str, count: int, check: bool) -> dict[str, Any]:
        """Reduce `count` times; check: count what of the sum is wrong. Tells when each began and was over."""
        group, tensor = self._groups[backend], torch.from_numpy(self._buffer)
        begins: list[float] = []
        ends: list[float] = []
        between_s = 0.0
        usage, before = resource.getrusage(resource.RUSAGE_SELF), self._carried()
        for _ in range(count):
            idle = resource.getrusage(resource.RUSAGE_SELF)
            self._buffer[:] = self._own  # in place it would grow beyond all numbers
            dist.barrier()  # over gloo: ranks begin together
            between_s += _cpu_s(resource.getrusage(resource.RUSAGE_SELF)) - _cpu_s(idle)
            begins.append(time.monotonic())
            dist.all_reduce(tensor, group=group)
            ends.append(time.monotonic())
        after, used = self._carried(), resource.getrusage(resource.RUSAGE_SELF)
        return {
            "wrong_bytes": self._wrong_bytes() if check else 0,
            "begins_s": begins,
            "ends_s": ends,
            "cpu_s": _cpu_s(used) - _cpu_s(usage) - between_s,
            "counters": {name: value - before[name] for name, value in after.items()},
        }

    def close(self) -> dict[str, Any]:
        """Leave the groups."""
        if self._groups:
            self._groups = {}
            dist.destroy_process_group()
        return {}

    def _carried(self) -> dict[str, int]:
        """What the dlcp group has carried so far, and its engine's counters."""
        found = statistics(self._groups["dlcp"])
        (engine,) = found.engine.values()
        counters = {name: value for name, value in engine.items() if isinstance(value, int)}
        return counters | {
            "lost_bytes": found.lost_bytes,
            "dlcp_calls": sum(one.calls for one in found.dlcp.values()),
            "gloo_calls": sum(one.calls for one in found.gloo.values()),
        }

    def _wrong_bytes(self) -> int:
        """Of the sum, whatever the reason."""
        differs = ~np.isclose(self._buffer, self._expected, rtol=_TOLERANCE, atol=_TOLERANCE)
        return int(np.count_nonzero(differs)) * self._buffer.itemsize


def _cpu_s(usage: resource.struct_rusage) -> float:
    return usage.ru_utime + usage.ru_stime


def values(seed: int, rank: int, elements: int) -> np.ndarray[Any, np.dtype[np.float32]]:
    """A rank's gradients, the same wherever they are made."""
    return np.random.default_rng((seed, rank)).standard_normal(elements, np.float32)


if __name__ == "__main__":
    serve_child(lambda _: Rank().commands())

"""A rank of a group is killed, exits or leaves: when the others are told, and in which words."""

from __future__ import annotations

import os
import signal
import time
from typing import Any

import torch
import torch.distributed as dist
from torch_ranks import open_group, ranks

NOTICED_WITHIN_S = 1.0
RANKS = 3
VICTIM = 1


def lose_rank(store: Any, rank: int, size: int, backend: str, victim: int, how: str) -> tuple[float, str] | None:
    """Work of one rank: seconds from the victim's end to this rank's error, and its text; None at the victim.

    The others wait in an all-reduce for the victim when it is killed, exits or leaves. Raises AssertionError when that
    all-reduce ends without an error.
    """
    open_group(store, rank, size, backend)
    dist.all_reduce(torch.ones(50_000))
    if rank == victim:
        time.sleep(0.2)  # the others wait for it
        store.set("gone_at", str(time.monotonic()))  # one clock for all processes of a machine
        if how == "killed":
            os.kill(os.getpid(), signal.SIGKILL)
        if how == "exits":
            os._exit(0)
        dist.destroy_process_group()
        return None
    try:
        dist.all_reduce(torch.ones(500_000))
    except RuntimeError as error:
        return time.monotonic() - float(store.get("gone_at")), str(error)
    raise AssertionError(f"rank {rank}: an all-reduce ended without rank {victim}")


def slowest_survivor_s(backend: str, how: str) -> float:
    """Seconds until the last of the other ranks has an error. The ranks are started for this."""
    results = ranks(RANKS, lose_rank, backend, VICTIM, how, dies=(VICTIM,))
    return max(result[0] for result in results if result)

"""Callbacks of an all-reduce's future: they may wait for other collectives, be slow, or hang."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch_ranks import open_group, ranks
from waits import wait_until

from dlcp.frameworks.pytorch.future_callbacks import IDLE_THREADS, CallbackThreads

WITHIN_S = 20.0


def _nested(store: Any, rank: int, size: int) -> Any:
    """Callbacks that are all held up at once, each by the future of another all-reduce. The last rank has none, and
    comes last: a callback that is added to a future that is over runs where it is added."""
    open_group(store, rank, size)
    held = 3 * IDLE_THREADS
    if rank == size - 1:
        store.wait([f"callbacks of {other}" for other in range(rank)])
        first = [dist.all_reduce(torch.ones(1), async_op=True) for _ in range(held)]
        return [_again(work.get_future()) for work in first if work.wait()]
    futures = [dist.all_reduce(torch.ones(1), async_op=True).get_future().then(_again) for _ in range(held)]
    store.set(f"callbacks of {rank}", "")
    return [future.wait() for future in futures]


def _again(future: Any) -> Any:
    return dist.all_reduce(future.value()[0], async_op=True).get_future().wait()[0].item()


@pytest.mark.parametrize("size", [2, 3])
def test_callbacks_that_wait_for_another_collective__all_end(size: int) -> None:
    assert ranks(size, _nested) == [[float(size**2)] * 3 * IDLE_THREADS] * size


def _slow(store: Any, rank: int, size: int) -> Any:
    open_group(store, rank, size)
    release, is_held = threading.Event(), threading.Event()

    def hold(_: Any) -> None:
        is_held.set()
        release.wait(WITHIN_S)

    if rank == 0:
        held = dist.all_reduce(torch.ones(10), async_op=True).get_future().then(hold)
        store.set("callback", "")
        assert is_held.wait(WITHIN_S)
    else:  # comes last, see _nested
        store.wait(["callback"])
        held = dist.all_reduce(torch.ones(10), async_op=True).get_future()
    work = dist.all_reduce(torch.ones(10), async_op=True)
    value = work.get_future().then(lambda future: future.value()[0][0].item()).wait()
    was_held = not held.done()
    release.set()
    held.wait()
    return value, was_held if rank == 0 else None


def test_a_slow_callback__delays_no_other_all_reduce_and_no_other_callback() -> None:
    assert ranks(2, _slow) == [(2.0, True), (2.0, None)]


def _hangs(store: Any, rank: int, size: int) -> Any:
    open_group(store, rank, size, timeout_s=2.0)
    release = threading.Event()
    dist.all_reduce(torch.ones(10), async_op=True).get_future().then(lambda _: release.wait(WITHIN_S))
    text = ""
    if rank == 0:
        with pytest.raises(RuntimeError) as caught:
            dist.all_reduce(torch.ones(10))  # rank 1 does not
        text = str(caught.value)
        store.set("over", "")
    store.wait(["over"])
    release.set()
    return text


def test_a_callback_that_hangs__does_not_keep_the_groups_timeout_from_ending_others() -> None:
    assert "did not end within 2 s" in ranks(2, _hangs)[0]


def test_callback_threads__do_every_job_and_end() -> None:
    before = threading.active_count()
    threads = CallbackThreads("test")
    done, together = [], threading.Barrier(2 * IDLE_THREADS)
    for number in range(2 * IDLE_THREADS):
        threads.run(lambda number=number: (together.wait(WITHIN_S), done.append(number)))  # type: ignore[misc]
    wait_until(lambda: threading.active_count() <= before + IDLE_THREADS, "threads that are idle have ended", WITHIN_S)
    threads.run(lambda: done.append(-1))
    threads.close(WITHIN_S)
    assert sorted(done) == [-1, *range(2 * IDLE_THREADS)]
    assert threading.active_count() == before

"""Conformance: every collective of torch.distributed, on every kind of tensor, group and thread."""

from __future__ import annotations

import threading
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed._functional_collectives as functional
from conformance import case

DTYPES = [torch.float32, torch.float64, torch.float16, torch.bfloat16, torch.int8, torch.uint8, torch.int32]
DTYPES += [torch.int64, torch.complex64, torch.complex128]
SUM, MAX, MIN, PRODUCT = dist.ReduceOp.SUM, dist.ReduceOp.MAX, dist.ReduceOp.MIN, dist.ReduceOp.PRODUCT


def reduced(tensor: torch.Tensor, **named: Any) -> torch.Tensor:
    """A tensor after an all-reduce."""
    dist.all_reduce(tensor, **named)
    return tensor


@case
def all_reduce_dtypes(rank: int, size: int) -> Any:
    return [reduced(torch.arange(700).remainder(5).add(rank).to(dtype)) for dtype in DTYPES]


@case
def all_reduce_bool(rank: int, size: int) -> Any:
    return [reduced(torch.tensor([rank == 0, False, True]), op=op) for op in (SUM, MAX, MIN)]


@case
def all_reduce_operations(rank: int, size: int) -> Any:
    floats = [reduced(torch.arange(5.0) + rank, op=op) for op in (SUM, MAX, MIN, PRODUCT, dist.ReduceOp.AVG)]
    whole = [torch.arange(5) + rank for _ in range(3)]
    bits = [dist.ReduceOp.BAND, dist.ReduceOp.BOR, dist.ReduceOp.BXOR]
    return floats, [reduced(tensor, op=op) for tensor, op in zip(whole, bits, strict=True)]


@case
def all_reduce_refuses(rank: int, size: int) -> Any:
    refused = []
    for tensor in (torch.ones(2, dtype=torch.uint16), torch.ones(2, dtype=torch.float8_e4m3fn)):
        try:
            dist.all_reduce(tensor)
        except RuntimeError:
            refused.append(str(tensor.dtype))
    return refused


@case
def all_reduce_shapes(rank: int, size: int) -> Any:
    last = (torch.arange(48.0).reshape(1, 3, 4, 4) + rank).to(memory_format=torch.channels_last)
    kept = last.is_contiguous(memory_format=torch.channels_last)
    matrix = (torch.arange(12.0).reshape(3, 4) + rank).t()
    whole = torch.zeros(6, 6)
    reduced(whole[2:4].fill_(rank))
    return (
        [reduced(torch.tensor(1.5 + rank)), reduced(torch.empty(0)), reduced(torch.empty(3, 0, 2)), reduced(matrix)],
        [reduced(last), kept, last.is_contiguous(memory_format=torch.channels_last), whole],
        [reduced(torch.ones(2, 3, requires_grad=True)), reduced(torch.nn.Parameter(torch.ones(4)))],
    )


@case
def all_reduce_expanded(rank: int, size: int) -> Any:
    """gloo writes beyond the memory of such a tensor, so it is given a copy."""
    one, row = torch.tensor([1.0 + rank]), torch.arange(3.0) + rank
    column = torch.arange(2.0).unsqueeze(1) + rank
    expanded = [one.expand(4), row.expand(2, 3), column.expand(2, 5)]
    if dist.get_backend() == "gloo":
        return [reduced(tensor.clone()) for tensor in expanded] + [reduced(tensor) for tensor in (one, row, column)]
    return [reduced(tensor) for tensor in expanded] + [one, row, column]


@case
def all_reduce_strided(rank: int, size: int) -> Any:
    """gloo reduces the memory from the first element on instead, so for it the sums are computed."""
    base = torch.arange(8.0) + rank
    if dist.get_backend() == "gloo":
        total = torch.arange(8.0) * size + sum(range(size))
        return torch.where(torch.arange(8) % 2 == 0, total, base)
    reduced(base[::2])
    return base


@case
def all_reduce_sparse(rank: int, size: int) -> Any:
    return reduced(torch.sparse_coo_tensor([[0, rank]], [1.0, 2.0], (5,))).coalesce()


@case
def all_reduce_large(rank: int, size: int) -> Any:
    return reduced(torch.arange(300_000.0).remainder(7) + rank)[::1000]


@case
def all_reduce_coalesced(rank: int, size: int) -> Any:
    tensors = [torch.ones(3) * rank, torch.ones(2, 2) + rank]
    dist.all_reduce_coalesced(tensors)
    with dist._coalescing_manager():  # type: ignore[no-untyped-call]
        for tensor in tensors:
            dist.all_reduce(tensor)
    return tensors


@case
def asynchronous_in_any_order(rank: int, size: int) -> Any:
    tensors = [torch.full((1000 * (i % 3 + 1),), float(i + rank)) for i in range(12)]
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    order = list(range(12))[:: -1 if rank % 2 else 1]
    for i in order:
        works[i].wait()
    values = [work.get_future().value()[0][0].item() for work in works]
    return values, [tensor[-1] for tensor in tensors], [(work.is_completed(), work.exception()) for work in works]


@case
def futures_that_wait_for_other_collectives(rank: int, size: int) -> Any:
    """More of them than a small pool has threads; each holds its thread until another all-reduce is over."""

    def again(future: Any) -> torch.Tensor:
        work = dist.all_reduce(future.value()[0], async_op=True, group=dist.group.WORLD)
        return torch.as_tensor(work.get_future().wait()[0])

    first = dist.all_reduce(torch.ones(4), async_op=True).get_future().then(again).wait()
    chain = dist.all_reduce(torch.ones(4), async_op=True).get_future()
    for _ in range(3):
        chain = chain.then(lambda future: [again(future)])
    return first, chain.wait()


@case
def sub_groups(rank: int, size: int) -> Any:
    groups = [dist.new_group([one]) for one in range(size)] + [dist.new_group([0, size - 1]), dist.new_group()]
    found = []
    for group in groups:
        if dist.get_rank(group) >= 0:
            found.append(reduced(torch.full((100,), 1.0 + rank), group=group)[0])
            dist.barrier(group=group)
    for group in groups:
        if dist.get_rank(group) >= 0:
            dist.destroy_process_group(group)
    return found


@case
def groups_have_names(rank: int, size: int) -> Any:
    group = dist.new_group(group_desc="a description")
    assert dist.group.WORLD is not None
    names = [dist.group.WORLD.group_name, group.group_name]  # type: ignore[attr-defined]
    resolved = dist.distributed_c10d._resolve_process_group(group.group_name) is group  # type: ignore[attr-defined]
    description = group.group_desc  # type: ignore[attr-defined]
    dist.barrier(group=group)  # gloo's connections of slower ranks are not all there yet
    dist.destroy_process_group(group)
    return len(set(names)), resolved, description, dist.group.WORLD.group_desc  # type: ignore[attr-defined]


@case
def groups_of_threads(rank: int, size: int) -> Any:
    groups = [dist.new_group() for _ in range(3)]
    found: list[list[float]] = [[] for _ in groups]

    def work(number: int) -> None:
        for step in range(5):
            found[number].append(
                reduced(torch.full((500,), float(number + step + rank)), group=groups[number])[0].item()
            )

    threads = [threading.Thread(target=work, args=(number,)) for number in range(len(groups))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for group in groups:
        dist.destroy_process_group(group)
    return found


@case
def objects(rank: int, size: int) -> Any:
    everyone: list[Any] = [None] * size
    dist.all_gather_object(everyone, {"rank": rank})
    shared = ["from 0", rank] if rank == 0 else [None, None]
    dist.broadcast_object_list(shared, 0)
    gathered: list[Any] | None = [None] * size if rank == 0 else None
    dist.gather_object((rank,), gathered, 0)
    scattered: list[Any] = [None]
    dist.scatter_object_list(scattered, [f"to {one}" for one in range(size)] if rank == 0 else None, 0)
    return everyone, shared, gathered, scattered


@case
def point_to_point(rank: int, size: int) -> Any:
    right, left = (rank + 1) % size, (rank - 1) % size
    mine, got, early = torch.full((4,), float(rank)), torch.empty(4), torch.empty(1)
    works = [dist.isend(mine, right), dist.irecv(got, left)]
    for work in works:
        assert work is not None
        work.wait()
    batch = [dist.P2POp(dist.isend, mine, left, tag=7), dist.P2POp(dist.irecv, early.expand(4).clone(), right, tag=7)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    anyone = torch.empty(1)
    if rank == 0:
        senders = sorted(dist.recv(anyone) for _ in range(size - 1))
        return got, batch[1].tensor, senders
    dist.send(torch.ones(1), 0)
    return got, batch[1].tensor


@case
def broadcast_reduce_barrier(rank: int, size: int) -> Any:
    given, total = torch.arange(6.0) + rank, torch.arange(3.0) + rank
    dist.broadcast(given, size - 1)
    dist.reduce(total, 0)
    dist.barrier()
    return given, total if rank == 0 else None  # elsewhere it is undefined


@case
def gather_scatter(rank: int, size: int) -> Any:
    mine = torch.full((3,), float(rank))
    everyone = [torch.empty(3) for _ in range(size)]
    dist.all_gather(everyone, mine)
    together = torch.empty(3 * size)
    dist.all_gather_into_tensor(together, mine)
    at_last = [torch.empty(3) for _ in range(size)] if rank == size - 1 else None
    dist.gather(mine, at_last, dst=size - 1)
    part = torch.empty(2)
    dist.scatter(part, [torch.full((2,), float(one)) for one in range(size)] if rank == 0 else None, src=0)
    return everyone, together, at_last, part


@case
def all_to_all(rank: int, size: int) -> Any:
    out, uneven = torch.empty(size), torch.empty(sum(one + 1 for one in range(size)))
    dist.all_to_all_single(out, torch.arange(float(size)) + 10 * rank)
    sent = torch.full((size * (rank + 1),), float(rank))
    dist.all_to_all_single(uneven, sent, [one + 1 for one in range(size)], [rank + 1] * size)
    return out, uneven


@case
def reduce_scatter(rank: int, size: int) -> Any:
    one, part = torch.empty(2), torch.empty(2)
    dist.reduce_scatter(one, [torch.full((2,), float(i + rank)) for i in range(size)])
    dist.reduce_scatter_tensor(part, torch.arange(2.0 * size) + rank)
    return one, part


@case
def functional_collectives(rank: int, size: int) -> Any:
    group = dist.group.WORLD
    assert group is not None
    mine = torch.arange(4.0 * size) + rank
    return (
        functional.all_reduce(mine, "sum", group) + 0,
        functional.all_gather_tensor(mine, 0, group) + 0,
        functional.reduce_scatter_tensor(mine, "sum", 0, group) + 0,
    )

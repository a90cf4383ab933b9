"""Conformance: data-parallel training as torch offers it, with every option and communication hook."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from conformance import case
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, post_localSGD_hook, powerSGD_hook
from torch.distributed.algorithms.join import Join
from torch.distributed.algorithms.model_averaging.averagers import PeriodicModelAverager
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

STEPS = 4


def model() -> nn.Sequential:
    """The same at every rank."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 32), nn.ReLU(), nn.BatchNorm1d(32), nn.Linear(32, 8))


def inputs(step: int, rank: int) -> torch.Tensor:
    """A batch of one rank."""
    return torch.randn(6, 20, generator=torch.Generator().manual_seed(100 * step + rank))


def train(ddp: nn.Module, rank: int, *, steps: int = STEPS, optimizer: Any = None) -> list[Any]:
    """Losses, and the parameters at the end."""
    optimizer = optimizer or torch.optim.SGD(ddp.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = ddp(inputs(step, rank)).pow(2).mean()
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return [losses, list(ddp.parameters())]


@case
def ddp_plain(rank: int, size: int) -> Any:
    return train(DistributedDataParallel(model(), bucket_cap_mb=0.001), rank)


@case
def ddp_static_graph_and_bucket_views(rank: int, size: int) -> Any:
    return (
        train(DistributedDataParallel(model(), static_graph=True), rank),
        train(DistributedDataParallel(model(), gradient_as_bucket_view=True, bucket_cap_mb=0.001), rank),
    )


@case
def ddp_no_sync(rank: int, size: int) -> Any:
    ddp = DistributedDataParallel(model())
    with ddp.no_sync():
        ddp(inputs(0, rank)).sum().backward()
    ddp(inputs(1, rank)).sum().backward()
    return [parameter.grad for parameter in ddp.parameters()]


class _Branches(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.first, self.second = nn.Linear(20, 8), nn.Linear(20, 8)

    def forward(self, x: torch.Tensor, second: bool) -> Any:
        return (self.second if second else self.first)(x)


@case
def ddp_find_unused(rank: int, size: int) -> Any:
    ddp = DistributedDataParallel(_Branches(), find_unused_parameters=True)
    for step in range(3):
        ddp(inputs(step, rank), step % 2 == 0).sum().backward()
    return [parameter.grad for parameter in ddp.parameters()]


@case
def ddp_join(rank: int, size: int) -> Any:
    ddp = DistributedDataParallel(nn.Sequential(nn.Linear(20, 4)))
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    with torch.no_grad():
        for parameter in ddp.parameters():
            parameter.fill_(0.1)
    with Join([ddp]):
        for step in range(2 + rank):
            optimizer.zero_grad()
            ddp(inputs(step, rank)).sum().backward()
            optimizer.step()
    return list(ddp.parameters())


@case
def ddp_mixed_precision(rank: int, size: int) -> Any:
    ddp = DistributedDataParallel(nn.Linear(20, 8, dtype=torch.bfloat16))
    with torch.no_grad():
        for parameter in ddp.parameters():
            parameter.fill_(0.5)
    ddp(torch.full((2, 20), float(rank), dtype=torch.bfloat16)).sum().backward()
    return [parameter.grad for parameter in ddp.parameters()]


@case
def sync_batch_norm(rank: int, size: int) -> Any:
    """torch has it for GPUs only; on a CPU it must say so and not hang."""
    try:
        nn.SyncBatchNorm.convert_sync_batchnorm(model())(inputs(0, rank))
    except (ValueError, RuntimeError) as error:
        return type(error).__name__
    return "ran"


def hooked(rank: int, state: object, hook: Callable[..., Any], *, steps: int = STEPS) -> list[Any]:
    """Training with a communication hook."""
    ddp = DistributedDataParallel(model())
    ddp.register_comm_hook(state, hook)
    return train(ddp, rank, steps=steps)


@case
def hook_of_half_precision(rank: int, size: int) -> Any:
    return hooked(rank, None, default_hooks.fp16_compress_hook)


@case
def hook_all_reduce(rank: int, size: int) -> Any:
    return hooked(rank, dist.group.WORLD, default_hooks.allreduce_hook)


@case
def hook_power_sgd(rank: int, size: int) -> Any:
    """Its futures wait for all-reduces of their own. With matrices of rank 1 it is chaotic, so few steps."""
    state = powerSGD_hook.PowerSGDState(dist.group.WORLD, matrix_approximation_rank=1, start_powerSGD_iter=2)
    return hooked(rank, state, powerSGD_hook.powerSGD_hook)


@case
def hook_post_local_sgd(rank: int, size: int) -> Any:
    alone = [dist.new_group([one]) for one in range(size)]
    state = post_localSGD_hook.PostLocalSGDState(dist.group.WORLD, alone[rank], start_localSGD_iter=2)
    ddp = DistributedDataParallel(model())
    ddp.register_comm_hook(state, post_localSGD_hook.post_localSGD_hook)
    averager = PeriodicModelAverager(period=2, warmup_steps=1)
    optimizer = torch.optim.SGD(ddp.parameters(), lr=0.05)
    for step in range(STEPS):
        optimizer.zero_grad()
        ddp(inputs(step, rank)).pow(2).mean().backward()
        optimizer.step()
        averager.average_parameters(ddp.parameters())  # type: ignore[no-untyped-call]
    for group in alone[rank : rank + 1]:
        dist.destroy_process_group(group)
    return list(ddp.parameters())


@case
def zero_redundancy(rank: int, size: int) -> Any:
    ddp = DistributedDataParallel(model())
    optimizer = ZeroRedundancyOptimizer(ddp.parameters(), torch.optim.Adam, lr=0.01)
    return train(ddp, rank, optimizer=optimizer)


class _Rows(torch.utils.data.Dataset[torch.Tensor]):
    def __init__(self, rank: int) -> None:
        self.rank = rank

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> torch.Tensor:
        return inputs(index, self.rank)


@case
def data_loader_workers(rank: int, size: int) -> Any:
    """They are forked from a process whose groups have threads and sockets."""
    ddp = DistributedDataParallel(nn.Sequential(nn.Linear(20, 4)))
    with torch.no_grad():
        for parameter in ddp.parameters():
            parameter.fill_(0.1)
    sums = []
    for batch in torch.utils.data.DataLoader(_Rows(rank), num_workers=1, multiprocessing_context="fork"):
        ddp(batch[0]).sum().backward()
        sums.append(batch.sum().item())
    return sums, [parameter.grad for parameter in ddp.parameters()]

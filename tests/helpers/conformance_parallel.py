"""Conformance: sharded models, distributed tensors, pipelines and torch.compile."""

from __future__ import annotations

from typing import Any

import torch
import torch.distributed as dist
from conformance import case
from conformance_training import inputs, model, train
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FullyShardedDataParallel, fully_shard
from torch.distributed.pipelining import PipelineStage, ScheduleGPipe
from torch.distributed.tensor import DTensor, Partial, Replicate, Shard, distribute_tensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module
from torch.nn.parallel import DistributedDataParallel


def linear_model() -> nn.Sequential:
    """The same at every rank; its sizes divide by 2 and 3."""
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(20, 12), nn.ReLU(), nn.Linear(12, 6))


def whole(parameters: Any) -> list[torch.Tensor]:
    """Parameters, put together from all ranks."""
    return [one.full_tensor() if isinstance(one, DTensor) else one.detach().clone() for one in parameters]


@case
def fsdp1(rank: int, size: int) -> Any:
    sharded = FullyShardedDataParallel(linear_model(), device_id=torch.device("cpu"))
    losses, _ = train(sharded, rank)
    with FullyShardedDataParallel.summon_full_params(sharded):
        return losses, whole(sharded.parameters())


@case
def fsdp2(rank: int, size: int) -> Any:
    sharded = linear_model()
    mesh = init_device_mesh("cpu", (size,))
    for layer in (sharded[0], sharded[2]):
        fully_shard(layer, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    losses, _ = train(sharded, rank)
    return losses, whole(sharded.parameters())


@case
def hsdp(rank: int, size: int) -> Any:
    sharded = linear_model()
    fully_shard(sharded, mesh=init_device_mesh("cpu", (size, 1), mesh_dim_names=("replicate", "shard")))
    losses, _ = train(sharded, rank)
    return losses, whole(sharded.parameters())


@case
def device_mesh(rank: int, size: int) -> Any:
    mesh = init_device_mesh("cpu", (1, size), mesh_dim_names=("outer", "inner"))
    total = torch.ones(3) * rank
    dist.all_reduce(total, group=mesh.get_group("inner"))
    return total, mesh.get_coordinate(), mesh["inner"].size(), mesh.get_local_rank("inner")


@case
def distributed_tensors(rank: int, size: int) -> Any:
    mesh = init_device_mesh("cpu", (size,))
    values = torch.arange(36.0).reshape(6, 6)
    sharded = distribute_tensor(values, mesh, [Shard(0)])
    partial = DTensor.from_local(values + rank, mesh, [Partial()])
    return (
        (sharded @ sharded.redistribute(mesh, [Replicate()])).full_tensor(),
        sharded.redistribute(mesh, [Shard(1)]).to_local(),
        partial.redistribute(mesh, [Replicate()]).to_local(),
        partial.redistribute(mesh, [Shard(0)]).to_local(),
        sharded.sum().full_tensor(),
    )


@case
def tensor_parallel(rank: int, size: int) -> Any:
    mesh = init_device_mesh("cpu", (size,))
    parallel = parallelize_module(linear_model(), mesh, {"0": ColwiseParallel(), "2": RowwiseParallel()})
    losses, _ = train(parallel, 0)  # all ranks have the same input
    return losses, whole(parallel.parameters())


@case
def pipelining(rank: int, size: int) -> Any:
    torch.manual_seed(rank)
    part = nn.Linear(20, 20)
    stage = PipelineStage(part, rank, size, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, n_microbatches=2, loss_fn=lambda out, target: (out - target).pow(2).mean())
    losses: list[Any] = []
    target = torch.ones(4, 20)
    if rank == 0:
        schedule.step(inputs(0, 0)[:4], target=target if size == 1 else None)
    elif rank == size - 1:
        schedule.step(target=target, losses=losses)
    else:
        schedule.step()
    return losses, [parameter.grad for parameter in part.parameters()]


@case
def compiled_collective(rank: int, size: int) -> Any:
    def double_and_sum(x: torch.Tensor) -> torch.Tensor:
        y = x * 2
        dist.all_reduce(y)
        return y + 1

    torch.compiler.reset()
    return torch.compile(double_and_sum, backend="aot_eager", fullgraph=True)(torch.ones(3) * rank)


@case
def compiled_ddp(rank: int, size: int) -> Any:
    """The model has a BatchNorm: its buffers are broadcast in the middle of the compiled forward."""
    torch.compiler.reset()
    ddp = DistributedDataParallel(model())
    compiled = torch.compile(ddp, backend="aot_eager")
    for step in range(2):
        compiled(inputs(step, rank)).sum().backward()
    return [parameter.grad for parameter in ddp.parameters()], list(ddp.buffers())


@case
def compiled_step(rank: int, size: int) -> Any:
    """Backward, too, runs in a compiled function: DDP's all-reduces begin there."""
    torch.compiler.reset()
    ddp = DistributedDataParallel(linear_model())

    def step(x: torch.Tensor) -> torch.Tensor:
        loss = ddp(x).pow(2).mean()
        loss.backward()
        return loss.detach()

    losses = [torch.compile(step, backend="aot_eager")(inputs(number, rank)) for number in range(2)]
    return losses, [parameter.grad for parameter in ddp.parameters()]

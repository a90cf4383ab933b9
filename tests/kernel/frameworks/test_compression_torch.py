"""Compressors against torch's own communication hooks, where these run on a CPU: fp16, and PowerSGD of one bucket.

batched_powerSGD_hook raises an AssertionError in torch 2.13 (it hands its 2-D factor to a function for 3-D ones); of a
single square layer powerSGD_hook makes the same matrix.

Each comparison is made in a process of its own: torch's compiler, which these hooks load, cannot be loaded beside
ansible's patches, which other tests load.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import torch
import torch.distributed as dist
from coding import Bench
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from torch_ranks import ranks

SIDE = 40
RANK = 2
FIRST = 2
"""The iteration from which on the hook compresses; torch allows nothing earlier with error feedback."""


def alone(store: dist.Store, rank: int, size: int, compare: Callable[[], None]) -> None:
    """A comparison in a process group of one: the mean of all workers' codes is its own."""
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    compare()
    dist.destroy_process_group()


def gradients(hook: object, state: object, steps: int) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """A layer's gradient and what the hook makes of it, step by step."""
    torch.manual_seed(1)
    layer = torch.nn.Linear(SIDE, SIDE, bias=False)
    plain = torch.nn.Linear(SIDE, SIDE, bias=False)
    plain.load_state_dict(layer.state_dict())
    hooked = DistributedDataParallel(layer)
    hooked.register_comm_hook(state, hook)
    for step in range(steps):
        inputs = torch.randn(8, SIDE, generator=torch.Generator().manual_seed(step))
        for module in (plain, hooked):
            module.zero_grad()
            (module(inputs) ** 2).sum().backward()
        yield plain.weight.grad.numpy().reshape(-1).copy(), layer.weight.grad.numpy().reshape(-1).copy()


def test_fp16__is_torchs_hook() -> None:
    ranks(1, alone, compare_fp16)


def test_powersgd__is_torchs_hook() -> None:
    ranks(1, alone, compare_powersgd)


def compare_fp16() -> None:
    bench = Bench("fp16", SIDE * SIDE)
    for step, (gradient, expected) in enumerate(gradients(default_hooks.fp16_compress_hook, None, 2)):
        np.testing.assert_array_equal(bench.exchange(step, [gradient]), expected)


def compare_powersgd() -> None:
    """From the hook's factor and memory after its first compressed step on, step by step, error feedback included."""
    state = powerSGD_hook.PowerSGDState(None, matrix_approximation_rank=RANK, start_powerSGD_iter=FIRST)
    bench = Bench("powersgd", SIDE * SIDE, rank=RANK)
    ours = bench.workers[0]
    for step, (gradient, expected) in enumerate(gradients(powerSGD_hook.powerSGD_hook, state, FIRST + 5)):
        if step > FIRST:
            found = bench.exchange(step, [gradient])
            assert np.linalg.norm(expected - gradient) > 0.1 * np.linalg.norm(gradient), "the hook compresses"
            np.testing.assert_allclose(found, expected, atol=2e-4 * float(np.abs(expected).max()))
        elif step == FIRST:
            (factor,), (error,) = state.q_memory_dict.values(), state.error_dict.values()
            ours._q = factor.numpy().reshape(SIDE, RANK).copy()  # type: ignore[attr-defined]
            ours._memory.keep(error.numpy().copy())  # type: ignore[attr-defined]

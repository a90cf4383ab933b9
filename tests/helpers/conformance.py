"""Cases that every backend of torch.distributed must pass with the same result: what a case is, and how it is run.

A case is a function (rank, size) → result that calls torch.distributed on the default group. It ends with nothing
under way. Its result is compared by rank between backends, so it may depend on the rank, but not on the backend.
"""

from __future__ import annotations

import faulthandler
import importlib
import traceback
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

import dlcp.frameworks.pytorch  # noqa: F401 - registers the backend

Case = Callable[[int, int], Any]
CASES: dict[str, Case] = {}
CASE_MODULES = ("conformance_collectives", "conformance_training", "conformance_parallel")
"""They register their cases when they are imported."""
GROUP_TIMEOUT_S = 20.0
"""Of a collective: a case that hangs ends with an error that names it."""
HANGS_AFTER_S = 85.0
"""Just before torch_ranks' own limit: then each rank prints where it is."""


def case(function: Case) -> Case:
    """Register a case under its name."""
    assert function.__name__ not in CASES
    CASES[function.__name__] = function
    return function


def run_cases(store: Any, rank: int, size: int, backends: tuple[str, ...]) -> dict[str, dict[str, Any]]:
    """Backend → case → result, or the traceback of what it raised. One default group a backend, in the same process."""
    for module in CASE_MODULES:
        importlib.import_module(module)
    faulthandler.dump_traceback_later(HANGS_AFTER_S, exit=True)
    results: dict[str, dict[str, Any]] = {}
    for backend in backends:
        dist.init_process_group(
            backend,
            store=dist.PrefixStore(backend, store),
            rank=rank,
            world_size=size,
            timeout=timedelta(seconds=GROUP_TIMEOUT_S),
        )
        results[backend] = {name: _run(function, rank, size) for name, function in CASES.items()}
        dist.destroy_process_group()
        torch.compiler.reset()  # what was compiled holds the group that is gone
    faulthandler.cancel_dump_traceback_later()
    return results


def _run(function: Case, rank: int, size: int) -> Any:
    torch.manual_seed(rank)
    try:
        return plain(function(rank, size))
    except Exception:
        return f"Traceback in {function.__name__}, rank {rank}: {traceback.format_exc()}"


def plain(value: Any) -> Any:
    """A result that can be sent to another process and compared: tensors as (dtype, shape, values)."""
    if isinstance(value, torch.Tensor):
        values = value.detach().to_dense() if value.is_sparse else value.detach()
        return (str(value.dtype), tuple(value.shape), values.reshape(-1).tolist())
    if isinstance(value, dict):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(one) for one in value]
    return value


def differences(expected: Any, found: Any, tolerance: float, place: str = "result") -> list[str]:
    """Where two plain results differ; floats by more than the tolerance (sums are made in another order)."""
    if isinstance(expected, (list, tuple)) and isinstance(found, (list, tuple)):
        if len(expected) != len(found):
            return [f"{place}: {len(expected)} and {len(found)} items"]
        pairs = enumerate(zip(expected, found, strict=True))
        return [text for i, (a, b) in pairs for text in differences(a, b, tolerance, f"{place}[{i}]")]
    if isinstance(expected, dict) and isinstance(found, dict):
        if expected.keys() != found.keys():
            return [f"{place}: {sorted(expected)} and {sorted(found)}"]
        return [
            text for key in expected for text in differences(expected[key], found[key], tolerance, f"{place}.{key}")
        ]
    if isinstance(expected, (float, complex)) and isinstance(found, (float, complex)):
        return [] if abs(expected - found) <= tolerance * max(1.0, abs(expected)) else [f"{place}: {expected}, {found}"]
    return [] if expected == found and type(expected) is type(found) else [f"{place}: {expected!r}, {found!r}"]

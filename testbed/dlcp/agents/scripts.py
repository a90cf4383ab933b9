"""Training scripts: Python files in workloads/, loaded by name.

A script offers, without importing its framework at module level,
    LAYERS: tuple[tuple[str, int], ...]      (name, parameters) of every layer, input side first
    preload() -> None                        load the data set and run one step, so that a job's first step is as its
                                             others, and forked agents start in milliseconds
    job(options: JobOptions)                 the job of one rank, as its framework has it (dlcp.frameworks)
"""

from __future__ import annotations

import importlib.util
import sys
from dataclasses import dataclass
from types import ModuleType

from dlcp.errors import Problem
from dlcp.frameworks import framework_of
from dlcp.frameworks.base import Framework
from dlcp.model.workload import Shards
from dlcp.paths import WORKLOADS

_PREFIX = "dlcp_workload_"
_warm: set[str] = set()
"""Scripts whose preload() this process, or the one that it was forked from, has run."""


@dataclass(frozen=True)
class JobOptions:
    """Options of a script: the job's seed (same at all ranks), this worker among how many, images per step, and how
    the samples are shared out (only a script whose workload has classes is asked to do so by class)."""

    seed: int
    worker: int
    workers: int
    batch: int
    shards: Shards = "shuffled"


def load_script(name: str) -> ModuleType:
    """The module workloads/NAME (NAME ends in .py). Loaded once a process. Problem when there is no such file."""
    path = WORKLOADS / name
    module_name = _PREFIX + path.stem
    if module_name in sys.modules:
        return sys.modules[module_name]
    if path.parent != WORKLOADS or path.suffix != ".py" or not path.is_file():
        known = ", ".join(sorted(path.name for path in WORKLOADS.glob("*.py")))
        raise Problem(name, "there is no such training script in workloads/", f"known scripts: {known}")
    spec = importlib.util.spec_from_file_location(module_name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[module_name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[module_name]
        raise
    return module


def framework_of_script(name: str) -> Framework:
    """The framework that the script workloads/NAME imports. Problem when it imports none, or several."""
    try:
        return framework_of((WORKLOADS / name).read_text(encoding="utf-8"))
    except ValueError as error:
        raise Problem(name, str(error), "see docs/add-a-framework.md") from error


def warm_script(name: str) -> ModuleType:
    """The same, with its framework and data loaded, on one thread, and one step run: seconds, but in what was forked
    from a process that has done it."""
    script = load_script(name)
    if name not in _warm:
        framework_of_script(name).use_one_thread()
        script.preload()
        _warm.add(name)
    return script

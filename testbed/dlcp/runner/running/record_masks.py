"""A finished run's table `holes` → a file of masks, to be replayed by scheme `masked`."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dlcp.agents.job_spec import plan_job
from dlcp.errors import Problem, Problems
from dlcp.model.experiment import Scaling
from dlcp.model.loading.experiment_files import load_workload
from dlcp.model.loading.mask_file import FOLDER, SUFFIX, Recording, write_recording
from dlcp.model.result import RunResult
from dlcp.model.transport.settings import TransportSettings
from dlcp.model.workload import Job
from dlcp.runner.running.store import Store, load_result
from dlcp.transport.contract.packing import Packing

_NAME = re.compile(r"[a-z0-9][a-z0-9-]*")
_SOURCE = ("experiment", "job", "label", "scheme", "repeat", "seed", "substrate", "status", "run_id", "knobs")


def record_masks(where: Path, name: str, folder: Path = FOLDER) -> tuple[Path, Recording]:
    """Write the holes of a run as the file of masks `name`; returns the file and what is in it.

    where: a run's folder, or an experiment's with one run that recorded holes. The warm-up is left out. Problem when
    there is no such run, or the name cannot be one.
    """
    if _NAME.fullmatch(name) is None:
        raise Problem("--name", f"{name!r} cannot be a name", "small letters, digits and dashes, such as mlp-incast")
    run, result = _run(where)
    recording = read_holes(run, result)
    path = folder / f"{name}{SUFFIX}"
    write_recording(path, recording)
    return path, recording


def read_holes(run: Path, result: RunResult) -> Recording:
    """The masks of a run that recorded its holes."""
    import pyarrow.parquet as pq

    job = Job.model_validate(result.run["job"])
    workload, problems = load_workload(job.workload)
    if workload is None:
        raise Problems(problems)
    # Which values a packet carries follows from the buckets alone; no setting of a scheme moves them.
    spec = plan_job(result.job, job, workload, Scaling(lab_rate=1e9), result.seed)
    packing = Packing(spec.tensors(TransportSettings(kind="masked")))
    measured = spec.iterations - spec.warmup_iterations
    lost: npt.NDArray[np.bool_] = np.zeros((measured, len(spec.workers), packing.rows), np.bool_)
    for row in pq.read_table(run / "holes.parquet").to_pylist():
        iteration = row["iteration"] - spec.warmup_iterations
        if row["job"] == result.job and iteration >= 0:
            rows = packing.first_row[row["tensor"]] + np.array(row["packets"])
            lost[iteration, spec.workers.index(row["src"]), rows] = True
    source = {key: getattr(result, key) for key in _SOURCE} | {"commit": result.provenance.get("commit", "")}
    counts = tuple(int(count) for count in packing.count)
    return Recording(job.workload, len(spec.workers), measured, counts, source, lost)


def _run(where: Path) -> tuple[Path, RunResult]:
    if (where / "result.json").is_file():
        loaded = {where: load_result(where)}
    else:
        results, _ = Store(where.parent, where.name).load()
        loaded = {where / run_id: result for run_id, result in results.items()}
    recorded = {
        path: result
        for path, result in loaded.items()
        if result.status in ("ok", "suspect") and result.run["job"].get("record_holes")
    }
    if len(recorded) != 1:
        text = f"holds {len(recorded)} finished runs whose job has record_holes: true"
        raise Problem(str(where), text, "name the folder of one such run")
    return next(iter(recorded.items()))

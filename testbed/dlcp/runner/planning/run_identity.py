"""Identity of a run, but for its scheme and its seed: the facts that names of runs and records of searches rest on."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from dlcp.model.experiment import Experiment
from dlcp.model.workload import Job, Training, Workload

_FABRIC_KEYS = {"shared_buffer", "queues", "load_balancing", "flowlet_gap_s", "pfc", "faults", "backlog_every_s"}
"""Fields of an experiment about its fabric and its mishaps, except topology and port buffer."""
_NOT_OF_A_RUN = {"fit"}
"""Fields of a scaling that choose it: a run is defined by the values chosen (time_dilation, dilated_by)."""
_SAID_ABOVE = {"background", "faults", "port_buffer_bytes", "buffering"}
"""Fields of a job that stand in a run's definition already: the job's own, or the experiment's."""


def facts(experiment: Experiment, job_name: str, workload_sha256: str) -> dict[str, Any]:
    """Fabric, scaling, background and job. experiment: as the job meets it (Experiment.of_job)."""
    return {
        "experiment": experiment.name,
        "topology": experiment.topology.model_dump(mode="json", by_alias=True),
        "port_buffer": experiment.port_buffer_bytes,
        "buffering": experiment.buffering.model_dump(mode="json", by_alias=True),
        **experiment.model_dump(mode="json", by_alias=True, include=_FABRIC_KEYS),
        "scaling": experiment.scaling.model_dump(mode="json", by_alias=True, exclude=_NOT_OF_A_RUN),
        "background": [entry.model_dump(mode="json", by_alias=True) for entry in experiment.background],
        "job_name": job_name,
        "job": job_facts(experiment.jobs[job_name]),
        "workload_sha256": workload_sha256,
    }


def job_facts(job: Job) -> dict[str, Any]:
    """Facts of a job that define its runs."""
    return job.model_dump(mode="json", by_alias=True, exclude=_SAID_ABOVE)


def content_hash(workload: Workload, folder: Path) -> str:
    """Hash of the workload's file and of the training script that it names."""
    files = [folder / f"{workload.name}.yaml"]
    files += [folder / workload.script] if isinstance(workload, Training) else []
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()

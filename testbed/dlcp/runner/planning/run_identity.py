"""Identity of a run: the facts that its id and records of searches rest on, and the id. The scheme and the seed are
added in `plan.make_cell`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from dlcp.model.experiment import Experiment
from dlcp.model.workload import Job, Training, Workload

RUN_ID_DIGITS = 12
"""Hexadecimal digits of a run's name: 48 bits, no collision among any number of runs that one makes."""
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


def run_id(definition: Mapping[str, Any]) -> str:
    """Return the id of the run that these facts define."""
    text = json.dumps(definition, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:RUN_ID_DIGITS]


def job_facts(job: Job) -> dict[str, Any]:
    """Facts of a job that define its runs."""
    return job.model_dump(mode="json", by_alias=True, exclude=_SAID_ABOVE)


def content_hash(workload: Workload, folder: Path) -> str:
    """Hash of the workload's file and of the training script that it names."""
    files = [folder / f"{workload.name}.yaml"]
    files += [folder / workload.script] if isinstance(workload, Training) else []
    return hashlib.sha256(b"\0".join(file.read_bytes() for file in files)).hexdigest()

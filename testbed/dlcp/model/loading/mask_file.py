"""Files of masks: which packets of a real run's gradients never arrived, to be replayed where there is no network.

A Parquet file in testbed/experiments/masks: one row a packet that was lost (worker, iteration, tensor, packet), and in
its metadata what it is a record of (`MASKS`, JSON): the facts of Recording.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlcp.errors import Problem
from dlcp.files.json_text import parse_json
from dlcp.model.loading.explain import did_you_mean
from dlcp.paths import EXPERIMENTS

FOLDER = EXPERIMENTS / "masks"
SUFFIX = ".parquet"
_METADATA = b"dlcp.masks"
_COLUMNS = ("worker", "iteration", "tensor", "packet")


@dataclass(frozen=True)
class Recording:
    """Masks of a job. packets: of each tensor. lost: (iterations, workers, packets of all tensors), input side first.

    source: the run that it was (experiment, job, label, knobs, run_id, commit), for people.
    """

    workload: str
    workers: int
    iterations: int
    packets: tuple[int, ...]
    source: dict[str, Any]
    lost: npt.NDArray[np.bool_]

    @property
    def loss(self) -> float:
        """Share of the packets that never arrived."""
        return float(self.lost.mean())


def recording_names() -> list[str]:
    """Names of the files of masks that come with the toolkit."""
    return sorted(file.stem for file in FOLDER.glob(f"*{SUFFIX}"))


def recording_path(name: str) -> Path:
    """The file of a name. Problem when there is none."""
    path = FOLDER / f"{name}{SUFFIX}"
    if path.parent != FOLDER or not path.is_file():
        raise Problem(f"masks {name!r}", "no such file of masks", did_you_mean(name, recording_names()))
    return path


def recording_digest(name: str) -> str:
    """Hash of the content of a file of masks. Problem when there is none."""
    return hashlib.sha256(recording_path(name).read_bytes()).hexdigest()[:16]


@lru_cache(maxsize=4)
def read_recording(path: Path) -> Recording:
    """A file's masks. Problem when it cannot be read as such."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        table = pq.read_table(path)
        facts = parse_json(table.schema.metadata[_METADATA].decode())
        lost = _masks(facts, {name: table[name].to_numpy() for name in _COLUMNS})
    except (pa.ArrowException, OSError, KeyError, TypeError, ValueError, IndexError) as error:
        raise Problem(
            str(path), f"is no file of masks: {error}", "make one with: dlcp masks RUN --name NAME"
        ) from error
    return Recording(**(facts | {"packets": tuple(facts["packets"]), "lost": lost}))


def write_recording(path: Path, recording: Recording) -> None:
    """Store masks, small: the rows that were lost."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    iteration, worker, row = np.nonzero(recording.lost)
    firsts = _firsts(recording.packets)
    tensor = np.searchsorted(firsts, row, side="right") - 1
    columns = {"worker": worker, "iteration": iteration, "tensor": tensor, "packet": row - firsts[tensor]}
    facts = {name: value for name, value in asdict(recording).items() if name != "lost"}
    arrays = {name: pa.array(values.astype(np.int32)) for name, values in columns.items()}
    table = pa.table(arrays).replace_schema_metadata({_METADATA: json.dumps(facts).encode()})
    path.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(table, path, compression="zstd")


def _masks(facts: dict[str, Any], columns: dict[str, npt.NDArray[np.int32]]) -> npt.NDArray[np.bool_]:
    lost = np.zeros((facts["iterations"], facts["workers"], sum(facts["packets"])), np.bool_)
    rows = _firsts(facts["packets"])[columns["tensor"]] + columns["packet"]
    lost[columns["iteration"], columns["worker"], rows] = True
    return lost


def _firsts(packets: tuple[int, ...] | list[int]) -> npt.NDArray[np.int64]:
    return np.concatenate([[0], np.cumsum(packets)[:-1]]).astype(np.int64)

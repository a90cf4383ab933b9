"""What agents measured, on its way to the result tables: one .npz a rank, joined into columns of `iterations` and
`messages` (dlcp.model.result.TABLES)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlcp.agents.clock_offset import FarClock
from dlcp.agents.job_spec import JobSpec, coded_job
from dlcp.model.workload import TransportSettings
from dlcp.transport.aggregation.all_reduce_worker import chunks_must_arrive
from dlcp.transport.aggregation.parameter_server import Hole, Iteration
from dlcp.transport.aggregation.ring import chunk_cuts, hop_bound
from dlcp.transport.contract.endpoint import RELIABLE, Bound, Completion, Leg
from dlcp.transport.contract.tensors import ELEMENT_BYTES, Tensor
from dlcp.transport.contract.values import packets

Columns = dict[str, list[Any]]
_COMPLETION_FIELDS = (
    "peer", "iteration", "tensor", "leg", "received", "bytes", "delivered_bytes", "lost_bytes", "resent_bytes",
    "probes", "start_s", "end_s", "step", "lost_energy_share",
)  # fmt: skip
_ROW_FIELDS = ("number", "start_s", "end_s", "compute_s", "parameters_crc32", "codec_s")


@dataclass(frozen=True)
class Record:
    """One rank's measurements: rows of iterations (none at a server) and of completions, doubles. holes: rows of
    iteration, tensor, peer, and how many of hole_packets belong to it, in their order."""

    rank: int
    iterations: npt.NDArray[np.float64]
    completions: npt.NDArray[np.float64]
    holes: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty((0, 4), np.int32))
    hole_packets: npt.NDArray[np.int32] = field(default_factory=lambda: np.empty(0, np.int32))

    def on(self, clock: FarClock) -> Record:
        """The same with the instants of a host's clock as its caller's."""
        iterations, completions = self.iterations.copy(), self.completions.copy()
        for table, names in ((iterations, _ROW_FIELDS), (completions, _COMPLETION_FIELDS)):
            for name in ("start_s", "end_s") if len(table) else ():
                column = table[:, names.index(name)]
                column[:] = clock.here(column.copy())
        return replace(self, iterations=iterations, completions=completions)


def write_record(
    path: Path, rank: int, rows: list[Iteration], completions: list[Completion], holes: Sequence[Hole] = ()
) -> None:
    """Store one rank's measurements. Doubles hold every integer here exactly: all are below 2^53."""
    found = [
        (c.peer, c.key.iteration, c.key.tensor, c.key.leg, c.received, c.bytes, c.delivered_bytes, c.lost_bytes,
         c.resent_bytes, c.probes, c.start_s, c.end_s, c.key.step,
         c.lost_energy_share)
        for c in completions
    ]  # fmt: skip
    with path.open("wb") as file:
        np.savez(
            file,
            rank=np.array(rank),
            iterations=np.array([[getattr(r, f) for f in _ROW_FIELDS] for r in rows], np.float64),
            completions=np.array(found, np.float64).reshape(-1, len(_COMPLETION_FIELDS)),
            holes=np.array([(h.iteration, h.tensor, h.peer, len(h.packets)) for h in holes], np.int32).reshape(-1, 4),
            hole_packets=np.concatenate([np.empty(0, np.int32), *(hole.packets for hole in holes)]),
        )


def read_record(path: Path) -> Record:
    """Load what write_record stored."""
    with np.load(path) as stored:
        return Record(
            int(stored["rank"]), stored["iterations"], stored["completions"], stored["holes"], stored["hole_packets"]
        )


def iteration_columns(spec: JobSpec, records: list[Record]) -> Columns:
    """The table `iterations` of a job."""
    columns: Columns = {name: [] for name in ("job", "worker", "iteration", "warmup", "start_s", "end_s", "compute_s",
                                              "exposed_comm_s", "parameters_crc32", "codec_s")}  # fmt: skip
    for record in sorted(records, key=lambda r: r.rank):
        for iteration, start_s, end_s, compute_s, crc32, codec_s in record.iterations:
            row = (spec.name, spec.hosts[record.rank], int(iteration), bool(iteration < spec.warmup_iterations),
                   start_s, end_s, compute_s, max(0.0, end_s - start_s - compute_s), int(crc32), codec_s)  # fmt: skip
            for column, value in zip(columns.values(), row, strict=True):
                column.append(value)
    return columns


def message_columns(
    spec: JobSpec, tensors: list[Tensor], settings: TransportSettings, records: list[Record]
) -> Columns:
    """The table `messages` of a job: sender's start, receiver's end; in a ring a row is one hop of one chunk,
    in a transpose one chunk on its way to its owner or back.

    ValueError when an end of a message is missing.
    """
    sent: dict[tuple[int, ...], npt.NDArray[np.float64]] = {}
    received: dict[tuple[int, ...], npt.NDArray[np.float64]] = {}
    for record in records:
        for row in record.completions:
            peer, iteration, tensor, leg, at_receiver = (int(value) for value in row[:5])
            source, sink = (peer, record.rank) if at_receiver else (record.rank, peer)
            (received if at_receiver else sent)[iteration, tensor, leg, int(row[12]), source, sink] = row
    if one_sided := sent.keys() ^ received.keys():
        raise ValueError(f"{len(one_sided)} messages were noted at one end only, such as {min(one_sided)}")
    expected = spec.iterations * messages_an_iteration(spec, tensors, settings)
    if len(sent) != expected:
        raise ValueError(f"{len(sent)} messages were noted, {expected} belong to the job")
    names = ("job", "iteration", "warmup", "tensor", "layer", "leg", "src", "dst", "bytes", "start_s", "end_s",
             "delivered_bytes", "lost_bytes", "resent_bytes", "probes", "loss_bound", "lost_energy_share",
             "energy_bound", "tensor_bytes")  # fmt: skip
    journeys = _journeys(spec, tensors, settings)
    columns: Columns = {name: [] for name in names}
    for key in sorted(sent):
        iteration, travelling, leg, _, source, sink = key
        out, back, journey = sent[key], received[key], journeys[travelling]
        tensor, found = journey.tensor, tensors[journey.tensor]
        bound = RELIABLE if journey.must_arrive else bound_of(spec, found, Leg(leg), iteration, settings)
        row = (spec.name, iteration, iteration < spec.warmup_iterations, tensor, found.first_layer,
               Leg(leg).name.lower(), spec.hosts[source], spec.hosts[sink], int(back[5]), float(out[10]),
               float(back[11]), int(back[6]), int(back[7]), int(out[8]), int(out[9]),
               bound.bytes_share, float(back[13]), bound.energy_share, journey.tensor_bytes)  # fmt: skip
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
    return columns


def hole_columns(spec: JobSpec, records: list[Record]) -> Columns:
    """The table `holes` of a job."""
    columns: Columns = {name: [] for name in ("job", "iteration", "tensor", "src", "dst", "packets")}
    for record in sorted(records, key=lambda r: r.rank):
        lists = np.split(record.hole_packets, np.cumsum(record.holes[:, 3])[:-1])
        for (iteration, tensor, peer, _), lost in zip(record.holes.tolist(), lists, strict=False):
            row = (spec.name, iteration, tensor, spec.hosts[peer], spec.hosts[record.rank], lost.tolist())
            for column, value in zip(columns.values(), row, strict=True):
                column.append(value)
    return columns


@dataclass(frozen=True)
class _Journey:
    """What a number stands for that the transport calls a tensor. must_arrive: nothing of it may be lost, whatever its
    tensor may lose. tensor_bytes: of the float32 values that it stands for."""

    tensor: int
    tensor_bytes: int
    must_arrive: bool = False


def _journeys(spec: JobSpec, tensors: list[Tensor], settings: TransportSettings) -> dict[int, _Journey]:
    """By number: a tensor; a chunk of it, without servers; a code of it, where gradients are compressed. A tensor
    that takes several rounds stands in the first."""
    if settings.compression is not None:
        job = coded_job(spec, settings)
        return {
            job.number(tensor, round_, leg): _Journey(
                tensor, 0 if round_ else found.size_bytes, leg is Leg.PULL or job.must_arrive(found, exchange.push)
            )
            for tensor, found in enumerate(tensors)
            for round_, exchange in enumerate(job.exchanges(tensor))
            for leg in Leg
        }
    if spec.pattern != "parameter-server":
        workers = len(spec.workers)
        cuts = [pairwise(chunk_cuts(tensor.elements, workers)) for tensor in tensors]
        return {
            tensor * workers + chunk: _Journey(tensor, (stop - start) * ELEMENT_BYTES)
            for tensor, found in enumerate(cuts)
            for chunk, (start, stop) in enumerate(found)
        }
    return {number: _Journey(number, tensor.size_bytes) for number, tensor in enumerate(tensors)}


def messages_an_iteration(spec: JobSpec, tensors: list[Tensor], settings: TransportSettings) -> int:
    """How many there are: one by tensor, worker, leg and round of coding; without servers by chunk and leg, and by hop
    or by worker but one."""
    workers = len(spec.workers)
    if settings.compression is not None:
        job = coded_job(spec, settings)
        return sum(len(job.exchanges(tensor)) for tensor in range(len(tensors))) * workers * 2
    if spec.pattern == "parameter-server":
        return len(tensors) * workers * 2
    chunks = sum(min(workers, packets(tensor.elements)) for tensor in tensors)
    return chunks * (workers - 1) * 2


def bound_of(spec: JobSpec, tensor: Tensor, leg: Leg, iteration: int, settings: TransportSettings) -> Bound:
    """What a message of a tensor may lose."""
    if tensor.must_arrive or settings.kind == "tcp":
        return RELIABLE
    bounds, workers = spec.bounds(settings), len(spec.workers)
    if spec.pattern != "parameter-server" and chunks_must_arrive(tensor, workers, settings):
        return RELIABLE
    if spec.pattern != "ring":
        return bounds.closed(iteration) if leg is Leg.PUSH else bounds.pull(iteration)
    if leg is Leg.PULL:
        return RELIABLE
    return hop_bound(bounds.push(iteration), workers)

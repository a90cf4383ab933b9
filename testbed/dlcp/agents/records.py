"""Measurements of agents, on their way to the result tables: one .npz a rank, joined into columns of `iterations` and
`messages` (dlcp.model.result.TABLES)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from dlcp.agents.clock_offset import FarClock
from dlcp.agents.job_spec import JobSpec
from dlcp.model.transport.settings import TransportSettings
from dlcp.patterns import pattern_of
from dlcp.patterns.base import Message
from dlcp.transport.aggregation.parameter_server import Hole, Iteration
from dlcp.transport.contract.endpoint import Completion
from dlcp.transport.contract.tensors import Tensor

Columns = dict[str, list[Any]]
_ROW_FIELDS = ("number", "start_s", "end_s", "compute_s", "parameters_crc32", "codec_s")


class _End(NamedTuple):
    """One end of a message, as a row of a record. Doubles hold every integer here exactly: all are below 2^53."""

    peer: float
    iteration: float
    tensor: float
    leg: float
    received: float
    bytes: float
    delivered_bytes: float
    lost_bytes: float
    resent_bytes: float
    probes: float
    start_s: float
    end_s: float
    step: float
    lost_energy_share: float

    @classmethod
    def of(cls, done: Completion) -> _End:
        """Return the row of a completion."""
        key = done.key
        return cls(
            done.peer,
            key.iteration,
            key.tensor,
            key.leg,
            done.received,
            done.bytes,
            done.delivered_bytes,
            done.lost_bytes,
            done.resent_bytes,
            done.probes,
            done.start_s,
            done.end_s,
            key.step,
            done.lost_energy_share,
        )

    def place(self, rank: int) -> tuple[int, ...]:
        """Return iteration, tensor, leg, step, source and destination. rank: whose record the row is of."""
        peer = int(self.peer)
        source, destination = (peer, rank) if self.received else (rank, peer)
        return int(self.iteration), int(self.tensor), int(self.leg), int(self.step), source, destination


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
        for table, names in ((iterations, _ROW_FIELDS), (completions, _End._fields)):
            for name in ("start_s", "end_s") if len(table) else ():
                column = table[:, names.index(name)]
                column[:] = clock.here(column.copy())
        return replace(self, iterations=iterations, completions=completions)


def write_record(
    path: Path, rank: int, rows: list[Iteration], completions: list[Completion], holes: Sequence[Hole] = ()
) -> None:
    """Store one rank's measurements."""
    ends = [_End.of(completion) for completion in completions]
    with path.open("wb") as file:
        np.savez(
            file,
            rank=np.array(rank),
            iterations=np.array([[getattr(r, f) for f in _ROW_FIELDS] for r in rows], np.float64),
            completions=np.array(ends, np.float64).reshape(-1, len(_End._fields)),
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
    columns: Columns = {
        name: []
        for name in (
            "job",
            "worker",
            "iteration",
            "warmup",
            "start_s",
            "end_s",
            "compute_s",
            "exposed_comm_s",
            "parameters_crc32",
            "codec_s",
        )
    }
    for record in sorted(records, key=lambda r: r.rank):
        for iteration, start_s, end_s, compute_s, crc32, codec_s in record.iterations:
            row = (
                spec.name,
                spec.hosts[record.rank],
                int(iteration),
                bool(iteration < spec.warmup_iterations),
                start_s,
                end_s,
                compute_s,
                max(0.0, end_s - start_s - compute_s),
                int(crc32),
                codec_s,
            )
            for column, value in zip(columns.values(), row, strict=True):
                column.append(value)
    return columns


def message_columns(
    spec: JobSpec, tensors: list[Tensor], settings: TransportSettings, records: list[Record]
) -> Columns:
    """The table `messages` of a job: a row for each message of its pattern, sender's start, receiver's end.

    ValueError when an end of a message is missing, or the messages are not those of the pattern.
    """
    sent: dict[tuple[int, ...], _End] = {}
    received: dict[tuple[int, ...], _End] = {}
    for record in records:
        for end in map(_End._make, record.completions.tolist()):
            (received if end.received else sent)[end.place(record.rank)] = end
    if one_sided := sent.keys() ^ received.keys():
        raise ValueError(f"{len(one_sided)} messages were noted at one end only, such as {min(one_sided)}")
    pattern, traffic = pattern_of(spec.pattern), spec.traffic(settings, tensors)
    planned = {_key(message): message for message in pattern.messages(traffic)}
    if len(sent) != spec.iterations * len(planned):
        raise ValueError(f"{len(sent)} messages were noted, {spec.iterations * len(planned)} belong to the job")
    names = (
        "job",
        "iteration",
        "warmup",
        "tensor",
        "layer",
        "leg",
        "src",
        "dst",
        "bytes",
        "start_s",
        "end_s",
        "delivered_bytes",
        "lost_bytes",
        "resent_bytes",
        "probes",
        "loss_bound",
        "lost_energy_share",
        "energy_bound",
        "tensor_bytes",
    )
    columns: Columns = {name: [] for name in names}
    for key in sorted(sent):
        iteration, source, sink = key[0], key[-2], key[-1]
        out, back, message = sent[key], received[key], planned.get(key[1:])
        if message is None:
            raise ValueError(f"a message was noted that does not belong to the job: {key}")
        bound, first_layer = pattern.bound(traffic, message, iteration), tensors[message.tensor].first_layer
        row = (
            spec.name,
            iteration,
            iteration < spec.warmup_iterations,
            message.tensor,
            first_layer,
            message.leg.name.lower(),
            spec.hosts[source],
            spec.hosts[sink],
            int(back.bytes),
            out.start_s,
            back.end_s,
            int(back.delivered_bytes),
            int(back.lost_bytes),
            int(out.resent_bytes),
            int(out.probes),
            bound.bytes_share,
            back.lost_energy_share,
            bound.energy_share,
            message.tensor_bytes,
        )
        for column, value in zip(columns.values(), row, strict=True):
            column.append(value)
    return columns


def _key(message: Message) -> tuple[int, ...]:
    """Return what names a message of an iteration in the records of its ends."""
    return message.number, int(message.leg), message.step, message.source, message.destination


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


def messages_an_iteration(spec: JobSpec, tensors: list[Tensor], settings: TransportSettings) -> int:
    """Return how many messages an iteration has."""
    return sum(1 for _ in pattern_of(spec.pattern).messages(spec.traffic(settings, tensors)))

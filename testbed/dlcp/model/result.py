"""Output of a run: result.json and Parquet tables, one schema for all substrates."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from dlcp.errors import Problem

FORMAT_VERSION = 7
"""Version of result.json and the tables. A change that older versions of this program would misread adds one, and older
results still load: SINCE and TABLE_SINCE name the columns and tables that they lack. Fields of result.json that came
later are empty in them: `costs` (5), `tables` (6: size and SHA-256 of each table), `is_dlcp` (7).
"""
TABLES_RECORDED_SINCE = 6
RESULT_FILE = "result.json"

Status = Literal["ok", "failed", "unsupported", "suspect"]

TABLES: dict[str, dict[str, str]] = {
    # one worker's iteration. codec_s: what it spent on encoding and decoding what it sent and received
    "iterations": {
        "job": "string",
        "worker": "string",
        "iteration": "int32",
        "warmup": "bool",
        "start_s": "double",
        "end_s": "double",
        "compute_s": "double",
        "exposed_comm_s": "double",
        "parameters_crc32": "int64",
        "codec_s": "double",
    },
    # one tensor's journey on one leg; start: handed to the transport; end: complete at the receiver. tensor_bytes: of
    # the float32 values that travelled, where `bytes` is what a scheme made of them (0 in a later round of coding)
    "messages": {
        "job": "string",
        "iteration": "int32",
        "warmup": "bool",
        "tensor": "int32",
        "layer": "int32",
        "leg": "string",
        "src": "string",
        "dst": "string",
        "bytes": "int64",
        "start_s": "double",
        "end_s": "double",
        "delivered_bytes": "int64",
        "lost_bytes": "int64",
        "resent_bytes": "int64",
        "probes": "int32",
        "loss_bound": "double",
        "lost_energy_share": "double",
        "energy_bound": "double",
        "tensor_bytes": "int64",
    },
    # one (port, queue, precedence); peak and histogram are the queue's, in the row of precedence 0. received: came in
    # at this port over its link, which is what the far end sent; enqueued: taken into this port's queue; sent: left the
    # queue and the port, dead or alive. dropped_down: found the cable cut as it was to leave by this port, or was under
    # way to it when the cable was cut (then it is of the received). dropped_unrouted, and dropped_loss of what hosts
    # send, are counted where it came in, every other drop where it was to leave. So at every moment, for every queue
    # and precedence, enqueued = sent + waiting; and in every switch the sums over its ports fulfil
    # received = enqueued + all dropped.
    "ports": {
        "switch": "string",
        "port": "string",
        "queue": "int32",
        "precedence": "int32",
        "received_packets": "int64",
        "received_bytes": "int64",
        "enqueued_packets": "int64",
        "enqueued_bytes": "int64",
        "sent_packets": "int64",
        "sent_bytes": "int64",
        "dropped_wred_packets": "int64",
        "dropped_wred_bytes": "int64",
        "dropped_tail_packets": "int64",
        "dropped_tail_bytes": "int64",
        "dropped_shared_packets": "int64",
        "dropped_shared_bytes": "int64",
        "dropped_loss_packets": "int64",
        "dropped_loss_bytes": "int64",
        "dropped_down_packets": "int64",
        "dropped_down_bytes": "int64",
        "dropped_unrouted_packets": "int64",
        "dropped_unrouted_bytes": "int64",
        "marked_ce_packets": "int64",
        "marked_ce_bytes": "int64",
        "peak_backlog_bytes": "int64",
        "backlog_histogram": "list<int64>",
    },
    # one background flow that was due before the job ended: an incast's burst of one source, a Poisson flow, a constant
    # stream (whose bytes are what it sent). start: its first byte handed to the kernel, or its connection begun; NaN =
    # never. end: its last byte at the sink's host; NaN = not all of it came
    "flows": {
        "entry": "int32",
        "kind": "string",
        "src": "string",
        "dst": "string",
        "bytes": "int64",
        "planned_s": "double",
        "start_s": "double",
        "end_s": "double",
        "delivered_bytes": "int64",
    },
    # one evaluation of a real job; time_s is since the job's first iteration began, evaluation excluded
    "training": {"job": "string", "step": "int32", "time_s": "double", "loss": "double", "accuracy": "double"},
    # one message of the push leg that has a hole, of a job with `record_holes`: packets, their numbers in the message
    "holes": {
        "job": "string",
        "iteration": "int32",
        "tensor": "int32",
        "src": "string",
        "dst": "string",
        "packets": "list<int32>",
    },
    # one sample of one queue that holds something or did in the sample before; none unless the experiment asks for them
    "backlog": {"time_s": "double", "switch": "string", "port": "string", "queue": "int32", "backlog_bytes": "int64"},
    # one sample of one host ("machine": the whole emulating machine)
    "hosts": {
        "host": "string",
        "time_s": "double",
        "cpu_busy": "double",
        "softnet_dropped": "int64",
        "rx_overflow": "int64",
        "sched_late_s": "double",
    },
}
"""Table → column → Arrow type. Times are seconds of the run's monotonic clock, the same for all hosts."""

_PORTS_SINCE_3 = ("received", "sent", "dropped_shared", "dropped_down", "dropped_unrouted")

SINCE: dict[str, dict[str, int]] = {
    "iterations": {"codec_s": 5},
    "messages": {"lost_energy_share": 2, "energy_bound": 2, "tensor_bytes": 5},
    "ports": {f"{name}_{unit}": 3 for name in _PORTS_SINCE_3 for unit in ("packets", "bytes")},
}
"""Table → column → the format_version that brought it; older results have it unknown."""

TABLE_SINCE: dict[str, int] = {"flows": 3, "backlog": 3, "holes": 5}
"""Table → the format_version that brought it; older results do not have it."""

DROP_CAUSES = ("wred", "tail", "shared", "loss", "down", "unrouted")
"""Causes in `dropped_CAUSE_packets` and `dropped_CAUSE_bytes` of the table `ports`: the drop profile; the port's buffer
or the queue's limit; the switch's shared buffer; injected loss; a cut cable; no route to its destination.
"""


class HostCosts(BaseModel):
    """Costs of a job at one host, from its start command to its end there.

    cpu_user_s, cpu_system_s: of the agent with all its threads: the transport's work, encoding, summing, steps, and in
    a real job the training itself; the kernel's share is system time only where it works in the agent's name, so that
    interrupts are in the machine's costs alone. Packets and frame bytes are the transport's since it was opened, all
    headers from Ethernet's on counted; resent_bytes: payload that was sent again.
    """

    model_config = ConfigDict(extra="forbid")

    cpu_user_s: float
    cpu_system_s: float
    sent_packets: int
    sent_bytes: int
    received_packets: int
    received_bytes: int
    resent_packets: int
    resent_bytes: int


class MachineCosts(BaseModel):
    """hosts: of the job, that are this machine. cpu_s: busy seconds of all its cores while the job ran, whatever took
    them: in an emulation the switches and links, the background and what watches are in it."""

    model_config = ConfigDict(extra="forbid")

    hosts: list[str]
    cores: int
    cpu_s: float


class Costs(BaseModel):
    """Costs of a job: host → its costs, and the machines underneath, each once."""

    model_config = ConfigDict(extra="forbid")

    hosts: dict[str, HostCosts]
    machines: list[MachineCosts]


class StoredTable(BaseModel):
    """A table's file as the run left it. sha256: hexadecimal."""

    model_config = ConfigDict(extra="forbid")

    size_bytes: int
    sha256: str


class Tenant(BaseModel):
    """A job that ran at the same time as the measured one; its iterations and messages are in the tables, by its name.

    jct_s, ideal: as in RunResult."""

    model_config = ConfigDict(extra="forbid")

    scheme: str
    label: str
    jct_s: float
    ideal: dict[str, float] = Field(default_factory=dict)


class RunResult(BaseModel):
    """result.json. Written last: a directory without a valid one is not a finished run, nor is one whose tables are not
    those that it names.

    run: what defines it (experiment, scheme, knobs, job, repeat, seed, substrate). regime: the scaling in words and
    numbers, for every plot. traffic: bytes of gradients and parameters by transport ("dlcp", "tcp"). statistics:
    host → what its agent and transport counted; "background": what it sent and what arrived; "faults": what was
    done to the fabric, when; "pfc": how often ports were paused. ideal: the ideal transport's iteration time, job
    completion time, and the communication and compute that they follow from, seconds; reachable_jct_s: the least
    completion time that any transport could have (substrates/reachable.py), in results made since there is one;
    bytes_share, where gradients are compressed: what of their bytes travels, which is all that this ideal moves.
    jct_s: first iteration's start to last worker's end. intended, effective: what switches and hosts should do and
    do, in one shape. costs: None = unknown (an older result). tuning: the record of the search that found knobs for
    this job (model.loading.search_record.Search), empty when none did. tenants: job → what became of it. extra:
    what a scheme tells of itself beyond all this, topic → host → what: phases (DBLP's servers: iteration → the
    share that pushes to it might lose from there on), stage_times (OptiReduce's workers: leg → tB and tC in seconds
    and x, at the end). degradations: what a switch cannot do of what it should, and does instead, a line each.
    fidelity: monitor → {value, bound, unit, ok, meaning, source}. unwatched: monitor → why it was not watched
    there. tables: table → size and checksum of its file; all that the run wrote, and no other. Empty in results
    before format TABLES_RECORDED_SINCE. is_dlcp: whether the scheme is DLCP, a part or a variant of it, and so no
    rival of it.
    """

    model_config = ConfigDict(extra="forbid")

    format_version: int = FORMAT_VERSION
    run_id: str
    experiment: str
    scheme: str
    is_dlcp: bool
    label: str
    job: str
    repeat: int
    seed: int
    substrate: str
    status: Status
    reason: str = ""
    warnings: list[str] = Field(default_factory=list)
    run: dict[str, Any] = Field(default_factory=dict)
    jct_s: float | None = None
    regime: dict[str, Any] = Field(default_factory=dict)
    ideal: dict[str, float] = Field(default_factory=dict)
    traffic: dict[str, int] = Field(default_factory=dict)
    knobs: dict[str, Any] = Field(default_factory=dict)
    statistics: dict[str, Any] = Field(default_factory=dict)
    costs: Costs | None = None
    tuning: dict[str, Any] = Field(default_factory=dict)
    tenants: dict[str, Tenant] = Field(default_factory=dict)
    extra: dict[str, Any] = Field(default_factory=dict)
    topology: dict[str, Any] = Field(default_factory=dict)
    intended: dict[str, Any] = Field(default_factory=dict)
    effective: dict[str, Any] = Field(default_factory=dict)
    degradations: list[str] = Field(default_factory=list)
    unwatched: dict[str, str] = Field(default_factory=dict)
    fidelity: dict[str, dict[str, Any]] = Field(default_factory=dict)
    expect: list[dict[str, Any]] = Field(default_factory=list)
    provenance: dict[str, Any] = Field(default_factory=dict)
    tables: dict[str, StoredTable] = Field(default_factory=dict)

    @model_validator(mode="before")
    @classmethod
    def _name_tells_in_older_results(cls, raw: Any) -> Any:
        """Set is_dlcp by the scheme's name in results of a format before 7, when that was the rule."""
        if not isinstance(raw, dict) or raw.get("format_version") not in range(1, 7):
            return raw
        return {"is_dlcp": str(raw.get("scheme", "")).startswith("dlcp")} | raw

    def made_at(self, folder: Path) -> tuple[str, int]:
        """A key that sorts runs by when they were made. Those of older versions do not say it and come first, by when
        their file in `folder` was written, which copying changes."""
        return str(self.provenance.get("made_at", "")), (folder / RESULT_FILE).stat().st_mtime_ns


def no_results(folder: Path) -> Problem:
    """Problem for a results folder that does not exist; with the intended one, if only an experiment was named."""
    meant = Path("results") / folder
    hint = f"did you mean {meant}?" if meant.is_dir() else "make one with: dlcp run EXPERIMENT"
    return Problem(str(folder), "no such results directory", hint)

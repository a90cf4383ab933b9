"""What a run leaves behind: result.json and Parquet tables, one schema for all substrates."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

FORMAT_VERSION = 4

Status = Literal["ok", "failed", "unsupported", "suspect"]

TABLES: dict[str, dict[str, str]] = {
    # one worker's iteration
    "iterations": {
        "job": "string", "worker": "string", "iteration": "int32", "warmup": "bool",
        "start_s": "double", "end_s": "double", "compute_s": "double", "exposed_comm_s": "double",
        "parameters_crc32": "int64",
    },
    # one tensor's journey on one leg; start: handed to the transport; end: complete at the receiver
    "messages": {
        "job": "string", "iteration": "int32", "warmup": "bool", "tensor": "int32", "layer": "int32",
        "leg": "string", "src": "string", "dst": "string", "bytes": "int64", "start_s": "double",
        "end_s": "double", "delivered_bytes": "int64", "lost_bytes": "int64", "resent_bytes": "int64",
        "probes": "int32", "loss_bound": "double", "lost_energy_share": "double", "energy_bound": "double",
    },
    # one (port, queue, precedence); peak and histogram are the queue's, in the row of precedence 0. received: came in
    # at this port over its link, which is what the far end sent; enqueued: taken into this port's queue; sent: left the
    # queue and the port, dead or alive. dropped_down: found the cable cut as it was to leave by this port, or was under
    # way to it when the cable was cut (then it is of the received). dropped_unrouted, and dropped_loss of what hosts
    # send, are counted where it came in, every other drop where it was to leave. So at every moment, for every queue
    # and precedence, enqueued = sent + waiting; and in every switch the sums over its ports fulfil
    # received = enqueued + all dropped.
    "ports": {
        "switch": "string", "port": "string", "queue": "int32", "precedence": "int32",
        "received_packets": "int64", "received_bytes": "int64",
        "enqueued_packets": "int64", "enqueued_bytes": "int64",
        "sent_packets": "int64", "sent_bytes": "int64",
        "dropped_wred_packets": "int64", "dropped_wred_bytes": "int64",
        "dropped_tail_packets": "int64", "dropped_tail_bytes": "int64",
        "dropped_shared_packets": "int64", "dropped_shared_bytes": "int64",
        "dropped_loss_packets": "int64", "dropped_loss_bytes": "int64",
        "dropped_down_packets": "int64", "dropped_down_bytes": "int64",
        "dropped_unrouted_packets": "int64", "dropped_unrouted_bytes": "int64",
        "marked_ce_packets": "int64", "marked_ce_bytes": "int64",
        "peak_backlog_bytes": "int64", "backlog_histogram": "list<int64>",
    },
    # one background flow that was due before the job ended: an incast's burst of one source, a Poisson flow, a constant
    # stream (whose bytes are what it sent). start: its first byte handed to the kernel, or its connection begun; NaN =
    # never. end: its last byte at the sink's host; NaN = not all of it came
    "flows": {
        "entry": "int32", "kind": "string", "src": "string", "dst": "string", "bytes": "int64",
        "planned_s": "double", "start_s": "double", "end_s": "double", "delivered_bytes": "int64",
    },
    # one evaluation of a real job; time_s is since the job's first iteration began, evaluation excluded
    "training": {
        "job": "string", "step": "int32", "time_s": "double", "loss": "double", "accuracy": "double",
    },
    # one sample of one queue that holds something or did in the sample before; none unless the experiment asks for them
    "backlog": {
        "time_s": "double", "switch": "string", "port": "string", "queue": "int32", "backlog_bytes": "int64",
    },
    # one sample of one host ("machine": the whole emulating machine)
    "hosts": {
        "host": "string", "time_s": "double", "cpu_busy": "double", "softnet_dropped": "int64",
        "rx_overflow": "int64", "sched_late_s": "double",
    },
}  # fmt: skip
"""Table → column → Arrow type. Times are seconds of the run's monotonic clock, the same for all hosts."""

_PORTS_SINCE_3 = ("received", "sent", "dropped_shared", "dropped_down", "dropped_unrouted")

SINCE: dict[str, dict[str, int]] = {
    "messages": {"lost_energy_share": 2, "energy_bound": 2},
    "ports": {f"{name}_{unit}": 3 for name in _PORTS_SINCE_3 for unit in ("packets", "bytes")},
}
"""Table → column → the format_version that brought it; older results have it unknown."""

TABLE_SINCE: dict[str, int] = {"flows": 3, "backlog": 3}
"""Table → the format_version that brought it; older results do not have it."""

DROP_CAUSES = ("wred", "tail", "shared", "loss", "down", "unrouted")
"""Of `dropped_CAUSE_packets` and `dropped_CAUSE_bytes` in the table `ports`: the drop profile; the port's buffer or the
queue's limit; the switch's shared buffer; injected loss; a cut cable; no route to its destination."""


class RunResult(BaseModel):
    """result.json. Written last: a directory without a valid one is not a finished run.

    run: what defines it (experiment, scheme, knobs, job, repeat, seed, substrate). regime: the scaling in words
    and numbers, for every plot. traffic: bytes of gradients and parameters by transport ("dlcp", "tcp").
    statistics: host → what its agent and transport counted; "background": what it sent and what arrived;
    "faults": what was done to the fabric, when; "pfc": how often ports were paused. ideal: the
    ideal transport's iteration time, job completion time, and the communication and compute that they follow from,
    seconds. jct_s: first iteration's start to last worker's end. intended, effective: what switches and hosts should
    do and do, in one shape. degradations: what a switch cannot do of what it should, and does instead, a line each.
    fidelity: monitor → {value, bound, unit, ok, meaning, source}. unwatched: monitor → why it was not watched there.
    """

    model_config = ConfigDict(extra="forbid")

    format_version: int = FORMAT_VERSION
    run_id: str
    experiment: str
    scheme: str
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
    topology: dict[str, Any] = Field(default_factory=dict)
    intended: dict[str, Any] = Field(default_factory=dict)
    effective: dict[str, Any] = Field(default_factory=dict)
    degradations: list[str] = Field(default_factory=list)
    unwatched: dict[str, str] = Field(default_factory=dict)
    fidelity: dict[str, dict[str, Any]] = Field(default_factory=dict)
    expect: list[dict[str, Any]] = Field(default_factory=list)
    provenance: dict[str, Any] = Field(default_factory=dict)

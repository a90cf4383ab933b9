"""Lab equivalent of an emulated fabric: the numbers without which no result can be read.

Byte scale k divides messages, dilation d stretches compute and timers; the emulated link is lab rate ÷ (k·d).
A buffer keeps its packets and its time at line rate, so in the lab it is as many µs ÷ d.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlcp.model.buffering import shared_bytes
from dlcp.model.experiment import Experiment
from dlcp.model.frames import FRAME_BYTES, PAYLOAD_BYTES
from dlcp.model.host_settings import LINUX_RTO_MIN_S, HostSettings
from dlcp.model.workload import Job

COMPARED = (
    "time_dilation",
    "byte_scale",
    "link_rate_bps",
    "port_buffer_bytes",
    "buffering",
    "buffer_alpha",
    "queue_minimum_bytes",
    "shared_buffer_bytes",
)
"""Parts of a regime that two runs of a job must share before their times are compared."""


def regime(experiment: Experiment, job: Job, hosts: dict[str, HostSettings]) -> dict[str, Any]:
    """Name → number, the unit in the name; the same for every scheme of an experiment's job.

    hosts: label → what it sets in hosts, for schemes over kernel TCP; the floors of TCP's retransmission timer are
    given in lab time.
    """
    scaling = experiment.scaling
    link_rate_bps = experiment.topology.graph.slowest_host_bps
    buffer_s = experiment.port_buffer_bytes * 8 / link_rate_bps
    byte_scale = job.scale(scaling.byte_scale)
    facts: dict[str, Any] = {
        "link_rate_bps": link_rate_bps,
        "lab_rate_bps": link_rate_bps * byte_scale * scaling.time_dilation,
        "byte_scale": byte_scale,
        "time_dilation": scaling.time_dilation,
        **({"dilated_by": scaling.dilated_by} if scaling.dilated_by != 1 else {}),
        **({"scaled_down": scaling.scaled_down} if scaling.scaled_down != 1 else {}),
        "port_buffer_bytes": experiment.port_buffer_bytes,
        "port_buffer_packets": experiment.port_buffer_bytes // FRAME_BYTES,
        "port_buffer_lab_s": buffer_s / scaling.time_dilation,
        **_buffering(experiment, byte_scale),
        "bucket_packets": round(job.bucket_bytes / PAYLOAD_BYTES, 1),
    }
    for label, settings in hosts.items():
        floor_s = settings.rto_min_s if settings.rto_min_s is not None else LINUX_RTO_MIN_S
        facts[f"{label}_rto_floor_lab_s"] = floor_s / scaling.time_dilation
    return facts


def _buffering(experiment: Experiment, byte_scale: float) -> dict[str, Any]:
    """The buffer model, before what a scheme reserves; nothing for the static pool, as in results
    that know no other."""
    buffering, shared = experiment.buffering, experiment.shared_buffer
    if not buffering.dynamic:
        return {}
    alpha = buffering.alpha if shared is None else shared.alpha
    size_bytes = shared_bytes(experiment.port_buffer_bytes, alpha) if shared is None else shared.size_bytes
    return {
        "buffering": buffering.kind,
        "buffer_alpha": alpha,
        "queue_minimum_bytes": buffering.minimum_bytes,
        "shared_buffer_bytes": size_bytes,
        "shared_buffer_lab_bytes": round(size_bytes * byte_scale),
    }


class JobRegimes:
    """The regime of each job's newest run. Add results from the newest to the oldest."""

    def __init__(self) -> None:
        self._parts: dict[str, dict[str, Any]] = {}

    def add(self, job: str, regime: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
        """Return the parts of COMPARED in which a result differs from its job's newest run: name →
        (its value, that of the newest run).

        A result that lacks a part (of an older format, or made in one process) agrees in it.
        """
        parts, newest = _compared_parts(regime), self._parts.setdefault(job, {})
        differing = {name: (value, newest[name]) for name, value in parts.items() if newest.get(name, value) != value}
        if not differing:
            self._parts[job] = parts | newest
        return differing


def _compared_parts(regime: Mapping[str, Any]) -> dict[str, Any]:
    """The parts of COMPARED that a regime has. Only a dynamic buffer names its model (see `_buffering`)."""
    parts = {name: regime[name] for name in COMPARED if name in regime}
    return {"buffering": "static"} | parts if "port_buffer_bytes" in parts else parts

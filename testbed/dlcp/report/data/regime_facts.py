"""The scaling regime as people read it: a few facts that belong together, with their units in words."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from dlcp.model.units import show_duration, show_rate
from dlcp.report.data.formatting import show_name, show_setting

_RTO_FLOOR = "_rto_floor_lab_s"
"""Ends the key of a scheme's floor; its label stands before it."""
_BUFFER: dict[str, Callable[[Any], str]] = {
    "port_buffer_bytes": lambda value: show_setting("port_buffer_bytes", value),
    "port_buffer_packets": lambda value: f"{value:g} packets",
    "port_buffer_lab_s": lambda value: f"{show_duration(value)} of lab line rate",
}

_SHARING = ("buffering", "buffer_alpha", "shared_buffer_bytes", "shared_buffer_lab_bytes", "queue_minimum_bytes")
"""Fields of the regime that are reported together as `buffering`."""


def regime_facts(regime: dict[str, Any]) -> list[tuple[str, str]]:
    """(name, value with its unit) in the order of the regime; what this does not know keeps its own name."""
    buffer = " = ".join(show(regime[name]) for name, show in _BUFFER.items() if name in regime)
    facts: dict[str, str] = {}
    for name, value in regime.items():
        if name in _BUFFER:
            facts["port buffer"] = buffer
            facts["buffering"] = _sharing(regime)
        elif name in _SHARING and _SHARING[-1] in regime:
            continue
        elif name == "link_rate_bps":
            facts["links"] = show_rate(value)
        elif name == "lab_rate_bps":
            facts["lab links"] = show_rate(value)
        elif name == "time_dilation" and value != 1:
            facts[show_name(name)] = f"{value:g} (times are in lab time: the emulation's ÷ {value:g})"
        elif name == "bucket_packets":
            facts["bucket"] = f"{value:.0f} packets"
        elif name.endswith(_RTO_FLOOR):
            facts[f"{name.removesuffix(_RTO_FLOOR)}: RTO floor"] = f"{show_duration(value)} (lab time)"
        else:
            facts[show_name(name)] = show_setting(name, value)
    return list(facts.items())


def _sharing(regime: dict[str, Any]) -> str:
    """How switches divide their memory. Results that do not say are of ports with one pool each."""
    if regime.get("buffering", "static") == "static":
        return "static: one pool of all queues of a port"
    size, lab, minimum = (show_setting(name, regime[name]) for name in _SHARING[2:])
    alpha = regime["buffer_alpha"]
    return f"dynamic: alpha {alpha:g} of {size} a switch ({lab} in the lab), {minimum} of its own a queue"


def facts_of_jobs(regimes: Mapping[str, dict[str, Any]]) -> list[tuple[str, str]]:
    """The facts of several jobs' regimes: name, value with its unit; where jobs differ, each value with its jobs."""
    facts = {job: dict(regime_facts(regime)) for job, regime in regimes.items()}
    rows = []
    for name in dict.fromkeys(name for job_facts in facts.values() for name in job_facts):
        jobs_of: dict[str, list[str]] = {}
        for job, job_facts in facts.items():
            if name in job_facts:
                jobs_of.setdefault(job_facts[name], []).append(job)
        each = ", ".join(f"{value} ({', '.join(jobs)})" for value, jobs in jobs_of.items())
        rows.append((name, next(iter(jobs_of)) if len(jobs_of) == 1 else each))
    return rows


def regime_caption(regime: dict[str, Any]) -> str:
    """The regime in one line, as every plot carries it."""
    return "  ·  ".join(f"{name} {value}" for name, value in regime_facts(regime))

"""The scaling regime as people read it: a few facts that belong together, with their units in words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dlcp.model.units import show_duration, show_rate
from dlcp.report.words import show_name, show_setting

_RTO_FLOOR = "_rto_floor_lab_s"
"""Ends the key of a scheme's floor; its label stands before it."""
_BUFFER: dict[str, Callable[[Any], str]] = {
    "port_buffer_bytes": lambda value: show_setting("port_buffer_bytes", value),
    "port_buffer_packets": lambda value: f"{value:g} packets",
    "port_buffer_lab_s": lambda value: f"{show_duration(value)} of lab line rate",
}


def regime_facts(regime: dict[str, Any]) -> list[tuple[str, str]]:
    """(name, value with its unit) in the order of the regime; what this does not know keeps its own name."""
    buffer = " = ".join(show(regime[name]) for name, show in _BUFFER.items() if name in regime)
    facts: dict[str, str] = {}
    for name, value in regime.items():
        if name in _BUFFER:
            facts["port buffer"] = buffer
        elif name == "link_rate_bps":
            facts["links"] = show_rate(value)
        elif name == "lab_rate_bps":
            facts["lab links"] = show_rate(value)
        elif name == "bucket_packets":
            facts["bucket"] = f"{value:.0f} packets"
        elif name.endswith(_RTO_FLOOR):
            facts[f"{name.removesuffix(_RTO_FLOOR)}: RTO floor"] = f"{show_duration(value)} (lab time)"
        else:
            facts[show_name(name)] = show_setting(name, value)
    return list(facts.items())


def regime_caption(regime: dict[str, Any]) -> str:
    """The regime in one line, as every plot carries it."""
    return "  ·  ".join(f"{name} {value}" for name, value in regime_facts(regime))

"""The promises that a run's own tables must keep; a run that breaks one has failed, however fast it was."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from dlcp.model.replicas import may_differ

ENERGY_ROUNDING = 1e-6
"""Bounds travel in parts per million (wire.h)."""


def broken_promises(
    iterations: Mapping[str, Sequence[Any]], messages: Mapping[str, Sequence[Any]], *, drift_lasts: bool = False
) -> str:
    """One sentence for each promise that the tables `iterations` and `messages` show broken; empty when none is.

    drift_lasts: see dlcp.patterns.base.
    """
    replicas = _replicas(iterations, messages, drift_lasts)
    return "; ".join(filter(None, (replicas, _bounds(messages), _energy(messages), _accounts(messages))))


def _replicas(iterations: Mapping[str, Sequence[Any]], messages: Mapping[str, Sequence[Any]], drift_lasts: bool) -> str:
    """Every worker ends an iteration with bit-identical parameters, but where they may differ. (A pull that must not
    lose anything and does breaks its bound.)"""
    pulls = zip(messages["iteration"], messages["leg"], messages["lost_bytes"], strict=True)
    lossy = {iteration for iteration, leg, lost in pulls if leg == "pull" and lost > 0}
    drifting = may_differ(iterations["iteration"], lossy, lasts=drift_lasts)
    fingerprints: dict[int, set[int]] = {}
    for iteration, crc32 in zip(iterations["iteration"], iterations["parameters_crc32"], strict=True):
        if iteration not in drifting:
            fingerprints.setdefault(iteration, set()).add(crc32)
    apart = [iteration for iteration, found in fingerprints.items() if len(found) > 1]
    return f"workers hold different parameters after iteration {min(apart)}" if apart else ""


def _bounds(messages: Mapping[str, Sequence[Any]]) -> str:
    """No tensor lost more than its bound."""
    for i, (lost, bound, size) in enumerate(
        zip(messages["lost_bytes"], messages["loss_bound"], messages["bytes"], strict=True)
    ):
        if lost > bound * size:
            return f"{_name(messages, i)} lost {lost} of {size} B, its bound is {bound:.3g}"
    return ""


def _energy(messages: Mapping[str, Sequence[Any]]) -> str:
    """No tensor lost more of its energy than its bound, but for what the magnitude codes leave open."""
    for i, (lost, bound) in enumerate(zip(messages["lost_energy_share"], messages["energy_bound"], strict=True)):
        if lost > bound + ENERGY_ROUNDING:
            return f"{_name(messages, i)} lost {lost:.3g} of its energy, its bound is {bound:.3g}"
    return ""


def _accounts(messages: Mapping[str, Sequence[Any]]) -> str:
    """What was delivered and what was lost make up the tensor."""
    for i, (delivered, lost, size) in enumerate(
        zip(messages["delivered_bytes"], messages["lost_bytes"], messages["bytes"], strict=True)
    ):
        if delivered + lost != size:
            return f"{_name(messages, i)}: {delivered} B delivered and {lost} B lost of {size} B do not add up"
    return ""


def _name(messages: Mapping[str, Sequence[Any]], i: int) -> str:
    return (
        f"iteration {messages['iteration'][i]}, tensor {messages['tensor'][i]}, {messages['leg'][i]} "
        f"{messages['src'][i]} → {messages['dst'][i]}"
    )

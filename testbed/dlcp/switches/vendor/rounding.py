"""Sizes and shares as a switch writes them, and as its chip then takes them.

A threshold or limit is rounded down, so that a queue never holds more than intended; what is reserved, or kept as
headroom, is rounded up. First to the unit that the system writes, then to the chip's cells.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

from dlcp.errors import Problem
from dlcp.model.lab.device import Device
from dlcp.model.qos import PRECEDENCES, DropProfile, Pfc, QosIntent, QueueIntent
from dlcp.model.units import show_duration
from dlcp.switches.vendor.settle import Settled
from dlcp.switches.vendor.systems import System, Unit, Units

_SAME_S = 1e-9
"""Times that differ by less are the same."""


@dataclass(frozen=True)
class Difference:
    """A number that is not quite what was intended. what: such as "queue 3: precedence 2 minimum"."""

    what: str
    intended: str
    effective: str
    why: str


@dataclass(frozen=True)
class Curve:
    """A drop profile as it is written: thresholds in the system's unit, the probability in per cent."""

    minimum: int
    maximum: int
    probability: float
    mark: bool


class Ruler:
    """Rounds for one system on one device."""

    def __init__(self, intent: str, device: Device, system: System) -> None:
        self._where = f"QoS intent {intent} on {device.name}"
        self._device = device
        self._units = system.capabilities.units

    def thresholds_unit_bytes(self) -> float:
        """Of one unit that a threshold is written in."""
        return self._step_bytes(self._units.thresholds)

    def curve(self, profile: DropProfile) -> Curve:
        """How a profile is written. Raises Problem when its maximum is below one unit."""
        unit = self._units.thresholds
        step_bytes = self._step_bytes(unit)
        maximum = math.floor(profile.maximum_bytes / step_bytes)
        minimum = min(math.floor(profile.minimum_bytes / step_bytes), maximum - unit.least_width)
        if maximum < max(1, unit.least_width) or minimum < 0:
            what = f"a profile up to {profile.maximum_bytes} B is below one unit of {step_bytes:g} B"
            raise Problem(self._where, what, "larger thresholds")
        return Curve(minimum, maximum, self._percent(profile.probability), profile.mark)

    def threshold(self, size_bytes: int) -> int:
        """A limit, in units of thresholds."""
        return self._down(size_bytes, self._units.thresholds)

    def reserved(self, size_bytes: int) -> int:
        """What is reserved, in its units."""
        return math.ceil(size_bytes / self._step_bytes(self._units.reserved) - 1e-9)

    def pfc_down(self, size_bytes: int) -> int:
        """xoff or xon, in units of PFC."""
        return self._down(size_bytes, self._units.pfc)

    def pfc_up(self, size_bytes: int) -> int:
        """Headroom, in units of PFC."""
        return math.ceil(size_bytes / self._step_bytes(self._units.pfc) - 1e-9)

    def alpha_power(self, alpha: float) -> int:
        """The power of 2 that is nearest to an alpha. Raises Problem where the system does not go so far."""
        limits = self._units.alphas
        if limits is None or not limits[0] <= 2.0 ** round(math.log2(alpha)) <= limits[1]:
            told = "takes none" if limits is None else f"takes {limits[0]:g} to {limits[1]:g}"
            raise Problem(self._where, f"alpha {alpha:g}: the system {told}", "another alpha")
        return round(math.log2(alpha))

    def watchdog_s(self, time_s: float) -> float:
        """The watchdog's time in whole steps. Raises Problem where the system takes none so short or so long."""
        limits = self._units.watchdog
        if limits is None:
            return time_s
        if not limits.least_s <= time_s <= limits.most_s:
            told = f"{show_duration(limits.least_s)} to {show_duration(limits.most_s)}"
            what = f"a PFC watchdog of {show_duration(time_s)}: the system takes {told}"
            raise Problem(self._where, what, "another time")
        return round(time_s / limits.step_s) * limits.step_s

    def xoff_power(self, xoff_bytes: int) -> int:
        """The alpha, as power of 2, at which one queue alone on the switch stops nearest to xoff: alone it fills
        alpha / (1 + alpha) of the buffer."""
        rest_bytes = self._device.buffer_bytes - xoff_bytes
        if rest_bytes <= 0:
            what = f"xoff {xoff_bytes} B is not below the chip's buffer of {self._device.buffer_bytes} B"
            raise Problem(self._where, what, "a smaller xoff")
        return self.alpha_power(xoff_bytes / rest_bytes)

    def shares(self, intent: QosIntent) -> dict[int, int]:
        """Weighted queue → per cent of what strict queues leave; together 100, by largest remainders."""
        weights = {number: queue.weight for number, queue in sorted(intent.queues.items()) if queue.weight is not None}
        total = sum(weights.values())
        exact = {number: 100 * weight / total for number, weight in weights.items()}
        shares = {number: max(1, math.floor(share)) for number, share in exact.items()}
        for number in sorted(exact, key=lambda n: math.floor(exact[n]) - exact[n]):
            if sum(shares.values()) < 100:
                shares[number] += 1
        return shares

    # What the chip makes of it.

    def effective(self, intent: QosIntent) -> QosIntent:
        """The intent with every number as the switch takes it. Raises Problem where they do not hold together then."""
        queues = {number: self._queue(queue) for number, queue in intent.queues.items()}
        pfc = self._pfc(intent.pfc) if intent.pfc else None
        of_all = {"alpha": self._alpha(intent.alpha), "minimum_bytes": self._reserved(intent.minimum_bytes)}
        return intent.model_copy(update={"queues": queues, "pfc": pfc} | of_all)

    def _queue(self, queue: QueueIntent) -> QueueIntent:
        unit = self._units.thresholds
        changes: dict[str, Any] = {
            "profiles": tuple(self._profile(profile) if profile else None for profile in queue.profiles),
            "reserved_bytes": self._reserved(queue.reserved_bytes),
            "alpha": self._alpha(queue.alpha),
        }
        if queue.limit_bytes is not None:
            changes["limit_bytes"] = self._cells(self.threshold(queue.limit_bytes) * self._step_bytes(unit))
        return queue.model_copy(update=changes)

    def _reserved(self, size_bytes: int) -> int:
        return self._cells_up(self.reserved(size_bytes) * self._step_bytes(self._units.reserved))

    def _alpha(self, alpha: float | None) -> float | None:
        if alpha is None:
            return None
        step = self._units.alpha_step
        return round(alpha / step) * step if step else 2.0 ** self.alpha_power(alpha)

    def _profile(self, profile: DropProfile) -> DropProfile:
        curve, step_bytes = self.curve(profile), self._step_bytes(self._units.thresholds)
        return profile.model_copy(
            update={
                "minimum_bytes": self._cells(curve.minimum * step_bytes),
                "maximum_bytes": self._cells(curve.maximum * step_bytes),
                "probability": curve.probability / 100 if self._units.probability_step else profile.probability,
            }
        )

    def _pfc(self, pfc: Pfc) -> Pfc:
        step_bytes = self._step_bytes(self._units.pfc)
        xoff_bytes = self._cells(self.pfc_down(pfc.xoff_bytes) * step_bytes)
        if self._units.xoff_by_alpha:
            alpha = 2.0 ** self.xoff_power(pfc.xoff_bytes)
            xoff_bytes = self._cells(self._device.buffer_bytes * alpha / (1 + alpha))
        changes: dict[str, Any] = {
            "xoff_bytes": xoff_bytes,
            "xon_bytes": self._cells(self.pfc_down(pfc.xon_bytes) * step_bytes),
        }
        if pfc.headroom_bytes is not None:
            changes["headroom_bytes"] = self._cells_up(self.pfc_up(pfc.headroom_bytes) * step_bytes)
        if changes["xon_bytes"] > changes["xoff_bytes"]:
            what = f"the switch takes xoff as {changes['xoff_bytes']} B, which is below xon, {changes['xon_bytes']} B"
            raise Problem(self._where, what, "a lower xon")
        if pfc.watchdog_s is not None and self._units.watchdog is not None:
            changes["watchdog_s"] = self.watchdog_s(pfc.watchdog_s)
        return pfc.model_copy(update=changes)

    def _percent(self, probability: float) -> float:
        """Never 0 where something was meant to happen."""
        step = self._units.probability_step
        if not step or not probability:
            return probability * 100
        return max(1, round(probability / step)) * step * 100

    def _down(self, size_bytes: int, unit: Unit) -> int:
        written = math.floor(size_bytes / self._step_bytes(unit) + 1e-9)
        if size_bytes and not written:
            what = f"{size_bytes} B is below one unit of {self._step_bytes(unit):g} B"
            raise Problem(self._where, what, "a larger size")
        return written

    def _step_bytes(self, unit: Unit) -> float:
        device = self._device
        steps = {
            "bytes": 1.0,
            "kbytes": 1000.0,
            "percent-of-queue": device.queue_bytes / 100,
            "percent-of-port": device.port_buffer_bytes / 100,
        }
        return steps[unit.write]

    def _cells(self, size_bytes: float) -> int:
        cell_bytes = self._device.cell_bytes
        return math.floor(size_bytes / cell_bytes + 1e-9) * cell_bytes

    def _cells_up(self, size_bytes: float) -> int:
        cell_bytes = self._device.cell_bytes
        return math.ceil(size_bytes / cell_bytes - 1e-9) * cell_bytes


def differences(settled: Settled, effective: QosIntent, device: Device, system: System) -> tuple[Difference, ...]:
    """Every number of an intent that a switch takes otherwise; queues that differ alike are told together."""
    intended, units = settled.intent, system.capabilities.units
    cell = f", in cells of {device.cell_bytes} B" if device.cell_bytes > 1 else ""
    alike: dict[Difference, list[int]] = {}
    for number in sorted(intended.queues):
        for one in _of_queue(intended.queue(number), effective.queue(number), units, cell):
            alike.setdefault(one, []).append(number)
    told = [
        replace(one, what=f"queue{'s' * (len(queues) > 1)} {', '.join(map(str, queues))}: {one.what}")
        for one, queues in alike.items()
    ]
    told += _of_all_queues(intended, effective, units, cell)
    if intended.pfc and effective.pfc:
        told += _of_pfc(settled, intended.pfc, effective.pfc, units, cell)
        told += _of_watchdog(settled, intended.pfc, effective.pfc, units)
    return (*told, *_of_weights(intended, device, system))


def _of_queue(before: QueueIntent, after: QueueIntent, units: Units, cell: str) -> Iterator[Difference]:
    why = f"written in {units.thresholds.write}{cell}"
    curves: dict[tuple[DropProfile, DropProfile], list[int]] = {}
    for precedence in range(PRECEDENCES):
        one, other = before.profiles[precedence], after.profiles[precedence]
        if one is not None and other is not None:
            curves.setdefault((one, other), []).append(precedence)
    for (one, other), precedences in curves.items():
        name = f"precedence{'s' * (len(precedences) > 1)} {', '.join(map(str, precedences))}"
        yield from _size(f"{name} minimum", one.minimum_bytes, other.minimum_bytes, why)
        yield from _size(f"{name} maximum", one.maximum_bytes, other.maximum_bytes, why)
        if one.probability != other.probability:
            shown = f"{one.probability * 100:.4g} %", f"{other.probability * 100:.4g} %"
            yield Difference(f"{name} probability", *shown, "written in whole per cent")
    yield from _size("limit", before.limit_bytes, after.limit_bytes, why)
    yield from _size(
        "reserved", before.reserved_bytes, after.reserved_bytes, f"written in {units.reserved.write}{cell}"
    )
    yield from _alpha("alpha", before.alpha, after.alpha, units)


def _of_all_queues(before: QosIntent, after: QosIntent, units: Units, cell: str) -> Iterator[Difference]:
    why = f"written in {units.reserved.write}{cell}"
    yield from _size("minimum of every queue", before.minimum_bytes, after.minimum_bytes, why)
    yield from _alpha("alpha of every queue", before.alpha, after.alpha, units)


def _alpha(what: str, before: float | None, after: float | None, units: Units) -> Iterator[Difference]:
    if before is not None and after is not None and before != after:
        steps = f"in steps of {units.alpha_step:g}" if units.alpha_step else "a power of 2"
        yield Difference(what, f"{before:g}", f"{after:g}", steps)


def _of_pfc(settled: Settled, before: Pfc, after: Pfc, units: Units, cell: str) -> Iterator[Difference]:
    why = f"written in {units.pfc.write}{cell}"
    if "pfc-thresholds" not in settled.left:
        by_alpha = "an alpha, a power of 2; holds for one queue alone on the switch"
        yield from _size("pfc: xoff", before.xoff_bytes, after.xoff_bytes, by_alpha if units.xoff_by_alpha else why)
        yield from _size("pfc: xon", before.xon_bytes, after.xon_bytes, why)
    if "pfc-headroom" not in settled.left:
        yield from _size("pfc: headroom", before.headroom_bytes, after.headroom_bytes, why)


def _of_watchdog(settled: Settled, before: Pfc, after: Pfc, units: Units) -> Iterator[Difference]:
    old, new = before.watchdog_s, after.watchdog_s
    if old is None or new is None or "pfc-watchdog-time" in settled.left or abs(old - new) < _SAME_S:
        return
    step = units.watchdog.step_s if units.watchdog else 0.0
    yield Difference("pfc: watchdog", show_duration(old), show_duration(new), f"in steps of {show_duration(step)}")


def _of_weights(intent: QosIntent, device: Device, system: System) -> Iterator[Difference]:
    if not system.capabilities.units.weight_in_percent:
        return
    shares = Ruler(intent.name, device, system).shares(intent)
    total = sum(intent.queue(number).weight or 0 for number in shares)
    for number, share in shares.items():
        exact = 100 * (intent.queue(number).weight or 0) / total
        if exact != share:
            why = "weights are written in whole per cent"
            yield Difference(f"queue {number}: share of what strict queues leave", f"{exact:.4g} %", f"{share} %", why)


def _size(what: str, before: int | None, after: int | None, why: str) -> Iterator[Difference]:
    if before is not None and after is not None and before != after:
        yield Difference(what, f"{before} B", f"{after} B", why)

"""Whether a switch can do an intent: refused with reasons, or settled with what is declared to be done instead."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from dlcp.errors import Problem, Problems
from dlcp.model.lab.device import Device
from dlcp.model.loading.explain import did_you_mean
from dlcp.model.qos import CONTROL_QUEUE, QUEUES, QosIntent
from dlcp.switches.vendor.features import MEANING, PART_OF, Feature, Need, needs
from dlcp.switches.vendor.substitutes import substitute
from dlcp.switches.vendor.systems import Conflict, Missing, Substitute, System


@dataclass(frozen=True)
class Degradation:
    """Something that a switch does otherwise than intended, by the intent's leave or because it needs none (see
    _leaves_it_to_the_system). Every result of it carries this.

    feature: what was asked for, or the name of a conflict. instead: what the switch does. why, source: of the lack.
    """

    feature: str
    where: str
    instead: str
    why: str
    source: str


@dataclass(frozen=True)
class Trouble:
    """Something that cannot be done as intended. queues: those that it is about; () = the port or the switch.
    needs_leave: whether the substitute is done only where the intent allows it."""

    feature: str
    queues: tuple[int, ...]
    what: str
    why: str
    source: str
    way_out: str
    substitute: Substitute | None
    about: tuple[Feature, ...]
    needs_leave: bool = True


@dataclass(frozen=True)
class Settled:
    """An intent that a switch can do. left: features that are asked for, but left as the system has them."""

    intent: QosIntent
    degradations: tuple[Degradation, ...] = ()
    left: frozenset[Feature] = field(default_factory=frozenset)


def check(intent: QosIntent, device: Device, system: System) -> None:
    """What must hold whatever a switch can do. Raises Problems, all of them at once."""
    problems = [*_device_problems(device, system), *_intent_problems(intent, device)]
    if problems:
        raise Problems(problems)


def settle(intent: QosIntent, device: Device, system: System) -> Settled:
    """The intent as this switch can do it. Raises Problems when it may not be degraded, or cannot be."""
    degrade = intent.on_unsupported == "degrade"
    degradations: list[Degradation] = []
    left: frozenset[Feature] = frozenset()
    while found := list(_troubles(intent, device, system, left)):
        refused = [one for one in found if one.substitute is None or (one.needs_leave and not degrade)]
        if refused:
            raise Problems([_problem(intent, device, trouble, degrade=degrade) for trouble in refused])
        trouble = found[0]
        assert trouble.substitute is not None
        changed, words = substitute(trouble.substitute, intent, trouble.queues, device.name)
        if changed == intent:
            left |= set(trouble.about)
        degradations.append(Degradation(trouble.feature, _named(trouble.queues), words, trouble.why, trouble.source))
        intent = changed
    return Settled(intent, tuple(degradations), left)


def _troubles(intent: QosIntent, device: Device, system: System, left: frozenset[Feature]) -> Iterator[Trouble]:
    """What a switch lacks first, then what it cannot do together."""
    asked = [need for need in needs(intent, device.name) if need.feature not in left]
    missing = {need.feature for need in asked if isinstance(system.verdict(need.feature, device.chip), Missing)}
    for feature in dict.fromkeys(need.feature for need in asked):
        verdict = system.verdict(feature, device.chip)
        if isinstance(verdict, Missing) and PART_OF.get(feature) not in missing:
            what = f"no {feature} ({MEANING[feature]})"
            more = (verdict.why, verdict.source, verdict.way_out, verdict.substitute)
            asking = [need for need in asked if need.feature == feature]
            for leave in (False, True):
                needing = [need for need in asking if _leaves_it_to_the_system(intent, need) != leave]
                queues = tuple(need.queue for need in needing if need.queue is not None)
                if needing:
                    yield Trouble(feature, queues, what, *more, about=(feature,), needs_leave=leave)
    for conflict in system.conflicts:
        clashing = None if conflict.chips and device.chip not in conflict.chips else _clash(conflict, asked)
        if clashing is not None:
            what = f"not together: {', '.join(conflict.features)}"
            more = (conflict.why, conflict.source, conflict.way_out, conflict.substitute)
            yield Trouble(conflict.name, clashing, what, *more, about=conflict.features)


def _leaves_it_to_the_system(intent: QosIntent, need: Need) -> bool:
    """Return whether a switch that lacks something may do as its system does without leave: the intent says it of all
    queues alike, as the emulated switch has it (EMULATOR.md), and every switch has a buffer of its own kind. So too the
    size of a lossless queue's pool, which PFC bounds on a chip."""
    if need.queue is None:
        return False
    own = intent.queue(need.queue)
    return (
        (need.feature == "alpha" and own.alpha is None)
        or (need.feature == "reserved" and own.reserved_bytes == 0)
        or (need.feature == "queue-limit" and intent.lossless(need.queue) and own.limit_bytes == own.reserved_bytes)
    )


def _clash(conflict: Conflict, asked: list[Need]) -> tuple[int, ...] | None:
    """The queues that ask for all of a conflict's features; () where the switch as a whole does; None: nothing does."""
    wanted = set(conflict.features)
    if conflict.within == "switch":
        return () if wanted <= {need.feature for need in asked} else None
    by_queue = {q: {need.feature for need in asked if need.queue == q} for q in range(QUEUES)}
    return tuple(queue for queue, features in by_queue.items() if wanted <= features) or None


def _named(queues: tuple[int, ...]) -> str:
    return f"queue{'s' * (len(queues) > 1)} {', '.join(map(str, queues))}" if queues else ""


def _problem(intent: QosIntent, device: Device, trouble: Trouble, *, degrade: bool) -> Problem:
    """Names system, feature, reason, source and the way out."""
    where = f"{device.name} ({device.system}, {device.chip})"
    queues = f", {_named(trouble.queues)}" if trouble.queues else ""
    hint = trouble.way_out
    if trouble.substitute is not None and not degrade:
        hint += f"; or degrade (on_unsupported: degrade, --degrade): {trouble.substitute}"
    what = f"QoS intent {intent.name}{queues}: {trouble.what}: {trouble.why} [{trouble.source}]"
    return Problem(where, what, hint)


def _device_problems(device: Device, system: System) -> Iterator[Problem]:
    where, capabilities = f"device {device.name}", system.capabilities
    if device.system != system.name:
        yield Problem(where, f"runs {device.system}, not {system.name}")
    if device.chip not in capabilities.chips:
        hint = did_you_mean(device.chip, capabilities.chips)
        yield Problem(where, f"{system.name} has no chip {device.chip!r}", hint)
    for port in device.ports:
        if re.fullmatch(capabilities.management, port):
            yield Problem(where, f"{port} is a management interface: it is never touched", "take it out of ports")
        elif not re.fullmatch(capabilities.port, port):
            hint = f"one port each, of the form {capabilities.port}"
            yield Problem(where, f"{port!r} is no port of {capabilities.title}", hint)


def _intent_problems(intent: QosIntent, device: Device) -> Iterator[Problem]:
    where = f"QoS intent {intent.name}"
    if intent.control_plane == "queue-7":
        control = intent.queue(CONTROL_QUEUE)
        lossless = intent.pfc is not None and CONTROL_QUEUE in intent.pfc.queues
        if any(control.profiles) or control.weight is not None or lossless:
            what = "queue 7 is kept for control packets, and has a profile, a weight or PFC"
            yield Problem(where, what, "use queues 0 to 6, or say control_plane: accept-starvation")
    for number in intent.pfc.queues if intent.pfc else ():
        if any(profile is not None and not profile.mark for profile in intent.queue(number).profiles):
            yield Problem(where, f"queue {number} is lossless and has a profile that drops", "mark: true, or no PFC")
    reserved_bytes = intent.reserved_bytes
    if reserved_bytes > device.port_buffer_bytes:
        what = f"its queues reserve {reserved_bytes} B, a port of {device.name} has {device.port_buffer_bytes} B"
        yield Problem(where, what, "reserve less")
    for number in range(QUEUES):
        queue = intent.queue(number)
        sizes = [profile.maximum_bytes for profile in queue.profiles if profile] + [queue.limit_bytes or 0]
        if max(sizes) > device.queue_bytes:
            what = (
                f"queue {number}: {max(sizes)} B is more than a queue of {device.name} holds ({device.queue_bytes} B)"
            )
            yield Problem(where, what, "it would never be reached: lower it")
        if queue.limit_bytes is not None and queue.reserved_bytes > queue.limit_bytes:
            what = f"queue {number} reserves {queue.reserved_bytes} B, its limit is {queue.limit_bytes} B"
            yield Problem(where, what, "a queue cannot hold what it reserves beyond its limit")

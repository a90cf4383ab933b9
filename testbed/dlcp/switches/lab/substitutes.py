"""What is done instead of something that a switch lacks, where an intent allows it; each says what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from dlcp.errors import Problem
from dlcp.model.qos import (
    CODEPOINTS,
    CONTROL_QUEUE,
    PRECEDENCES,
    QUEUES,
    LoadBalancing,
    QosIntent,
    codepoint_of,
)
from dlcp.switches.lab.systems import Substitute

Group = tuple[int, tuple[int, ...]]
"""A queue, and those of its drop precedences that have one profile."""

Made = tuple[QosIntent, str]
"""The intent that is rendered instead, and what differs, in words."""

Maker = Callable[[QosIntent, tuple[int, ...], str], Made]
"""(intent, queues that it is about, name of the switch) → what is rendered instead."""


def substitute(kind: Substitute, intent: QosIntent, queues: tuple[int, ...], switch: str) -> Made:
    """Do a substitute for the queues that lack something. Raises Problem when it cannot be done."""
    return MAKERS[kind](intent, queues, switch)


def _folded(intent: QosIntent, _queues: tuple[int, ...], _switch: str) -> Made:
    """Each drop precedence with a profile of its own gets a queue of its own, right below that of the one before."""
    if any(queue.weight is not None for queue in intent.queues.values()):
        raise _cannot_fold(intent, "its queues share by weight", "folding needs strict queues alone")
    groups = list(_groups(intent))
    if len(groups) > QUEUES:
        queues = len({queue for queue, _ in groups})
        what = f"{queues} queues with their drop precedences apart are {len(groups)}, a port has {QUEUES}"
        raise _cannot_fold(intent, what, "use fewer queues, or fewer profiles in a queue")
    target = _places(groups)
    folded = {}
    for (queue, precedences), place in target.items():
        own = intent.queue(queue)
        profile = own.profiles[precedences[0]]
        first = precedences[0] == 0
        more: dict[str, Any] = {"profiles": (profile,) * PRECEDENCES}
        folded[place] = own.model_copy(update=more if first else more | {"reserved_bytes": 0})
    overrides = {}
    for dscp in range(CODEPOINTS):
        led = codepoint_of(dscp)
        place = _place(intent, target, dscp)
        if (led.queue, led.precedence) != (place, 0):
            overrides[dscp] = {"queue": place}
    lossless = {queue: place for (queue, _), place in target.items()}
    changes: dict[str, Any] = {"queues": {n: q.model_dump() for n, q in sorted(folded.items())}, "dscp": overrides}
    if intent.pfc:
        changes["pfc"] = intent.pfc.model_dump() | {"queues": tuple(lossless[n] for n in intent.pfc.queues)}
    told = ", ".join(
        f"queue {queue} precedence {'+'.join(map(str, precedences))} is queue {place}"
        for (queue, precedences), place in target.items()
    )
    words = (
        f"drop precedences folded into queues ({told}): what is to be dropped first is also served last, its packets "
        "may be overtaken, and its profile looks at its own queue's backlog alone"
    )
    return QosIntent.model_validate(intent.model_dump() | changes), words


def _groups(intent: QosIntent) -> Iterator[Group]:
    """From queue 7 down, precedence 0 first: the queues that the intent names, the control queue and best effort."""
    lossless = intent.pfc.queues if intent.pfc else ()
    for number in sorted({*intent.queues, *lossless, CONTROL_QUEUE, 0}, reverse=True):
        profiles = intent.queue(number).profiles
        start = 0
        for precedence in range(1, PRECEDENCES + 1):
            if precedence == PRECEDENCES or profiles[precedence] != profiles[start]:
                yield number, tuple(range(start, precedence))
                start = precedence
        if number in lossless and len(set(profiles)) > 1:
            raise _cannot_fold(intent, f"queue {number} is lossless", "give its drop precedences one profile")


def _places(groups: list[Group]) -> dict[Group, int]:
    """Best effort at the bottom, all others from the top down."""
    lowest = sum(queue == 0 for queue, _ in groups)
    top = groups[: len(groups) - lowest]
    places = {group: QUEUES - 1 - rank for rank, group in enumerate(top)}
    return places | {group: lowest - 1 - rank for rank, group in enumerate(groups[len(top) :])}


def _place(intent: QosIntent, target: dict[Group, int], dscp: int) -> int:
    """The queue of a DSCP. Of a queue that is not named: the control queue where it lies above all data, so that
    routing stays ahead of it; else that of the nearest below."""
    led = intent.codepoint(dscp)
    named = sorted({queue for queue, _ in target})
    data = [queue for queue in named if queue != CONTROL_QUEUE]
    queue = led.queue
    if queue not in named:
        queue = CONTROL_QUEUE if queue > max(data) else max(q for q in named if q < queue)
    return next(place for (own, ones), place in target.items() if own == queue and led.precedence in ones)


def _cannot_fold(intent: QosIntent, what: str, hint: str) -> Problem:
    return Problem(f"QoS intent {intent.name}", f"drop precedences cannot be folded into queues: {what}", hint)


def _queue_changed(update: dict[str, Any], words: str) -> Maker:
    """A substitute that says less of some queues."""

    def make(intent: QosIntent, queues: tuple[int, ...], _switch: str) -> Made:
        changed = {number: intent.queue(number).model_copy(update=update) for number in queues}
        return intent.model_copy(update={"queues": dict(intent.queues) | changed}), words

    return make


def _pfc_changed(update: dict[str, Any], words: str) -> Maker:
    def make(intent: QosIntent, _queues: tuple[int, ...], _switch: str) -> Made:
        pfc = intent.pfc.model_copy(update=update) if intent.pfc else None
        return intent.model_copy(update={"pfc": pfc}), words

    return make


def _balanced(balancing: LoadBalancing, words: str) -> Maker:
    def make(intent: QosIntent, _queues: tuple[int, ...], switch: str) -> Made:
        changed = dict(intent.switch_load_balancing) | {switch: balancing}
        return intent.model_copy(update={"switch_load_balancing": changed}), words

    return make


def _left_to_the_system(words: str) -> Maker:
    """The intent stays; the system does as it does."""

    def make(intent: QosIntent, _queues: tuple[int, ...], _switch: str) -> Made:
        return intent, words

    return make


MAKERS: dict[Substitute, Maker] = {
    "fold-precedences": _folded,
    "instantaneous": _queue_changed({"averaging": 0}, "profiles look at the backlog as the chip averages it"),
    "nothing-reserved": _queue_changed({"reserved_bytes": 0}, "nothing is reserved beyond what the system reserves"),
    "no-limit": _queue_changed({"limit_bytes": None}, "the queue may hold what the chip's buffer leaves it"),
    "system-alpha": _queue_changed({"alpha": 1.0}, "the queue's dynamic threshold is the system's own"),
    "system-thresholds": _left_to_the_system("PFC pauses and resumes at the system's own thresholds"),
    "system-headroom": _left_to_the_system("the headroom is what the system works out"),
    "system-watchdog-time": _left_to_the_system("the PFC watchdog is on, with the system's own time"),
    "no-watchdog": _pfc_changed({"watchdog_s": None}, "no PFC watchdog: a pause without end stays one"),
    "tail-drop-not-ect": _left_to_the_system(
        "packets that are not ECN-capable are dropped only where the queue is full: dropping selectively by ECT does "
        "not work"
    ),
    "flow-hash": _balanced("flow-hash", "paths are chosen by a hash of the flow"),
    "flowlet": _balanced("flowlet", "paths are chosen for bursts of a flow, not for packets"),
}

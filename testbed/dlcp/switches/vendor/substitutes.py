"""What is done instead of something that a switch lacks, where an intent allows it; each says what it costs."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dlcp.errors import Problem
from dlcp.model.qos import (
    CODEPOINTS,
    CONTROL_QUEUE,
    PRECEDENCES,
    QUEUES,
    Codepoint,
    LoadBalancing,
    QosIntent,
    QueueIntent,
    codepoint_of,
)
from dlcp.switches.vendor.systems import Substitute

Group = tuple[int, tuple[int, ...]]
"""A queue, and those of its drop precedences that have one profile."""

ALL = tuple(range(PRECEDENCES))
"""Of the group of a queue that has one profile."""

Made = tuple[QosIntent, str]
"""The intent that is rendered instead, and what differs, in words."""

Maker = Callable[[QosIntent, tuple[int, ...], str], Made]
"""(intent, queues that it is about, name of the switch) → what is rendered instead."""


def substitute(kind: Substitute, intent: QosIntent, queues: tuple[int, ...], switch: str) -> Made:
    """Do a substitute for the queues that lack something. Raises Problem when it cannot be done."""
    return MAKERS[kind](intent, queues, switch)


def _folded(intent: QosIntent, _queues: tuple[int, ...], _switch: str) -> Made:
    """Each drop precedence with a profile of its own gets a queue of its own, right below that of the one before.

    Room for them is made by queues that the intent does not name, the lowest first.
    """
    if any(queue.weight is not None for queue in intent.queues.values()):
        raise _cannot_fold(intent, "its queues share by weight", "folding needs strict queues alone")
    groups = _groups(intent)
    places = {group: QUEUES - 1 - rank for rank, group in enumerate(groups)}
    folded = {}
    for (queue, precedences), place in places.items():
        own = intent.queue(queue)
        changes: dict[str, Any] = {"profiles": (own.profiles[precedences[0]],) * PRECEDENCES}
        if precedences[0] > 0:
            changes["reserved_bytes"] = 0
        if own != QueueIntent():
            folded[place] = own.model_copy(update=changes).model_dump()
    leads = {dscp: _place(intent, places, dscp) for dscp in range(CODEPOINTS)}
    overrides = {
        dscp: {"queue": place} for dscp, place in leads.items() if codepoint_of(dscp) != Codepoint(queue=place)
    }
    for queue in intent.pfc.queues if intent.pfc else ():
        if places[queue, ALL] != queue:
            what = f"lossless queue {queue} would become queue {places[queue, ALL]}, and hosts pause by its number"
            raise _cannot_fold(intent, what, "put the lossless queue above those with several profiles")
    made: dict[str, Any] = {"queues": folded, "dscp": overrides}
    return QosIntent.model_validate(intent.model_dump() | made), _fold_in_words(places)


def _groups(intent: QosIntent) -> list[Group]:
    """As many as a port has queues, from queue 7 down, precedence 0 first."""
    groups: list[Group] = []
    for number in reversed(range(QUEUES)):
        profiles = intent.queue(number).profiles
        start = 0
        for precedence in range(1, PRECEDENCES + 1):
            if precedence == PRECEDENCES or profiles[precedence] != profiles[start]:
                groups.append((number, tuple(range(start, precedence))))
                start = precedence
        if intent.pfc and number in intent.pfc.queues and len(set(profiles)) > 1:
            raise _cannot_fold(intent, f"queue {number} is lossless", "give its drop precedences one profile")
    lossless = intent.pfc.queues if intent.pfc else ()
    spare = [number for number in range(1, CONTROL_QUEUE) if number not in {*intent.queues, *lossless}]
    over = len(groups) - QUEUES
    if over > len(spare):
        what = f"it asks for {len(groups) - len(spare)} queues then, a port has {QUEUES}"
        raise _cannot_fold(intent, what, "use fewer queues, or fewer profiles in a queue")
    return [group for group in groups if group[0] not in spare[:over]]


def _place(intent: QosIntent, places: dict[Group, int], dscp: int) -> int:
    """The queue of a DSCP. Of a queue that made room: the control queue where it lies above all that the intent names,
    so that routing stays ahead of data; else that of the nearest below."""
    led = intent.codepoint(dscp)
    kept = {queue for queue, _ in places}
    queue = led.queue
    if queue not in kept:
        above_all = queue > max((named for named in intent.queues if named != CONTROL_QUEUE), default=0)
        queue = CONTROL_QUEUE if above_all else max(other for other in kept if other < queue)
    return next(place for (own, ones), place in places.items() if own == queue and led.precedence in ones)


def _fold_in_words(places: dict[Group, int]) -> str:
    moved = [(queue, ones, place) for (queue, ones), place in places.items() if ones != ALL or queue != place]
    told = ", ".join(
        f"queue {queue}{'' if ones == ALL else ' precedence ' + '+'.join(map(str, ones))} is queue {place}"
        for queue, ones, place in moved
    )
    gone = sorted(set(range(QUEUES)) - {queue for queue, _ in places})
    if gone:
        told += f"; no queue is left for what the intent does not name: {', '.join(map(str, gone))}"
    return (
        f"drop precedences folded into queues ({told}): what is to be dropped first is also served last, its packets "
        "may be overtaken, and its profile looks at its own queue's backlog alone"
    )


def _cannot_fold(intent: QosIntent, what: str, hint: str) -> Problem:
    return Problem(f"QoS intent {intent.name}", f"drop precedences cannot be folded into queues: {what}", hint)


def _queue_changed(update: dict[str, Any], words: str) -> Maker:
    """A substitute that says less of some queues."""

    def make(intent: QosIntent, queues: tuple[int, ...], _switch: str) -> Made:
        changed = {number: intent.queue(number).model_copy(update=update) for number in queues}
        return intent.model_copy(update={"queues": dict(intent.queues) | changed}), words

    return make


def _of_all_queues(update: dict[str, Any], of_queue: dict[str, Any], words: str) -> Maker:
    """A substitute that says less of all queues alike. It names no queue that the intent does not, for folding needs
    those."""

    def make(intent: QosIntent, queues: tuple[int, ...], _switch: str) -> Made:
        changed = {
            number: own.model_copy(update=of_queue) if number in queues else own
            for number, own in intent.queues.items()
        }
        return intent.model_copy(update=update | {"queues": changed}), words

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
    "nothing-reserved": _of_all_queues(
        {"minimum_bytes": 0}, {"reserved_bytes": 0}, "nothing is reserved beyond what the system reserves"
    ),
    "no-limit": _queue_changed({"limit_bytes": None}, "the queue may hold what the chip's buffer leaves it"),
    "system-alpha": _of_all_queues(
        {"alpha": None}, {"alpha": None}, "the queue's dynamic threshold is the system's own"
    ),
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

"""What an intent asks of a switch, in a vocabulary that the folders of switch_configs answer in."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, get_args

from dlcp.model.qos import QUEUES, LoadBalancing, Pfc, QosIntent

Feature = Literal[
    "strict-queues",
    "weighted-queues",
    "dscp-to-queue",
    "dscp-to-precedence",
    "dscp-override",
    "wred",
    "wred-by-precedence",
    "ecn",
    "ecn-by-precedence",
    "not-ect-drop",
    "averaging",
    "reserved",
    "queue-limit",
    "alpha",
    "pfc",
    "pfc-thresholds",
    "pfc-headroom",
    "pfc-headroom-auto",
    "pfc-watchdog",
    "pfc-watchdog-time",
    "per-packet",
    "round-robin",
    "flowlet",
]
"""What a switch may have or lack; MEANING says each in words."""

MEANING: dict[Feature, str] = {
    "strict-queues": "eight queues a port in strict priority, 7 first",
    "weighted-queues": "the lowest queues share by weight",
    "dscp-to-queue": "the DSCP chooses the queue",
    "dscp-to-precedence": "the DSCP chooses the drop precedence in the queue",
    "dscp-override": "codepoints may lead elsewhere than codepoint.h says",
    "wred": "early drop by a profile",
    "wred-by-precedence": "a profile of its own for each drop precedence of a queue",
    "ecn": "ECN-capable packets are marked by a profile",
    "ecn-by-precedence": "some drop precedences of a queue are marked, others not",
    "not-ect-drop": "where ECN-capable packets are marked, others are dropped by the same profile",
    "averaging": "the weight of the averaged backlog",
    "reserved": "bytes of the buffer kept for a queue",
    "queue-limit": "the most bytes that a queue holds",
    "alpha": "the dynamic threshold of a queue in the shared buffer",
    "pfc": "priority flow control",
    "pfc-thresholds": "xoff and xon of PFC",
    "pfc-headroom": "bytes of headroom beyond xoff",
    "pfc-headroom-auto": "the switch works its headroom out itself",
    "pfc-watchdog": "a watchdog that ends a pause without end",
    "pfc-watchdog-time": "the watchdog's time",
    "per-packet": "equal paths: one at random for each packet",
    "round-robin": "equal paths: in turn for each packet",
    "flowlet": "equal paths: one for each burst of a flow",
}

PART_OF: dict[Feature, Feature] = {
    "pfc-thresholds": "pfc",
    "pfc-headroom": "pfc",
    "pfc-headroom-auto": "pfc",
    "pfc-watchdog": "pfc",
    "pfc-watchdog-time": "pfc-watchdog",
}
"""What means nothing where the other is missing, and is not complained of then."""

BALANCING: dict[LoadBalancing, Feature | None] = {
    "flow-hash": None,
    "per-packet": "per-packet",
    "round-robin": "round-robin",
    "flowlet": "flowlet",
}


@dataclass(frozen=True)
class Need:
    """One thing that an intent asks for. queue: of which queue; None = of the port or the switch."""

    feature: Feature
    queue: int | None = None


def balancing_of(intent: QosIntent, switch: str) -> LoadBalancing:
    """How a switch is to balance."""
    return intent.switch_load_balancing.get(switch, intent.load_balancing)


def needs(intent: QosIntent, switch: str) -> tuple[Need, ...]:
    """All that an intent asks of a switch of that name."""
    weighted = any(queue.weight is not None for queue in intent.queues.values())
    found = [Need("dscp-to-queue"), Need("strict-queues"), *([Need("weighted-queues")] if weighted else [])]
    if intent.dscp:
        found.append(Need("dscp-override"))
    for number in range(QUEUES):
        found += [Need(feature, number) for feature in _of_queue(intent, number)]
    found += [Need(feature) for feature in _of_pfc(intent.pfc)]
    balancing = BALANCING[balancing_of(intent, switch)]
    return tuple(found if balancing is None else [*found, Need(balancing)])


def _of_queue(intent: QosIntent, number: int) -> Iterator[Feature]:
    queue = intent.queue(number)
    profiles = [profile for profile in queue.profiles if profile is not None]
    marks, drops = any(p.mark for p in profiles), any(not p.mark for p in profiles)
    if drops:
        yield "wred"
    if marks:
        yield "ecn"
        yield "not-ect-drop"
    if len(set(queue.profiles)) > 1:
        yield "dscp-to-precedence"
        if drops:
            yield "wred-by-precedence"
        if marks:
            yield "ecn-by-precedence"
    if profiles and queue.averaging:
        yield "averaging"
    if intent.reserved_of(number):
        yield "reserved"
    if queue.limit_bytes is not None:
        yield "queue-limit"
    if intent.alpha_said(number) is not None:
        yield "alpha"


def _of_pfc(pfc: Pfc | None) -> Iterator[Feature]:
    if pfc is None:
        return
    yield "pfc"
    yield "pfc-thresholds"
    yield "pfc-headroom-auto" if pfc.headroom_bytes is None else "pfc-headroom"
    if pfc.watchdog_s is not None:
        yield "pfc-watchdog"
        yield "pfc-watchdog-time"


FEATURES: tuple[Feature, ...] = get_args(Feature)

"""The check that every exchange pattern gets: what was on the wire is what its plan says, message by message."""

from __future__ import annotations

from collections import Counter
from typing import Any, NamedTuple

from job_in_process import Done
from recording_endpoint import Call

from dlcp.agents.job_spec import JobSpec
from dlcp.model.transport.settings import TransportSettings
from dlcp.patterns import pattern_of
from dlcp.patterns.base import Message, Pattern, Traffic
from dlcp.transport.contract.declarations import Declaration
from dlcp.transport.contract.endpoint import RELIABLE, Bound, Dtype, Leg, MessageKey, Placement
from dlcp.transport.contract.loss_class import LossClass
from dlcp.transport.contract.values import element_bytes, packets
from dlcp.transport.tcp.connection import FRAME
from dlcp.transport.tcp.handshake import HELLO

HOLES = {
    LossClass.BOUNDED: {Placement.ZERO, Placement.ADD},
    LossClass.BOUNDED_LAST: {Placement.KEEP},
}
"""How a receiver must place a message of a class, so that a hole counts as the class says."""


class End(NamedTuple):
    """One end of a message. rank: whose end it is."""

    rank: int
    received: bool
    peer: int
    key: MessageKey


def planned_ends(messages: list[tuple[int, Message]]) -> dict[End, Message]:
    """Both ends of messages, given with their iterations."""
    ends = {}
    for iteration, message in messages:
        key = MessageKey(iteration, message.number, message.leg, message.step)
        ends[End(message.source, False, message.destination, key)] = message
        ends[End(message.destination, True, message.source, key)] = message
    assert len(ends) == 2 * len(messages), "two messages of the plan have the same name"
    return ends


def assert_wire_is_plan(spec: JobSpec, settings: TransportSettings, done: Done) -> None:
    """Compare a job that is over with its plan: what ranks agreed, asked of their endpoints and noted, and what left.

    No scheme of these settings may lose anything on loopback.
    """
    pattern, traffic = pattern_of(spec.pattern), spec.traffic(settings)
    declarations = pattern.declarations(traffic)
    for rank, endpoint in enumerate(done.endpoints):
        assert endpoint.declared == declarations, f"rank {rank} agreed other tensors than those of the plan"
    messages = [(iteration, one) for iteration in range(spec.iterations) for one in pattern.messages(traffic)]
    noted = planned_ends(messages)
    asked = planned_ends([*messages, *pattern.announcements(traffic)])
    _assert_noted(noted, done)
    _assert_asked(asked, done)
    by_number = {each.number: each for each in declarations}
    for rank, endpoint in enumerate(done.endpoints):
        for call in endpoint.calls:
            message = asked[End(rank, call.received, call.peer, call.key)]
            _assert_loss(pattern, traffic, message, call, by_number[message.number])
        sent = [call for call in endpoint.calls if not call.received]
        assert_left(settings, sent, declarations, done.statistics[rank])


def assert_left(
    settings: TransportSettings, sent: list[Call], declarations: list[Declaration], statistics: dict[str, Any]
) -> None:
    """Compare what a rank sent with what its transport counted."""
    if settings.kind == "tcp":
        _assert_tcp_left(sent, statistics)
    else:
        _assert_dlcp_left(sent, {each.number: each.dtype for each in declarations}, statistics)


def _assert_noted(planned: dict[End, Message], done: Done) -> None:
    """Every rank notes the ends that the plan gives it, with the plan's bytes."""
    noted = Counter(
        End(rank, each.received, each.peer, each.key)
        for rank, completions in enumerate(done.completions)
        for each in completions
    )
    assert noted == Counter(planned.keys()), "ranks noted other messages than those of the plan"
    for rank, completions in enumerate(done.completions):
        for each in completions:
            _assert_size(planned[End(rank, each.received, each.peer, each.key)], each.bytes)


def _assert_asked(planned: dict[End, Message], done: Done) -> None:
    """Every rank sends and expects what the plan says, and nothing that it would not note."""
    asked = Counter(
        End(rank, call.received, call.peer, call.key)
        for rank, endpoint in enumerate(done.endpoints)
        for call in endpoint.calls
    )
    assert asked == Counter(planned.keys()), "ranks sent or expected other messages than those of the plan"
    for rank, endpoint in enumerate(done.endpoints):
        for call in endpoint.calls:
            message = planned[End(rank, call.received, call.peer, call.key)]
            if call.received:
                assert call.size_bytes == message.size_bytes, f"room for {message}"
            else:
                _assert_size(message, call.size_bytes)


def _assert_size(message: Message, size_bytes: int) -> None:
    least = element_bytes(message.dtype) if message.variable else message.size_bytes
    assert least <= size_bytes <= message.size_bytes, f"{message} had {size_bytes} bytes"


def _assert_loss(pattern: Pattern, traffic: Traffic, message: Message, call: Call, agreed: Declaration) -> None:
    """An end allows what the plan allows, and places what arrives so that holes count as the loss class says."""
    own = call.bound or (agreed.push_bound if message.leg is Leg.PUSH else agreed.pull_bound)
    allowed = RELIABLE if agreed.must_arrive else _effective(own)
    planned = _effective(pattern.agreed_bound(traffic, message, call.key.iteration))
    if traffic.settings.phases is None:
        assert allowed == planned, f"rank {call.peer}'s peer allows {allowed} of {message}"
    else:
        assert allowed.bytes_share <= planned.bytes_share, f"rank {call.peer}'s peer allows {allowed} of {message}"
    if call.placement is not None and message.loss.may_lose:
        assert call.placement in HOLES[message.loss], f"{call.placement} of {message}"


def _effective(bound: Bound) -> Bound:
    """Return what a bound means: nothing may be missing if either share is 0 (R47)."""
    return bound if bound.bytes_share and bound.energy_share else RELIABLE


def _assert_tcp_left(sent: list[Call], statistics: dict[str, Any]) -> None:
    """The kernel sent each peer a hello and these messages in frames, but for what it sent again; not a byte more."""
    expected: Counter[str] = Counter()
    for call in sent:
        expected[str(call.peer)] += FRAME.size + call.size_bytes
    left = Counter(
        {
            peer: info["wire_sent_bytes"] - info["resent_bytes"] - HELLO.size
            for peer, info in statistics["connections"].items()
        }
    )
    assert left == expected
    assert statistics["sent_bytes"] == expected.total()


def _assert_dlcp_left(sent: list[Call], dtypes: dict[int, Dtype], statistics: dict[str, Any]) -> None:
    """The engine sent these bytes in as few packets as they fit in, but for what it sent again, and no packet that is
    neither these nor control."""
    shapes = [(call.size_bytes, dtypes[call.key.tensor]) for call in sent]
    once_bytes = statistics["data_bytes_sent"] - statistics["bytes_resent"]
    once_packets = statistics["data_packets_sent"] - statistics["packets_resent"]
    assert once_bytes == sum(size_bytes for size_bytes, _ in shapes)
    assert once_packets == sum(packets(size_bytes // element_bytes(dtype), dtype) for size_bytes, dtype in shapes)
    control = ("acks_sent", "dones_sent", "nacks_sent", "stops_sent", "probes_sent", "greetings_sent")
    assert statistics["packets_sent"] == statistics["data_packets_sent"] + sum(statistics[name] for name in control)

"""What each scheme of the engine does on the wire: codepoints, order, loss. Its intent beside it."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from scheme_wire import BUFFER_BYTES, JOB, LAB, MODEL, push_all, resent, settings_of, tensor_of
from switch_port import Port
from virtual_time import MS, US, Done, Key, Node, Packet, World

from dlcp import schemes
from dlcp.model.transport.loss import EarlyClose
from dlcp.schemes.base import UnfitError
from dlcp.transport._native import lib
from dlcp.transport.aggregation.dblp import Phase
from dlcp.transport.aggregation.ltp import EarlyClosing
from dlcp.transport.contract.endpoint import Completion, Leg, MessageKey
from dlcp.transport.contract.tensors import data_queues
from dlcp.transport.contract.values import packets

PARTS = ("loss", "priority", "drop", "spray")


def all_facts(name: str) -> dict[str, Any]:
    """Everything that agents and switches are told of a scheme, by name."""
    scheme = schemes.scheme_class(name)().for_job(JOB, MODEL)
    intent = scheme.intent(BUFFER_BYTES).model_dump()
    return scheme.transport(LAB).model_dump() | {f"switch {key}": value for key, value in intent.items()}


def differing(one: str, other: str) -> set[str]:
    a, b = all_facts(one), all_facts(other)
    return {key for key in a if a[key] != b[key]}


OWN = {
    "loss": {"loss_bound", "tag_all"},
    "priority": {"priority_queues", "switch queues"},
    "drop": {"selective_drop", "switch queues"},
    "spray": {"switch load_balancing"},
}
"""What belongs to each part, of all that agents and switches are told."""


@pytest.mark.parametrize("part", PARTS)
def test_dlcp__a_part_switched_off_changes_its_own_things_only(part: str) -> None:
    assert differing("dlcp", f"dlcp-no-{part}") == OWN[part]


@pytest.mark.parametrize("part", PARTS)
def test_dlcp__a_part_alone_is_what_the_bare_engine_lacks(part: str) -> None:
    """The tag of reliable messages belongs to dropping without loss tolerance."""
    tags = {"tag_all"} if part == "drop" else set()
    assert differing("timely-udp", f"dlcp-only-{part}") == (OWN[part] - {"tag_all"}) | tags


def test_dlcp__by_ecn_codepoint_only_the_tags_and_profiles_differ() -> None:
    assert differing("dlcp", "dlcp-ect") == {"selective_drop", "switch queues"}


def lossy(share: float) -> Any:
    """A network that loses so many of the data packets, at random."""
    numbers = random.Random(7)

    def network(world: World, packet: Packet) -> None:
        if packet.type != lib.DLCP_DATA or numbers.random() >= share:
            world.deliver(packet, world.now_ns + 300 * US)

    return network


# R37
@pytest.mark.parametrize("part", [*(f"no-{part}" for part in PARTS), *(f"only-{part}" for part in PARTS), "none"])
def test_dlcp__its_parts_are_seen_on_the_wire(part: str) -> None:
    """On: what may be lost is lost; layers have queues of their own; small packets carry the droppable tag."""
    on = {one for one in PARTS if (part == f"only-{one}" if not part.startswith("no-") else part != f"no-{one}")}
    pushed = push_all(settings_of("timely-udp" if part == "none" else f"dlcp-{part}"), lossy(0.05))
    first_pass = [packet for packet in pushed.data() if not resent(packet)]
    again = [packet for packet in pushed.data() if resent(packet)]
    assert len({packet.queue for packet in first_pass}) == (3 if "priority" in on else 1)
    if "loss" in on:
        assert sum(pushed.lost_bytes) > 0
        assert all(
            lost <= tensor.size_bytes * 0.1 for lost, tensor in zip(pushed.lost_bytes, pushed.tensors, strict=True)
        )
        assert not again
    else:
        assert sum(pushed.lost_bytes) == 0
        assert all(np.array_equal(a, b) for a, b in zip(pushed.sent, pushed.got, strict=True))
        assert again
    by_precedence = {p: sum(packet.precedence == p for packet in first_pass) for p in range(3)}
    if "drop" in on:
        assert by_precedence[0] == 0
        assert 0.3 < by_precedence[2] / len(first_pass) < 0.5, "half of the front layers', which are four fifths"
    else:
        assert by_precedence == {0: len(first_pass), 1: 0, 2: 0}
    assert all(packet.precedence == 0 for packet in again)


def test_dlcp__by_ecn_codepoint_the_droppable_are_not_ecn_capable() -> None:
    pushed = push_all(settings_of("dlcp-ect"))
    assert {packet.precedence for packet in pushed.data()} == {0}
    capable = sum(packet.ecn == lib.DLCP_ECN_ECT0 for packet in pushed.data()) / len(pushed.data())
    assert 0.5 < capable < 0.7


def test_dctcp_udp__all_arrives_in_one_queue_of_equal_packets() -> None:
    pushed = push_all(settings_of("dctcp-udp"), lossy(0.05))
    assert all(np.array_equal(a, b) for a, b in zip(pushed.sent, pushed.got, strict=True))
    assert sum(pushed.lost_bytes) == 0
    assert any(resent(packet) for packet in pushed.data())
    assert {(p.queue, p.precedence, p.ecn) for p in pushed.data()} == {(data_queues(1)[0], 0, lib.DLCP_ECN_ECT0)}
    order = list(dict.fromkeys(tensor_of(packet) for packet in pushed.data()))
    assert order == sorted(order, reverse=True), "first in, first out"


def test_dctcp_udp__a_marking_port_overflows_less() -> None:
    """The sender heeds marks: with them the queue stays below the threshold's neighbourhood, without it fills."""
    peaks = {}
    for marks in (0, BUFFER_BYTES // 4):
        port = Port(bound_for=1, rate_bps=2e7, buffer_bytes=4 * BUFFER_BYTES, mark_bytes=marks)
        pushed = push_all(settings_of("dctcp-udp"), port)
        assert sum(pushed.lost_bytes) == 0
        peaks[marks] = port.peak_bytes
    assert peaks[BUFFER_BYTES // 4] < 0.6 * peaks[0]


def test_dctcp_udp__switches_mark_the_queue_of_data_and_drop_none() -> None:
    intent = schemes.scheme_class("dctcp-udp")().intent(BUFFER_BYTES)
    (queue,) = data_queues(1)
    assert sorted(intent.queues) == [queue, 7]
    for profile in intent.queue(queue).profiles:
        assert profile is not None
        assert profile.mark
        assert profile.minimum_bytes == profile.maximum_bytes == BUFFER_BYTES // 2
    assert intent.load_balancing == "flow-hash"


# R44
def test_pias__a_message_sinks_by_the_bytes_that_it_has_sent() -> None:
    """The queue of every packet is told by how much of its message left before it."""
    settings = settings_of("pias", demote_after=["10 %", "25 %", "50 %"])
    pushed = push_all(settings)
    after = [4_000, 10_000, 20_000]
    assert list(settings.demote_after_bytes) == after
    for tensor in range(len(pushed.tensors)):
        sent, queues = 0, []
        for packet in pushed.data(tensor):
            assert packet.queue == data_queues(4)[0] - sum(sent >= limit for limit in after)
            queues.append(packet.queue)
            sent += len(packet.data) - lib.DLCP_HEADER_BYTES
        assert queues == sorted(queues, reverse=True)
        assert sorted(set(queues)) == sorted(data_queues(4))
    assert {(packet.precedence, packet.ecn) for packet in pushed.data()} == {(0, lib.DLCP_ECN_ECT0)}


def test_pias__short_messages_overtake_long_ones() -> None:
    """Three long messages and a short one, handed over last: it leaves before the long ones' low parts."""
    pushed = push_all(settings_of("pias"), layers=[("short", 3_000), *((f"long{i}", 10_000) for i in range(3))])
    order = [tensor_of(packet) for packet in pushed.data()]
    last = {tensor: len(order) - order[::-1].index(tensor) for tensor in set(order)}
    assert last[0] == min(last.values())
    plain = [
        tensor_of(p)
        for p in push_all(
            settings_of("dctcp-udp"), layers=[("short", 3_000), *((f"long{i}", 10_000) for i in range(3))]
        ).data()
    ]
    assert plain[-1] == 0, "without demotion it waits its turn"


def test_pias__what_is_sent_again_counts_and_all_arrives() -> None:
    pushed = push_all(settings_of("pias"), lossy(0.1))
    assert all(np.array_equal(a, b) for a, b in zip(pushed.sent, pushed.got, strict=True))
    for tensor in range(len(pushed.tensors)):
        queues = [packet.queue for packet in pushed.data(tensor)]
        assert queues == sorted(queues, reverse=True), "nothing rises again"
    assert any(resent(packet) for packet in pushed.data())


# R45
def test_pias__a_loss_at_the_end_of_a_queues_part_is_proven_by_lower_packets() -> None:
    """Repaired from acknowledgements: no probe is needed although nothing followed in that queue."""
    settings = settings_of("pias", demote_after=["50 %"])
    lost: list[Packet] = []

    def network(world: World, packet: Packet) -> None:
        at_the_end = packet.type == lib.DLCP_DATA and int.from_bytes(packet.data[16:20], "big") == lost_offset
        if at_the_end and not lost:
            lost.append(packet)
        else:
            world.deliver(packet, world.now_ns + 300 * US)

    clean = push_all(settings, layers=[("one", 10_000)])
    high = [packet for packet in clean.data() if packet.queue == data_queues(2)[0]]
    lost_offset = int.from_bytes(high[-1].data[16:20], "big")
    pushed = push_all(settings, network, layers=[("one", 10_000)])
    assert lost[0].queue == data_queues(2)[0]
    assert sum(resent(packet) for packet in pushed.data()) == 1
    assert pushed.world.nodes[0].statistics()["probes_sent"] == 0


def test_pias__queues_are_marked_alike_and_nobody_shares_them_with_control() -> None:
    intent = schemes.scheme_class("pias")().intent(BUFFER_BYTES)
    assert sorted(intent.queues) == [*range(1, 7), 7]
    profiles = {intent.queue(queue).profiles for queue in range(1, 7)}
    assert len(profiles) == 1
    assert next(iter(profiles))[0].mark  # type: ignore[union-attr]


@pytest.mark.parametrize("shares", [[], ["20 %", "10 %"], ["0 %", "10 %"], [f"{i} %" for i in range(1, 8)]])
def test_pias__thresholds_that_make_no_sense_are_refused(shares: list[str]) -> None:
    with pytest.raises(ValueError, match=r"at least 1|must grow|at most 6"):
        settings_of("pias", demote_after=shares)


def test_pias__shares_are_of_the_jobs_bucket() -> None:
    scheme = schemes.scheme_class("pias")()
    with pytest.raises(ValueError, match="call for_job first"):
        scheme.transport(LAB)
    after = scheme.for_job(JOB, MODEL).transport(LAB).demote_after_bytes
    assert after[0] == round(0.271 * 40_000)
    assert all(a < b for a, b in pairwise(after))


def ltp_message(world: World, iteration: int, closing: EarlyClosing) -> Done:
    """One gradient of 100 packets from rank 0 to rank 1, closed as LTP's server would; what it came to."""
    key, elements = Key(iteration, 0), 36_000
    deadline = closing.deadline(0, 0)
    given = None if deadline is None else (0, round(deadline.after_first_s * 1e9), round(deadline.share * 1e6))
    world.nodes[1].receive(0, key, np.empty(elements, np.float32), world.now_ns, deadline=given)
    world.nodes[0].send(1, key, np.ones(elements, np.float32), world.now_ns)
    world.run(world.now_ns + 20_000 * MS, lambda: not any(node.under_way() for node in world.nodes.values()))
    for node in world.nodes.values():
        world.run_node(node)
    (done,) = (done for done in world.nodes[1].done if done.key == key)
    closing.note(
        Completion(
            0,
            MessageKey(iteration, 0, Leg.PUSH),
            True,
            elements * 4,
            done.delivered_bytes,
            done.lost_bytes,
            0,
            0,
            0.0,
            done.end_ns / 1e9,
            first_s=done.first_ns / 1e9,
        )
    )
    return done


@pytest.mark.parametrize(("lost", "lost_in_the_end"), [(10, 10), (30, 20)])
def test_ltp__closes_at_the_fraction_and_the_deadline_and_not_before(lost: int, lost_in_the_end: int) -> None:
    """Some packets come a second late: with nine tenths there it ends at the deadline; with seven it goes on until the
    late ones make up the fraction."""
    settings = settings_of("ltp")
    assert settings.early_close is not None
    closing = EarlyClosing(settings.early_close)
    world = World({rank: Node(rank, [1 - rank], settings) for rank in (0, 1)}, lossy(0.0))
    for node in world.nodes.values():
        node.declare(0, 36_000)
    for iteration in range(5):
        assert ltp_message(world, iteration, closing).lost_bytes == 0
    deadline = closing.deadline(0, 0)
    assert deadline is not None
    assert deadline.share == 0.8
    begun_ns = world.now_ns

    def network(w: World, packet: Packet) -> None:
        late = packet.type == lib.DLCP_DATA and int.from_bytes(packet.data[16:20], "big") // 360 < lost
        if not late or w.now_ns > begun_ns + 1_000 * MS:
            w.deliver(packet, w.now_ns + 300 * US)

    world.network = network
    done = ltp_message(world, 5, closing)
    assert done.lost_bytes == lost_in_the_end * 1440
    due_ns = done.first_ns + round(deadline.after_first_s * 1e9)
    assert done.end_ns == due_ns if lost == 10 else done.end_ns > begun_ns + 1_000 * MS


def test_ltp__the_deadline_is_a_multiple_of_the_moving_average() -> None:
    closing = EarlyClosing(EarlyClose(fraction=0.8, slack=1.1, weight=0.5))

    def took(first_s: float, end_s: float, peer: int = 3) -> None:
        closing.note(Completion(peer, MessageKey(0, 7, Leg.PUSH), True, 4, 4, 0, 0, 0, 0.0, end_s, first_s=first_s))

    assert closing.deadline(3, 7) is None
    took(1.0, 1.2)
    took(2.0, 2.4)
    deadline = closing.deadline(3, 7)
    assert deadline is not None
    assert deadline.after_first_s == pytest.approx(1.1 * 0.3)
    took(0.0, 9.0)
    assert closing.deadline(3, 7) == deadline, "nothing came of that one"
    took(1.0, 2.0, peer=4)
    assert closing.deadline(3, 7) == deadline, "each worker has its own"
    assert closing.deadline(3, 8) is None, "and each tensor"


# R65
def test_ltp__a_gradient_leaves_whole_before_anything_is_sent_again() -> None:
    pushed = push_all(settings_of("ltp"), lossy(0.1))
    assert all(np.array_equal(a, b) for a, b in zip(pushed.sent, pushed.got, strict=True)), "without a deadline"
    for tensor in range(len(pushed.tensors)):
        again = [resent(packet) for packet in pushed.data(tensor)]
        assert again == sorted(again), "first pass first"
    assert {(p.queue, p.precedence, p.ecn) for p in pushed.data() if not resent(p)} == {(5, 0, 0)}


def test_dblp__sends_at_line_rate_and_loses_up_to_the_declared_bound() -> None:
    """A port of a tenth of the rate: nothing slows the sender down, most of what is sent is dropped and sent again."""
    port = Port(bound_for=1, rate_bps=1e7, buffer_bytes=BUFFER_BYTES)
    pushed = push_all(settings_of("dblp"), port)
    first = [packet for packet in pushed.data() if not resent(packet)]
    assert len(first) == sum(packets(tensor.elements) for tensor in pushed.tensors)
    assert port.dropped > len(first) / 2
    for lost, tensor in zip(pushed.lost_bytes, pushed.tensors, strict=True):
        assert lost <= 0.408 * tensor.size_bytes
    assert sum(pushed.lost_bytes) > 0.2 * sum(tensor.size_bytes for tensor in pushed.tensors)
    assert {(p.queue, p.precedence, p.ecn) for p in pushed.data()} == {(5, 0, 0)}


@pytest.mark.parametrize("name", ["ltp", "dblp"])
def test_loss_towards_servers_only__a_ring_is_refused(name: str) -> None:
    ring = JOB.model_copy(update={"pattern": "ring", "servers": ()})
    with pytest.raises(UnfitError, match="job of model is a ring"):
        schemes.scheme_class(name)().for_job(ring, MODEL)


def test_dblp__the_bound_is_forty_points_larger_outside_the_critical_phase() -> None:
    phases = settings_of("dblp", loss_bound="2.4 %").phases
    assert phases is not None
    assert (phases.critical, phases.relaxed) == (pytest.approx(0.024), pytest.approx(0.424))
    phase = Phase(phases)
    norms = [8.0, 7.0, 3.5, 3.0, 1.0, 1.5]
    assert [phase.check(norm) > 0.1 for norm in norms] == [False, True, False, True, False, True]

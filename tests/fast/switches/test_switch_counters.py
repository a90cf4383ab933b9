"""Counters and the ledger, from states as the switch program leaves them."""

from __future__ import annotations

from collections.abc import Callable

from dlcp.model.result import DROP_CAUSES, TABLES
from dlcp.switches.bpf.conservation import violations
from dlcp.switches.bpf.counters import Counters
from dlcp.switches.bpf.map_structs import PortState, PrecedenceCounters
from dlcp.switches.bpf.snapshot import Snapshot

HOST, PORT, OUT, FAR = 100, 101, 102, 103
"""h1 – (PORT) s1 (OUT) – h2."""
NAMES = {HOST: "h1", PORT: "s1-h1", OUT: "s1-h2", FAR: "h2"}
SWITCH_OF = {PORT: "s1", OUT: "s1"}


def count(one: PrecedenceCounters, **packets: int) -> None:
    """Packets of 100 B by counter."""
    for name, number in packets.items():
        tally = getattr(one, name)
        tally.packets += number
        tally.bytes += 100 * number


def snapshot(change: Callable[[dict[int, PrecedenceCounters]], None] | None = None) -> Snapshot:
    """Queue 3, precedence 1: h1 sends 10, of which 6 get through to h2, 1 dies under way, the others are dropped."""
    states = {ifindex: PortState() for ifindex in NAMES}
    ours = {ifindex: state.queues[3].precedences[1] for ifindex, state in states.items()}
    if change is not None:
        count(ours[HOST], enqueued=10, sent=10)
        count(ours[PORT], dropped_loss=1)
        count(ours[OUT], enqueued=7, sent=7, severed=1, dropped_wred=1, dropped_shared=1)
        states[OUT].queues[3].peak_bytes = 500
        change(ours)
    return Snapshot(states)


def table(now: Snapshot, ifindex: int) -> dict[str, int]:
    """Packets of the row of queue 3, precedence 1, that are not 0."""
    (row,) = [
        row for row in Counters(snapshot(), now, [ifindex], 0).rows(0) if (row["queue"], row["precedence"]) == (3, 1)
    ]
    assert {"switch", "port", *row} == set(TABLES["ports"])
    return {name.removesuffix("_packets"): row[name] for name in row if name.endswith("_packets") and row[name]}


def test_an_account_that_adds_up() -> None:
    now = snapshot(lambda _: None)
    assert violations(now, NAMES, SWITCH_OF) == []
    assert table(now, PORT) == {"received": 10, "dropped_loss": 1}
    assert table(now, OUT) == {"enqueued": 7, "sent": 7, "dropped_wred": 1, "dropped_shared": 1}
    assert table(now, FAR) == {"received": 7, "dropped_down": 1}


def test_what_waits_is_no_row_and_a_violation() -> None:
    found = violations(snapshot(lambda ours: count(ours[OUT], enqueued=2)), NAMES, SWITCH_OF)
    assert found == [
        "s1-h2 queue 3 precedence 1: 9 packets (900 B) enqueued, 7 packets (700 B) sent",
        "switch s1: 10 packets (1000 B) came in, 12 packets (1200 B) enqueued or dropped",
    ]


def test_every_cause_is_part_of_the_account() -> None:
    for cause in DROP_CAUSES:

        def change(ours: dict[int, PrecedenceCounters], name: str = f"dropped_{cause}") -> None:
            count(ours[HOST], enqueued=1, sent=1)
            count(ours[OUT], **{name: 1})

        assert violations(snapshot(change), NAMES, SWITCH_OF) == [], cause


def test_a_packet_that_no_counter_knows_is_a_violation() -> None:
    found = violations(snapshot(lambda ours: count(ours[HOST], enqueued=1, sent=1)), NAMES, SWITCH_OF)
    assert found == ["switch s1: 11 packets (1100 B) came in, 10 packets (1000 B) enqueued or dropped"]


def test_what_died_under_way_to_a_switch_is_its_own_drop() -> None:
    def change(ours: dict[int, PrecedenceCounters]) -> None:
        count(ours[HOST], enqueued=2, sent=2, severed=2)

    now = snapshot(change)
    assert violations(now, NAMES, SWITCH_OF) == []
    assert table(now, PORT) == {"received": 12, "dropped_loss": 1, "dropped_down": 2}

"""events.h: pending events in order of time, from a timing wheel and from a heap."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcp.transport._native import ffi, lib

EVENTS = 40
NEVER = 2**64 - 1

times = st.one_of(st.integers(0, 50), st.integers(0, 2**24), st.integers(0, 2**50))
actions = st.lists(
    st.one_of(
        st.tuples(st.just("put"), st.integers(0, EVENTS - 1), times),
        st.tuples(st.just("remove"), st.integers(0, EVENTS - 1), st.just(0)),
        st.tuples(st.just("take"), st.just(0), st.just(0)),
        st.tuples(st.just("look"), st.just(0), st.just(0)),
    ),
    max_size=200,
)


def queue(shift: int = 10, flags: int = 0, count: int = EVENTS) -> Any:
    return ffi.gc(lib.dlcp_events_new(count, shift, flags), lib.dlcp_events_free)


def drain(events: Any) -> list[tuple[int, int]]:
    taken = []
    while (at := lib.dlcp_events_next(events)) != NEVER:
        taken.append((at, lib.dlcp_events_take(events)))
    return taken


@given(actions, st.sampled_from([0, 3, 10, 20, 50]), st.booleans())
def test_events__come_in_order_of_time_and_number(steps: list[tuple[str, int, int]], shift: int, heap: bool) -> None:
    """Against a dictionary; time goes on: what is put is due at or after what was taken last."""
    events = queue(shift, lib.DLCP_EVENTS_IN_HEAP if heap else 0)
    model: dict[int, int] = {}
    now = 0
    for action, event, delay in steps:
        first = min(((at, number) for number, at in model.items()), default=None)
        if action == "put":
            model[event] = now + delay
            lib.dlcp_events_put(events, event, now + delay)
            assert lib.dlcp_events_due(events, event) == now + delay
        elif action == "remove":
            model.pop(event, None)
            lib.dlcp_events_remove(events, event)
            assert lib.dlcp_events_due(events, event) == NEVER
        elif action == "look":
            assert lib.dlcp_events_next(events) == (first[0] if first else NEVER)
        elif first:
            assert lib.dlcp_events_next(events) == first[0]
            assert lib.dlcp_events_take(events) == first[1]
            now = first[0]
            del model[first[1]]
    assert drain(events) == sorted((at, number) for number, at in model.items())


def test_events__that_are_put_earlier_than_one_looked_at_come_first() -> None:
    """A look opens the bucket of the first event; one that is scheduled before it afterwards is still first."""
    events = queue()
    lib.dlcp_events_put(events, 7, 10**9)
    assert lib.dlcp_events_next(events) == 10**9
    lib.dlcp_events_put(events, 8, 5)
    assert drain(events) == [(5, 8), (10**9, 7)]


@pytest.mark.parametrize("heap", [False, True])
def test_events__at_one_instant_do_not_depend_on_the_order_of_scheduling(heap: bool) -> None:
    events = queue(flags=lib.DLCP_EVENTS_IN_HEAP if heap else 0)
    for event in (9, 3, 30, 0):
        lib.dlcp_events_put(events, event, 12_345)
    assert [event for _, event in drain(events)] == [0, 3, 9, 30]


def test_events__refuses_a_set_that_cannot_be() -> None:
    assert lib.dlcp_events_new(0, 10, 0) == ffi.NULL
    assert lib.dlcp_events_new(1, lib.DLCP_LARGEST_BUCKET_SHIFT + 1, 0) == ffi.NULL

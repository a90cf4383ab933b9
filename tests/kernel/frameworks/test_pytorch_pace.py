"""The declared compute of a real job: instants that this machine does not move, and what it could not keep."""

from __future__ import annotations

import time

import pytest

from dlcp.frameworks.compute_pace import Pace

FORWARD_S, BACKWARD_S = (0.01, 0.02), (0.03, 0.04)


class Slept:
    """Remembers until when it was asked to sleep, and sleeps."""

    def __init__(self) -> None:
        self.instants: list[float] = []

    def __call__(self, instant_s: float) -> None:
        self.instants.append(instant_s)
        time.sleep(max(0.0, instant_s - time.monotonic()))


def iterate(pace: Pace, came_s: float, busy_s: float = 0.0) -> None:
    """One iteration; busy_s: what the last layer's backward really takes."""
    pace.begin(came_s)
    pace.forward(0)
    pace.wait(0.0)
    pace.forward(1)
    time.sleep(busy_s)
    pace.backward(1)
    pace.backward(0)


def test_each_layer_ends_at_its_instant() -> None:
    sleep = Slept()
    pace = Pace(FORWARD_S, BACKWARD_S, sleep)
    start_s = time.monotonic() + 0.02
    iterate(pace, start_s)
    iterate(pace, start_s + 0.15)
    offsets = (0.01, 0.03, 0.07, 0.1)
    expected = [start_s + offset for offset in offsets] + [start_s + 0.15 + offset for offset in offsets]
    assert sleep.instants == pytest.approx(expected, abs=1e-9), "nothing adds up, whatever late wake-ups there are"
    assert pace.iteration_s == pytest.approx(0.1)
    assert (pace.over_s, pace.over_share) == (0.0, 0.0)


def test_parameters_that_come_late_move_what_follows() -> None:
    sleep = Slept()
    pace = Pace(FORWARD_S, BACKWARD_S, sleep)
    start_s = pace.begin(time.monotonic())
    pace.forward(0)
    assert pace.wait(start_s + 0.05) == start_s + 0.05
    pace.forward(1)
    pace.spend(0.004)
    pace.backward(1)
    assert sleep.instants == pytest.approx([start_s + 0.01, start_s + 0.07, start_s + 0.114])


def test_a_step_that_takes_longer_is_counted_and_the_next_layer_catches_up() -> None:
    sleep = Slept()
    pace = Pace(FORWARD_S, BACKWARD_S, sleep)
    start_s = time.monotonic()
    iterate(pace, start_s, busy_s=0.055)
    iterate(pace, start_s + 0.1)
    assert pace.over_s == pytest.approx(0.015, abs=0.01)
    assert pace.over_share == 0.5
    assert sleep.instants[3] == pytest.approx(start_s + 0.1), "the timeline stays"


def test_without_an_iteration_nothing_overran() -> None:
    assert Pace((), (), Slept()).over_share == 0.0


def test_late__is_by_how_much_the_last_layer_ended_late_whatever_was_late_before_it() -> None:
    pace = Pace(FORWARD_S, BACKWARD_S, Slept())
    iterate(pace, time.monotonic() + 0.02, busy_s=0.15)  # 0.08 s beyond what the backward pass may take
    assert pace.late == pytest.approx(0.8, abs=0.2)
    iterate(pace, time.monotonic() + 0.02)
    assert pace.late == pytest.approx(0.4, abs=0.1)
    caught_up = Pace(FORWARD_S, BACKWARD_S, Slept())
    iterate(caught_up, time.monotonic() + 0.02, busy_s=0.05)  # its layer is late, the pass is not
    assert caught_up.over_share == 1.0
    assert caught_up.late == 0.0

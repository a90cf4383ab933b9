"""How long a stage may take: tB from what was measured, tC and x from what came since."""

from __future__ import annotations

import pytest

from dlcp.model.transport.settings import TransportSettings
from dlcp.model.transport.stages import TimeBounds
from dlcp.transport.aggregation.optireduce_timeouts import LEAST_WAIT, MOST_WAIT, NEWEST, StageTimes
from dlcp.transport.contract.bounds import Bounds
from dlcp.transport.contract.endpoint import RELIABLE, Deadline, Leg

SETTINGS = TimeBounds(warmup_iterations=3)
FIRST_BOUNDED = 3


def measured(*took_s: float, settings: TimeBounds = SETTINGS) -> StageTimes:
    times = StageTimes(settings)
    for one in took_s:
        times.over(Leg.PUSH, 0, one, 1.0)
    return times


def test_warmup__loses_nothing_and_closes_nothing() -> None:
    times, bounds = measured(0.010), Bounds(TransportSettings(kind="dlcp", time_bounds=SETTINGS), 10)
    for iteration in range(FIRST_BOUNDED):
        assert times.deadline(Leg.PUSH, iteration, 100.0) is None
        assert bounds.push(iteration) == bounds.pull(iteration) == RELIABLE
    assert bounds.push(FIRST_BOUNDED).bytes_share == bounds.pull(9).bytes_share == 1


def test_hard_bound__is_the_quantile_of_what_was_measured_and_stays() -> None:
    times = measured(*(millisecond / 1000 for millisecond in range(101)))
    assert times.hard_s(Leg.PUSH) == pytest.approx(0.095)
    times.over(Leg.PUSH, FIRST_BOUNDED, 5.0, 1.0)
    assert times.hard_s(Leg.PUSH) == pytest.approx(0.095)
    assert measured(*(m / 1000 for m in range(101)), settings=TimeBounds(quantile=0.5)).hard_s(Leg.PUSH) == 0.05


def test_legs__are_measured_apart_and_what_was_not_measured_is_not_closed() -> None:
    times = measured(0.010)
    assert times.hard_s(Leg.PULL) == 0
    assert times.deadline(Leg.PULL, FIRST_BOUNDED, 100.0) is None


def test_deadlines__are_the_hard_bound_for_anything_and_soon_after_tc_for_a_tail() -> None:
    times = measured(0.040, 0.010)
    expected_s = (1 - NEWEST) * 0.040 + NEWEST * 0.010
    assert times.expected_s(Leg.PUSH) == pytest.approx(expected_s)
    for _ in range(60):
        times.over(Leg.PUSH, FIRST_BOUNDED, 0.010, 0.9995)  # neither little loss nor much: x stays
    early, hard = times.deadline(Leg.PUSH, FIRST_BOUNDED, 100.0) or ()
    assert hard == Deadline(0.0, 100.040)
    assert early.share == 0.99
    assert early.at_s == pytest.approx(100.011, abs=1e-4), "10 ms and a tenth of it"


def test_early__is_never_later_than_the_hard_bound() -> None:
    early, hard = measured(0.010).deadline(Leg.PUSH, FIRST_BOUNDED, 100.0) or ()
    assert early.at_s == hard.at_s == pytest.approx(100.010)


@pytest.mark.parametrize(
    ("took_s", "delivered_share", "counts_as_s"),
    [(0.010, 1.0, 0.010), (0.010, 0.8, 0.0125), (0.040, 0.8, 0.040), (0.010, 0.1, 0.040), (0.010, 0.0, 0.040)],
    ids=["whole", "closed early", "ended by tB", "no longer than tB", "nothing came"],
)
def test_expected_time__counts_what_a_lossy_stage_would_have_taken(
    took_s: float, delivered_share: float, counts_as_s: float
) -> None:
    times = measured(0.040)
    times.over(Leg.PUSH, FIRST_BOUNDED, took_s, delivered_share)
    assert times.expected_s(Leg.PUSH) == pytest.approx((1 - NEWEST) * 0.040 + NEWEST * counts_as_s)


def test_wait__doubles_with_much_loss_and_shrinks_by_points_with_little() -> None:
    times = measured(0.040)
    seen = []
    for delivered_share in (0.99, 0.99, 0.99, 0.9995, 1.0, 1.0):
        times.over(Leg.PUSH, FIRST_BOUNDED, 0.01, delivered_share)
        seen.append(times.wait_share(Leg.PUSH))
    assert seen == pytest.approx([0.2, 0.4, MOST_WAIT, MOST_WAIT, 0.49, 0.48])
    for _ in range(100):
        times.over(Leg.PUSH, FIRST_BOUNDED, 0.01, 1.0)
    assert times.wait_share(Leg.PUSH) == LEAST_WAIT

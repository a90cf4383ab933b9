"""Whether the yardsticks of test_theory_waiting.py are true, from simulated sample paths alone: nothing is sent."""

from __future__ import annotations

import pytest
from queueing import cobham, mean_spread_s, poisson, served
from test_theory_waiting import BURST_S, MIXES, SERVICE_S, complaint


@pytest.mark.parametrize("loads", [{0: 0.8}, MIXES["two classes, load 0.8"], MIXES["three classes, load 0.5"]], ids=str)
def test_the_yardstick_is_true(loads: dict[int, float]) -> None:
    """The served sample path, over 100 times longer than any measurement's, gives the formulas' means within 4 %."""
    times, queue = poisson(loads, SERVICE_S, 400.0, seed=1)
    waiting = served(times, queue, SERVICE_S)
    for number, theory_s in cobham(loads, SERVICE_S).items():
        assert waiting[queue == number].mean() == pytest.approx(theory_s, rel=0.04)


def test_the_yardstick_sees_a_burst_that_is_too_large() -> None:
    """Four frames saved up, as a shaper of 100 Mbit/s may, take most of the wait: the judgement must not pass."""
    loads = {0: 0.6}
    times, queue = poisson(loads, SERVICE_S, 30.0, seed=1)
    bunched, path = (float(served(times, queue, SERVICE_S, slack).mean()) for slack in (4 * SERVICE_S, 0.0))
    seen = {"measured_s": {"0": bunched}, "path_s": {"0": path}, "lost": 0, "violations": []}
    assert "sample path" in complaint(seen, loads, {0: 0.0})
    seen["measured_s"]["0"] = path - BURST_S / 2
    assert complaint(seen, loads, mean_spread_s(loads, SERVICE_S, 30.0)) == ""

"""Judging drop and mark curves from samples whose truth is known: what is wrong is found, what is right passes."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt
import pytest
from scipy import stats

from dlcp.model.qos import DropProfile, QosIntent, QueueIntent
from dlcp.verification import curves, intervals
from dlcp.verification.probe_trains import Block, Load, calm
from dlcp.verification.procedure import room_bytes

INTENDED = DropProfile(minimum=6_000, maximum=16_000, probability=0.5)
CURVE = curves.Curve(3, 2, INTENDED, False, tos=0x70, filler_tos=0x60, averaging=0)
ALPHA = intervals.FALSE_ALARM / (6 * curves.BINS)
"""As for six curves."""
TOLERANCE = 127.0

Truth = Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]


def sampled(truth: Truth, seed: int, blocks: int = 40) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.bool_]]:
    """What that many blocks show of a switch that strikes by `truth`."""
    random = np.random.default_rng(seed)
    backlogs = np.tile(np.linspace(127, 18_400, curves.STEPS), blocks)
    return backlogs, random.random(len(backlogs)) < truth(backlogs)


def verdict(truth: Truth, seed: int = 1, profile: DropProfile = INTENDED) -> str:
    curve = curves.Curve(3, 2, profile, False, 0x70, 0x60, 0)
    return curves.judge(curve, "s1-h1", *sampled(truth, seed), tolerance=TOLERANCE, alpha=ALPHA).verdict


def of(minimum: float, maximum: float, probability: float) -> Truth:
    return curves.intended_curve(DropProfile(minimum=minimum, maximum=maximum, probability=probability))


@pytest.mark.parametrize(
    "truth",
    [
        of(7_000, 17_000, 0.5),
        of(5_000, 15_000, 0.5),
        of(6_000, 16_000, 0.25),
        of(6_000, 16_000, 1.0),
        of(6_000, 6_000, 1.0),
        of(18_500, 18_500, 1.0),
        lambda backlogs: np.full(len(backlogs), 0.02),
    ],
    ids=["1 kB late", "1 kB early", "half the probability", "twice", "a step", "none at all", "loss"],
)
def test_another_curve_deviates(truth: Truth) -> None:
    assert verdict(truth) == "deviates"


def test_the_intended_curve_passes_as_often_as_is_said() -> None:
    """FALSE_ALARM holds for six curves together. Bands are exact or wider, so of 300 curves at most as many may deviate
    as a binomial with FALSE_ALARM / 6 gives with probability 1 - 1e-4: five."""
    wrong = sum(verdict(of(6_000, 16_000, 0.5), seed) != "ok" for seed in range(300))
    assert wrong <= stats.binom.ppf(1 - 1e-4, 300, intervals.FALSE_ALARM / 6)


def test_a_small_probability_that_is_halved_deviates() -> None:
    wanted = DropProfile(minimum=4_000, maximum=16_000, probability=0.1)
    assert verdict(of(4_000, 16_000, 0.1), profile=wanted) == "ok"
    assert verdict(of(4_000, 16_000, 0.05), profile=wanted) == "deviates"


def test_a_threshold_within_the_tolerance_passes() -> None:
    """A step, the profile whose every sample tells: off by less than the largest packet it is not to be told apart."""
    step = DropProfile(minimum=8_000, maximum=8_000)
    assert verdict(of(8_100, 8_100, 1.0), profile=step) == "ok"
    assert verdict(of(9_000, 9_000, 1.0), profile=step) == "deviates"


def test_one_lost_probe_below_the_threshold_deviates() -> None:
    backlogs, struck = sampled(of(6_000, 16_000, 0.5), 1)
    struck[0] = True
    row = curves.judge(CURVE, "s1-h1", backlogs, struck, tolerance=TOLERANCE, alpha=ALPHA)
    assert row.verdict == "deviates"
    assert "0.0–3.0 kB" in row.why


def test_what_was_not_reached_is_not_concluded() -> None:
    backlogs, struck = np.linspace(0, 5_000, 200), np.zeros(200, bool)
    assert curves.judge(CURVE, "s1-h1", backlogs, struck, tolerance=1, alpha=ALPHA).verdict == "inconclusive"


def test_too_few_samples_past_the_threshold_conclude_nothing() -> None:
    """Many below it, and beyond it fewer than a band is made of."""
    backlogs, struck = sampled(of(6_000, 16_000, 0.5), 1, blocks=1)
    keep = (backlogs < 6_000) | (np.arange(len(backlogs)) % 5 == 0)
    row = curves.judge(CURVE, "s1-h1", backlogs[keep], struck[keep], tolerance=TOLERANCE, alpha=ALPHA)
    assert (row.verdict, row.why) == ("inconclusive", "fewer than 20 samples of any range past 6.0 kB")


@pytest.mark.parametrize(("hits", "trials"), [(0, 50), (50, 50), (1, 400), (7, 30), (1_200, 2_500)])
def test_band__is_clopper_and_pearsons(hits: int, trials: int) -> None:
    alpha = 1e-3
    wanted = stats.binomtest(hits, trials).proportion_ci(1 - alpha, method="exact")
    assert intervals.band(hits, trials, alpha) == pytest.approx((wanted.low, wanted.high), abs=1e-9)


def arrived(load: Load, missing: set[int], marked: frozenset[int] = frozenset()) -> Block:
    numbers = np.array([n for n in range(len(load.sizes)) if n not in missing], np.int64)
    tos = np.tile([tos for tos, _ in load.pattern], load.repeat)[numbers]
    return Block(load, numbers, np.where(np.isin(numbers, list(marked)), tos | 3, tos), 0, 0.0)


def test_samples__the_backlog_is_what_was_admitted_before() -> None:
    load = Load(((0x60, 200), (0x70, 64)), 3)
    backlogs, struck = curves.samples(CURVE, [arrived(load, {3})], 10_000)
    assert backlogs.tolist() == [200, 464, 664]
    assert struck.tolist() == [False, True, False]


def test_calm__a_block_whose_port_stood_still_has_not_held() -> None:
    block = arrived(Load(((0x60, 200),), 3), set())
    still = Block(block.load, block.numbers, block.tos, 0, 30_000.0)
    assert [one.held for one in calm([block, still], 14_000)] == [True, False]


def test_samples__marks_are_told_of_packets_that_arrived() -> None:
    mark = curves.Curve(3, 0, DropProfile(minimum=1, maximum=1, mark=True), True, 0x62, 0x62, 0)
    load = Load(((0x62, 100),), 4)
    backlogs, struck = curves.samples(mark, [arrived(load, {1}, frozenset({2}))], 10_000)
    assert backlogs.tolist() == [0, 100, 200]
    assert struck.tolist() == [False, True, False]
    assert curves.dropped_instead(mark, [arrived(load, {1, 3})], 250) == 1, "for the last one there was no room"


def test_lost_marks_deviate() -> None:
    mark = curves.Curve(3, 0, DropProfile(minimum=6_000, maximum=6_000, mark=True), True, 0x62, 0x62, 0)
    backlogs, struck = sampled(of(6_000, 6_000, 1.0), 1)
    assert curves.judge(mark, "s1-h1", backlogs, struck, tolerance=TOLERANCE, alpha=ALPHA).verdict == "ok"
    few = struck & (np.random.default_rng(3).random(len(struck)) < 0.9)
    row = curves.judge(mark, "s1-h1", backlogs, few, tolerance=TOLERANCE, alpha=ALPHA)
    assert (row.verdict, row.check) == ("deviates", curves.MARK)
    low = backlogs < 5_900  # all others were dropped, so that nothing shows on the curve itself
    row = curves.judge(mark, "s1-h1", backlogs[low], struck[low], tolerance=TOLERANCE, alpha=ALPHA, dropped=900)
    assert (row.verdict, "900 ECN-capable probes were dropped" in row.why) == ("deviates", True)


def averaged(weight: int, believed: int, blocks: int = 60) -> str:
    """A queue whose profile looks at the average of weight 2^-weight, judged as if it were 2^-believed."""
    random = np.random.default_rng(5)
    profile = DropProfile(minimum=2_000, maximum=9_000)
    curve = curves.Curve(3, 2, profile, False, 0x70, 0x60, believed)
    load = curves.load_of(curve, 20_000)
    share, found = curves.intended_curve(profile), []
    average, gap = 0.0, 2_000_000
    for number in range(blocks):
        backlog, missing, tos = 0, set(), [tos for tos, _ in load.pattern] * load.repeat
        for index, size in enumerate(load.sizes):
            average = average + (backlog - average) * 2.0**-weight if backlog else 0.0
            if tos[index] == curve.tos and random.random() < share(np.array([average]))[0]:
                missing.add(index)
            else:
                backlog += int(size)
        block = arrived(load, missing)
        at = (number + 1) * 100 * gap
        found.append(Block(load, block.numbers, block.tos, 0, 0.0, at, at + gap))
    samples = curves.averaged_samples(curve, found, 100_000, 1e9)
    tolerance = curves.tolerance_bytes(load)
    return curves.judge(curve, "s1-h1", *samples, tolerance=tolerance, alpha=ALPHA).verdict


def test_a_profile_on_the_average_is_judged_by_the_average() -> None:
    assert averaged(3, 3) == "ok"
    assert averaged(5, 3) == "deviates"


def test_loads_reach_past_the_maximum_or_as_far_as_there_is_room() -> None:
    load = curves.load_of(CURVE, 30_000)
    admitted_at_most, fillers = load.sizes.sum(), load.sizes[::2].sum()
    assert fillers < 1.15 * 16_000 < admitted_at_most
    assert len(load.sizes) <= 2.5 * curves.STEPS


def test_samples__what_may_have_been_dropped_for_want_of_room_tells_nothing() -> None:
    load = Load(((0x60, 200), (0x70, 64)), 3)
    backlogs, _ = curves.samples(CURVE, [arrived(load, set())], 600)
    assert backlogs.tolist() == [200, 464]


def test_curves_of_a_marking_profile_are_two() -> None:
    mark = DropProfile(minimum="5 kB", maximum="5 kB", mark=True)
    intent = QosIntent(name="x", port_buffer="40 kB", queues={2: QueueIntent(profiles=(mark, None, None))})
    marks, drops = curves.curves_of(intent, 2)
    assert (marks.check, marks.tos & 3) == (curves.MARK, 2)
    assert (drops.check, drops.tos & 3) == (curves.DROP, 0)


def test_room__is_what_port_queue_and_shared_buffer_leave() -> None:
    def room(**more: object) -> int:
        return room_bytes(QosIntent.model_validate({"name": "x", "port_buffer": 100_000, **more}), 3)

    assert room() < 100_000 - 12_000
    assert room(queues={3: QueueIntent(limit=9_000)}) == 9_000
    assert room(shared_buffer=50_000, queues={3: QueueIntent(alpha=0.25)}) < 10_000

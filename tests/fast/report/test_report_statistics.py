"""Intervals against closed forms and against the coverage that they claim; refusals against their rule."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from dlcp.report.data.statistics import (
    Estimate,
    mean_interval,
    paired_difference,
    paired_ratio,
    quantile,
    quantile_interval,
    quantile_ratio_interval,
    refuse_quantile,
)


def test_mean_interval__is_scipys_t_interval() -> None:
    values = np.random.default_rng(1).normal(10, 2, 7)
    found = mean_interval(values)
    low, high = stats.t.interval(0.95, 6, loc=values.mean(), scale=stats.sem(values))
    assert (found.value, found.low, found.high) == pytest.approx((values.mean(), low, high))
    assert (found.n, found.method, found.why) == (7, "t", "")


def test_mean_interval__covers_95_percent_at_five_repeats() -> None:
    draws = np.random.default_rng(2).normal(3, 1, (4000, 5))
    found = [mean_interval(values) for values in draws]
    covered = [one.low is not None and one.high is not None and one.low <= 3 <= one.high for one in found]
    assert 0.94 < np.mean(covered) < 0.96


@pytest.mark.parametrize("n", [1, 2, 4])
def test_mean_interval__below_five_repeats_has_a_mean_and_no_interval(n: int) -> None:
    found = mean_interval(np.arange(n, dtype=float))
    assert found.value == pytest.approx((n - 1) / 2)
    assert not found.has_interval
    assert found.why == f"an interval needs 5 repeats, there are {n}"


def test_mean_interval__of_nothing_has_no_value() -> None:
    assert mean_interval(np.array([])) == Estimate(None, None, None, 0, "t", "no trusted run has it")


def test_paired_difference__is_the_t_interval_of_the_differences() -> None:
    generator = np.random.default_rng(3)
    shared = generator.normal(100, 30, 6)  # what pairing must take out
    ours, theirs = shared + generator.normal(-5, 0.5, 6), shared + generator.normal(0, 0.5, 6)
    found = paired_difference(ours, theirs)
    reference = stats.ttest_rel(ours, theirs).confidence_interval(0.95)
    assert (found.low, found.high) == pytest.approx((reference.low, reference.high))
    assert found.high is not None
    assert found.high < 0 < mean_interval(ours).high - mean_interval(theirs).low  # type: ignore[operator]


def test_paired_ratio__undoes_itself_when_the_sides_are_swapped() -> None:
    ours, theirs = np.array([1.0, 2.0, 3.0, 2.0, 1.5]), np.array([2.0, 3.9, 6.3, 4.0, 3.0])
    there, back = paired_ratio(ours, theirs), paired_ratio(theirs, ours)
    assert there.value is not None
    assert there.low is not None
    assert there.high is not None
    assert (back.value, back.low, back.high) == pytest.approx((1 / there.value, 1 / there.high, 1 / there.low))
    assert there.value == pytest.approx(math.exp(np.log(ours / theirs).mean()))


def test_paired__refuses_what_is_not_a_pair_or_not_a_ratio() -> None:
    with pytest.raises(ValueError, match="5 and 4 values are not pairs"):
        paired_difference(np.ones(5), np.ones(4))
    with pytest.raises(ValueError, match="above 0"):
        paired_ratio(np.zeros(5), np.ones(5))
    assert paired_ratio(np.ones(3), np.ones(3)).why == "an interval needs 5 pairs, there are 3"


@pytest.mark.parametrize(
    ("n", "q", "why"),
    [
        (999, 0.99, "p99 needs 1000 samples, there are 999"),
        (1000, 0.99, ""),
        (9999, 0.999, "p99.9 needs 10000 samples, there are 9999"),
        (10000, 0.999, ""),
        (19, 0.5, "p50 needs 20 samples, there are 19"),
        (20, 0.5, ""),
    ],
)
def test_refuse_quantile__ten_samples_must_lie_beyond(n: int, q: float, why: str) -> None:
    samples = np.random.default_rng(4).random(n)
    assert refuse_quantile(samples, np.arange(n), q) == why


def test_refuse_quantile__they_must_come_from_ten_iterations() -> None:
    samples = np.random.default_rng(5).random(2000)
    blocks = np.arange(2000) // 4
    samples[:20] += 10  # the five first iterations hold the 20 slowest
    assert refuse_quantile(samples, blocks, 0.99) == "the 20 samples beyond p99 come from only 5 iterations"
    samples[:40:2] += 20  # now the ten first
    assert refuse_quantile(samples, blocks, 0.99) == ""


def test_quantile__is_a_value_that_occurred() -> None:
    samples = np.arange(1, 101, dtype=float)
    assert quantile(samples, 0.5) == 50
    assert quantile(samples, 0.99) == 99
    assert quantile(samples[:1], 0.99) == 1


def test_quantile_interval__is_a_plain_bootstrap_when_every_sample_is_its_own_block() -> None:
    samples = np.random.default_rng(6).lognormal(0, 1, 4000)
    found = quantile_interval(samples, np.arange(4000), 0.99, seed=7)
    reference = stats.bootstrap(
        (samples,),
        lambda values, axis: np.quantile(values, 0.99, axis=axis, method="inverted_cdf"),
        n_resamples=999,
        method="percentile",
        rng=np.random.default_rng(8),
        batch=100,
    ).confidence_interval
    assert found.value == quantile(samples, 0.99)
    assert found.low == pytest.approx(reference.low, rel=0.03)
    assert found.high == pytest.approx(reference.high, rel=0.03)


def test_quantile_interval__is_the_same_for_the_same_seed_and_the_order_of_samples_does_not_matter() -> None:
    generator = np.random.default_rng(9)
    samples, blocks = generator.lognormal(0, 1, 3000), np.arange(3000) // 20
    once = quantile_interval(samples, blocks, 0.99, seed=1)
    order = generator.permutation(3000)
    assert quantile_interval(samples[order], blocks[order], 0.99, seed=1) == once
    assert quantile_interval(samples, blocks, 0.99, seed=2) != once


@pytest.mark.long
def test_quantile_interval__by_blocks_covers_where_single_samples_do_not() -> None:
    """Messages of an iteration are slow together: 50 iterations of 60 messages, truth from a large sample."""
    generator = np.random.default_rng(10)

    def draw(iterations: int) -> np.ndarray:
        burst = generator.lognormal(0, 0.4, (iterations, 1))
        return (burst * generator.lognormal(0, 0.5, (iterations, 60))).ravel()

    truth = float(np.quantile(draw(40_000), 0.99))
    covered: dict[str, list[bool]] = {"blocks": [], "single": []}
    for trial in range(60):
        samples = draw(50)
        for kind, names in (("blocks", np.arange(3000) // 60), ("single", np.arange(3000))):
            found = quantile_interval(samples, names, 0.99, seed=trial)
            if found.low is not None and found.high is not None:
                covered[kind].append(found.low <= truth <= found.high)
    assert len(covered["blocks"]) > 40
    assert np.mean(covered["blocks"]) > 0.75
    assert np.mean(covered["single"]) < 0.7


def test_quantile_ratio_interval__holds_the_true_ratio_and_refuses_as_its_parts_do() -> None:
    generator = np.random.default_rng(11)
    ours, theirs = generator.lognormal(0, 0.5, 5000), 2 * generator.lognormal(0, 0.5, 5000)
    blocks = np.arange(5000)
    found = quantile_ratio_interval((ours, blocks), (theirs, blocks), 0.99, seed=1)
    assert found.low is not None
    assert found.high is not None
    assert found.low < 0.5 < found.high < 0.65
    refused = quantile_ratio_interval((ours[:500], blocks[:500]), (theirs, blocks), 0.99, seed=1)
    assert refused.value is None
    assert refused.why == "p99 needs 1000 samples, there are 500"


@pytest.mark.parametrize(("count", "blocks", "q"), [(5000, 40, 0.99), (20_011, 251, 0.999), (3000, 17, 0.95)])
def test_quantile_interval__is_that_of_whole_resampled_copies(count: int, blocks: int, q: float) -> None:
    """Every draw written out in full, sample by sample, gives the same interval to the last digit."""
    generator = np.random.default_rng(11)
    block = generator.integers(0, blocks, count)
    samples = generator.lognormal(0, 1, count) * (1 + block % 3)
    drawn = np.random.default_rng(5).multinomial(blocks, np.full(blocks, 1 / blocks), size=1000)
    full = [np.quantile(np.repeat(samples, weights[block]), q, method="inverted_cdf") for weights in drawn]
    found = quantile_interval(samples, block, q, seed=5)
    assert (found.low, found.high) == tuple(np.quantile(full, [0.025, 0.975]))
    order = np.argsort(samples)
    assert found == quantile_interval(samples[order], block[order], q, seed=5)

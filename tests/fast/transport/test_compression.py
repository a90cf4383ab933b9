"""Every compressor does what its paper says: bytes, bias, what is left out and what is kept; and training converges."""

from __future__ import annotations

import numpy as np
import pytest
from coding import METHODS, Bench, cosine, known_knobs, normal
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcp.transport.compression import compressor_class
from dlcp.transport.compression._packing import pack, packed_bytes, unpack
from dlcp.transport.compression.dgc import Dgc
from dlcp.transport.compression.fp16 import to_half
from dlcp.transport.compression.powersgd import PowerSgd, orthonormal
from dlcp.transport.compression.topk import TopK
from dlcp.transport.contract.endpoint import Floats, Values

ELEMENTS = 10_000
FACTS_ELEMENTS = 400_000
"""Large enough for the cosines that facts measured at 2 M values; they do not hang on the size beyond noise."""


# Bytes.


@pytest.mark.parametrize(
    ("method", "knobs", "pushed", "pulled"),
    [
        ("fp16", {}, [20_000], [20_000]),
        ("topk", {"ratio": 0.01}, [100 * 8], None),
        ("randomk", {"ratio": 0.01}, [100 * 4], [100 * 4]),
        ("randomblock", {"ratio": 0.01}, [100 * 4], [100 * 4]),
        ("terngrad", {}, [4, 10_000 * 2 // 8], [4, 10_000 * 5 // 8]),  # 17 levels of 8 workers' sum: 5 bits
        ("qsgd", {"levels": 7, "chunk": 512}, [20 * 4 + 10_000 // 2], [20 * 4 + 10_000 // 2]),
        ("qsgd", {"levels": 127, "chunk": 512}, [20 * 4 + 10_000], [20 * 4 + 10_000]),
        ("qsgd", {"levels": 1, "chunk": 10_000}, [4 + 10_000 // 4], [4 + 10_000 // 4]),
        ("signsgd", {}, [10_000 // 8], [10_000 // 8]),
        ("powersgd", {"rank": 2}, [100 * 2 * 4, 100 * 2 * 4], [100 * 2 * 4, 100 * 2 * 4]),
    ],
)
def test_bytes__are_the_papers(
    method: str, knobs: dict[str, float], pushed: list[int], pulled: list[int] | None
) -> None:
    bench = Bench(method, ELEMENTS, 8, **knobs)
    bench.exchange(0, [normal(ELEMENTS, seed) for seed in range(8)])
    assert bench.pushed == pushed
    if pulled is not None:
        assert bench.pulled == pulled


def test_bytes__topk_pulls_the_union_as_pairs_or_the_whole_where_that_is_less() -> None:
    gradients = [normal(ELEMENTS, seed) for seed in range(8)]
    bench = Bench("topk", ELEMENTS, 8, ratio=0.01)
    union = np.count_nonzero(bench.exchange(0, gradients))
    assert 100 < union <= 800
    assert bench.pulled == [8 * union]
    bench = Bench("topk", ELEMENTS, 8, ratio=0.2)
    bench.exchange(0, gradients)
    assert bench.pulled == [4 * ELEMENTS]


def test_bytes__dgc_sends_about_its_share_and_warms_it_up() -> None:
    bench = Bench("dgc", 100_000, iterations=100, ratio=0.001, warmup=0.4)
    sent = {}
    for iteration in range(50):
        bench.exchange(iteration, [normal(100_000, iteration)])
        sent[iteration] = bench.pushed[0] // 8
    for iteration, share in ((0, 0.251), (10, 0.0631), (20, 0.0158), (30, 0.00398), (49, 0.001)):  # paper §3.3
        assert 0.65 * share <= sent[iteration] / 100_000 <= 1.35 * share


def test_bytes__powersgd_leaves_alone_what_would_grow() -> None:
    bench = Bench("powersgd", 60, 2, rank=4)  # 8 × 8: two factors of 32 values are more than 60
    gradients = [normal(60, 1), normal(60, 2)]
    np.testing.assert_array_equal(bench.exchange(0, gradients), (gradients[0] + gradients[1]) / np.float32(2))
    assert bench.pushed == [240]


@pytest.mark.parametrize("method", ["fp16", "topk", "randomk", "randomblock"])
def test_bytes__are_always_the_same_for_a_transport_without_shorter_messages(method: str) -> None:
    bench = Bench(method, ELEMENTS, 4, fixed=True, **known_knobs(method, ratio=0.01))
    assert not any(code.variable for one in bench.server.exchanges for code in (one.push, one.pull))
    bench.exchange(0, [normal(ELEMENTS, seed) for seed in range(4)])


@settings(max_examples=60)
@given(st.integers(1, 8), st.lists(st.integers(0, 255), min_size=1, max_size=70))
def test_packing__loses_nothing_and_leaves_no_gaps(bits: int, numbers: list[int]) -> None:
    below = np.array(numbers, np.uint8) & np.uint8((1 << bits) - 1)
    packed = pack(below, bits)
    assert packed.nbytes == packed_bytes(below.size, bits) == -(-below.size * bits // 8)
    np.testing.assert_array_equal(unpack(packed, below.size, bits), below)


# Any tensor.


@settings(max_examples=40)
@given(
    st.sampled_from(METHODS),
    st.integers(1, 400),
    st.integers(1, 5),
    st.sampled_from(["normal", "zero", "constant", "one", "wide"]),
    st.booleans(),
)
def test_any_tensor__is_decoded_to_finite_values(
    method: str, elements: int, workers: int, kind: str, fixed: bool
) -> None:
    if fixed and not compressor_class(method).tolerates_loss:
        fixed = False
    bench = Bench(method, elements, workers, fixed=fixed, momentum=0.9)
    for iteration in range(3):
        gradients = [normal(elements, worker, 1.0) for worker in range(workers)]
        if kind == "zero":
            gradients = [np.zeros(elements, np.float32)] * workers
        elif kind == "constant":
            gradients = [np.full(elements, -0.25, np.float32)] * workers
        elif kind == "one":
            gradients = [np.eye(1, elements, elements // 2, dtype=np.float32)[0]] * workers
        elif kind == "wide":
            gradients = [np.float32(10) ** (gradient * 6) * np.sign(gradient) for gradient in gradients]
            if method == "fp16":
                gradients = [np.clip(gradient, -6e4, 6e4) for gradient in gradients]
        found = bench.exchange(iteration, gradients)
        assert found.shape == (elements,)
        assert np.isfinite(found).all()


@settings(max_examples=200)
@given(st.floats(width=32, allow_nan=False), st.integers(0, 40))
def test_fp16__rounds_as_numpy_does_however_small(value: float, shift: int) -> None:
    values = np.array([value, -value, value * 2.0**-shift], np.float32)
    with np.errstate(over="ignore"):
        np.testing.assert_array_equal(to_half(values), values.astype(np.float16))


def test_fp16__rounds_every_tie_below_the_normal_numbers_to_even() -> None:
    ties = np.arange(0, 4100, dtype=np.float32) * np.float32(2.0**-25)
    np.testing.assert_array_equal(to_half(ties), ties.astype(np.float16))


# Bias, and what is left out.


@pytest.mark.parametrize(
    ("method", "knobs"),
    [
        ("qsgd", {"norm": "max", "levels": 3}),
        ("qsgd", {"norm": "l2", "levels": 7, "chunk": 64}),
        ("terngrad", {"clip_sigmas": 100.0}),
        ("randomk", {"error_feedback": False, "ratio": 0.1}),
        ("randomblock", {"error_feedback": False, "ratio": 0.1}),
    ],
)
def test_bias__the_mean_over_many_draws_is_the_mean_gradient(method: str, knobs: dict[str, float | str]) -> None:
    elements, draws = 300, 1000
    gradients = [normal(elements, 1, 1.0), normal(elements, 2, 1.0)]
    bench = Bench(method, elements, 2, **knobs)
    mean = (gradients[0] + gradients[1]) / 2
    found = np.array([bench.exchange(draw, gradients) for draw in range(draws)])
    error = found.mean(axis=0) - mean
    standard_error = found.std(axis=0) / np.sqrt(draws)
    assert np.sqrt(np.mean((error / standard_error) ** 2)) == pytest.approx(1.0, abs=0.25), "as far off as chance is"
    assert abs(float((found @ mean).mean() / (mean @ mean)) - 1) < 0.05


def test_bias__clipping_is_all_that_terngrad_loses() -> None:
    gradient = normal(2000, 1, 1.0)
    bench = Bench("terngrad", 2000)
    found = np.mean([bench.exchange(draw, [gradient]) for draw in range(400)], axis=0)
    clip = 2.5 * np.sqrt(np.mean(gradient**2))
    assert cosine(found, np.clip(gradient, -clip, clip)) > 0.99
    assert np.abs(found).max() <= clip * 1.0001


@pytest.mark.parametrize("method", ["topk", "randomk", "randomblock", "powersgd"])
def test_error_feedback__what_is_left_out_comes_later(method: str) -> None:
    """Σ decoded + memory = Σ gradients: nothing is lost for good, nothing is counted twice."""
    elements = 900
    bench = Bench(method, elements)
    gradients = [normal(elements, iteration, 1.0) for iteration in range(40)]
    applied = sum(bench.exchange(iteration, [gradient]) for iteration, gradient in enumerate(gradients))
    left: Floats = bench.workers[0]._memory.error[:elements]  # type: ignore[attr-defined]
    assert np.linalg.norm(left) > 0
    np.testing.assert_allclose(applied + left, sum(gradients), atol=2e-4)


def test_error_feedback__dgc_keeps_what_it_has_not_sent() -> None:
    bench = Bench("dgc", 900, iterations=40, ratio=0.01)
    gradients = [normal(900, iteration, 1.0) for iteration in range(40)]
    applied = sum(bench.exchange(iteration, [gradient]) for iteration, gradient in enumerate(gradients))
    worker = bench.workers[0]
    assert isinstance(worker, Dgc)
    np.testing.assert_allclose(applied + worker._accumulated, sum(gradients), atol=2e-4)


def test_dgc__momentum_is_corrected_and_masked() -> None:
    """What is not sent accumulates as plain momentum would have moved it; sending clears both (§3.1, §3.3)."""
    bench = Bench("dgc", 1000, iterations=10, ratio=0.001, momentum=0.5, warmup=0.0)
    gradient = np.full(1000, 1.0, np.float32)
    gradient[7] = 100.0
    first = bench.exchange(0, [gradient])
    assert np.flatnonzero(first).tolist() == [7]
    worker = bench.workers[0]
    assert isinstance(worker, Dgc)
    assert (worker._velocity[7], worker._accumulated[7]) == (0, 0)
    bench.exchange(1, [gradient])
    assert worker._velocity[0] == 1.5
    assert worker._accumulated[0] == 2.5


def test_topk__sends_the_largest_and_only_those() -> None:
    gradient = normal(ELEMENTS, 5)
    found = Bench("topk", ELEMENTS, ratio=0.01).exchange(0, [gradient])
    kept = np.flatnonzero(found)
    assert len(kept) == 100
    np.testing.assert_array_equal(found[kept], gradient[kept])
    assert np.abs(gradient[kept]).min() >= np.sort(np.abs(gradient))[-100]


def test_topk__a_hole_of_its_code_is_zeros() -> None:
    """A transport that loses the second packet of 360 words leaves zeros: 180 pairs that add 0 to element 0."""

    def lossy(code: Values) -> Values:
        holed = code.copy()
        holed[360:720] = 0
        return holed

    gradient = normal(ELEMENTS, 5)
    whole = Bench("topk", ELEMENTS, ratio=0.1, fixed=True).exchange(0, [gradient])
    found = Bench("topk", ELEMENTS, ratio=0.1, fixed=True, lossy=lossy).exchange(0, [gradient])
    gone = np.flatnonzero(whole)[180:360]
    assert (found[gone] == 0).all()
    whole[gone] = 0
    np.testing.assert_array_equal(found, whole)


def test_signsgd__the_majority_decides_and_ties_are_even() -> None:
    ones = np.ones(8000, np.float32)
    three = Bench("signsgd", 8000, 3)
    np.testing.assert_array_equal(three.exchange(0, [ones, -ones, -ones]), -ones)
    tied = Bench("signsgd", 8000, 2).exchange(0, [ones, -ones])
    assert set(tied.tolist()) == {-1.0, 1.0}
    assert abs(tied.mean()) < 0.05


def test_randomk__two_iterations_and_two_tensors_choose_otherwise() -> None:
    chosen = [Bench("randomk", ELEMENTS).exchange(iteration, [np.ones(ELEMENTS, np.float32)]) for iteration in (0, 1)]
    assert np.count_nonzero(chosen[0]) == 100
    assert np.count_nonzero(chosen[0] * chosen[1]) < 10


@pytest.mark.parametrize("start_ratio", [0.3, 0.01])
def test_randomblock__is_one_block_that_may_wrap_round(start_ratio: float) -> None:
    for iteration in range(20):
        found = Bench("randomblock", 1000, ratio=start_ratio).exchange(iteration, [np.ones(1000, np.float32)]) != 0
        assert np.count_nonzero(found) == int(1000 * start_ratio)
        assert np.count_nonzero(found != np.roll(found, 1)) == 2, "one run of values round the ring"


def test_powersgd__finds_a_matrix_of_its_rank_and_orthonormal_columns() -> None:
    generator = np.random.default_rng(3)
    left, right = (generator.standard_normal((40, 2), np.float32) for _ in range(2))
    gradient = (left @ right.T).reshape(-1)
    bench = Bench("powersgd", 1600, 2, rank=2)
    np.testing.assert_allclose(bench.exchange(0, [gradient, gradient]), gradient, atol=1e-4)
    basis = orthonormal(left)
    np.testing.assert_allclose(basis.T @ basis, np.eye(2), atol=1e-5)


def test_powersgd__its_factor_gets_better_from_iteration_to_iteration() -> None:
    matrix = np.outer(normal(60, 1, 1.0), normal(60, 2, 1.0)) + normal(3600, 3, 0.3).reshape(60, 60)
    gradient = matrix.astype(np.float32).reshape(-1)
    bench = Bench("powersgd", 3600, rank=1, error_feedback=False)
    errors = [float(np.linalg.norm(bench.exchange(i, [gradient]) - gradient)) for i in range(6)]
    singular = np.linalg.svd(matrix, compute_uv=False)
    best = float(np.sqrt((singular[1:] ** 2).sum()))
    assert errors[-1] < errors[0]
    assert errors[-1] == pytest.approx(best, rel=1e-3)


@pytest.mark.parametrize(
    ("method", "knobs", "expected"),
    [
        ("fp16", {}, 1.000),
        ("topk", {"ratio": 0.01}, 0.291),
        ("randomk", {"ratio": 0.01}, 0.100),
        ("dgc", {"ratio": 0.01, "warmup": 0.0}, 0.299),
        ("terngrad", {}, 0.701),
        ("signsgd", {}, 0.798),
    ],
)
def test_cosine__is_what_grace_has(method: str, knobs: dict[str, float | str], expected: float) -> None:
    """Against the input, N(0, 1e-3) values, as measured of GRACE's compressors."""
    gradient = normal(FACTS_ELEMENTS)
    found = Bench(method, FACTS_ELEMENTS, **knobs).exchange(0, [gradient])
    assert cosine(found, gradient) == pytest.approx(expected, abs=0.025)


def test_cosine__of_one_qsgd_code_is_what_grace_has_and_chunks_keep_more() -> None:
    """GRACE's qsgd127: one norm for all 2 M values, which leaves most levels 0. With this scheme's chunks, coded twice,
    more is left than that."""
    gradient = normal(2_000_000)
    bench = Bench("qsgd", gradient.size, levels=127, norm="l2", chunk=gradient.size)
    worker = bench.workers[0]
    assert cosine(worker.decode(0, worker.first(0, gradient)), gradient) == pytest.approx(0.331, abs=0.025)
    fine = Bench("qsgd", FACTS_ELEMENTS).exchange(0, [gradient[:FACTS_ELEMENTS]])
    assert cosine(fine, gradient[:FACTS_ELEMENTS]) > 0.9


# A small problem.


@pytest.mark.parametrize("method", METHODS)
def test_training__a_small_problem_converges(method: str) -> None:
    """Least squares, 4 workers with rows of their own, momentum 0.9, step decayed: at the end less than 2 % of the
    loss is left beyond the best, as without compression."""
    elements, workers, iterations = 400, 4, 400
    generator = np.random.default_rng(5)
    rows = generator.standard_normal((workers, 250, elements)).astype(np.float32)
    target = generator.standard_normal(elements).astype(np.float32)
    labels = rows @ target + 0.1 * generator.standard_normal((workers, 250)).astype(np.float32)
    ratio = 0.2 if method in ("randomk", "randomblock") else 0.05
    bench = Bench(method, elements, workers, momentum=0.9, iterations=iterations, **known_knobs(method, ratio=ratio))
    own_momentum = bench.server.own_momentum
    rate, parameters, velocity = 0.02, np.zeros(elements, np.float32), np.zeros(elements, np.float32)

    def loss() -> float:
        return float(np.mean((rows @ parameters - labels) ** 2))

    first = loss()
    for iteration in range(iterations):
        errors = rows @ parameters - labels
        gradients = [rows[w].T @ errors[w] / np.float32(250) for w in range(workers)]
        mean = bench.exchange(iteration, gradients)
        velocity = mean if own_momentum else np.float32(0.9) * velocity + mean
        parameters = parameters - np.float32(rate * 0.5 * (1 + np.cos(np.pi * iteration / iterations))) * velocity
    assert loss() < 0.02 * first


def test_classes__are_the_methods_files() -> None:
    assert TopK is type(Bench("topk", 10).server)
    assert PowerSgd is type(Bench("powersgd", 10).server)

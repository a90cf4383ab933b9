"""Masks: which packets are lost follows the rule, the rate and the seed; a recording is replayed as it was."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dlcp.errors import Problem
from dlcp.model.loading.mask_file import Recording, read_recording, recording_names, recording_path, write_recording
from dlcp.model.transport.masks import MaskSettings
from dlcp.model.transport.settings import TransportSettings
from dlcp.transport.aggregation.loss_masks import Lost, Masks
from dlcp.transport.contract.endpoint import Floats
from dlcp.transport.contract.packing import Packing
from dlcp.transport.contract.tensors import PACKET_ELEMENTS, Tensor, plan_tensors

LAYERS = [("front", 60 * PACKET_ELEMENTS), ("middle", 30 * PACKET_ELEMENTS + 7), ("back", 100)]
WORKERS = 4
ITERATIONS = 200


def tensors() -> list[Tensor]:
    return plan_tensors(LAYERS, 20 * PACKET_ELEMENTS * 4, 1, TransportSettings(kind="masked"))


ROWS = Packing(tensors()).rows


def energies(seed: int) -> Floats:
    return np.random.default_rng(seed).random((WORKERS, ROWS), np.float32)


def masks(seed: int = 1, recording: Recording | None = None, **settings: object) -> Masks:
    layers = [elements for _, elements in LAYERS]
    return Masks(MaskSettings.model_validate(settings), tensors(), layers, WORKERS, seed, recording)


def history(found: Masks) -> Lost:
    """(iterations, workers, packets)."""
    return np.array([found.lost(iteration, energies(iteration)) for iteration in range(ITERATIONS)])


def recording(seed: int = 5) -> Recording:
    lost = np.random.default_rng(seed).random((7, WORKERS, ROWS)) < 0.2
    counts = tuple(int(count) for count in Packing(tensors()).count)
    return Recording("model", WORKERS, 7, counts, {"run_id": "0" * 12}, lost)


@pytest.mark.parametrize("order", ["random", "small-first", "large-first", "tail-cut", "message-tail-cut"])
@pytest.mark.parametrize("spread", ["even", "in-turn", "one-worker", "same-packets"])
@pytest.mark.parametrize("loss", [0.0, 0.003, 0.2])
def test_masks__their_mean_is_the_rate_however_it_is_spread(order: str, spread: str, loss: float) -> None:
    lost = history(masks(loss=loss, order=order, spread=spread))
    assert lost.mean() == pytest.approx(loss, rel=0.1, abs=6e-4)


@pytest.mark.parametrize(
    ("spread", "rates"), [("even", [0.2] * 4), ("in-turn", [0.2] * 4), ("same-packets", [0.2] * 4)]
)
def test_masks__over_time_every_worker_loses_the_same(spread: str, rates: list[float]) -> None:
    assert history(masks(loss=0.2, spread=spread)).mean(axis=(0, 2)) == pytest.approx(rates, rel=0.1)


def test_masks__in_turn_is_one_worker_at_a_time() -> None:
    by_worker = history(masks(loss=0.2, spread="in-turn")).any(axis=2)
    assert [int(np.flatnonzero(row)[0]) for row in by_worker[:8]] == [0, 1, 2, 3] * 2
    assert (by_worker.sum(axis=1) == 1).all()


def test_masks__one_worker_is_always_the_same_one_and_another_seed_may_choose_another() -> None:
    chosen = set()
    for seed in range(12):
        hit = history(masks(seed, loss=0.2, spread="one-worker")).any(axis=(0, 2))
        assert hit.sum() == 1
        chosen.add(int(np.flatnonzero(hit)[0]))
    assert chosen == set(range(WORKERS))


def test_masks__a_worker_cannot_lose_more_than_all() -> None:
    with pytest.raises(ValueError, match=r"cannot lose 4 × 0\.3"):
        masks(loss=0.3, spread="one-worker")


def test_masks__same_packets_are_lost_by_all_workers() -> None:
    lost = history(masks(loss=0.2, spread="same-packets"))
    assert (lost == lost[:, :1]).all()
    assert not (history(masks(loss=0.2)) == lost[:, :1]).all()


def test_masks__small_first_takes_the_least_energy_and_large_first_the_most() -> None:
    for iteration in range(20):
        energy = energies(iteration)
        for order, sign in (("small-first", 1), ("large-first", -1)):
            lost = masks(iteration, loss=0.25, order=order).lost(iteration, energy)
            for own, mask in zip(sign * energy, lost, strict=True):
                assert own[mask].max() <= own[~mask].min()


def test_masks__layers_are_told_apart_inside_a_message() -> None:
    front = Packing(tensors()).last_element < LAYERS[0][1]
    assert front.sum() == 60
    in_front = history(masks(loss=0.5, order="front-layers"))
    at_back = history(masks(loss=0.5, order="back-layers"))
    assert not in_front[:, :, ~front].any()
    assert in_front[:, :, front].mean() == pytest.approx(0.5, rel=0.1)
    assert not at_back[:, :, front].any()
    assert at_back[:, :, ~front].mean() == pytest.approx(0.5, rel=0.1)


def test_masks__a_cut_takes_the_last_packets_of_the_gradient_or_of_each_message() -> None:
    packing = Packing(tensors())
    tail = masks(loss=0.5, order="tail-cut").lost(0, energies(0))
    assert all((np.diff(mask.astype(int)) >= 0).all() and mask[-1] for mask in tail)
    message = masks(loss=0.5, order="message-tail-cut").lost(0, energies(0))
    for first, count in zip(packing.first_row, packing.count, strict=True):
        part = message[:, first : first + count].astype(int)
        assert (np.diff(part, axis=1) >= 0).all()
        assert abs(part.sum(axis=1) - count / 2).max() <= 1


def test_masks__follow_from_the_seed_alone() -> None:
    first, again, other = (history(masks(seed, loss=0.3)) for seed in (3, 3, 4))
    assert (first == again).all()
    assert not (first == other).all()


def test_recording__is_replayed_round_and_round_from_some_iteration() -> None:
    source = recording()
    lost = history(masks(order="recorded", recorded="some", recording=source))
    start = next(k for k in range(7) if (lost[0] == source.lost[k]).all())
    assert all((lost[i] == source.lost[(start + i) % 7]).all() for i in range(ITERATIONS))


def test_recording__shuffled_keeps_the_count_of_each_message() -> None:
    source = recording()
    packing = Packing(tensors())
    played = history(masks(order="recorded", recorded="some", recording=source))
    shuffled = history(masks(order="recorded-shuffled", recorded="some", recording=source))
    assert (packing.by_tensor(played.astype(int)) == packing.by_tensor(shuffled.astype(int))).all()
    assert not (played == shuffled).all()


def test_recording__its_rate_alone() -> None:
    source = recording()
    lost = history(masks(order="recorded-rate", recorded="some", recording=source))
    assert lost.mean() == pytest.approx(source.loss, rel=0.05)


def test_recording__of_another_job_is_refused() -> None:
    source = recording()
    other = Recording("other", WORKERS, 7, (1, 2), {}, np.zeros((7, WORKERS, 3), np.bool_))
    with pytest.raises(ValueError, match="messages of 1, 2 packets"):
        masks(order="recorded", recorded="some", recording=other)
    with pytest.raises(ValueError, match="need a recording"):
        masks(order="recorded", recorded="some")
    assert masks(order="random", loss=0.1, recording=source) is not None


def test_recording__survives_its_file(tmp_path: Path) -> None:
    source = recording()
    write_recording(tmp_path / "some.parquet", source)
    found = read_recording(tmp_path / "some.parquet")
    assert (found.lost == source.lost).all()
    assert (found.packets, found.workers, found.source) == (source.packets, WORKERS, source.source)


def test_recording__a_file_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "wrong.parquet").write_bytes(b"no Parquet")
    with pytest.raises(Problem, match="is no file of masks"):
        read_recording(tmp_path / "wrong.parquet")
    with pytest.raises(Problem, match="no such file of masks"):
        recording_path("never-recorded")


@pytest.mark.parametrize("name", recording_names())
def test_recording__those_that_ship_say_what_they_are(name: str) -> None:
    found = read_recording(recording_path(name))
    assert found.source["scheme"]
    assert 0 < found.loss < 1


def test_packing__takes_a_vector_apart_and_together_again() -> None:
    found = tensors()
    packing = Packing(found)
    flat = np.arange(1, found[-1].stop + 1, dtype=np.float32)
    rows = packing.empty(1)[0].reshape(-1)
    for number, tensor in enumerate(found):
        at = packing.place(number, 0)
        rows[at : at + tensor.elements] = flat[tensor.start : tensor.stop]
    back = np.zeros_like(flat)
    packing.unpack(rows, back)
    assert (back == flat).all()
    assert packing.row_bytes.sum() == flat.nbytes
    values = rows.reshape(packing.rows, PACKET_ELEMENTS).max(axis=1)
    assert (values - 1 == packing.last_element).all()

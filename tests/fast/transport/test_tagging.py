"""Layers become buckets that cover the model exactly once, are balanced, and are tagged by the stated rules."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcp.model.transport.settings import TransportSettings
from dlcp.patterns import pattern_of
from dlcp.patterns.base import Traffic
from dlcp.transport.contract.tensors import (
    PACKET_ELEMENTS,
    TOLERANCE,
    balance,
    data_queues,
    map_queues,
    plan_tensors,
)
from dlcp.transport.contract.values import packets

SETTINGS = TransportSettings(kind="dlcp", priority_queues=5)

sizes = st.lists(st.integers(1, 60_000), min_size=1, max_size=60)
bucket_sizes = st.integers(4, 200_000)


def named(elements: list[int]) -> list[tuple[str, int]]:
    return [(f"layer{i}", count) for i, count in enumerate(elements)]


@given(sizes, bucket_sizes, st.integers(1, 5))
def test_plan__covers_every_element_once_in_order(elements: list[int], bucket: int, servers: int) -> None:
    tensors = plan_tensors(named(elements), bucket, servers, SETTINGS)
    assert tensors[0].start == 0
    assert tensors[-1].stop == sum(elements)
    assert all(a.stop == b.start for a, b in pairwise(tensors))
    assert all(tensor.elements > 0 for tensor in tensors)


@given(sizes, bucket_sizes)
def test_plan__a_bucket_is_whole_neighbours_or_a_part_of_one_layer(elements: list[int], bucket: int) -> None:
    starts = [sum(elements[:i]) for i in range(len(elements) + 1)]
    for tensor in plan_tensors(named(elements), bucket, 2, SETTINGS):
        first, last = tensor.first_layer, tensor.last_layer
        if first == last:
            assert starts[first] <= tensor.start < tensor.stop <= starts[first + 1]
        else:
            assert (tensor.start, tensor.stop) == (starts[first], starts[last + 1])


@given(sizes, st.integers(8_000, 200_000))
def test_plan__no_bucket_is_far_above_its_target(elements: list[int], bucket: int) -> None:
    largest = TOLERANCE * (bucket // 4) + PACKET_ELEMENTS
    assert all(tensor.elements <= largest for tensor in plan_tensors(named(elements), bucket, 2, SETTINGS))


@given(sizes, st.integers(1, 6))
def test_balance__servers_differ_by_at_most_one_bucket(elements: list[int], servers: int) -> None:
    owners = balance(elements, servers)
    loads = [sum(size for size, owner in zip(elements, owners, strict=True) if owner == s) for s in range(servers)]
    assert max(loads) - min(loads) <= max(elements)


@given(sizes, st.integers(1, 7), st.sampled_from(["equal-bytes", "equal-count"]))
def test_queues__front_is_never_below_back(elements: list[int], count: int, layer_map: str) -> None:
    queues = map_queues(elements, count, layer_map)  # type: ignore[arg-type]
    assert queues == sorted(queues, reverse=True)
    assert set(queues) <= set(data_queues(count))


@given(st.integers(1, 7), st.integers(1, 12))
def test_queues__equal_sizes_fill_the_queues_evenly(count: int, each: int) -> None:
    queues = map_queues([1000] * (count * each), count, "equal-bytes")
    assert [queues.count(queue) for queue in data_queues(count)] == [each] * count


def test_queues__by_bytes_and_by_count_differ_when_the_back_is_heavy() -> None:
    heavy_back = [100, 100, 100, 9_700]
    assert map_queues(heavy_back, 2, "equal-count") == [5, 5, 4, 4]
    assert map_queues(heavy_back, 2, "equal-bytes") == [5, 5, 5, 4]


def test_data_queues__leave_control_alone() -> None:
    assert data_queues(5) == [5, 4, 3, 2, 1]
    assert data_queues(1) == [5]
    assert data_queues(6) == [6, 5, 4, 3, 2, 1]
    assert data_queues(7) == [6, 5, 4, 3, 2, 1, 0]


@given(sizes, bucket_sizes, st.floats(0, 1))
def test_droppable__never_in_the_protected_tail(elements: list[int], bucket: int, share: float) -> None:
    settings = SETTINGS.model_copy(update={"protected_tail_share": share})
    protected = math.ceil(share * len(elements))
    for tensor in plan_tensors(named(elements), bucket, 1, settings):
        assert tensor.droppable == (tensor.last_layer < len(elements) - protected)


def test_must_arrive__is_fewer_packets_than_the_setting() -> None:
    tensors = plan_tensors(named([7 * 360, 8 * 360]), 7 * 360 * 4, 1, SETTINGS)
    declarations = pattern_of("parameter-server").declarations(Traffic(1, 1, tensors, SETTINGS, 1))
    assert [(packets(d.elements), d.must_arrive) for d in declarations] == [(7, True), (8, False)]


def test_plan__bytes_scaled_resnet_keeps_full_messages() -> None:
    """A layer of 2 M elements ÷ 100 is cut into pieces of about the bucket, at packet boundaries."""
    tensors = plan_tensors(named([300, 500, 20_490]), 40_000, 2, SETTINGS)
    assert [t.elements for t in tensors] == [800, 10_440, 10_050]
    assert tensors[1].elements % PACKET_ELEMENTS == 0


@pytest.mark.parametrize(
    ("layers", "bucket", "reason"),
    [([], 100, "at least one layer"), ([("a", 0)], 100, "at least one element"), ([("a", 1)], 3, "buckets of 3 B")],
)
def test_plan__nonsense_is_refused(layers: list[tuple[str, int]], bucket: int, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        plan_tensors(layers, bucket, 1, SETTINGS)

"""Tensors and their tags: layers → buckets → servers, queues, droppable.

A model's parameters are one flat float32 vector, input side first. A bucket is a range of it and travels as one
tensor. Everything here is a pure function of its arguments, so every rank and every scheme sees the same buckets.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import pairwise
from math import ceil
from typing import Literal

from dlcp.model.transport.queues import Magnitude, QueueSettings
from dlcp.transport.contract.endpoint import Droppable
from dlcp.transport.contract.values import element_bytes, packet_elements

ELEMENT_BYTES = element_bytes("float32")
PACKET_ELEMENTS = packet_elements("float32")
TOLERANCE = 1.25
"""A bucket may exceed its target by this factor before it is split or closed: no crumbs after a full bucket."""
SHARED_TOP_QUEUE = 5
"""Highest data queue when the queues suffice: 7 carries control packets, 6 is left to whoever must outrank training."""


@dataclass(frozen=True)
class Segment:
    """One layer's place in the flat vector: its parameters are [start, stop)."""

    name: str
    start: int
    stop: int


@dataclass(frozen=True)
class Tensor:
    """A bucket: elements [start, stop) of the flat vector, which touch layers first_layer … last_layer.

    server: index into the job's servers. queue: the switch queue on both legs. droppable: which of its packets may
    be tagged to be dropped first, on the push leg. What may be lost of it is its messages' (LossClass).
    """

    start: int
    stop: int
    first_layer: int
    last_layer: int
    server: int
    queue: int
    droppable: Droppable

    @property
    def elements(self) -> int:
        """Float32 values."""
        return self.stop - self.start

    @property
    def size_bytes(self) -> int:
        """Payload on one leg."""
        return self.elements * ELEMENT_BYTES


def segments(layers: list[tuple[str, int]]) -> list[Segment]:
    """(name, elements) of every layer, input side first → where each lies in the flat vector."""
    found, start = [], 0
    for name, elements in layers:
        found.append(Segment(name, start, start + elements))
        start += elements
    return found


def plan_tensors(
    layers: list[tuple[str, int]], bucket_bytes: int, servers: int, settings: QueueSettings
) -> list[Tensor]:
    """Buckets of a model, input side first; a tensor's number is its place in this list.

    layers: (name, elements), input side first. bucket_bytes: target size. ValueError when there is nothing to send.
    """
    if not layers or any(elements < 1 for _, elements in layers):
        raise ValueError("every model needs at least one layer, every layer at least one element")
    if bucket_bytes < ELEMENT_BYTES or servers < 1:
        raise ValueError(f"cannot make buckets of {bucket_bytes} B for {servers} servers")
    ranges = _bucket_ranges(segments(layers), max(1, bucket_bytes // ELEMENT_BYTES))
    sizes = [stop - start for start, stop, _, _ in ranges]
    owners = balance(sizes, servers)
    queues = map_queues(sizes, settings.priority_queues, settings.layer_map)
    if settings.demote_after_bytes:  # all begin in the highest, and sink
        queues = [data_queues(len(settings.demote_after_bytes) + 1)[0]] * len(sizes)
    protected_from = front_layers(len(layers), settings)
    return [
        Tensor(
            start,
            stop,
            first,
            last,
            owners[i],
            queues[i],
            droppable=_droppable(settings.droppable_front if last < protected_from else settings.droppable_back),
        )
        for i, (start, stop, first, last) in enumerate(ranges)
    ]


def front_layers(layers: int, settings: QueueSettings) -> int:
    """How many of so many layers come before the protected tail."""
    return layers - ceil(settings.protected_tail_share * layers)


def _droppable(magnitudes: tuple[Magnitude, ...]) -> Droppable:
    found = Droppable.NONE
    for magnitude in magnitudes:
        found |= Droppable.SMALL if magnitude == "small" else Droppable.LARGE
    return found


def balance(sizes: list[int], servers: int) -> list[int]:
    """Bucket → server so that bytes are balanced: from the last bucket (ready first) on, each goes to the server with
    the least so far. Neighbours in time go to different servers, and two servers differ by at most one bucket."""
    loads = [0] * servers
    owners = [0] * len(sizes)
    for i in reversed(range(len(sizes))):
        owners[i] = loads.index(min(loads))
        loads[owners[i]] += sizes[i]
    return owners


def map_queues(sizes: list[int], queues: int, layer_map: Literal["equal-bytes", "equal-count"]) -> list[int]:
    """Bucket → switch queue: `queues` classes of about equal bytes or of equal count, the front in the highest."""
    found_in = data_queues(queues)
    weights = sizes if layer_map == "equal-bytes" else [1] * len(sizes)
    total, before, found = sum(weights), 0, []
    for weight in weights:
        middle = before + weight / 2
        found.append(found_in[min(queues - 1, int(middle / total * queues))])
        before += weight
    return found


def data_queues(count: int) -> list[int]:
    """The switch queues of `count` classes (1 to 7), the front's first: from 5 down, or from 6 when five do not do."""
    top = SHARED_TOP_QUEUE if count <= SHARED_TOP_QUEUE else SHARED_TOP_QUEUE + 1
    return list(range(top, top - count, -1))


def _bucket_ranges(layers: list[Segment], target: int) -> list[tuple[int, int, int, int]]:
    """(start, stop, first layer, last layer) of every bucket: small neighbours fused, big layers split."""
    ranges: list[tuple[int, int, int, int]] = []
    first = 0
    for i, layer in enumerate(layers):
        size = layer.stop - layer.start
        if size > TOLERANCE * target:
            if first < i:
                ranges.append((layers[first].start, layer.start, first, i - 1))
            ranges += [(start, stop, i, i) for start, stop in _split(layer, target)]
            first = i + 1
        elif first < i and layer.stop - layers[first].start > TOLERANCE * target:
            ranges.append((layers[first].start, layer.start, first, i - 1))
            first = i
    if first < len(layers):
        ranges.append((layers[first].start, layers[-1].stop, first, len(layers) - 1))
    return ranges


def _split(layer: Segment, target: int) -> list[tuple[int, int]]:
    """A big layer in near-equal pieces, cut at packet boundaries so that only the last packet is short."""
    size = layer.stop - layer.start
    pieces = ceil(size / (TOLERANCE * target))
    step = ceil(size / pieces / PACKET_ELEMENTS) * PACKET_ELEMENTS
    cuts = [*range(layer.start, layer.stop, step), layer.stop]
    return list(pairwise(cuts))

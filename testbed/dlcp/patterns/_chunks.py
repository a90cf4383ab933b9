"""The chunks of all-reduces: every tensor is cut into one chunk for each worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from dlcp.patterns.base import Traffic
from dlcp.transport.aggregation.ring import chunk_cuts
from dlcp.transport.contract.tensors import ELEMENT_BYTES
from dlcp.transport.contract.values import packets


@dataclass(frozen=True)
class Chunk:
    """A chunk that is not empty. owner: the rank that bears its number. number: of the endpoint's tensor. start: the
    place in the tensor of its first element.

    largest_packets: of the tensor's largest chunk. All its chunks are of one loss class.
    """

    tensor: int
    owner: int
    number: int
    start: int
    elements: int
    largest_packets: int

    @property
    def size_bytes(self) -> int:
        """Payload."""
        return self.elements * ELEMENT_BYTES


def chunks_of(traffic: Traffic) -> Iterator[Chunk]:
    """Yield the chunks of all tensors."""
    size = traffic.workers
    for index, tensor in enumerate(traffic.tensors):
        places = list(pairwise(chunk_cuts(tensor.elements, size)))
        largest = max(packets(stop - start) for start, stop in places)
        for owner, (start, stop) in enumerate(places):
            if start < stop:
                yield Chunk(index, owner, index * size + owner, start, stop - start, largest)

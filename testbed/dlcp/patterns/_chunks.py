"""The chunks of all-reduces: every tensor is cut into one chunk for each worker."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

from dlcp.patterns.base import Traffic
from dlcp.transport.aggregation.all_reduce_worker import chunks_must_arrive
from dlcp.transport.aggregation.ring import chunk_cuts
from dlcp.transport.contract.tensors import ELEMENT_BYTES


@dataclass(frozen=True)
class Chunk:
    """A chunk that is not empty. owner: the rank that bears its number. number: of the endpoint's tensor.

    must_arrive: the tensor's chunks are too small to lose anything.
    """

    tensor: int
    owner: int
    number: int
    elements: int
    must_arrive: bool

    @property
    def size_bytes(self) -> int:
        """Payload."""
        return self.elements * ELEMENT_BYTES


def chunks_of(traffic: Traffic) -> Iterator[Chunk]:
    """Yield the chunks of all tensors."""
    size = traffic.workers
    for index, tensor in enumerate(traffic.tensors):
        must_arrive = chunks_must_arrive(tensor, size, traffic.settings)
        for owner, (start, stop) in enumerate(pairwise(chunk_cuts(tensor.elements, size))):
            if start < stop:
                yield Chunk(index, owner, index * size + owner, stop - start, must_arrive)

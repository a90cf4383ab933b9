"""Workers all-reduce gradients in a transpose: each is the server of one chunk of every tensor."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import permutations
from typing import ClassVar

from dlcp.patterns._chunks import chunks_of
from dlcp.patterns.base import Members, Message, Pattern, Place, Traffic
from dlcp.transport.aggregation import transpose
from dlcp.transport.aggregation.interfaces import GradientWorker
from dlcp.transport.contract.endpoint import Leg
from dlcp.transport.contract.loss_class import LossClass


class Transpose(Pattern):
    """Each worker sends every other one its chunk (push) and the mean of its own chunk (pull); both may lose."""

    bounds_stages: ClassVar[bool] = True
    drift_lasts: ClassVar[bool] = True
    no_recorded_holes: ClassVar[str] = "spreads every gradient over all ranks"
    no_last_gradient: ClassVar[str] = ""
    no_lossy_pulls: ClassVar[str] = "the results of a transpose are means, so a full sync would mend no drift"

    def exchanges(self, job: Members) -> list[tuple[str, str]]:
        """Return each worker with all others."""
        return list(permutations(job.workers, 2))

    def share_of_journey(self, job: Members) -> float:
        """Return one chunk's share of a tensor."""
        return 1 / len(job.workers)

    def pieces(self, workers: int) -> int:
        """Return one for each worker."""
        return workers

    def peers(self, rank: int, workers: int, servers: int) -> tuple[int, ...]:
        """Return all other workers."""
        return transpose.others(rank, workers)

    def messages(self, traffic: Traffic) -> Iterator[Message]:
        """Yield every chunk from all other workers to its owner, and its mean from the owner to them."""
        for chunk in chunks_of(traffic):
            for other in transpose.others(chunk.owner, traffic.workers):
                for leg, source, sink, loss in (
                    (Leg.PUSH, other, chunk.owner, traffic.gradient_loss),
                    (Leg.PULL, chunk.owner, other, LossClass.BOUNDED_LAST),
                ):
                    yield Message(
                        source,
                        sink,
                        chunk.number,
                        leg,
                        chunk.tensor,
                        chunk.elements,
                        chunk.size_bytes,
                        loss=traffic.unless_few(loss, chunk.largest_packets),
                        start=chunk.start,
                    )

    def worker(self, place: Place) -> GradientWorker:
        """Make one worker among equals."""
        from dlcp.transport.aggregation.transpose_worker import TransposeWorker

        traffic = place.traffic
        return TransposeWorker(
            place.mailbox,
            traffic.tensors,
            place.rank,
            traffic.workers,
            place.parameters,
            place.optimizer,
            traffic.settings,
            traffic.settings.holes,
        )


PATTERN = Transpose

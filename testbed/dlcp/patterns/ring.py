"""Workers all-reduce gradients round a ring: every chunk travels from rank to rank, twice."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from dlcp.patterns._chunks import chunks_of
from dlcp.patterns.base import Members, Message, Pattern, Place, Traffic
from dlcp.transport.aggregation import ring
from dlcp.transport.aggregation.interfaces import GradientWorker
from dlcp.transport.contract.endpoint import Bound, Leg
from dlcp.transport.contract.loss_class import LossClass


class Ring(Pattern):
    """Each worker sends to the next: first sums (push), which may lose a bounded share, then results (pull)."""

    no_recorded_holes: ClassVar[str] = "sums on the way"
    no_last_gradient: ClassVar[str] = "sums on the way and has no worker's last gradient"
    no_lossy_pulls: ClassVar[str] = "the all-gather of a ring loses nothing"

    def exchanges(self, job: Members) -> list[tuple[str, str]]:
        """Return each worker and the one that it sends to."""
        return list(zip(job.workers, job.workers[1:] + job.workers[:1], strict=True))

    def journeys(self, job: Members) -> list[tuple[str, str]]:
        """Return the exchanges: sums and results go the same way."""
        return self.exchanges(job)

    def share_of_journey(self, job: Members) -> float:
        """Return all chunks but one, twice."""
        return 2 * (1 - 1 / len(job.workers))

    def pieces(self, workers: int) -> int:
        """Return one for each worker."""
        return workers

    def peers(self, rank: int, workers: int, servers: int) -> tuple[int, ...]:
        """Return both neighbours."""
        return ring.neighbours(rank, workers)

    def connects_to(self, rank: int, workers: int, servers: int) -> tuple[int, ...]:
        """Return the next rank."""
        return ring.connects_to(rank, workers)

    def messages(self, traffic: Traffic) -> Iterator[Message]:
        """Yield the hops of every chunk: sums from the rank after its owner to the owner, results from the owner on."""
        size = traffic.workers
        for chunk in chunks_of(traffic):
            for leg, first, loss in (
                (Leg.PUSH, chunk.owner + 1, LossClass.BOUNDED),
                (Leg.PULL, chunk.owner, LossClass.RELIABLE),
            ):
                loss_class = traffic.unless_few(loss, chunk.largest_packets)
                for step in range(size - 1):
                    source = (first + step) % size
                    yield Message(
                        source,
                        (source + 1) % size,
                        chunk.number,
                        leg,
                        chunk.tensor,
                        chunk.elements,
                        chunk.size_bytes,
                        step=step,
                        loss=loss_class,
                        start=chunk.start,
                    )

    def agreed_bound(self, traffic: Traffic, message: Message, iteration: int) -> Bound:
        """Return a hop's part of what a whole all-reduce may lose."""
        return ring.hop_bound(super().agreed_bound(traffic, message, iteration), traffic.workers)

    def transfers(self, traffic: Traffic) -> list[tuple[int, int, float]]:
        """Return what each worker sends the next if all chunks of a tensor are of the same size."""
        size = traffic.workers
        share = 2 * (size - 1) / size
        size_bytes = share * sum(tensor.size_bytes for tensor in traffic.tensors)
        return [(rank, (rank + 1) % size, size_bytes) for rank in traffic.worker_ranks]

    def worker(self, place: Place) -> GradientWorker:
        """Make a worker of the ring."""
        from dlcp.transport.aggregation.ring_worker import RingWorker

        traffic = place.traffic
        return RingWorker(
            place.mailbox,
            traffic.tensors,
            place.rank,
            traffic.workers,
            place.parameters,
            place.optimizer,
            traffic.settings.holes,
        )


PATTERN = Ring

"""Workers push gradients to servers on hosts of their own, each of which sums some of the tensors, and pull parameters
from them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from dlcp.patterns.base import Members, Message, Pattern, Place, Traffic
from dlcp.transport.aggregation.interfaces import GradientServer, GradientWorker
from dlcp.transport.contract.endpoint import Leg
from dlcp.transport.contract.loss_class import LossClass
from dlcp.transport.contract.tensors import data_queues
from dlcp.transport.contract.values import packets


class ParameterServer(Pattern):
    """Every worker exchanges every tensor with the server that owns it."""

    has_servers: ClassVar[bool] = True
    min_workers: ClassVar[int] = 1
    sums_at_servers: ClassVar[bool] = True
    no_recorded_holes: ClassVar[str] = ""
    no_last_gradient: ClassVar[str] = ""
    no_lossy_pulls: ClassVar[str] = ""

    def exchanges(self, job: Members) -> list[tuple[str, str]]:
        """Return every worker with every server."""
        return [(worker, server) for worker in job.workers for server in job.servers]

    def share_of_journey(self, job: Members) -> float:
        """Return one server's share of the tensors."""
        return 1 / len(job.servers)

    def peers(self, rank: int, workers: int, servers: int) -> tuple[int, ...]:
        """Return all servers of a worker, all workers of a server."""
        return tuple(range(workers, workers + servers) if rank < workers else range(workers))

    def messages(self, traffic: Traffic) -> Iterator[Message]:
        """Yield a push and a pull for each tensor and worker; where gradients are compressed, for each round."""
        if traffic.settings.compression is not None:
            yield from _coded_messages(traffic)
            return
        for number, tensor in enumerate(traffic.tensors):
            server = traffic.workers + tensor.server
            for worker in traffic.worker_ranks:
                for leg, source, sink, loss in (
                    (Leg.PUSH, worker, server, traffic.gradient_loss),
                    (Leg.PULL, server, worker, LossClass.BOUNDED_LAST),
                ):
                    yield Message(
                        source,
                        sink,
                        number,
                        leg,
                        number,
                        tensor.elements,
                        tensor.size_bytes,
                        loss=traffic.unless_few(loss, packets(tensor.elements)),
                    )

    def announcements(self, traffic: Traffic) -> Iterator[tuple[int, Message]]:
        """Yield the bounds that servers announce where the settings have phases: each a number to each worker."""
        rule, tensors = traffic.settings.phases, traffic.tensors
        if rule is None:
            return
        from dlcp.transport.aggregation.dblp import announced_checks, announcement_number

        for check in announced_checks(rule, traffic.iterations):
            for server in sorted({tensor.server for tensor in tensors}):
                first = next(number for number, tensor in enumerate(tensors) if tensor.server == server)
                for worker in traffic.worker_ranks:
                    yield (
                        check,
                        Message(
                            traffic.workers + server,
                            worker,
                            announcement_number(tensors, server),
                            Leg.PULL,
                            first,
                            1,
                            0,
                            loss=LossClass.MUST_ARRIVE,
                            queue=data_queues(1)[0],
                        ),
                    )

    def worker(self, place: Place) -> GradientWorker:
        """Make the worker that the settings' compression or phases need, or the plain one."""
        from dlcp.transport.aggregation.compressed_server import CompressedWorker
        from dlcp.transport.aggregation.dblp import PhaseWorker
        from dlcp.transport.aggregation.parameter_server import Worker

        traffic, settings, tensors = place.traffic, place.traffic.settings, place.traffic.tensors
        servers = traffic.server_ranks
        if settings.compression is not None:
            job, update = traffic.coded, place.optimizer
            compressors = job.compressors(place.rank, place.seed, update.momentum)
            return CompressedWorker(
                place.mailbox,
                job,
                compressors,
                servers,
                place.parameters,
                job.update(update),
            )
        if settings.phases is not None:
            rule, iterations = settings.phases, traffic.iterations
            return PhaseWorker(place.mailbox, tensors, servers, place.parameters, rule, iterations)
        return Worker(place.mailbox, tensors, servers, place.parameters)

    def server(self, place: Place) -> GradientServer:
        """Make the server that the settings' compression or phases need, or the plain one."""
        from dlcp.transport.aggregation.compressed_server import CompressedServer
        from dlcp.transport.aggregation.dblp import PhaseServer
        from dlcp.transport.aggregation.ltp import EarlyClosing
        from dlcp.transport.aggregation.parameter_server import Server

        traffic, settings, tensors = place.traffic, place.traffic.settings, place.traffic.tensors
        workers = traffic.worker_ranks
        index = place.rank - traffic.workers
        if settings.compression is not None:
            job = traffic.coded
            compressors = job.compressors(-1, place.seed, 0.0)
            return CompressedServer(place.mailbox, job, compressors, index, workers)
        if settings.phases is not None:
            return PhaseServer(
                place.mailbox,
                tensors,
                index,
                workers,
                place.parameters,
                place.optimizer,
                settings.phases,
                traffic.iterations,
                record_holes=place.record_holes,
            )
        return Server(
            place.mailbox,
            tensors,
            index,
            workers,
            place.parameters,
            place.optimizer,
            holes=settings.holes,
            record_holes=place.record_holes,
            closing=EarlyClosing(settings.early_close) if settings.early_close else None,
        )


def _coded_messages(traffic: Traffic) -> Iterator[Message]:
    """Yield the codes of every round. A tensor that takes several rounds stands in the first."""
    job = traffic.coded
    for index, tensor in enumerate(traffic.tensors):
        server = traffic.workers + tensor.server
        for round_, exchange in enumerate(job.exchanges(index)):
            for worker in traffic.worker_ranks:
                for leg, code, source, sink, loss in (
                    (Leg.PUSH, exchange.push, worker, server, LossClass.BOUNDED),
                    (Leg.PULL, exchange.pull, server, worker, LossClass.RELIABLE),  # merged: a hole would harm all
                ):
                    fewest = min(packets(tensor.elements), packets(code.elements, code.dtype))
                    yield Message(
                        source,
                        sink,
                        job.number(index, round_, leg),
                        leg,
                        index,
                        code.elements,
                        0 if round_ else tensor.size_bytes,
                        dtype=code.dtype,
                        variable=code.variable,
                        loss=traffic.unless_few(loss, fewest),
                    )


PATTERN = ParameterServer

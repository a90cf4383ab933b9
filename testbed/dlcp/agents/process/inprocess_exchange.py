"""How the gradients of workers in one process become the next parameters, and what of the pushes is lost on the way.

Patterns whose servers sum whole gradients are computed for all workers at once, which is fast: the same bits as their
ranks would leave. Of any other pattern the ranks themselves work, over endpoints in this process. There a rank loses of
what it sends the packets that the masks name of its gradient: in a ring those carry sums, so a loss takes the gradients
of all ranks before it, too.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from dlcp.agents.job_spec import JobSpec
from dlcp.agents.process.rank_factory import make_server, make_worker, optimizer, place_of
from dlcp.model.transport.settings import TransportSettings
from dlcp.patterns import pattern_of
from dlcp.patterns.base import Message
from dlcp.transport.aggregation.interfaces import GradientServer
from dlcp.transport.aggregation.loss_masks import Lost
from dlcp.transport.aggregation.parameter_server import average, parameters_crc32
from dlcp.transport.contract.endpoint import Floats, Leg, MessageKey, Values
from dlcp.transport.contract.packing import Packing
from dlcp.transport.contract.tensors import PACKET_ELEMENTS
from dlcp.transport.contract.values import packet_energy, packets
from dlcp.transport.in_process import InProcessNetwork

Energies = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Pushed:
    """The account of an iteration's pushes, (pushes,) each: bytes never delivered, Σ g² of what was sent and of
    what of it was lost. parameters_crc32: of what every worker then holds."""

    lost_bytes: npt.NDArray[np.int64]
    energy: Energies
    lost_energy: Energies
    parameters_crc32: list[int]


class Exchange(Protocol):
    """One pattern's exchange of gradients. pushes: the messages of an iteration that carry them, by sender."""

    pushes: list[Message]

    def step(self, iteration: int, rows: Floats, lost: Lost) -> Pushed:
        """Apply one iteration's gradients to the parameters. rows: every worker's, (workers, packets, values of a
        packet), which may be used up; lost: which packets, (workers, packets)."""

    def close(self) -> None:
        """End what runs by itself."""


Exchanges = Callable[[JobSpec, TransportSettings, Floats, Packing], Exchange]
"""Makes the exchange of a job. parameters: the workers' own, updated in place."""


def exchange_of(spec: JobSpec, settings: TransportSettings, parameters: Floats, packing: Packing) -> Exchange:
    """Return the exchange that a job's pattern needs: see Exchanges."""
    at_once = pattern_of(spec.pattern).sums_at_servers
    return (SummedAtOnce if at_once else RanksInProcess)(spec, settings, parameters, packing)


def pushes_of(spec: JobSpec, settings: TransportSettings) -> list[Message]:
    """Return the messages of an iteration that may lose gradients, by sender and number. ValueError if none may."""
    pattern = pattern_of(spec.pattern)
    messages = pattern.messages(spec.traffic(settings))
    pushes = [message for message in messages if message.leg is Leg.PUSH and message.loss.may_lose]
    if not pushes:
        raise ValueError(
            f"nothing may be lost of the gradients of {pattern.a_name}: there is nothing for masks to take"
        )
    return sorted(pushes, key=lambda message: (message.source, message.number, message.step))


class SummedAtOnce:
    """The sum and the update of parameter servers (transport/aggregation/parameter_server), of all workers at once."""

    def __init__(self, spec: JobSpec, settings: TransportSettings, parameters: Floats, packing: Packing) -> None:
        self.pushes = pushes_of(spec, settings)
        self._packing = packing
        self._parameters = parameters
        self._flat = np.empty_like(parameters)
        self._optimizer = optimizer(spec)
        self._state = self._optimizer.state(0, parameters)
        self._rescales = settings.holes == "rescale"
        self._workers = len(spec.workers)
        self._before = packing.empty(self._workers) if settings.holes == "last" else None

    def step(self, iteration: int, rows: Floats, lost: Lost) -> Pushed:
        """See Exchange."""
        lost_bytes, energy, lost_energy = self._account(rows, lost)
        if self._before is None:
            rows[lost] = 0.0
        else:
            rows[lost] = self._before[lost]
            self._before[:] = rows
        arrived = (~lost).astype(np.uint16) if self._rescales else None
        self._packing.unpack(average(rows.reshape(len(rows), -1), arrived), self._flat)
        self._optimizer.step(iteration, self._parameters, self._state, self._flat)
        return Pushed(lost_bytes, energy, lost_energy, [parameters_crc32(self._parameters)] * self._workers)

    def close(self) -> None:
        """See Exchange."""

    def _account(self, rows: Floats, lost: Lost) -> tuple[npt.NDArray[np.int64], Energies, Energies]:
        packing = self._packing
        each: Energies = np.einsum("kpe,kpe->kp", rows, rows).astype(np.float64)
        sums = (lost * packing.row_bytes, each, np.where(lost, each, 0.0))
        lost_bytes, energy, lost_energy = (packing.by_tensor(values).reshape(-1) for values in sums)
        return lost_bytes, energy, lost_energy


class RanksInProcess:
    """The pattern's own workers and servers, over endpoints in this process; a server runs in a thread of its own.

    The first worker's parameters are those that were given, so that models that share them see every update.
    """

    def __init__(self, spec: JobSpec, settings: TransportSettings, parameters: Floats, packing: Packing) -> None:
        self.pushes = pushes_of(spec, settings)
        self._place = {_name(push.source, push.number, push.step): at for at, push in enumerate(self.pushes)}
        self._packing = packing
        self._tensors = spec.tensors(settings)
        network = InProcessNetwork(range(len(spec.hosts)), self._lose)
        self._endpoints = list(network.endpoints.values())
        copies = [parameters, *(parameters.copy() for _ in self._endpoints[1:])]
        places = [
            place_of(spec, settings, rank, endpoint, parameters_copy)
            for rank, (endpoint, parameters_copy) in enumerate(zip(self._endpoints, copies, strict=True))
        ]
        workers = len(spec.workers)
        self._servers = [make_server(spec.pattern, place) for place in places[workers:]]
        for server in self._servers:
            server.expect_first()
        self._workers = [make_worker(spec.pattern, place) for place in places[:workers]]
        self._failures: list[BaseException] = []
        self._lost: Lost = np.zeros((workers, packing.rows), np.bool_)
        self._now = self._nothing_pushed()
        self._threads = [threading.Thread(target=self._serve, args=(server,), daemon=True) for server in self._servers]
        for thread in self._threads:
            thread.start()

    def step(self, iteration: int, rows: Floats, lost: Lost) -> Pushed:
        """See Exchange. Raises what ended a server."""
        self._lost, self._now = lost, self._nothing_pushed()
        try:
            for worker, packed in zip(self._workers, rows, strict=True):
                for number, tensor in enumerate(self._tensors):
                    at = self._packing.place(number, 0)
                    worker.gradient_slot(number)[:] = packed.reshape(-1)[at : at + tensor.elements]
                    worker.push(iteration, number)
            for worker in self._workers:
                worker.finish()
        except Exception as error:
            raise (self._failures or [error])[0] from error
        self._now.parameters_crc32.extend(parameters_crc32(worker.parameters) for worker in self._workers)
        return self._now

    def close(self) -> None:
        """See Exchange."""
        for rank in (*self._workers, *self._servers):
            rank.close()
        for endpoint in self._endpoints:
            endpoint.close()
        for thread in self._threads:
            thread.join()

    def _nothing_pushed(self) -> Pushed:
        count = len(self.pushes)
        return Pushed(np.zeros(count, np.int64), np.zeros(count), np.zeros(count), [])

    def _lose(self, source: int, key: MessageKey, data: Values) -> Lost | None:
        """Take of a push the packets that the masks name of its sender's gradient, and note what it carried."""
        at = self._place.get(_name(source, key.tensor, key.step)) if key.leg is Leg.PUSH else None
        if at is None:
            return None
        push = self.pushes[at]
        first = int(self._packing.first_row[push.tensor]) + push.start // PACKET_ELEMENTS
        packet_rows = slice(first, first + packets(push.elements))
        lost, energy = self._lost[source, packet_rows], packet_energy(data, push.dtype)
        self._now.lost_bytes[at] = int(self._packing.row_bytes[packet_rows][lost].sum())
        self._now.energy[at], self._now.lost_energy[at] = energy.sum(), energy[lost].sum()
        return lost

    def _serve(self, server: GradientServer) -> None:
        server.patience.stall_timeout_s = threading.TIMEOUT_MAX  # between pushes gradients are computed
        try:
            server.run()
        except BaseException as error:
            self._failures.append(error)
            for endpoint in self._endpoints:
                endpoint.close()


def _name(source: int, number: int, step: int) -> tuple[int, int, int]:
    """Return what names a push of an iteration."""
    return source, number, step

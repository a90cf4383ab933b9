"""The interface of an exchange pattern: who sends what to whom in an iteration, and what each rank does.

All but `worker` and `server` is pure: it follows from the job and is the same at every rank.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from typing import ClassVar, Protocol

from dlcp.model.transport.settings import TransportSettings
from dlcp.transport.aggregation.coded_tensors import CodedJob
from dlcp.transport.aggregation.interfaces import GradientServer, GradientWorker
from dlcp.transport.contract.bounds import Bounds
from dlcp.transport.contract.declarations import Declaration, declaration
from dlcp.transport.contract.endpoint import RELIABLE, Bound, Dtype, Floats, Leg
from dlcp.transport.contract.loss_class import LossClass, unless_few
from dlcp.transport.contract.mailbox import Mailbox
from dlcp.transport.contract.optimizer import Sgd
from dlcp.transport.contract.tensors import Tensor
from dlcp.transport.contract.values import element_bytes


class Members(Protocol):
    """A job as far as it says which hosts take part: a job of an experiment, or the agents' JobSpec."""

    @property
    def workers(self) -> tuple[str, ...]:
        """Hosts of the workers, in the order of their ranks."""

    @property
    def servers(self) -> tuple[str, ...]:
        """Hosts of the servers, whose ranks follow the workers'."""


@dataclass(frozen=True)
class Traffic:
    """A job as far as its messages follow from it.

    workers, servers: how many; ranks count the workers, then the servers. tensors: the buckets that the gradient is cut
    into. iterations: how many the job runs.
    """

    workers: int
    servers: int
    tensors: list[Tensor]
    settings: TransportSettings
    iterations: int

    @property
    def worker_ranks(self) -> list[int]:
        """Ranks of the workers."""
        return list(range(self.workers))

    @property
    def server_ranks(self) -> list[int]:
        """Ranks of the servers, as Tensor.server counts them."""
        return list(range(self.workers, self.workers + self.servers))

    @cached_property
    def bounds(self) -> Bounds:
        """What messages may lose, by iteration."""
        return Bounds(self.settings, self.iterations)

    @property
    def gradient_loss(self) -> LossClass:
        """Class of gradients that a bounded share of may be lost: as the settings fill holes."""
        return LossClass.BOUNDED_LAST if self.settings.holes == "last" else LossClass.BOUNDED

    def unless_few(self, wanted: LossClass, packet_count: int) -> LossClass:
        """Return the class wanted, or MUST_ARRIVE for fewer packets than the settings' must_arrive_below_packets."""
        return unless_few(wanted, packet_count, self.settings.must_arrive_below_packets)

    @property
    def coded(self) -> CodedJob:
        """The codes that travel where gradients are compressed. Its methods raise ValueError where they are not."""
        return CodedJob(self.settings, self.tensors, self.workers, self.iterations)


@dataclass(frozen=True)
class Message:
    """One message of an iteration.

    source, destination: ranks. number, leg, step: as in its MessageKey (step: see there). tensor: the bucket that it
    belongs to, an index into Traffic.tensors. elements: how many values of dtype travel, at most where the length is
    variable. start: where values travel as they are, the place in the tensor of the first. tensor_bytes: float32 bytes
    of the gradient that it stands for; where several messages stand for the same ones in turn, the first one's only.
    loss: its class; this is the only place that decides it. queue: the switch queue; None: its tensor's. Messages of
    the same number and leg differ in source, destination, step and start only.
    """

    source: int
    destination: int
    number: int
    leg: Leg
    tensor: int
    elements: int
    tensor_bytes: int
    loss: LossClass
    step: int = 0
    dtype: Dtype = "float32"
    variable: bool = False
    queue: int | None = None
    start: int = 0

    @property
    def size_bytes(self) -> int:
        """Payload; the most that it may be where the length is variable."""
        return self.elements * element_bytes(self.dtype)

    @property
    def shape(self) -> tuple[int, int, Dtype, bool, int | None]:
        """Fields that all messages of a number share, on both legs."""
        return self.tensor, self.elements, self.dtype, self.variable, self.queue


@dataclass(frozen=True)
class Place:
    """A rank that is about to take part: what it is told, and its own parameters (the same values at every rank).

    mailbox: for its messages, with the clock by which it reads the time; no other clock is read. optimizer: what is
    applied to the mean gradient. record_holes: note which packets of each push never came.
    """

    traffic: Traffic
    rank: int
    mailbox: Mailbox
    parameters: Floats
    optimizer: Sgd
    seed: int
    record_holes: bool = False


class PlannedTerms:
    """What the messages of a job may lose, as its pattern plans them: the Terms of its mailboxes."""

    def __init__(self, pattern: Pattern, traffic: Traffic) -> None:
        announced = (message for _, message in pattern.announcements(traffic))
        self._pattern = pattern
        self._traffic = traffic
        self._messages = {(one.number, one.leg): one for one in chain(pattern.messages(traffic), announced)}

    def bound(self, number: int, leg: Leg, iteration: int) -> Bound:
        """See Terms. ValueError for a message that is not planned."""
        message = self._messages.get((number, leg))
        if message is None:
            name = self._pattern.a_name
            raise ValueError(f"the plan of {name} has no message of number {number} on the {leg.name.lower()} leg")
        return self._pattern.agreed_bound(self._traffic, message, iteration)


class Pattern(ABC):
    """One way in which the ranks of a job exchange messages. A subclass stands in its file as `PATTERN`.

    Its class variables are what schemes and checks ask of it. A default is what holds where a pattern says nothing.
    """

    has_servers: ClassVar[bool] = False
    """Whether a job names servers: it must, or it must not."""
    min_workers: ClassVar[int] = 2
    """With fewer workers a job exchanges nothing."""
    sums_at_servers: ClassVar[bool] = False
    """Whether servers sum whole gradients of tensors, as transport.aggregation.parameter_server does: what schemes
    ask for that compress, close or bound gradients at the server."""
    bounds_stages: ClassVar[bool] = False
    """Whether its workers close stages by time: TransportSettings.time_bounds, with hadamard and at_once."""
    drift_lasts: ClassVar[bool] = False
    """Whether workers stay apart once a pull lost something: its pulls carry means, not parameters."""
    no_recorded_holes: ClassVar[str] = "records nothing"
    """Why no rank can tell which packets of one worker's gradient were lost, as the rest of a sentence about the
    pattern; "": a rank can (Job.record_holes)."""
    no_last_gradient: ClassVar[str] = "has no worker's last gradient"
    """Why a hole cannot hold that worker's gradient of the iteration before, as the rest of a sentence; "": it can."""
    no_lossy_pulls: ClassVar[str] = "the results of this pattern lose nothing"
    """Why pull_loss_bound can do nothing, a sentence; "": it can."""

    def __init__(self, name: str) -> None:
        self.name = name

    @property
    def a_name(self) -> str:
        """Its name with the indefinite article, for texts."""
        return f"{'an' if self.name[0] in 'aeiou' else 'a'} {self.name}"

    @abstractmethod
    def exchanges(self, job: Members) -> list[tuple[str, str]]:
        """Return (from, to), hosts: who sends gradients to whom."""

    def journeys(self, job: Members) -> list[tuple[str, str]]:
        """Return (from, to) of all that an iteration moves, each of as many bytes: the exchanges, and what comes back
        of them."""
        pairs = self.exchanges(job)
        return pairs + [(sink, source) for source, sink in pairs]

    @abstractmethod
    def share_of_journey(self, job: Members) -> float:
        """Return the share of a gradient's bytes that each of the journeys carries in one iteration."""

    def pieces(self, workers: int) -> int:
        """Return into how many messages a tensor is cut on its way."""
        return 1

    @abstractmethod
    def peers(self, rank: int, workers: int, servers: int) -> tuple[int, ...]:
        """Return the ranks that a rank exchanges messages with."""

    def connects_to(self, rank: int, workers: int, servers: int) -> tuple[int, ...]:
        """Return those peers to which a rank opens the connection, for a transport with connections: of each pair,
        one rank does. By default the lower one."""
        return tuple(peer for peer in self.peers(rank, workers, servers) if peer > rank)

    @abstractmethod
    def messages(self, traffic: Traffic) -> Iterator[Message]:
        """Yield all messages of an iteration, each of which both its ends note as a Completion. Every iteration has
        the same ones."""

    def announcements(self, traffic: Traffic) -> Iterator[tuple[int, Message]]:
        """Yield what ranks send each other besides the messages of iterations, with the iteration of its MessageKey: of
        a few bytes, in no table of results, and in no rank's completions. By default nothing."""
        yield from ()

    def agreed_bound(self, traffic: Traffic, message: Message, iteration: int) -> Bound:
        """Return what both ends of a message say at most that it may lose in an iteration: less where servers announce
        it (TransportSettings.phases), or where only time takes anything (TimeBounds.repair)."""
        if not message.loss.may_lose:
            return RELIABLE
        return traffic.bounds.push(iteration) if message.leg is Leg.PUSH else traffic.bounds.pull(iteration)

    def bound(self, traffic: Traffic, message: Message, iteration: int) -> Bound:
        """Return what may be missing of a message in an iteration: its bound, or more of a gradient that its receiver
        may close early."""
        if traffic.settings.kind == "tcp":
            return RELIABLE
        agreed = self.agreed_bound(traffic, message, iteration)
        return traffic.bounds.closed(agreed) if message.loss.may_lose and message.leg is Leg.PUSH else agreed

    def declarations(self, traffic: Traffic) -> list[Declaration]:
        """Return what every rank agrees with its transport before any sends, by number: it follows from the messages.

        Bounds are those of iteration 0; a message of a later one says its own. ValueError when messages of a number
        differ in what is agreed of all of them.
        """
        by_number: dict[int, dict[Leg, Message]] = {}
        announced = (message for _, message in self.announcements(traffic))
        for message in chain(self.messages(traffic), announced):
            first = by_number.setdefault(message.number, {}).setdefault(message.leg, message)
            if message.loss is not first.loss or message.shape != first.shape:
                raise ValueError(self._differ(first, message))
        return [self._declaration(traffic, legs) for _, legs in sorted(by_number.items())]

    def _declaration(self, traffic: Traffic, legs: Mapping[Leg, Message]) -> Declaration:
        """Return what is agreed of a number, from one of its messages on each leg."""
        message, *others = legs.values()
        if others and others[0].shape != message.shape:
            raise ValueError(self._differ(message, others[0]))
        tensor = traffic.tensors[message.tensor]
        losses = {leg: (each.loss, self.agreed_bound(traffic, each, 0)) for leg, each in legs.items()}
        return declaration(
            message.number,
            message.elements,
            tensor.queue if message.queue is None else message.queue,
            tensor.droppable,
            losses,
            dtype=message.dtype,
            variable=message.variable,
        )

    def _differ(self, message: Message, other: Message) -> str:
        return f"{self.a_name} has messages of number {message.number} that differ: {message} and {other}"

    def transfers(self, traffic: Traffic) -> list[tuple[int, int, float]]:
        """Return (from, to, bytes), ranks: the payload of an iteration as an ideal transport moves it, pushes first.
        By default that of the messages."""
        sums: dict[tuple[Leg, int, int], int] = {}
        for message in self.messages(traffic):
            key = message.leg, message.source, message.destination
            sums[key] = sums.get(key, 0) + message.size_bytes
        return [(key[1], key[2], float(size)) for key, size in sorted(sums.items())]

    @abstractmethod
    def worker(self, place: Place) -> GradientWorker:
        """Make the worker of a rank, whose `declarations` are agreed with the transport."""

    def server(self, place: Place) -> GradientServer:
        """Make the server of a rank, whose `declarations` are agreed with the transport. Only where the pattern has
        servers."""
        raise ValueError(f"{self.a_name} has no servers")

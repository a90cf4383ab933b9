"""Synchronous data-parallel training by parameter servers, over any transport.

A worker pushes each tensor's gradient as soon as it is ready; the tensor's server sums the workers' gradients in rank
order, divides by the number of workers (holes: see Server), updates the parameters, which live at the server, and
sends them back to all. A worker's next forward pass waits per tensor. Pulls lose nothing, unless the job's bounds allow
it, so all workers stay identical bit for bit; where a pull has a hole, the worker keeps what it held. The
order of summing does not depend on who came first, so a lossless run can be repeated bit for bit.
"""

from __future__ import annotations

import math
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from dlcp.transport.aggregation.ltp import EarlyClosing
from dlcp.transport.contract.endpoint import Bound, Completion, Counts, Floats, Leg, MessageKey, Placement
from dlcp.transport.contract.mailbox import Mailbox
from dlcp.transport.contract.optimizer import Optimizer
from dlcp.transport.contract.tensors import Tensor
from dlcp.transport.contract.values import packets, rescale
from dlcp.transport.contract.waiting import STALL_TIMEOUT_S, Patience

SERVE_SLICE_S = 0.2
"""How soon a server that is idle sees that it is to end."""


def parameters_crc32(parameters: Floats) -> int:
    """A fingerprint of all parameters: two workers with the same one hold the same bits."""
    return zlib.crc32(parameters.data.cast("B"))


def average(gradients: Floats, arrived: Counts | None = None) -> Floats:
    """The mean of the workers' gradients, (workers, elements), summed in rank order: always the same bits.

    arrived: (workers, packets) whether each packet came, where the mean is to be over those that did; else a hole
    counts as what the row holds.
    """
    total: Floats = gradients[0].copy()
    for gradient in gradients[1:]:
        total += gradient
    total /= np.float32(len(gradients))
    if arrived is not None:
        rescale(total, arrived.sum(axis=0, dtype=np.uint16), len(gradients), "float32")
    return total


@dataclass
class Iteration:
    """One iteration of one worker: from the instant its first layer may compute to the instant when the next
    iteration's may; the last one ends when all parameters have come. CLOCK_MONOTONIC seconds.

    compute_s: forward and backward without any waiting. parameters_crc32: of what the iteration made of them.
    codec_s: what encoding and decoding took, where a scheme compresses.
    """

    number: int
    start_s: float
    end_s: float = 0.0
    compute_s: float = 0.0
    parameters_crc32: int = 0
    codec_s: float = 0.0


@dataclass(frozen=True)
class Hole:
    """What never came of one push: the packets' numbers in the message, ascending. peer: the worker's rank."""

    iteration: int
    tensor: int
    peer: int
    packets: npt.NDArray[np.int32]


class ServedRank(ABC):
    """What worker and server share: every completion is noted, every wait is bounded.

    completions: all so far. patience: how long it waits.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        tensors: list[Tensor],
        stall_timeout_s: float,
    ) -> None:
        self.completions: list[Completion] = []
        self.patience = Patience(stall_timeout_s, clock=mailbox.clock)
        self._clock = mailbox.clock
        self._mailbox = mailbox
        self._tensors = tensors

    def extra(self) -> dict[str, Any]:
        """See Rank: nothing."""
        return {}

    def close(self) -> None:  # noqa: B027 - a rank without a thread has nothing to end
        """Nothing runs by itself here."""

    def _wait_until(self, done: Callable[[], bool], missing: Callable[[], list[str]]) -> None:
        """Take completions until done() holds. TransportError when patience is over."""
        self.patience.wait_until(done, lambda timeout_s: self._take(self._mailbox.take(timeout_s)), missing)

    def _take(self, completions: list[Completion]) -> bool:
        self.completions += completions
        for completion in completions:
            self._note(completion)
        return bool(completions)

    def _push_bound(self, iteration: int, tensor: int) -> Bound | None:
        """What a gradient may lose on its way, the same at both ends; None: as the mailbox's terms say."""
        return None

    @abstractmethod
    def _note(self, completion: Completion) -> None:
        """What one completion means to this side."""


class Worker(ServedRank):
    """A worker's side. parameters: the whole flat vector, overwritten in place by pulls; servers: their ranks, as
    Tensor.server counts them. gradient: where the gradients of all tensors are put before they are pushed.

    Over an iteration, for every tensor: await_parameters (forward), gradient_slot and push (backward).
    """

    def __init__(
        self,
        mailbox: Mailbox,
        tensors: list[Tensor],
        servers: list[int],
        parameters: Floats,
        *,
        stall_timeout_s: float = STALL_TIMEOUT_S,
    ) -> None:
        super().__init__(mailbox, tensors, stall_timeout_s)
        self.parameters = parameters
        self.gradient = np.zeros_like(parameters)
        self._servers = servers
        self._pushing = [False] * len(tensors)
        self._arrived_s = [-math.inf] * len(tensors)

    def gradient_slot(self, tensor: int) -> Floats:
        """Where this tensor's gradient goes; waits until the push before is over and the slot may be written."""
        self._wait_until(
            lambda: not self._pushing[tensor],
            lambda: [f"the end of the push of tensor {tensor} to rank {self._server(tensor)}"],
        )
        found = self._tensors[tensor]
        return self.gradient[found.start : found.stop]

    def push(self, iteration: int, tensor: int) -> float:
        """Send the gradient in this tensor's slot and expect the parameters that come of it; no time is spent on
        coding.

        From here until await_parameters returns, the tensor's parameters are being overwritten.
        """
        found, server = self._tensors[tensor], self._server(tensor)
        self._arrived_s[tensor] = math.inf
        self._pushing[tensor] = True
        parameters, gradient = (values[found.start : found.stop] for values in (self.parameters, self.gradient))
        bound = self._push_bound(iteration, tensor)
        self._mailbox.expect(server, MessageKey(iteration, tensor, Leg.PULL), parameters, placement=Placement.KEEP)
        self._mailbox.send(server, MessageKey(iteration, tensor, Leg.PUSH), gradient, bound=bound)
        return 0.0

    def await_parameters(self, tensors: Iterable[int]) -> float:
        """Wait until these tensors hold their newest parameters; returns when the last of them was complete
        (CLOCK_MONOTONIC seconds, -inf for tensors that were never pushed)."""
        wanted = list(tensors)
        self._wait_until(
            lambda: all(self._arrived_s[tensor] < math.inf for tensor in wanted),
            lambda: [
                f"the pull of tensor {tensor} from rank {self._server(tensor)}"
                for tensor in wanted
                if self._arrived_s[tensor] == math.inf
            ],
        )
        return max((self._arrived_s[tensor] for tensor in wanted), default=-math.inf)

    def finish(self) -> float:
        """Wait for everything that is under way; returns when the last parameters were complete."""
        last_s = self.await_parameters(range(len(self._tensors)))
        for tensor in range(len(self._tensors)):
            self.gradient_slot(tensor)
        return last_s

    def _server(self, tensor: int) -> int:
        return self._servers[self._tensors[tensor].server]

    def _note(self, completion: Completion) -> None:
        if completion.received:
            self._arrived_s[completion.key.tensor] = completion.end_s
        else:
            self._pushing[completion.key.tensor] = False


class Server(ServedRank):
    """A server's side: it owns the tensors whose `server` is its index, and holds buffers for one iteration of them.

    parameters: the whole flat vector; only its own tensors' ranges are read and updated. workers: ranks, in the
    order in which their gradients are summed.
    holes: a gradient's hole counts as `zero`; or the mean is over those that arrived, packet by packet (`rescale`); or
    a worker's hole holds its gradient of the iteration before (`last`). record_holes: keep in `holes` which packets of
    which push never came. closing: when to close a push that is not complete.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        tensors: list[Tensor],
        index: int,
        workers: list[int],
        parameters: Floats,
        optimizer: Optimizer,
        *,
        holes: Literal["zero", "rescale", "last"] = "zero",
        record_holes: bool = False,
        closing: EarlyClosing | None = None,
        stall_timeout_s: float = STALL_TIMEOUT_S,
    ) -> None:
        super().__init__(mailbox, tensors, stall_timeout_s)
        self.parameters = parameters
        self.holes: list[Hole] = []
        self._workers = workers
        self._optimizer = optimizer
        self._own = [number for number, tensor in enumerate(tensors) if tensor.server == index]
        self._inbox = {t: np.zeros((len(workers), tensors[t].elements), np.float32) for t in self._own}
        self._arrived = {t: np.zeros((len(workers), packets(tensors[t].elements)), np.uint16) for t in self._own}
        self._closing = closing
        self._filling = holes
        self._record_holes = record_holes
        self._state = {t: optimizer.state(t, parameters[tensors[t].start : tensors[t].stop]) for t in self._own}
        self._missing = {t: set(workers) for t in self._own}
        self._pulling = {t: set[int]() for t in self._own}
        self._iteration = dict.fromkeys(self._own, 0)

    def expect_first(self) -> None:
        """Register the receives of iteration 0; call it before any worker may push."""
        for tensor in self._own:
            self._expect(tensor)

    def run(self) -> None:
        """Serve until every own tensor has done all the optimizer's iterations and every pull is over.

        TransportError when nothing completes for the stall timeout, or when patience is over.
        """
        self._wait_until(self._done, self._waited_for)

    def serve(self, until: Callable[[], bool]) -> None:
        """Serve until `until()`, asked at every completion and every SERVE_SLICE_S, however long nothing is pushed.

        For an optimizer without an end. TransportError when a worker is gone.
        """
        while not until():
            self._take(self._mailbox.take(SERVE_SLICE_S))

    def has_served(self, iterations: int) -> bool:
        """Whether every own tensor has done so many iterations and every worker has what they made of it. Any thread
        may ask."""
        return all(self._iteration[t] >= iterations and not self._pulling[t] for t in self._own)

    def _done(self) -> bool:
        return not any(self._goes_on(t) or self._pulling[t] for t in self._own)

    def _goes_on(self, tensor: int) -> bool:
        """Whether another iteration of a tensor is to come."""
        last = self._optimizer.iterations
        return last is None or self._iteration[tensor] < last

    def _waited_for(self) -> list[str]:
        waiting = [t for t in self._own if self._goes_on(t)]
        pushes = [
            f"the push of tensor {t} (iteration {self._iteration[t]}) from rank {worker}"
            for t in waiting
            for worker in sorted(self._missing[t])
        ]
        return pushes + [
            f"the end of the pull of tensor {t} by rank {worker}" for t in self._own for worker in self._pulling[t]
        ]

    def _note(self, completion: Completion) -> None:
        tensor = completion.key.tensor
        if completion.received:
            self._missing[tensor].discard(completion.peer)
            if self._closing is not None:
                self._closing.note(completion)
            if self._record_holes and completion.lost_bytes:
                arrived = self._arrived[tensor][self._workers.index(completion.peer)]
                missing = np.flatnonzero(arrived == 0).astype(np.int32)
                self.holes.append(Hole(completion.key.iteration, tensor, completion.peer, missing))
        else:
            self._pulling[tensor].discard(completion.peer)
        # The last pull's data are the parameters themselves: they must not change before every worker has them.
        if self._goes_on(tensor) and not self._missing[tensor] and not self._pulling[tensor]:
            self._update(tensor)

    def _update(self, tensor: int) -> None:
        """Sum in rank order, divide, step, expect the next pushes, send the pulls."""
        iteration, found = self._iteration[tensor], self._tensors[tensor]
        inbox = self._inbox[tensor]
        total = average(inbox, self._arrived[tensor] if self._filling == "rescale" else None)
        self._averaged(iteration, tensor, total)
        parameters = self.parameters[found.start : found.stop]
        self._optimizer.step(iteration, parameters, self._state[tensor], total)
        self._pulling[tensor] = set(self._workers)  # before the count: another thread asks has_served
        self._iteration[tensor] = iteration + 1
        self._missing[tensor] = set(self._workers)
        if self._goes_on(tensor):
            self._expect(tensor)
        first = (iteration + tensor) % len(self._workers)  # nobody is always served first
        for worker in self._workers[first:] + self._workers[:first]:
            self._mailbox.send(worker, MessageKey(iteration, tensor, Leg.PULL), parameters)

    def _averaged(self, iteration: int, tensor: int, mean: Floats) -> None:
        """The mean gradient of a tensor, before it is applied."""

    def _expect(self, tensor: int) -> None:
        key = MessageKey(self._iteration[tensor], tensor, Leg.PUSH)
        placement = Placement.KEEP if self._filling == "last" else Placement.ZERO
        bound = self._push_bound(key.iteration, tensor)
        for row, worker in enumerate(self._workers):
            counted = self._filling == "rescale" or self._record_holes
            arrived = self._arrived[tensor][row] if counted else None
            deadline = self._closing.deadline(worker, tensor) if self._closing else None
            self._mailbox.expect(
                worker,
                key,
                self._inbox[tensor][row],
                placement=placement,
                bound=bound,
                deadline=deadline,
                contributors=arrived,
            )

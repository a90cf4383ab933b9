"""All-reduces of torch tensors over a ring: numbering, order, one thread that moves them on, and what went wrong.

That thread runs nothing of the user's: callbacks of futures have threads of their own.

All ranks call the same all-reduces in the same order. The n-th call for tensors of one shape takes slot n modulo
SLOTS and iteration n div SLOTS, so every rank gives it the same name whatever has finished where; a slot that is still
busy makes it wait its turn. A big tensor is cut into segments, tensors of the ring in their own right, that overlap.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import NamedTuple

import numpy as np
import torch

from dlcp.frameworks.pytorch.failure.peer_failure import WatchedEndpoint
from dlcp.frameworks.pytorch.future_callbacks import CallbackThreads
from dlcp.frameworks.pytorch.statistics import Losses
from dlcp.frameworks.pytorch.work import Outcome
from dlcp.transport._native import lib
from dlcp.transport.aggregation.ring import AllReduced, Holes, RingAllReduce, segment_cuts
from dlcp.transport.contract.endpoint import Bound, Droppable, Dtype, TransportError, Values
from dlcp.transport.contract.loss_class import LossClass, unless_few
from dlcp.transport.contract.mailbox import Mailbox
from dlcp.transport.contract.values import packets
from dlcp.transport.contract.waiting import some_of

SLOTS = 4
"""All-reduces of one shape that may be under way at once; more wait their turn."""
WAIT_SLICE_S = 0.25
"""How soon the thread sees that it is to end, or that an all-reduce is overdue."""
CALLBACKS_AT_MOST_S = 5.0
"""How long an end waits for callbacks that run. One that hangs must not hang the end, too."""
DTYPES: dict[torch.dtype, Dtype] = {
    torch.float32: "float32",
    torch.float16: "float16",
    torch.bfloat16: "bfloat16",
}
"""What DLCP carries."""
MAX_TENSORS = int(lib.DLCP_MAX_TENSORS)
"""Numbers that the engine has for tensors."""


class Span(NamedTuple):
    """The part of a tensor up to element `stop`: the switch queue it travels in, and whether its packets of small
    values may be tagged to be dropped first."""

    stop: int
    queue: int
    droppable: bool


Spans = tuple[Span, ...]


@dataclass
class _Job:
    """One all-reduce. call: its number in the group; data: what the ring works on; left: segments that are not over."""

    call: int
    name: str
    data: Values
    outcome: Outcome
    finish: Callable[[], None]
    give_up_at_s: float
    left: int = 0


@dataclass
class _Slot:
    """The ring's tensors first … first + segments - 1, and the all-reduces that use them, the first one under way.

    cuts: of the shape, one more than segments.
    """

    first: int
    cuts: list[int]
    queue: deque[tuple[_Job, int]] = field(default_factory=deque)


@dataclass
class _Shape:
    """What tensors of one (elements, dtype, spans) have in common. calls: all-reduces so far."""

    slots: list[_Slot]
    calls: int = 0


class Reducer:
    """A group's all-reduces by sum. `start` from any thread. Callbacks of futures run in the threads `callbacks`.

    endpoint: of a rank that knows its two neighbours. bound: of one all-reduce; a tensor of fewer packets than
    must_arrive_below_packets loses nothing. timeout_s: how long one may take.
    After an error nothing more goes: every all-reduce fails with it. close ends the thread and the endpoint.
    """

    def __init__(
        self,
        endpoint: WatchedEndpoint,
        rank: int,
        size: int,
        *,
        bound: Bound,
        holes: Holes,
        average: bool,
        must_arrive_below_packets: int,
        timeout_s: float,
        name: str,
    ) -> None:
        self.losses = Losses()
        self.callbacks = CallbackThreads(f"dlcp-{name}-callback")
        self._calls = 0
        self._endpoint = endpoint
        self._rank = rank
        self._size = size
        self._must_arrive_below = must_arrive_below_packets
        self._timeout_s = timeout_s
        self._ring = RingAllReduce(
            Mailbox(endpoint), rank, size, bound=bound, holes=holes, average=average, shared_numbers=True
        )
        self._shapes: dict[tuple[int, Dtype, Spans], _Shape] = {}
        self._slot_of: dict[int, _Slot] = {}
        self._tensors = 0
        self._active = 0
        self._ending = False
        self._broken: str | None = None
        self._failure: Exception | None = None
        self._changed = threading.Condition()
        endpoint.alarm.wanted = lambda: self._first_call()
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"dlcp-{name}")
        self._thread.start()

    def start(self, tensor: torch.Tensor, spans: Spans, finish: Callable[[], None] = lambda: None) -> Outcome:
        """Begin to reduce a 1-D contiguous tensor of one of DTYPES, in place; the outcome's value is the tensor.

        finish: called before the outcome is told, in the reducer's thread. Errors are the outcome's, but for calls
        after the group has failed or ended, TransportError, and for one of a size for which there is no number left,
        ValueError, which leaves the group as it was.
        """
        dtype, elements = DTYPES[tensor.dtype], tensor.numel()
        with self._changed:
            if self._broken is not None:
                raise TransportError(f"this DLCP group cannot be used any more: {self._broken}")
            if not self.has_room(elements, tensor.dtype, spans):
                raise ValueError(self._no_room(elements, dtype))
            shape = self._shapes.get((elements, dtype, spans)) or self._declare(elements, dtype, spans)
            call, shape.calls = shape.calls, shape.calls + 1
            slot, iteration = shape.slots[call % SLOTS], call // SLOTS
            self._calls += 1
            name = f"all_reduce {self._calls} ({elements} × {dtype})"
            outcome = Outcome(tensor, self.callbacks)
            job = _Job(self._calls, name, as_values(tensor), outcome, finish, time.monotonic() + self._timeout_s)
            slot.queue.append((job, iteration))
            self._active += 1
            if len(slot.queue) == 1:
                self._begin(slot)
            self._changed.notify_all()
        return outcome

    def calls_done(self) -> int:
        """So many of the first all-reduces are over on the network, whatever has become of later ones."""
        with self._changed:
            first = self._first_call()
            return first - 1 if first else self._calls

    def drain(self, timeout_s: float) -> bool:
        """Wait until nothing is under way; False when the time ran out."""
        with self._changed:
            return self._changed.wait_for(lambda: not self._active, timeout_s)

    def close(self, why: str = "it was destroyed") -> None:
        """End the thread, then the endpoint; whatever is under way fails. Safe to call twice."""
        with self._changed:
            self._ending = True
            self._broken = self._broken or why
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join()
        self._fail(why)
        self.callbacks.close(CALLBACKS_AT_MOST_S)

    def has_room(self, elements: int, dtype: torch.dtype, spans: Spans) -> bool:
        """Whether a tensor can be named: there are numbers for so many tensors of different shapes."""
        if (elements, DTYPES[dtype], spans) in self._shapes:
            return True
        segments = len(segment_cuts(elements, self._size, DTYPES[dtype])) - 1
        return (self._tensors + SLOTS * segments) * self._ring.numbers_each <= MAX_TENSORS

    def _no_room(self, elements: int, dtype: Dtype) -> str:
        """Return the sentence for the user when there is no room."""
        return (
            f"rank {self._rank}: a tensor of {elements} × {dtype} has a size that this group has not met before, and "
            f"{len(self._shapes)} different sizes have used all of DLCP's numbers for tensors. Use fewer different "
            "sizes (pad tensors, or keep the buckets as they are), or make a new group"
        )

    def _declare(self, elements: int, dtype: Dtype, spans: Spans) -> _Shape:
        """The ring's tensors for a shape that is seen for the first time: the same at every rank."""
        cuts = segment_cuts(elements, self._size, dtype)
        shape = _Shape([])
        loss = unless_few(LossClass.BOUNDED, packets(elements, dtype), self._must_arrive_below)
        for _ in range(SLOTS):
            slot = _Slot(self._tensors, cuts)
            shape.slots.append(slot)
            for start, stop in pairwise(cuts):
                span = next(one for one in spans if (start + stop) // 2 < one.stop)
                droppable = Droppable.SMALL if span.droppable else Droppable.NONE
                self._ring.declare(
                    self._tensors, stop - start, dtype=dtype, queue=span.queue, droppable=droppable, loss=loss
                )
                self._slot_of[self._tensors] = slot
                self._tensors += 1
        self._shapes[elements, dtype, spans] = shape
        return shape

    def _begin(self, slot: _Slot) -> None:
        """Start a slot's next all-reduce, if one waits. The lock is held. What goes wrong ends all that is under way,
        in the thread, and not whoever has called."""
        if not slot.queue:
            return
        job, iteration = slot.queue[0]
        job.left = len(slot.cuts) - 1
        try:
            for segment, (start, stop) in enumerate(pairwise(slot.cuts)):
                self._ring.start(slot.first + segment, iteration, job.data[start:stop])
        except Exception as error:
            self._failure = error

    def _run(self) -> None:
        try:
            while True:
                with self._changed:
                    self._changed.wait_for(lambda: self._active or self._ending)
                    if self._ending:
                        return
                    if self._failure is not None:
                        raise self._failure
                for one in self._ring.wait(WAIT_SLICE_S):
                    self._note(one)
                self._look_at_the_clock()
        except Exception as error:  # becomes the error of everything that is under way
            self._fail(str(error) if isinstance(error, TransportError) else f"{type(error).__name__}: {error}")

    def _note(self, one: AllReduced) -> None:
        with self._changed:
            slot = self._slot_of[one.tensor]
            job, _ = slot.queue[0]
            segment = one.tensor - slot.first
            size_bytes = job.data[slot.cuts[segment] : slot.cuts[segment + 1]].nbytes
            self.losses.add(size_bytes, one.lost_bytes, one.lost_energy_share, one.resent_bytes)
            job.left -= 1
            if job.left:
                return
            slot.queue.popleft()
            self._begin(slot)
        error = None
        try:
            job.finish()
        except Exception as failure:
            error = failure
        with self._changed:
            self._active -= 1
            self._changed.notify_all()
        job.outcome.tell(error)

    def _look_at_the_clock(self) -> None:
        with self._changed:
            now_s = time.monotonic()
            late = [job for job in self._jobs() if job.give_up_at_s < now_s]
        if late:
            cause = self._endpoint.alarm.heard()  # the first cause, if another rank has said it just now
            raise TransportError(cause or f"{late[0].name} did not end within {self._timeout_s:g} s")

    def _first_call(self) -> int:
        """The number of the oldest all-reduce that is not over; 0 when there is none."""
        with self._changed:
            return min((job.call for job in self._jobs()), default=0)

    def _jobs(self) -> list[_Job]:
        """All that are under way or wait their turn. The lock is held."""
        return [job for shape in self._shapes.values() for slot in shape.slots for job, _ in slot.queue]

    def _fail(self, why: str) -> None:
        """Nothing goes any more, here and at all ranks. The endpoint is closed first: it must not write to tensors that
        users have back."""
        with self._changed:
            jobs = self._jobs()
            missing = self._ring.missing() if jobs else []
            for shape in self._shapes.values():
                for slot in shape.slots:
                    slot.queue.clear()
            self._broken = self._broken or why
        waiting = f"; waiting for {some_of(missing)}" if missing else ""
        if jobs:
            self._endpoint.alarm.sound(f"{why}{waiting}")
        self._endpoint.close()
        for job in jobs:
            job.outcome.tell(TransportError(f"rank {self._rank}, {job.name}: {why}{waiting}"))
        with self._changed:
            self._active = 0
            self._changed.notify_all()


def as_values(tensor: torch.Tensor) -> Values:
    """A contiguous CPU tensor's memory as a flat array; bfloat16 as uint16. No copy."""
    flat = tensor.detach().reshape(-1)
    found: Values = (flat.view(torch.uint16) if tensor.dtype == torch.bfloat16 else flat).numpy()
    assert found.dtype in (np.float32, np.float16, np.uint16)
    return found

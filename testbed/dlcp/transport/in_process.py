"""Endpoints of ranks that share a process: a message is handed over in memory, and a rule says what of it is lost.

Nothing travels, so nothing takes time, is sent again or is reordered: what a rule takes stays lost, whatever a bound or
a deadline says. The ranks' workers and servers are those that train over a network.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dlcp.transport.contract.agreed_tensors import AgreedTensor, AgreedTensors
from dlcp.transport.contract.endpoint import (
    RELIABLE,
    Bound,
    Completion,
    Counts,
    Deadline,
    Droppable,
    Dtype,
    MessageKey,
    Placement,
    TransportError,
    Values,
)
from dlcp.transport.contract.values import (
    add_into,
    check_placement,
    packet_elements,
    packet_energy,
    packets,
)

Lost = npt.NDArray[np.bool_]
LossRule = Callable[[int, MessageKey, Values], Lost | None]
"""(source rank, key, what is sent) → which of the message's packets are lost, (packets,); None: nothing is."""
_WIRE = ("sent_packets", "sent_bytes", "received_packets", "received_bytes", "resent_packets", "resent_bytes")


def nothing_lost(source: int, key: MessageKey, data: Values) -> None:
    """Take nothing of any message: see LossRule."""


@dataclass(frozen=True)
class _Sent:
    """A message that its receiver has not registered yet."""

    data: Values
    contributors: Counts | None
    start_s: float


@dataclass(frozen=True)
class _Expected:
    """A registered receive."""

    buffer: Values
    dtype: Dtype
    placement: Placement
    contributors: Counts | None
    start_s: float


class InProcessNetwork:
    """Endpoints of all ranks of a job, by rank.

    lost: what of each message never arrives, asked once when it is handed over. The rule must leave whole what must
    arrive: endpoints do not know it.
    """

    def __init__(self, ranks: Iterable[int], lost: LossRule = nothing_lost) -> None:
        self.lock = threading.RLock()
        self.endpoints = {rank: InProcessEndpoint(rank, self) for rank in ranks}
        self._lost = lost

    def hand_over(self, source: int, sink: int, key: MessageKey, sent: _Sent, expected: _Expected) -> None:
        """Put a message into its receiver's buffer and tell both ends; the lock is held."""
        lost = self._lost(source, key, sent.data)
        _place(sent, expected, lost)
        size = sent.data.nbytes
        lost_bytes, lost_energy = (0, 0.0) if lost is None else _missing(sent.data, expected.dtype, lost)
        end_s, came = time.monotonic(), size - lost_bytes
        self.endpoints[sink].tell(
            Completion(source, key, True, size, came, lost_bytes, 0, 0, expected.start_s, end_s, lost_energy)
        )
        self.endpoints[source].tell(Completion(sink, key, False, size, size, 0, 0, 0, sent.start_s, end_s))


class InProcessEndpoint:
    """One rank's end. See dlcp.transport.contract.endpoint.Endpoint for the contract of its methods; any thread may
    call them. A peer that closes ends the waits of all others with TransportError."""

    def __init__(self, rank: int, network: InProcessNetwork) -> None:
        self._rank = rank
        self._network = network
        self._agreed = AgreedTensors()
        self._sent: dict[tuple[int, MessageKey], _Sent] = {}
        self._expected: dict[tuple[int, MessageKey], _Expected] = {}
        self._completions: deque[Completion] = deque()
        self._changed = threading.Condition(network.lock)
        self._messages = 0
        self._closed = False

    def declare(
        self,
        tensor: int,
        elements: int,
        *,
        queue: int,
        droppable: Droppable = Droppable.NONE,
        must_arrive: bool = False,
        push_bound: Bound = RELIABLE,
        pull_bound: Bound = RELIABLE,
        dtype: Dtype = "float32",
        variable: bool = False,
    ) -> None:
        """Agree a tensor's size. There is no queue, and no bound is kept, so the rest has no effect here."""
        self._agreed[tensor] = AgreedTensor(elements, dtype, variable)

    def receive(
        self,
        peer: int,
        key: MessageKey,
        buffer: Values,
        *,
        placement: Placement = Placement.ZERO,
        bound: Bound | None = None,
        deadline: Deadline | tuple[Deadline, ...] | None = None,
        contributors: Counts | None = None,
    ) -> None:
        dtype = self._agreed.fitting(key, buffer, contributors).dtype
        check_placement(key, dtype, placement)
        if not buffer.flags.writeable:
            raise ValueError(f"the buffer for tensor {key.tensor} is read-only")
        expected = _Expected(buffer, dtype, placement, contributors, time.monotonic())
        with self._network.lock:
            self._raise_if_gone(peer)
            if (peer, key) in self._expected:
                raise ValueError(f"{key} from rank {peer} is registered already")
            sent = self._network.endpoints[peer]._sent.pop((self._rank, key), None)
            if sent is None:
                self._expected[peer, key] = expected
            else:
                self._network.hand_over(peer, self._rank, key, sent, expected)

    def send(
        self,
        peer: int,
        key: MessageKey,
        data: Values,
        *,
        bound: Bound | None = None,
        contributors: Counts | None = None,
    ) -> None:
        self._agreed.fitting(key, data, contributors, to_send=True)
        counts = None if contributors is None else contributors.copy()
        sent = _Sent(data, counts, time.monotonic())
        with self._network.lock:
            self._raise_if_gone(peer)
            self._messages += 1
            expected = self._network.endpoints[peer]._expected.pop((self._rank, key), None)
            if expected is None:
                self._sent[peer, key] = sent
            else:
                self._network.hand_over(self._rank, peer, key, sent, expected)

    def wait(self, timeout_s: float) -> list[Completion]:
        with self._changed:
            self._changed.wait_for(lambda: self._completions or self._gone(), timeout_s)
            completions = list(self._completions)
            self._completions.clear()
            if not completions and (gone := self._gone()):
                raise TransportError(f"rank {self._rank}: {gone}")
            return completions

    def tell(self, completion: Completion) -> None:
        """Add what the next wait returns; the network's lock is held."""
        self._completions.append(completion)
        self._changed.notify_all()

    def statistics(self) -> dict[str, Any]:
        """Return how many messages it sent; of the wire zeros, for there is none."""
        return {"transport": "in-process", "sent_messages": self._messages, "wire": dict.fromkeys(_WIRE, 0)}

    def close(self) -> None:
        with self._network.lock:
            self._closed = True
            for endpoint in self._network.endpoints.values():
                endpoint._changed.notify_all()

    def _gone(self) -> str:
        """Return which end is closed, in words: this one, or that of a rank with which something is under way."""
        if self._closed:
            return "closed"
        peers = {peer for peer, _ in (*self._sent, *self._expected)}
        gone = sorted(peer for peer in peers if self._network.endpoints[peer]._closed)
        return f"rank {gone[0]} closed its end" if gone else ""

    def _raise_if_gone(self, peer: int) -> None:
        if peer not in self._network.endpoints:
            raise ValueError(f"rank {peer} is not in this process")
        if self._closed or self._network.endpoints[peer]._closed:
            raise TransportError(f"rank {self._rank}: {'closed' if self._closed else f'rank {peer} closed its end'}")


def _place(sent: _Sent, expected: _Expected, lost: Lost | None) -> None:
    """Put what arrives where it belongs, and count who contributed to it: see Endpoint.receive."""
    data, into = sent.data, expected.buffer[: sent.data.size]
    count = packets(data.size, expected.dtype)
    arrived = np.ones(count, np.bool_) if lost is None else ~lost
    if arrived.shape != (count,):
        raise ValueError(f"the rule of losses names {arrived.size} packets of a message of {count}")
    elements = np.repeat(arrived, packet_elements(expected.dtype))[: data.size]
    if expected.placement is Placement.ADD:
        summed = into.copy()
        add_into(summed, data, expected.dtype)
        into[elements] = summed[elements]
    else:
        if expected.placement is Placement.ZERO:
            into[:] = 0
        into[elements] = data[elements]
    if expected.contributors is not None:
        counts = np.uint16(1) if sent.contributors is None else sent.contributors[:count]
        if expected.placement is not Placement.ADD:
            expected.contributors[:] = 0
        expected.contributors[:count] += np.where(arrived, counts, np.uint16(0))


def _missing(data: Values, dtype: Dtype, lost: Lost) -> tuple[int, float]:
    """Bytes of the lost packets, and their share of the message's energy; of its bytes, where energy tells nothing."""
    width = packet_elements(dtype)
    sizes = np.full(lost.size, width)
    sizes[-1] = data.size - (lost.size - 1) * width
    lost_bytes = int(sizes[lost].sum()) * data.itemsize
    energy = packet_energy(data, dtype)
    total = float(energy.sum())
    known = 0 < total < float("inf")
    return lost_bytes, float(energy[lost].sum()) / total if known else lost_bytes / data.nbytes

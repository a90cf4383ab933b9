"""One end of a transport bench: a process of its own, so that its CPU time can be told apart.

It serves commands from a control channel until that closes: open endpoints, learn peers, send or receive one batch of
messages, report. Both ends run this same code; the coordinator (driver.py) says who sends.
"""

from __future__ import annotations

import resource
import socket
import threading
import time
from typing import Any

import numpy as np

from dlcp.bench.channel import Channel
from dlcp.bench.child import Commands, serve_child
from dlcp.bench.transport import python_reference
from dlcp.model.transport.settings import TransportSettings
from dlcp.transport.contract.endpoint import (
    Bound,
    Completion,
    Droppable,
    Dtype,
    Leg,
    MessageKey,
    TransportError,
    Values,
)
from dlcp.transport.contract.values import held_as
from dlcp.transport.dlcp_endpoint import DlcpEndpoint

WAIT_S = 0.5


class End:
    """Endpoints and buffers of one side; commands are methods that take and return JSON data."""

    def __init__(self, channel: Channel, bind: str | None = None) -> None:
        """bind: the address that endpoints use, whatever the coordinator says (of a listener: its own)."""
        self._channel = channel
        self._bind = bind
        self._endpoints: dict[int, DlcpEndpoint] = {}
        self._plain: socket.socket | None = None
        self._elements: list[int] = []
        self._data: dict[int, Values] = {}

    def commands(self) -> Commands:
        """What may be asked for."""
        names = ("open", "peers", "send", "receive", "python_send", "python_receive", "close")
        return {name: getattr(self, name) for name in names}

    def open(
        self,
        *,
        ranks: list[int],
        address: str,
        cookie: int,
        elements: list[int],
        settings: dict[str, Any],
        rate_bps: float,
        queue: int,
        seed: int,
        segmentation: bool,
        dtype: Dtype,
        bound: tuple[float, float],
    ) -> dict[str, Any]:
        """Endpoints of these ranks with all tensors declared, and the reference's socket; bound: bytes, energy."""
        self.close()
        where = self._bind or address
        parsed = TransportSettings.model_validate(settings)
        self._elements = elements
        for rank in ranks:
            self._endpoints[rank] = DlcpEndpoint(
                rank, where, 0, {}, parsed, job_cookie=cookie, link_rate_bps=rate_bps, segmentation=segmentation
            )
            for tensor, count in enumerate(elements):
                self._endpoints[rank].declare(
                    tensor, count, queue=queue, droppable=Droppable.SMALL, push_bound=Bound(*bound), dtype=dtype
                )
        self._data = {tensor: gradients(seed, tensor, count, dtype) for tensor, count in enumerate(elements)}
        self._plain = python_reference.open_socket(where)
        ports = {rank: endpoint.port for rank, endpoint in self._endpoints.items()}
        return {"address": where, "ports": ports, "plain_port": self._plain.getsockname()[1]}

    def peers(self, *, peers: dict[str, tuple[str, int]]) -> dict[str, Any]:
        """Tell every endpoint here where the other side's ranks are."""
        for endpoint in self._endpoints.values():
            for rank, (address, port) in peers.items():
                endpoint.add_peer(int(rank), address, port)
        return {}

    def send(self, *, to: int, first: int, count: int, in_flight: int, limit_s: float) -> dict[str, Any]:
        """Every rank here sends `count` messages, at most `in_flight` at once, and waits for the last STOP."""
        before = self._measure()
        outcomes: dict[int, list[Completion] | Exception] = {}
        deadline_s = time.monotonic() + limit_s

        def drive(rank: int) -> None:
            try:
                outcomes[rank] = self._send(self._endpoints[rank], to, first, count, in_flight, deadline_s)
            except Exception as error:
                outcomes[rank] = error

        threads = [threading.Thread(target=drive, args=(rank,)) for rank in self._endpoints]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        completions = []
        for outcome in outcomes.values():
            if isinstance(outcome, Exception):
                raise outcome
            completions += outcome
        return self._measured(before) | {
            "durations_s": [done.end_s - done.start_s for done in completions],
            "start_s": min(done.start_s for done in completions),
            "end_s": max(done.end_s for done in completions),
            "resent_bytes": sum(done.resent_bytes for done in completions),
            "probes": sum(done.probes for done in completions),
        }

    def receive(
        self, *, peers: list[int], first: int, count: int, ahead: int, check: bool, limit_s: float
    ) -> dict[str, Any]:
        """Take `count` messages of every peer, with `ahead` receives registered at a time.

        check: compare what arrived with what was sent. Tells {"armed": true} once the first receives stand.
        """
        (endpoint,) = self._endpoints.values()
        before = self._measure()
        deadline_s = time.monotonic() + limit_s
        buffers: dict[tuple[int, MessageKey], Values] = {}
        spare: dict[int, list[Values]] = {tensor: [] for tensor in range(len(self._elements))}
        posted = dict.fromkeys(peers, 0)
        completions: list[Completion] = []

        def post(peer: int) -> None:
            key = self._key(first + posted[peer])
            shelf = spare[key.tensor]
            buffer = shelf.pop() if shelf else np.empty_like(self._data[key.tensor])
            buffers[peer, key] = buffer
            posted[peer] += 1
            endpoint.receive(peer, key, buffer)

        for _ in range(min(ahead, count)):
            for peer in peers:
                post(peer)
        self._channel.send({"armed": True})
        while len(completions) < count * len(peers):
            found = endpoint.wait(min(WAIT_S, max(0.0, deadline_s - time.monotonic())))
            if not found and time.monotonic() > deadline_s:
                raise TransportError(f"nothing within {limit_s:.0f} s; missing: {endpoint.pending()}")
            for done in found:
                buffer = buffers.pop((done.peer, done.key))
                if check:
                    self._compare(done, buffer)
                spare[done.key.tensor].append(buffer)
                if posted[done.peer] < count:
                    post(done.peer)
            completions += found
        total_bytes = sum(done.bytes for done in completions)
        return self._measured(before) | {
            "bytes": total_bytes,
            "delivered_bytes": sum(done.delivered_bytes for done in completions),
            "lost_bytes": sum(done.lost_bytes for done in completions),
            "lost_energy_share": sum(done.lost_energy_share * done.bytes for done in completions) / total_bytes,
            "messages": len(completions),
        }

    def python_send(self, *, peer: tuple[str, int], cookie: int, messages: int) -> dict[str, Any]:
        """The reference sends its largest tensor."""
        before = self._measure()
        assert self._plain is not None
        data = self._data[int(np.argmax(self._elements))].data.cast("B")
        return python_reference.send(self._plain, (peer[0], peer[1]), data, cookie, messages) | self._measured(before)

    def python_receive(self, *, cookie: int) -> dict[str, Any]:
        """The reference receives it; what has arrived must be what was sent."""
        assert self._plain is not None
        tensor = int(np.argmax(self._elements))
        buffer = np.zeros_like(self._data[tensor])
        self._channel.send({"armed": True})
        before = self._measure()
        found = python_reference.receive(self._plain, buffer.data.cast("B"), cookie) | self._measured(before)
        wrong = np.count_nonzero((buffer != self._data[tensor]) & (buffer != 0))
        if wrong:
            raise ValueError(f"the Python reference received {wrong} wrong values")
        return found

    def close(self) -> dict[str, Any]:
        """Free endpoints and socket; another open may follow."""
        for endpoint in self._endpoints.values():
            endpoint.close()
        self._endpoints = {}
        if self._plain is not None:
            self._plain.close()
            self._plain = None
        return {}

    def _send(
        self, endpoint: DlcpEndpoint, to: int, first: int, count: int, in_flight: int, deadline_s: float
    ) -> list[Completion]:
        completions: list[Completion] = []
        handed = 0
        while len(completions) < count:
            while handed < count and handed - len(completions) < in_flight:
                key = self._key(first + handed)
                endpoint.send(to, key, self._data[key.tensor])
                handed += 1
            found = endpoint.wait(min(WAIT_S, max(0.0, deadline_s - time.monotonic())))
            if not found and time.monotonic() > deadline_s:
                raise TransportError(f"not over in time: {endpoint.pending()}")
            completions += found
        return completions

    def _key(self, number: int) -> MessageKey:
        """Messages go through the tensors in turn."""
        return MessageKey(number // len(self._elements), number % len(self._elements), Leg.PUSH)

    def _compare(self, done: Completion, buffer: Values) -> None:
        """What is not as sent must be a hole, and holes must be what was told as lost."""
        data = self._data[done.key.tensor]
        differs = buffer != data
        holes = int(np.count_nonzero(differs)) * data.itemsize
        if np.any(buffer[differs]) or holes != done.lost_bytes:
            raise ValueError(
                f"wrong values in tensor {done.key.tensor} of rank {done.peer}: {holes} bytes differ, "
                f"{done.lost_bytes} were told as lost"
            )

    def _measure(self) -> tuple[float, list[dict[str, Any]]]:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return usage.ru_utime + usage.ru_stime, [endpoint.statistics() for endpoint in self._endpoints.values()]

    def _measured(self, before: tuple[float, list[dict[str, Any]]]) -> dict[str, Any]:
        """CPU seconds of this process (interrupt work that it did itself included) and counters since `before`."""
        cpu_s, after = self._measure()
        total: dict[str, int] = {}
        for new, old in zip(after, before[1], strict=True):
            for name, value in new.items():
                if isinstance(value, int | float):
                    total[name] = total.get(name, 0) + value - old[name]
        refused = next((one["segmentation_errno"] for one in after if one["segmentation_errno"]), 0)
        round_trips = [peer["min_rtt_ns"] for one in after for peer in one["peers"].values() if peer["min_rtt_ns"]]
        return {
            "cpu_s": cpu_s - before[0],
            "counters": total,
            "min_rtt_ns": min(round_trips, default=0),
            "segmentation_errno": refused,
        }


def gradients(seed: int, tensor: int, elements: int, dtype: Dtype = "float32") -> Values:
    """Values like gradients: centred, about 1e-3 large, none of them zero. The same at both ends."""
    generator = np.random.default_rng((seed, tensor))
    values = generator.standard_normal(elements, np.float32) * np.float32(1e-3)
    if dtype == "bfloat16":
        values = (values.view(np.uint32) >> 16).astype(np.uint16)
    values = values.astype(held_as(dtype), copy=False)
    values[values == 0] = values[0] or 1
    return values


if __name__ == "__main__":
    serve_child(lambda channel: End(channel).commands())

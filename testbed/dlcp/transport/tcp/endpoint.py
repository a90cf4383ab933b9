"""Kernel TCP as a transport: one persistent connection per pair of ranks, both legs over it, first in, first out.

One I/O thread does all socket work; the thread that drives the endpoint only queues and waits.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import socket
import threading
import time
from collections import deque
from typing import Any

import numpy as np

from dlcp.model.transport.tcp import TcpSettings
from dlcp.transport.contract.agreed_tensors import UNKNOWN, AgreedTensor, AgreedTensors
from dlcp.transport.contract.endpoint import (
    RELIABLE,
    Bound,
    Completion,
    Counts,
    Deadline,
    Droppable,
    Dtype,
    Leg,
    MessageKey,
    Placement,
    TransportError,
    Values,
)
from dlcp.transport.contract.values import check_placement, element_bytes
from dlcp.transport.tcp import handshake
from dlcp.transport.tcp.connection import Connection, FrameError, frame, has_come
from dlcp.transport.tcp.posted_receive import Posting
from dlcp.transport.tcp.send_queue import CreditWindow, Outgoing, first_in_first_out, front_first
from dlcp.transport.tcp.socket_info import read_tcp_info

CONNECT_TIMEOUT_S = 15.0
"""Agents of one job are opened at the same time; a peer that is not there after this long will not come."""
SELECT_TIMEOUT_S = 1.0


class TcpEndpoint:
    """Endpoint over kernel TCP. See dlcp.transport.contract.endpoint.Endpoint for the contract of its methods; declare,
    receive and send may be called by other threads while one thread waits. Everything is delivered, whatever the bounds
    say.

    peers: rank → (address, port) of every rank that this one exchanges messages with. connects_to: those of them
    to which this end opens the connection; the others are waited for at `address`:`port`. job_cookie: 64 bits that
    all ranks of a job know and strangers do not.

    Returns when every peer is connected and proven; raises TransportError naming the ranks that are not there in
    time, and when a socket does not run the congestion control or the ECN mode that the settings ask for.

    With `tcp_priority` messages to a peer leave front layers first, else in the order of their sending. With
    `tcp_credit_bytes` gradients (the push leg) wait until there is room for them among those that are under way, to all
    peers together, and receivers say which have come.

    A TCP sender's message is over when the kernel has taken it all. Its resent_bytes are those that the connection
    sent again since its previous message was over: the sum is right, the attribution to a message approximate.
    """

    def __init__(
        self,
        rank: int,
        address: str,
        port: int,
        peers: dict[int, tuple[str, int]],
        settings: TcpSettings,
        *,
        job_cookie: int,
        connects_to: tuple[int, ...],
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
    ) -> None:
        self._identity = handshake.Identity(rank, job_cookie)
        self._settings = settings
        self._agreed = AgreedTensors()
        self._postings: dict[tuple[int, MessageKey], Posting] = {}
        self._completions: deque[Completion] = deque()
        self._changed = threading.Condition()
        self._submitted: set[int] = set()
        self._stopping = False
        sockets = self._meet(address, port, peers, connects_to, time.monotonic() + connect_timeout_s)
        order = front_first if settings.tcp_priority else first_in_first_out
        self._connections = {peer: Connection(peer, sock, order) for peer, sock in sockets.items()}
        credit_bytes = settings.tcp_credit_bytes
        self._credit = CreditWindow(credit_bytes, order) if credit_bytes else None
        self._selector = selectors.DefaultSelector()
        self._wake = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._selector.register(self._wake, selectors.EVENT_READ)
        for connection in self._connections.values():
            self._selector.register(connection.sock, selectors.EVENT_READ, connection)
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"tcp-rank-{rank}")
        self._thread.start()

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
        """Agree a tensor's size. TCP delivers everything in one queue, so the rest has no effect here."""
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
        with self._changed:
            self._raise_if_gone(peer, key)
            if (peer, key) in self._postings:
                raise ValueError(f"{_name(key)} from rank {peer} is registered already")
            self._postings[peer, key] = Posting(buffer, dtype, placement, contributors, time.monotonic())
            if self._connections[peer].waiting_for == key:
                self._submit(peer)

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
        counts = None if contributors is None else memoryview(contributors.tobytes())
        message = frame(key, data.view(np.uint8).data, counts, time.monotonic())
        with self._changed:
            self._raise_if_gone(peer, key)
            if self._credit is not None and key.leg is Leg.PUSH:
                self._let_go(self._credit.add(peer, message))
            else:
                self._let_go([(peer, message)])

    def wait(self, timeout_s: float) -> list[Completion]:
        with self._changed:
            self._changed.wait_for(lambda: self._completions or self._missing(), timeout_s)
            found = list(self._completions)
            self._completions.clear()
            if not found and (missing := self._missing()):
                raise TransportError(f"rank {self._identity.rank}: {missing}")
            return found

    def statistics(self) -> dict[str, Any]:
        """Bytes with framing, and per peer what the kernel says of the connection (times in seconds)."""
        per_peer: dict[str, Any] = {}
        infos = []
        for peer, connection in self._connections.items():
            with contextlib.suppress(OSError):  # a connection that is gone has nothing left to say
                info = read_tcp_info(connection.sock)
                infos.append(info)
                per_peer[str(peer)] = {
                    "rto_s": info.rto_s,
                    "rtt_s": info.rtt_s,
                    "cwnd_packets": info.cwnd_packets,
                    "resent_packets": info.resent_packets,
                    "resent_bytes": info.resent_bytes,
                    "wire_sent_bytes": info.sent_bytes,
                    "ecn": info.ecn,
                }
        return {
            "transport": "tcp",
            "sent_bytes": sum(c.sent_bytes for c in self._connections.values()),
            "received_bytes": sum(c.received_bytes for c in self._connections.values()),
            "resent_bytes": sum(found["resent_bytes"] for found in per_peer.values()),
            "resent_packets": sum(found["resent_packets"] for found in per_peer.values()),
            "rejected_connections": self._identity.rejected,
            "congestion_control": self._settings.tcp_congestion_control,
            "most_under_way_bytes": 0 if self._credit is None else self._credit.most_under_way_bytes,
            "connections": per_peer,
            "wire": {
                "sent_packets": sum(info.sent_packets for info in infos),
                "sent_bytes": sum(info.sent_bytes + info.sent_packets * info.header_bytes for info in infos),
                "received_packets": sum(info.received_packets for info in infos),
                "received_bytes": sum(
                    info.received_bytes + info.received_packets * info.header_bytes for info in infos
                ),
                "resent_packets": sum(info.resent_packets for info in infos),
                "resent_bytes": sum(info.resent_bytes for info in infos),
            },
        }

    def close(self) -> None:
        if self._stopping:
            return
        self._stopping = True
        os.eventfd_write(self._wake, 1)
        self._thread.join()
        self._selector.close()
        for connection in self._connections.values():
            connection.sock.close()
        os.close(self._wake)

    # Opening.

    def _meet(
        self,
        address: str,
        port: int,
        peers: dict[int, tuple[str, int]],
        connects_to: tuple[int, ...],
        deadline_s: float,
    ) -> dict[int, socket.socket]:
        """A proven, configured connection for every peer; none stays open when one fails."""
        expected = set(peers) - set(connects_to)
        control = self._settings.tcp_congestion_control
        found: dict[int, socket.socket] = {}
        with contextlib.ExitStack() as undo:
            undo.callback(_close_all, found)
            listener = None
            if expected:
                listener = undo.enter_context(handshake.listen(address, port, control))
            for peer in connects_to:
                found[peer] = handshake.connect(self._identity, address, peer, peers[peer], control, deadline_s)
            if listener is not None:
                found |= handshake.accept(self._identity, listener, expected, deadline_s)
                listener.close()
            for peer in connects_to:
                handshake.confirm(self._identity, peer, found[peer], deadline_s)
            for peer, sock in found.items():
                self._configure(peer, sock)
            undo.pop_all()
        return found

    def _configure(self, peer: int, sock: socket.socket) -> None:
        """Set what the settings ask for, read it back, and refuse to run with anything else."""
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        if self._settings.tcp_low_water_bytes:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, self._settings.tcp_low_water_bytes)
        wanted = self._settings.tcp_congestion_control
        actual = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16).split(b"\0")[0].decode()
        if actual != wanted:
            raise TransportError(f"rank {self._identity.rank}: connection to rank {peer} runs {actual}, not {wanted}")
        if (ecn := read_tcp_info(sock).ecn) != self._settings.tcp_ecn:
            raise TransportError(
                f"rank {self._identity.rank}: ECN is {'on' if ecn else 'off'} on the connection to rank {peer}, the "
                f"scheme wants it {'on' if self._settings.tcp_ecn else 'off'}: set net.ipv4.tcp_ecn on both hosts"
            )

    # The driving thread's side; the lock is held.

    def _let_go(self, free: list[tuple[int, Outgoing]]) -> None:
        for peer, message in free:
            self._connections[peer].outbox.add(message)
            self._submit(peer)

    def _submit(self, peer: int) -> None:
        if not self._submitted:
            os.eventfd_write(self._wake, 1)
        self._submitted.add(peer)

    def _raise_if_gone(self, peer: int, key: MessageKey) -> None:
        if failure := self._connections[peer].failure:
            raise TransportError(f"rank {self._identity.rank}: {_name(key)}: rank {peer} is gone: {failure}")

    def _missing(self) -> str:
        """What can never come because its peer is gone; empty when nothing is waited for in vain."""
        for peer, connection in self._connections.items():
            if connection.failure:
                keys = [connection.incoming] if connection.incoming else []
                keys += [key for rank, key in self._postings if rank == peer]
                keys += [message.key for message in connection.outbox if not message.acknowledges]
                keys += [] if self._credit is None else self._credit.waiting_for(peer)
                if keys:
                    more = f" and {len(keys) - 1} more messages" if len(keys) > 1 else ""
                    return f"rank {peer} is gone ({connection.failure}); missing {_name(keys[0])}{more}"
        return ""

    # The I/O thread's side.

    def _run(self) -> None:
        while not self._stopping:
            for found, events in self._selector.select(SELECT_TIMEOUT_S):
                connection: Connection | None = found.data
                if connection is None:
                    self._take_submissions()
                    continue
                if events & selectors.EVENT_READ:
                    self._guard(connection, self._fill)
                if events & selectors.EVENT_WRITE and not connection.failure:
                    self._guard(connection, self._flush)

    def _take_submissions(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.eventfd_read(self._wake)
        with self._changed:
            peers, self._submitted = self._submitted, set()
        for connection in (self._connections[peer] for peer in peers):
            if not connection.failure:
                self._guard(connection, self._flush)
            if not connection.failure and connection.waiting_for is not None:
                self._guard(connection, self._resume)

    def _guard(self, connection: Connection, work: Any) -> None:
        """Do a piece of socket work; a connection that breaks is taken out and says why."""
        try:
            work(connection)
            self._watch(connection)
        except (OSError, FrameError) as error:
            if connection.sock.fileno() in self._selector.get_map():
                self._selector.unregister(connection.sock)
            connection.sock.close()
            with self._changed:
                connection.failure = str(error)
                self._changed.notify_all()

    def _watch(self, connection: Connection) -> None:
        """Wait for what the connection can use: data unless a receive is missing, room only when there is output."""
        events = selectors.EVENT_READ if connection.waiting_for is None else 0
        events |= selectors.EVENT_WRITE if connection.outbox else 0
        watched = self._selector.get_map().get(connection.sock.fileno())
        if watched is None:
            if events:
                self._selector.register(connection.sock, events, connection)
        elif not events:
            self._selector.unregister(connection.sock)
        elif watched.events != events:
            self._selector.modify(connection.sock, events, connection)

    def _flush(self, connection: Connection) -> None:
        with self._changed:
            done = connection.flush()
            if done:
                resent = connection.take_resent_bytes()
                end_s = time.monotonic()
                messages = [message for message in done if not message.acknowledges]
                for position, message in enumerate(messages):
                    self._complete_send(connection.peer, message, resent if position == 0 else 0, end_s)
                self._changed.notify_all()

    def _fill(self, connection: Connection) -> None:
        whole = connection.fill(self._lookup)
        if connection.came:
            self._credit_back(connection)
        if whole:
            end_s = time.monotonic()
            with self._changed:
                for key, posting in whole:
                    size = posting.size_bytes
                    self._completions.append(
                        Completion(connection.peer, key, True, size, size, 0, 0, 0, posting.start_s, end_s)
                    )
                    if self._credit is not None and key.leg is Leg.PUSH:
                        self._let_go([(connection.peer, has_come(key, end_s))])
                self._changed.notify_all()

    def _credit_back(self, connection: Connection) -> None:
        """Messages have come, says the peer: others may go in their place."""
        came, connection.came = connection.came, []
        with self._changed:
            for key in came:
                try:
                    free = self._credit.came(connection.peer, key) if self._credit is not None else []
                except KeyError:
                    raise FrameError(f"a frame says that {_name(key)} has come, which was not under way") from None
                self._let_go(free)

    def _resume(self, connection: Connection) -> None:
        if connection.resume(self._lookup):
            self._fill(connection)

    def _lookup(self, peer: int, key: MessageKey, size_bytes: int) -> Posting | None:
        elements, dtype, variable = self._agreed.get(key.tensor, UNKNOWN)
        bytes_each = element_bytes(dtype)
        expected = elements * bytes_each
        fits = size_bytes == expected or (variable and size_bytes < expected and size_bytes % bytes_each == 0)
        if not fits or not size_bytes:
            raise FrameError(f"a frame of {_name(key)} carries {size_bytes} bytes, agreed were {expected}")
        with self._changed:
            found = self._postings.pop((peer, key), None)
            # Noted under the lock: a receive that is registered from here on must see that it is waited for.
            self._connections[peer].waiting_for = None if found else key
            return found

    def _complete_send(self, peer: int, message: Outgoing, resent_bytes: int, end_s: float) -> None:
        size = message.size_bytes
        self._completions.append(
            Completion(peer, message.key, False, size, size, 0, resent_bytes, 0, message.start_s, end_s)
        )


def _close_all(sockets: dict[int, socket.socket]) -> None:
    for sock in sockets.values():
        sock.close()


def _name(key: MessageKey) -> str:
    step = f", step {key.step}" if key.step else ""
    return f"tensor {key.tensor} ({key.leg.name.lower()} of iteration {key.iteration}{step})"

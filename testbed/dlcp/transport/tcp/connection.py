"""One TCP connection's framing: messages out in the order they were handed over, messages in to registered buffers.

Driven by one I/O thread (endpoint.py); has no thread and no clock of its own. A frame is a 16-byte header, the
contributors of each packet if the header says so (uint16), and the elements: both little-endian, as they lie in memory.
"""

from __future__ import annotations

import socket
import struct
from collections.abc import Callable

from dlcp.transport.contract.endpoint import Leg, MessageKey
from dlcp.transport.tcp.posted_receive import Posting
from dlcp.transport.tcp.send_queue import Order, Outbox, Outgoing, first_in_first_out
from dlcp.transport.tcp.socket_info import read_tcp_info

FRAME = struct.Struct("!BBHIII")
"""Leg, whether contributors follow (0 or 1), step, iteration, tensor, bytes of the elements."""
CAME = 16
"""Added to the leg: this frame is no message, but says that the one of this name has come; 0 bytes follow."""
GATHER = 16
"""Buffers handed to one sendmsg; far below IOV_MAX (1024)."""
WAKE_BYTES = 32_768
"""Unread bytes that wake the I/O thread in the middle of a message (SO_RCVLOWAT): one wake-up for about 22 packets
instead of one each, and well below the kernel's default receive buffer, so that the window stays open."""


class FrameError(Exception):
    """What came over a connection is no frame of this job; the connection cannot be used any more."""


Lookup = Callable[[int, MessageKey, int], Posting | None]
"""(peer, key, bytes of the elements) → the registered receive; None = not yet; FrameError = there never will be one.
It sets or clears `waiting_for`, under the lock that receives are registered under."""


class Connection:
    """One peer's connection. `failure` is empty while it works, else the reason why it does not.

    outbox: messages not yet handed to the kernel whole. waiting_for: a message whose receive is not registered
    yet; reading stops until it is, as the kernel's receive window would. came: messages of which the peer has said that
    they have come, since somebody emptied it.
    """

    def __init__(self, peer: int, sock: socket.socket, order: Order = first_in_first_out) -> None:
        self.peer = peer
        self.sock = sock
        self.failure = ""
        self.outbox = Outbox(order)
        self.came: list[MessageKey] = []
        self.waiting_for: MessageKey | None = None
        self.sent_bytes = 0
        self.received_bytes = 0
        self._header = bytearray(FRAME.size)
        self._into = memoryview(self._header)
        self._filled = 0
        self._rest: list[memoryview] = []
        self._size_bytes = 0
        self._counted = False
        self._key: MessageKey | None = None
        self._posting: Posting | None = None
        self._low_water = 1
        self._resent_bytes = 0

    def flush(self) -> list[Outgoing]:
        """Hand the kernel what it takes; returns the messages that it took whole. OSError when the peer is gone."""
        done: list[Outgoing] = []
        while self.outbox:
            try:
                sent = self.sock.sendmsg(self.outbox.parts(GATHER))
            except BlockingIOError:
                return done
            self.sent_bytes += sent
            done += self.outbox.sent(sent)
        return done

    def fill(self, lookup: Lookup) -> list[tuple[MessageKey, Posting]]:
        """Read what has come; returns the messages that are whole.

        Raises FrameError for bytes that are no frame of this job, ConnectionResetError when the peer has hung up.
        """
        whole: list[tuple[MessageKey, Posting]] = []
        while self.waiting_for is None:
            try:
                count = self.sock.recv_into(self._into[self._filled :])
            except BlockingIOError:
                break
            if count == 0:
                raise ConnectionResetError("the peer closed the connection")
            self._filled += count
            self.received_bytes += count
            if self._filled < len(self._into):
                continue
            if self._rest:
                self._into, self._filled = self._rest.pop(0), 0
            elif self._posting is not None and self._key is not None:
                self._posting.settle()
                whole.append((self._key, self._posting))
                self._expect_header()
            else:
                self._read_header(lookup)
        self._set_low_water()
        return whole

    def resume(self, lookup: Lookup) -> bool:
        """Look again for the receive that reading waits for; True when it is there."""
        if self.waiting_for is None:
            return False
        self._expect_payload(lookup, self.waiting_for)
        return self.waiting_for is None

    def take_resent_bytes(self) -> int:
        """Bytes that the kernel sent again since the last call."""
        total = read_tcp_info(self.sock).resent_bytes
        before, self._resent_bytes = self._resent_bytes, total
        return total - before

    @property
    def incoming(self) -> MessageKey | None:
        """The message whose payload is arriving, if one is."""
        return self._key

    def _read_header(self, lookup: Lookup) -> None:
        leg, counted, step, iteration, tensor, size_bytes = FRAME.unpack(self._header)
        if leg - CAME in (Leg.PUSH, Leg.PULL):
            if counted or size_bytes:
                raise FrameError(f"a frame that says what has come carries {size_bytes} bytes")
            self.came.append(MessageKey(iteration, tensor, Leg(leg - CAME), step))
            self._expect_header()
            return
        if leg not in (Leg.PUSH, Leg.PULL):
            raise FrameError(f"a frame names leg {leg}")
        if counted > 1:
            raise FrameError(f"a frame says {counted} where only 0 or 1 can stand")
        self._size_bytes, self._counted = size_bytes, bool(counted)
        self._expect_payload(lookup, MessageKey(iteration, tensor, Leg(leg), step))

    def _expect_payload(self, lookup: Lookup, key: MessageKey) -> None:
        posting = lookup(self.peer, key, self._size_bytes)
        if posting is not None:
            self._into, *self._rest = posting.targets(self._counted, self._size_bytes)
            self._key, self._posting, self._filled = key, posting, 0

    def _expect_header(self) -> None:
        self._key, self._posting, self._into, self._filled = None, None, memoryview(self._header), 0

    def _set_low_water(self) -> None:
        wanted = min(len(self._into) - self._filled, WAKE_BYTES)
        if wanted > 0 and wanted != self._low_water:
            self.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, wanted)
            self._low_water = wanted


def frame(key: MessageKey, elements: memoryview, counts: memoryview | None, start_s: float) -> Outgoing:
    """A message ready to be sent; the elements are not copied. counts: its contributors, if it carries them."""
    header = FRAME.pack(key.leg, counts is not None, key.step, key.iteration, key.tensor, len(elements))
    parts = [memoryview(header), elements] if counts is None else [memoryview(header), counts, elements]
    return Outgoing(key, parts, len(elements), start_s)


def has_come(key: MessageKey, now_s: float) -> Outgoing:
    """The acknowledgement of a message, ready to be sent."""
    header = FRAME.pack(key.leg + CAME, False, key.step, key.iteration, key.tensor, 0)
    return Outgoing(key, [memoryview(header)], 0, now_s, acknowledges=True)

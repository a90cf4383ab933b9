"""How TCP connections of a job come to be: who connects to whom, and the proof that both belong to the job.

Each side sends a hello (magic, version, rank, job cookie) and checks the other's cookie in constant time; a stranger
is hung up on and counted. Everything is bounded by a deadline.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import hmac
import selectors
import socket
import struct
import time
from dataclasses import dataclass, field

from dlcp.transport.contract.endpoint import TransportError

HELLO = struct.Struct("!4sHxxIQ")
"""Magic, version, rank, job cookie."""
MAGIC = b"DLCP"
VERSION = 1
RETRY_INTERVAL_S = 0.05
MAX_PENDING = 64
"""Connections whose hello has not come yet; beyond it new ones are hung up on."""
SOURCE_PORTS = range(20_000, 32_000)
"""Below Linux's ephemeral range, so that nobody else draws from it."""
SOURCE_PORT_TRIES = 64


@dataclass
class Identity:
    """Who this end is: rank and job cookie. rejected counts connections that could not prove theirs."""

    rank: int
    cookie: int
    rejected: int = 0

    def hello(self) -> bytes:
        """The bytes that this end sends first."""
        return HELLO.pack(MAGIC, VERSION, self.rank, self.cookie)

    def peer_rank(self, hello: bytes) -> int | None:
        """The rank that a hello proves, or None. The cookie is compared in constant time."""
        magic, version, rank, cookie = HELLO.unpack(hello)
        same = hmac.compare_digest(cookie.to_bytes(8, "big"), self.cookie.to_bytes(8, "big"))
        return rank if magic == MAGIC and version == VERSION and same else None


@dataclass
class _Pending:
    """A connection whose hello is still arriving."""

    sock: socket.socket
    hello: bytearray = field(default_factory=bytearray)


def listen(address: str, port: int, congestion_control: str) -> socket.socket:
    """A listening socket; what it accepts inherits the congestion control. OSError when the port is taken."""
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion_control.encode())
        listener.bind((address, port))
        listener.listen(MAX_PENDING)
        listener.setblocking(False)
    except OSError:
        listener.close()
        raise
    return listener


def connect(
    identity: Identity, own_address: str, peer: int, target: tuple[str, int], congestion_control: str, deadline_s: float
) -> socket.socket:
    """Connect to a peer and send the hello; tries again while nobody listens there, until the deadline.

    The source port follows from the job cookie and the two ranks, so that flow-hash switches put the same
    connection of paired runs on the same path. TransportError names the rank when the deadline passes.
    """
    reason, skip = "no try was made", 0
    while (left_s := deadline_s - time.monotonic()) > 0:
        sock = _bound_socket(identity, own_address, peer, skip)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, congestion_control.encode())
            sock.settimeout(left_s)
            sock.connect(target)
            sock.sendall(identity.hello())
            return sock
        except OSError as error:
            sock.close()
            reason = str(error)
            skip += error.errno == errno.EADDRNOTAVAIL  # an earlier connection of this port pair is in TIME_WAIT
            if error.errno not in (errno.ECONNREFUSED, errno.EADDRNOTAVAIL, errno.ECONNRESET, errno.ETIMEDOUT):
                break
        time.sleep(min(RETRY_INTERVAL_S, max(0.0, deadline_s - time.monotonic())))
    raise TransportError(f"rank {identity.rank}: cannot connect to rank {peer} at {target[0]}:{target[1]}: {reason}")


def confirm(identity: Identity, peer: int, sock: socket.socket, deadline_s: float) -> None:
    """Read the peer's hello on a connection that this end opened; TransportError when it does not prove to be peer."""
    hello = bytearray()
    while len(hello) < HELLO.size:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0:
            raise TransportError(f"rank {identity.rank}: rank {peer} sent no hello in time")
        sock.settimeout(left_s)
        with contextlib.suppress(TimeoutError):
            part = sock.recv(HELLO.size - len(hello))
            if not part:
                raise TransportError(f"rank {identity.rank}: rank {peer} hung up on our hello (another job's cookie?)")
            hello += part
    if identity.peer_rank(bytes(hello)) != peer:
        raise TransportError(f"rank {identity.rank}: whoever listens at rank {peer}'s address is not rank {peer}")


def accept(
    identity: Identity, listener: socket.socket, expected: set[int], deadline_s: float
) -> dict[int, socket.socket]:
    """Wait for a connection with a valid hello from every expected rank, and answer each.

    Strangers, a wrong cookie and a rank that is not expected or came before are hung up on. TransportError names
    the ranks that are missing when the deadline passes.
    """
    accepted: dict[int, socket.socket] = {}
    with selectors.DefaultSelector() as selector:
        selector.register(listener, selectors.EVENT_READ)
        try:
            while missing := expected - accepted.keys():
                left_s = deadline_s - time.monotonic()
                if left_s <= 0:
                    raise TransportError(
                        f"rank {identity.rank}: no connection from rank {', '.join(map(str, sorted(missing)))} in time"
                        + (f" ({identity.rejected} connections rejected)" if identity.rejected else "")
                    )
                for found, _ in selector.select(left_s):
                    if found.data is None:
                        _take(listener, selector)
                    else:
                        _read_hello(identity, found.data, selector, missing, accepted)
        except BaseException:
            for sock in accepted.values():
                sock.close()
            raise
        finally:
            for found in list(selector.get_map().values()):
                if found.data is not None:
                    found.data.sock.close()
    return accepted


def _take(listener: socket.socket, selector: selectors.BaseSelector) -> None:
    with contextlib.suppress(BlockingIOError):
        sock, _ = listener.accept()
        if len(selector.get_map()) > MAX_PENDING:
            sock.close()
            return
        sock.setblocking(False)
        selector.register(sock, selectors.EVENT_READ, _Pending(sock))


def _read_hello(
    identity: Identity,
    pending: _Pending,
    selector: selectors.BaseSelector,
    missing: set[int],
    accepted: dict[int, socket.socket],
) -> None:
    """Take what has come of a hello; when it is whole, the connection is accepted or hung up on."""
    try:
        part = pending.sock.recv(HELLO.size - len(pending.hello))
    except BlockingIOError:
        return
    except OSError:
        part = b""
    pending.hello += part
    if part and len(pending.hello) < HELLO.size:
        return
    selector.unregister(pending.sock)
    rank = identity.peer_rank(bytes(pending.hello)) if len(pending.hello) == HELLO.size else None
    if rank is None or rank not in missing or rank in accepted:
        identity.rejected += 1
        pending.sock.close()
        return
    pending.sock.setblocking(True)
    pending.sock.sendall(identity.hello())  # 20 bytes into an empty socket buffer: cannot block
    accepted[rank] = pending.sock


def _bound_socket(identity: Identity, own_address: str, peer: int, skip: int) -> socket.socket:
    """A socket bound to the first free of this pair's source ports, after skipping some."""
    for attempt in range(skip, SOURCE_PORT_TRIES):
        seed = struct.pack("!QIII", identity.cookie, identity.rank, peer, attempt)
        digest = int.from_bytes(hashlib.sha256(seed).digest()[:8], "big")
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM | socket.SOCK_CLOEXEC)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            sock.bind((own_address, SOURCE_PORTS[digest % len(SOURCE_PORTS)]))
            return sock
        except OSError as error:
            sock.close()
            if error.errno != errno.EADDRINUSE:
                raise TransportError(f"rank {identity.rank}: cannot bind to {own_address}: {error}") from error
    raise TransportError(f"rank {identity.rank}: none of {SOURCE_PORT_TRIES} source ports at {own_address} is free")

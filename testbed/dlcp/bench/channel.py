"""How the two ends of a bench speak: JSON frames over a stream socket, each authenticated when hosts are apart.

Nothing is done for a peer that has not proven the key: both sides answer the other's challenge (HMAC-SHA256), and
every frame after that carries a tag under a key of this connection alone. The key itself never crosses the network.
Frames are not encrypted: they hold parameters and counters.
"""

from __future__ import annotations

import hashlib
import hmac
import json
import secrets
import select
import socket
import struct
import time
from typing import Any

from dlcp.errors import ExitCode, Problem

_LENGTH = struct.Struct("!I")
_COUNT = struct.Struct("!Q")
_NONCE_BYTES = 32
_TAG_BYTES = 32
_MOST_BYTES = 64_000_000
_SENT_WITHIN_S = 60.0
"""A peer that reads nothing for so long is gone."""
_PROOF_WITHIN_S = 5.0
"""A peer that has connected must prove the key so soon; others wait behind it."""
_VERSION = b"dlcp bench 1 "


class ChannelClosed(Problem):
    """The other end is gone, or says what no end says."""

    def __init__(self, name: str, what: str) -> None:
        super().__init__(name, what, exit_code=ExitCode.RUN_FAILED)


class WrongKey(ChannelClosed):
    """The other side could not prove the key."""


class Channel:
    """One end of a control connection. name: whom it leads to, for messages.

    session: the key of this connection; None where only the maker of a socket pair can be at the other end.
    """

    def __init__(self, sock: socket.socket, name: str, session: bytes | None = None) -> None:
        self.sock = sock
        self.sock.settimeout(_SENT_WITHIN_S)
        self.name = name
        self._session = session
        self._sent = 0
        self._received = 0
        self._own = self._theirs = b""

    @classmethod
    def accepted(cls, sock: socket.socket, key: bytes, name: str) -> Channel:
        """The listener's side of a new connection. Raises WrongKey (the caller closes the socket)."""
        nonce = secrets.token_bytes(_NONCE_BYTES)
        deadline_s = time.monotonic() + _PROOF_WITHIN_S
        try:
            sock.settimeout(_PROOF_WITHIN_S)
            sock.sendall(nonce)
            answer = _exactly(sock, _NONCE_BYTES + _TAG_BYTES, deadline_s, name)
            peer_nonce, proof = answer[:_NONCE_BYTES], answer[_NONCE_BYTES:]
            knows = hmac.compare_digest(proof, _proof(key, b"connect", nonce, peer_nonce))
            if knows:
                sock.sendall(_proof(key, b"listen", nonce, peer_nonce))
        except (OSError, ChannelClosed) as error:
            why = error.what if isinstance(error, ChannelClosed) else str(error)
            raise WrongKey(name, f"did not prove the key: {why}") from error
        if not knows:
            raise WrongKey(name, "does not know the key")
        return cls._keyed(sock, name, key, nonce, peer_nonce, b"listen", b"connect")

    @classmethod
    def connected(cls, sock: socket.socket, key: bytes, name: str) -> Channel:
        """The side that has connected. Raises WrongKey."""
        deadline_s = time.monotonic() + _PROOF_WITHIN_S
        try:
            sock.settimeout(_PROOF_WITHIN_S)
            peer_nonce = _exactly(sock, _NONCE_BYTES, deadline_s, name)
            nonce = secrets.token_bytes(_NONCE_BYTES)
            sock.sendall(nonce + _proof(key, b"connect", peer_nonce, nonce))
            answer = _exactly(sock, _TAG_BYTES, deadline_s, name)
        except (OSError, ChannelClosed) as error:
            raise WrongKey(name, "hung up while keys were compared: the key is wrong, or it serves another") from error
        if not hmac.compare_digest(answer, _proof(key, b"listen", peer_nonce, nonce)):
            raise WrongKey(name, "does not know the key: this is not the listener that made it")
        return cls._keyed(sock, name, key, peer_nonce, nonce, b"connect", b"listen")

    @classmethod
    def _keyed(
        cls, sock: socket.socket, name: str, key: bytes, listener: bytes, connector: bytes, own: bytes, theirs: bytes
    ) -> Channel:
        channel = cls(sock, name, _proof(key, b"session", listener, connector))
        channel._own, channel._theirs = own, theirs
        return channel

    def send(self, message: dict[str, Any]) -> None:
        """Send one message. ChannelClosed when the other end is gone."""
        body = json.dumps(message).encode()
        try:
            self.sock.sendall(_LENGTH.pack(len(body)) + self._tag(self._own, self._sent, body) + body)
        except OSError as error:
            raise ChannelClosed(self.name, f"is gone: {error.strerror or error}") from error
        self._sent += 1

    def receive(self, within_s: float) -> dict[str, Any]:
        """The next message. ChannelClosed when the other end is gone, says nothing in time, or is not authentic."""
        deadline_s = time.monotonic() + within_s
        (length,) = _LENGTH.unpack(_exactly(self.sock, _LENGTH.size, deadline_s, self.name))
        if length > _MOST_BYTES:
            raise ChannelClosed(self.name, f"sends a message of {length} bytes; none has more than {_MOST_BYTES}")
        tag = _exactly(self.sock, _TAG_BYTES if self._session else 0, deadline_s, self.name)
        body = _exactly(self.sock, length, deadline_s, self.name)
        if not hmac.compare_digest(tag, self._tag(self._theirs, self._received, body)):
            raise ChannelClosed(self.name, "sends a message that does not carry the key's tag")
        self._received += 1
        try:
            message = json.loads(body)
        except ValueError:
            message = None
        if not isinstance(message, dict):
            raise ChannelClosed(self.name, "sends what is no message")
        return message

    def close(self) -> None:
        """Hang up."""
        self.sock.close()

    def _tag(self, side: bytes, number: int, body: bytes) -> bytes:
        if self._session is None:
            return b""
        return hmac.digest(self._session, side + _COUNT.pack(number) + body, hashlib.sha256)


def new_key() -> str:
    """A key for one listener: 128 bits, as text."""
    return secrets.token_hex(16)


def _proof(key: bytes, role: bytes, listener: bytes, connector: bytes) -> bytes:
    return hmac.digest(key, _VERSION + role + listener + connector, hashlib.sha256)


def _exactly(sock: socket.socket, count: int, deadline_s: float, name: str) -> bytes:
    received = bytearray()
    while len(received) < count:
        left_s = deadline_s - time.monotonic()
        if left_s <= 0 or not select.select([sock], [], [], left_s)[0]:
            raise ChannelClosed(name, "did not answer in time")
        try:
            part = sock.recv(count - len(received))
        except OSError as error:
            raise ChannelClosed(name, f"is gone: {error.strerror or error}") from error
        if not part:
            raise ChannelClosed(name, "has hung up")
        received += part
    return bytes(received)

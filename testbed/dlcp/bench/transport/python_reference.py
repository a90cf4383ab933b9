"""The reference: DLCP's packets moved by Python alone, one sendmsg and one recvmsg_into each, with the same header.

What a script without native code would do, as fast as that goes: no acknowledgement by packet, a credit every 64
packets, nothing sent again. It is a yardstick for CPU time, not a transport.
"""

from __future__ import annotations

import select
import socket
import struct
import time
from typing import Any

from dlcp.transport._native import lib

_HEADER = struct.Struct("!BBHIIHBBIHHII")
"""DATA as wire.h lays it out."""
_CREDIT = struct.Struct("!BBHII")
_VERSION_DATA = lib.DLCP_WIRE_VERSION << 4 | lib.DLCP_DATA
_VERSION_ACK = lib.DLCP_WIRE_VERSION << 4 | lib.DLCP_ACK
_VERSION_DONE = lib.DLCP_WIRE_VERSION << 4 | lib.DLCP_DONE
_VERSION_STOP = lib.DLCP_WIRE_VERSION << 4 | lib.DLCP_STOP
_PAYLOAD = lib.DLCP_PAYLOAD_BYTES
_WINDOW_PACKETS = 1024
_CREDIT_EVERY = 64
_STALL_S = 0.02
"""No credit for so long: what is out is lost; this reference does not look for it."""
_BUFFER_BYTES = 8_000_000
_FULL_WITHIN_S = 60.0


def open_socket(address: str) -> socket.socket:
    """A UDP socket with the engine's wish for receive buffer."""
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    sock.bind((address, 0))
    try:
        sock.setsockopt(socket.SOL_SOCKET, 33, _BUFFER_BYTES)  # SO_RCVBUFFORCE
    except OSError:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _BUFFER_BYTES)
    return sock


def send(sock: socket.socket, peer: tuple[str, int], data: memoryview, cookie: int, messages: int) -> dict[str, Any]:
    """Send the bytes `messages` times; returns packets, seconds and the bytes that the receiver says it has."""
    header = bytearray(_HEADER.size)
    tos = [(socket.IPPROTO_IP, socket.IP_TOS, struct.pack("i", int(lib.dlcp_tos(3, 0, lib.DLCP_ECN_NOT_ECT))))]
    packets = -(-len(data) // _PAYLOAD)
    sent = credited = 0
    begun_s = time.monotonic()
    for message in range(messages):
        for packet in range(packets):
            while sent - credited >= _WINDOW_PACKETS:
                credited = _credit(sock, credited) or sent
            payload = data[packet * _PAYLOAD : (packet + 1) * _PAYLOAD]
            now_us = time.monotonic_ns() // 1000 & 0xFFFF_FFFF
            _HEADER.pack_into(
                header,
                0,
                _VERSION_DATA,
                0,
                0,
                cookie,
                message,
                0,
                0,
                0,
                packet * (_PAYLOAD // 4),
                len(payload) // 4,
                0,
                sent & 0xFFFF_FFFF,
                now_us,
            )
            sock.sendmsg((header, payload), tos, 0, peer)
            sent += 1
    return {"packets": sent, "received_bytes": _finish(sock, peer, cookie), "seconds": time.monotonic() - begun_s}


def receive(sock: socket.socket, buffer: memoryview, cookie: int) -> dict[str, Any]:
    """Place packets into the buffer until the sender says that it is done; returns packets and bytes."""
    header, payload = bytearray(_HEADER.size), bytearray(_PAYLOAD)
    parts = (header, payload)
    view = memoryview(payload)
    packets = received_bytes = 0
    sock.settimeout(_FULL_WITHIN_S)
    while True:
        size, _, _, source = sock.recvmsg_into(parts, 64)
        kind, _, _, owner, _, _, _, _, offset, count, _, _, _ = _HEADER.unpack(header)
        if owner != cookie:
            continue
        if kind == _VERSION_DONE:
            sock.sendto(_CREDIT.pack(_VERSION_STOP, 0, 1, cookie, received_bytes & 0xFFFF_FFFF), source)
            return {"packets": packets, "bytes": received_bytes}
        length = count * 4
        if kind != _VERSION_DATA or size != _HEADER.size + length or offset * 4 + length > len(buffer):
            continue
        buffer[offset * 4 : offset * 4 + length] = view[:length]
        packets += 1
        received_bytes += length
        if packets % _CREDIT_EVERY == 0:
            sock.sendto(_CREDIT.pack(_VERSION_ACK, 0, 1, cookie, packets), source)


def _credit(sock: socket.socket, credited: int) -> int:
    """The newest count of packets that arrived; 0 when none came in time."""
    if not select.select([sock], [], [], _STALL_S)[0]:
        return 0
    kind, _, _, _, count = _CREDIT.unpack(sock.recv(_CREDIT.size))
    return max(credited, count) if kind == _VERSION_ACK else credited


def _finish(sock: socket.socket, peer: tuple[str, int], cookie: int) -> int:
    """Say that all is sent, until the receiver answers what it has."""
    done = _HEADER.pack(_VERSION_DONE, 0, 0, cookie, 0, 0, 0, 0, 0, 0, 0, 0, 0)
    for _ in range(100):
        sock.sendto(done, peer)
        while select.select([sock], [], [], _STALL_S)[0]:
            kind, _, _, _, count = _CREDIT.unpack(sock.recv(_CREDIT.size))
            if kind == _VERSION_STOP:
                return int(count)
    raise TimeoutError("the receiver of the Python reference does not answer")

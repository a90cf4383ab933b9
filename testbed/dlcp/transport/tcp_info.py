"""What the kernel knows of a TCP connection: struct tcp_info (linux/tcp.h, UAPI), the fields that a report needs."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

_OPTIONS_OFFSET = 5
_WORDS_OFFSET = 8
_WORDS = struct.Struct("=24I")
_BYTES_OFFSET = 200
"""tcpi_bytes_sent and tcpi_bytes_retrans (Linux 4.19 and newer)."""
_SIZE = _BYTES_OFFSET + 16
_OPTION_ECN = 8
_RTO, _RTT, _CWND, _TOTAL_RETRANS = 0, 15, 18, 23


@dataclass(frozen=True)
class TcpInfo:
    """One reading. Times in seconds; cwnd_packets: congestion window; sent and resent: since the connection's start."""

    rto_s: float
    rtt_s: float
    cwnd_packets: int
    resent_packets: int
    sent_bytes: int
    resent_bytes: int
    ecn: bool


def read_tcp_info(sock: socket.socket) -> TcpInfo:
    """Ask the kernel. OSError when the socket is closed; RuntimeError when the kernel is older than 4.19."""
    raw = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SIZE)
    if len(raw) < _SIZE:
        raise RuntimeError(f"struct tcp_info has {len(raw)} bytes, not {_SIZE}: Linux 4.19 or newer is needed")
    words = _WORDS.unpack_from(raw, _WORDS_OFFSET)
    sent, resent = struct.unpack_from("=QQ", raw, _BYTES_OFFSET)
    return TcpInfo(
        rto_s=words[_RTO] / 1e6,
        rtt_s=words[_RTT] / 1e6,
        cwnd_packets=words[_CWND],
        resent_packets=words[_TOTAL_RETRANS],
        sent_bytes=sent,
        resent_bytes=resent,
        ecn=bool(raw[_OPTIONS_OFFSET] & _OPTION_ECN),
    )

"""What the kernel knows of a TCP connection: struct tcp_info (linux/tcp.h, UAPI), the fields that a report needs."""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass

from dlcp.model.frames import TCP_OVERHEAD_BYTES, TCP_TIMESTAMPS_BYTES

_OPTIONS_OFFSET = 5
_WORDS_OFFSET = 8
_WORDS = struct.Struct("=24I")
_RECEIVED = struct.Struct("=QII")
_RECEIVED_OFFSET = 128
"""tcpi_bytes_received, tcpi_segs_out, tcpi_segs_in."""
_BYTES_OFFSET = 200
"""tcpi_bytes_sent and tcpi_bytes_retrans (Linux 4.19 and newer)."""
_SIZE = _BYTES_OFFSET + 16
_OPTION_TIMESTAMPS, _OPTION_ECN = 1, 8
_RTO, _RTT, _CWND, _TOTAL_RETRANS = 0, 15, 18, 23


@dataclass(frozen=True)
class TcpInfo:
    """One reading. Times in seconds; cwnd_packets: congestion window; sent, received and resent: since the
    connection's start. sent_bytes, resent_bytes, received_bytes: payload; received_bytes without what came twice.
    header_bytes: of one segment, from Ethernet's on, but for the options of a lost segment's neighbours (SACK).
    """

    rto_s: float
    rtt_s: float
    cwnd_packets: int
    resent_packets: int
    sent_bytes: int
    resent_bytes: int
    sent_packets: int
    received_packets: int
    received_bytes: int
    header_bytes: int
    ecn: bool


def read_tcp_info(sock: socket.socket) -> TcpInfo:
    """Ask the kernel. OSError when the socket is closed; RuntimeError when the kernel is older than 4.19."""
    raw = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _SIZE)
    if len(raw) < _SIZE:
        raise RuntimeError(f"struct tcp_info has {len(raw)} bytes, not {_SIZE}: Linux 4.19 or newer is needed")
    words = _WORDS.unpack_from(raw, _WORDS_OFFSET)
    sent, resent = struct.unpack_from("=QQ", raw, _BYTES_OFFSET)
    received_bytes, sent_packets, received_packets = _RECEIVED.unpack_from(raw, _RECEIVED_OFFSET)
    options = raw[_OPTIONS_OFFSET]
    return TcpInfo(
        rto_s=words[_RTO] / 1e6,
        rtt_s=words[_RTT] / 1e6,
        cwnd_packets=words[_CWND],
        resent_packets=words[_TOTAL_RETRANS],
        sent_bytes=sent,
        resent_bytes=resent,
        sent_packets=sent_packets,
        received_packets=received_packets,
        received_bytes=received_bytes,
        header_bytes=TCP_OVERHEAD_BYTES - (0 if options & _OPTION_TIMESTAMPS else TCP_TIMESTAMPS_BYTES),
        ecn=bool(options & _OPTION_ECN),
    )

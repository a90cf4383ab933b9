"""Sizes of the packets on a link: Python's one home for them, known without the C core.

DLCP's own sizes are those of native/wire.h, and the background's those of native/traffic/traffic.h;
tests/fast/test_one_rule.py compares them, and refuses a second definition.
"""

from __future__ import annotations

MTU_BYTES = 1500
ETHERNET_BYTES, IPV4_BYTES, UDP_BYTES, TCP_BYTES = 14, 20, 8, 20
"""Headers, without Ethernet's preamble, FCS and gap."""
TCP_TIMESTAMPS_BYTES = 12
"""TCP's timestamp option, padded, in every segment."""
FRAME_BYTES = ETHERNET_BYTES + MTU_BYTES
"""A full Ethernet frame, as a queue and tc count it: 1514."""
UDP_OVERHEAD_BYTES = ETHERNET_BYTES + IPV4_BYTES + UDP_BYTES
"""Bytes of a frame around a datagram: 42."""
TCP_OVERHEAD_BYTES = ETHERNET_BYTES + IPV4_BYTES + TCP_BYTES + TCP_TIMESTAMPS_BYTES
"""Bytes of a frame around a TCP segment with timestamps: 66."""
TCP_PAYLOAD_BYTES = FRAME_BYTES - TCP_OVERHEAD_BYTES
"""Payload of a full TCP segment with timestamps: 1448."""
DATAGRAM_BYTES = FRAME_BYTES - UDP_OVERHEAD_BYTES
"""The largest datagram: 1472."""
HEADER_BYTES = 32
"""DLCP's header (wire.h)."""
PAYLOAD_BYTES = DATAGRAM_BYTES - HEADER_BYTES
"""Payload of DLCP's full packet (wire.h): 1440."""

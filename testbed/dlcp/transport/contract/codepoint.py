"""codepoint.h for Python: DSCP ⇄ (queue, drop precedence). The rule itself stands in the header alone."""

from __future__ import annotations

from dlcp.transport._native import lib

NOT_ECT, ECT0, CE = int(lib.DLCP_ECN_NOT_ECT), int(lib.DLCP_ECN_ECT0), int(lib.DLCP_ECN_CE)


def tos_of_queue(queue: int, precedence: int = 0, ecn: int = NOT_ECT) -> int:
    """The IPv4 TOS byte of packets of a queue. ValueError when there is no such queue."""
    if not 0 <= queue < lib.DLCP_QUEUES:
        raise ValueError(f"queue {queue} does not exist: queues are 0 to {lib.DLCP_QUEUES - 1}")
    return int(lib.dlcp_tos(queue, precedence, ecn))


def queue_of_dscp(dscp: int) -> int:
    """The queue of a codepoint, 0 to 63."""
    return int(lib.dlcp_dscp_queue(dscp))


def precedence_of_dscp(dscp: int) -> int:
    """The drop precedence of a codepoint, 0 to 63."""
    return int(lib.dlcp_dscp_precedence(dscp))

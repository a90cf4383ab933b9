"""codepoint.h for Python: DSCP ⇄ (queue, drop precedence). The rule itself stands in the header alone."""

from __future__ import annotations

from dlcp.transport._native import lib


def tos_of_queue(queue: int) -> int:
    """The IPv4 TOS byte of Not-ECT packets of a queue, drop precedence 0. ValueError when there is no such queue."""
    if not 0 <= queue < lib.DLCP_QUEUES:
        raise ValueError(f"queue {queue} does not exist: queues are 0 to {lib.DLCP_QUEUES - 1}")
    return int(lib.dlcp_tos(queue, 0, lib.DLCP_ECN_NOT_ECT))

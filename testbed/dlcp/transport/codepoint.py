"""codepoint.h for Python: DSCP ⇄ (queue, drop precedence). The rule itself stands in the header alone."""

from __future__ import annotations


def tos_of_queue(queue: int) -> int:
    """The IPv4 TOS byte of Not-ECT packets of a queue, drop precedence 0."""
    return queue << 5

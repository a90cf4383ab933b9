"""DLCP whose switches tell droppable packets by their ECN codepoint."""

from dlcp.schemes.dlcp import with_defaults

SCHEME = with_defaults(
    "DLCP by ECN codepoint",
    "As DLCP, but droppable packets are Not-ECT and all others ECN-capable: one ECN threshold drops the ones and marks "
    "the others, without drop precedences (WRED).",
    selective_drop="ect",
)

"""DLCP whose packets are all alike to a switch."""

from dlcp.schemes.dlcp import without

SCHEME = without("drop")

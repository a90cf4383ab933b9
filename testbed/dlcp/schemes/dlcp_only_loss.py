"""Bounded loss alone."""

from dlcp.schemes.dlcp import without

SCHEME = without("priority", "drop", "spray")

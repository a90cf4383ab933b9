"""Selective dropping alone."""

from dlcp.schemes.dlcp import without

SCHEME = without("loss", "priority", "spray")

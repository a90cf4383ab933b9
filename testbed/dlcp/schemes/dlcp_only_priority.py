"""Queues by layer alone."""

from dlcp.schemes.dlcp import without

SCHEME = without("loss", "drop", "spray")

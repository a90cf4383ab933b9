"""DLCP with all layers in one queue."""

from dlcp.schemes.dlcp import without

SCHEME = without("priority")

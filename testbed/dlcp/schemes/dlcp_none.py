"""DLCP's engine with all of DLCP's parts switched off."""

from dlcp.schemes.dlcp import without

SCHEME = without("loss", "priority", "drop", "spray")

"""DLCP on one path a flow."""

from dlcp.schemes.dlcp import without

SCHEME = without("spray")

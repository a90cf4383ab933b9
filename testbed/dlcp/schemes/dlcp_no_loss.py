"""DLCP with a bound of 0: what switches drop first is sent again."""

from dlcp.schemes.dlcp import without

SCHEME = without("loss")

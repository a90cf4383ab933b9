"""Gradient compression: one file = one method, found by its file's name."""

from __future__ import annotations

import importlib

from dlcp.model.workload import Compression
from dlcp.transport.compression.base import Compressor


def compressor_class(method: str) -> type[Compressor]:
    """The class COMPRESSOR of a method's file."""
    found = importlib.import_module(f"{__name__}.{method}").COMPRESSOR
    assert issubclass(found, Compressor), f"compression/{method}: COMPRESSOR is not a Compressor"
    return found  # type: ignore[no-any-return]


__all__ = ["Compression", "Compressor", "compressor_class"]

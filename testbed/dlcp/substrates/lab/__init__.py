"""Runs on the switches and hosts of a lab, over SSH."""

from dlcp.substrates.base import Traits

TRAITS = Traits(needs_lab=True, needs=("lab", "native_core"))

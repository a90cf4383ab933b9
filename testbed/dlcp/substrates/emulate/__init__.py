"""The emulated fabric: namespaces, links, eBPF switches, faults and monitors."""

from dlcp.substrates.base import Traits

TRAITS = Traits(emulates=True, usual=True, needs=("emulation", "native_core"))

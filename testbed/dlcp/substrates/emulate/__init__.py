"""The emulated fabric: namespaces, links, eBPF switches, faults and monitors."""

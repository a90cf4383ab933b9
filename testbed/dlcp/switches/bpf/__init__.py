"""The eBPF switch: its programs, their maps as ctypes, counters and conservation of packets."""

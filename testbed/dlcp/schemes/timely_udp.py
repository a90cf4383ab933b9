"""DLCP's engine with all of DLCP's parts switched off: a rival, for none of DLCP's ideas is in it."""

from dlcp.schemes.dlcp import PARTS, without

SCHEME = without(*PARTS)
SCHEME.title = "TIMELY over UDP"
SCHEME.paper = "Mittal et al., TIMELY: RTT-based Congestion Control for the Datacenter, SIGCOMM 2015"
SCHEME.mechanism = (
    "DLCP's engine without DLCP's ideas: all is delivered, one queue, one path a flow; the rate is controlled by "
    "delay, and losses are repaired by evidence. What DLCP gains over it is what DLCP's ideas gain."
)

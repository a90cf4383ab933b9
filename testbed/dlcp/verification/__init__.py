"""Verification of switches against a QoS intent, by probes: the packets to send, and the conclusions from arrivals.

Nothing here knows how a switch is made: probes and counters come through dlcp.verification.prober.
"""

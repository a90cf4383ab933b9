"""Whether switches do what a QoS intent says, by probes: what to send, and what to conclude from what arrives.

Nothing here knows how a switch is made: probes and counters come through dlcp.verification.prober.
"""

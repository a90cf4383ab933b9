"""Switches of a lab: a QoS intent as the configuration of a commodity switch, and what the switch makes of it."""

"""Switches: render a QoS intent for a device; build, configure and read the emulated switch."""

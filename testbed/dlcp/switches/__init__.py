"""What a switch does: render a QoS intent for a device; build, configure and read the emulated switch."""

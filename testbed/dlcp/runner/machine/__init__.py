"""This machine: what it can do, what a packet costs here, and experiments that fit it."""

"""Kernel TCP behind the Endpoint protocol."""

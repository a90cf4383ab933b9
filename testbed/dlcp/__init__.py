"""DLCP: loss-tolerant, gradient-aware transport for distributed DNN training, and its testbed."""

__version__ = "0.1.0"

"""Figures of a report, one file a kind."""

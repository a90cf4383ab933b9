"""Patterns of aggregation: parameter server, ring, transpose, and what they share."""

"""Stored results as tables: runs, digests, metrics, statistics, and numbers as people read them."""

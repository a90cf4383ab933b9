"""Agents: the process on each host, its jobs and background traffic, and the caller's side of it."""

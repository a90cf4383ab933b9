"""Processes in a host: the agent, the processes that it forks for ranks, and their parts."""

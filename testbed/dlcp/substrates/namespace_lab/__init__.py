"""A lab of namespaces on this machine, each node behind its own sshd."""

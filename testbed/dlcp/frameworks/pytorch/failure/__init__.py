"""Detection of failed peers: ranks that fail, end or leave are noticed by all others."""

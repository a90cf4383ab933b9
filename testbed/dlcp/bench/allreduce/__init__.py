"""`dlcp bench allreduce`: ranks in turn over DLCP and gloo."""

"""Plan, preflight, execute, store: what happens around the runs of an experiment."""

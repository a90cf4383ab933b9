"""An experiment file → its runs: checks, identities, durations."""

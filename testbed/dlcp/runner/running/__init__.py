"""Making runs: execution, the store of results, status, clean-up."""

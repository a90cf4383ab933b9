"""Data sets that real training jobs learn from, as Debian packages them: framework-free arrays."""

"""Places to run: one file = one substrate, and the parts that it is built from."""

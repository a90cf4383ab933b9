"""Places to run: one folder with a `substrate.py` = one substrate, and the parts that it is built from."""

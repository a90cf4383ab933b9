"""Background traffic: its plan, and the source and sink of the C core."""

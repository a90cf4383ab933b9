"""`dlcp bench transport` and `tagging`: DLCP between two endpoints, with a reference in turn."""

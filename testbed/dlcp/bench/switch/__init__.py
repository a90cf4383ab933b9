"""`dlcp bench switch`: the emulated switch's cost, capacity and delay."""

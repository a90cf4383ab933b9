"""What a plan will do, and whether it can, before anything is built."""

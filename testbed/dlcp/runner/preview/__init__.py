"""Preview of a plan: what it will do, and whether this machine can, before anything is built."""

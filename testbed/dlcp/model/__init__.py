"""Pure data: what an experiment says and what a run leaves behind. Imports nothing else of ours but errors."""

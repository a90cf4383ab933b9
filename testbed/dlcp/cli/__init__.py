"""The `dlcp` command: one file a group of commands; each parses, calls and prints."""

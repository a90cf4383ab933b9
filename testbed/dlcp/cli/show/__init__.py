"""Tables, lines, progress and JSON that commands print."""

"""Files that are written whole or not at all, and formats that are read within bounds."""

"""Private worlds for processes: namespaces, and process trees that end together."""

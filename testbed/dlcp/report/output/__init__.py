"""The forms of a report: terminal, HTML page, RESULTS.md."""

"""Questions that a report answers: who is better, by how much, why, and what was expected."""

"""Training in one process without a network, losses by rule."""

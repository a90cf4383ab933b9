"""Training frameworks: one file = how one framework's training loop pushes gradients and waits for parameters."""

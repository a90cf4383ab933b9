"""Training by parameter servers: an optimizer that pushes gradients and pulls parameters."""

"""Training frameworks: one module or package = how one framework's training goes over this transport."""

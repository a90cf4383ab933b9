"""Schemes that send compressed gradients over tuned TCP."""

"""Training jobs of experiments: real PyTorch workers under an agent."""

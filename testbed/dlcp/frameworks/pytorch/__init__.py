"""PyTorch over DLCP."""

from dlcp.frameworks.pytorch.training_job import Trainer, TrainingJob

__all__ = ["Trainer", "TrainingJob"]

"""PyTorch over DLCP. Importing this registers the backend `dlcp` with torch.distributed and changes nothing else."""

from dlcp.frameworks.pytorch.backend import register, statistics
from dlcp.frameworks.pytorch.ddp_hook import DlcpState, dlcp_hook
from dlcp.frameworks.pytorch.options import DlcpOptions
from dlcp.frameworks.pytorch.servers.optimizer import DlcpOptimizer
from dlcp.frameworks.pytorch.statistics import Carried, Statistics
from dlcp.frameworks.pytorch.training.framework import PyTorch
from dlcp.frameworks.pytorch.training.training_job import Trainer, TrainingJob

register()

FRAMEWORK = PyTorch()

__all__ = [
    "FRAMEWORK",
    "Carried",
    "DlcpOptimizer",
    "DlcpOptions",
    "DlcpState",
    "Statistics",
    "Trainer",
    "TrainingJob",
    "dlcp_hook",
    "statistics",
]

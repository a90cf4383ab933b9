"""A perceptron of two hidden layers on Fashion-MNIST, 784-128-64-10: 109,386 parameters, 313 packets of gradients; a
step of 32 images takes less than half a millisecond, so studies of many runs fit into minutes."""

from __future__ import annotations

from itertools import pairwise
from typing import TYPE_CHECKING

from dlcp.datasets.batches import Batches
from dlcp.datasets.fashion_mnist import images, labels, normalised

if TYPE_CHECKING:
    import torch

    from dlcp.agents.scripts import JobOptions
    from dlcp.frameworks.pytorch import TrainingJob

WIDTHS = (784, 128, 64, 10)
LAYERS = tuple((f"fc{n}", (a + 1) * b) for n, (a, b) in enumerate(pairwise(WIDTHS), start=1))

OUTPUT_DEVIATION = 0.05
"""Of the last layer's initial weights: all classes start about equally likely."""


def preload() -> None:
    """Read the images and run one step, so that an agent forked afterwards starts in milliseconds."""
    from dlcp.agents.scripts import JobOptions

    warm = job(JobOptions(seed=0, worker=0, workers=1, batch=32))
    inputs, wanted = warm.batch(0)
    warm.loss(warm.model(inputs), wanted).backward()  # type: ignore[no-untyped-call]
    images("t10k")


def job(options: JobOptions) -> TrainingJob:
    """One rank's model, data and loss; the same initial parameters at every rank with the same seed."""
    import torch

    from dlcp.frameworks.pytorch import TrainingJob

    torch.manual_seed(options.seed)
    layers = [torch.nn.Linear(a, b) for a, b in pairwise(WIDTHS)]
    for layer in layers:
        torch.nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
        torch.nn.init.zeros_(layer.bias)
    torch.nn.init.normal_(layers[-1].weight, std=OUTPUT_DEVIATION)
    relu = torch.nn.ReLU()
    model = torch.nn.Sequential(torch.nn.Flatten(), layers[0], relu, layers[1], relu, layers[2])

    batches = Batches(options)

    def batch(iteration: int) -> tuple[torch.Tensor, torch.Tensor]:
        found = labels("train")
        chosen = batches(found, iteration)
        return torch.from_numpy(normalised(images("train")[chosen])), torch.from_numpy(found[chosen])

    def test_set() -> tuple[torch.Tensor, torch.Tensor]:
        return torch.from_numpy(normalised(images("t10k"))), torch.from_numpy(labels("t10k"))

    return TrainingJob(model, list(layers), batch, test_set)

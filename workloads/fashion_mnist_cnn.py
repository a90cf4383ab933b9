"""A small CNN on Fashion-MNIST: two convolutions, two matrices, 52,138 parameters; a step of 16 images takes
milliseconds on one core, and its large matrix makes messages of tens of packets."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dlcp.datasets.batches import Batches
from dlcp.datasets.fashion_mnist import images, labels, normalised

if TYPE_CHECKING:
    import torch

    from dlcp.agents.scripts import JobOptions
    from dlcp.frameworks.pytorch import TrainingJob

LAYERS = (("conv1", 80), ("conv2", 1_168), ("fc1", 50_240), ("fc2", 650))

OUTPUT_DEVIATION = 0.05
"""Of the last layer's initial weights: all classes start about equally likely."""


def preload() -> None:
    """Read the images and run one step, so that an agent forked afterwards starts in milliseconds."""
    from dlcp.agents.scripts import JobOptions

    warm = job(JobOptions(seed=0, worker=0, workers=1, batch=16))
    inputs, wanted = warm.batch(0)
    warm.loss(warm.model(inputs), wanted).backward()  # type: ignore[no-untyped-call]
    images("t10k")


def job(options: JobOptions) -> TrainingJob:
    """One rank's model, data and loss; the same initial parameters at every rank with the same seed."""
    import torch

    from dlcp.frameworks.pytorch import TrainingJob

    torch.manual_seed(options.seed)
    conv1, conv2 = torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.Conv2d(8, 16, 3, padding=1)
    fc1, fc2 = torch.nn.Linear(16 * 7 * 7, 64), torch.nn.Linear(64, 10)
    for layer, deviation in ((conv1, None), (conv2, None), (fc1, None), (fc2, OUTPUT_DEVIATION)):
        initialise(layer, deviation)
    pool, relu = torch.nn.MaxPool2d(2), torch.nn.ReLU()
    model = torch.nn.Sequential(conv1, relu, pool, conv2, relu, pool, torch.nn.Flatten(), fc1, relu, fc2)

    batches = Batches(options)

    def batch(iteration: int) -> tuple[torch.Tensor, torch.Tensor]:
        found = labels("train")
        chosen = batches(found, iteration)
        return pictures(images("train")[chosen]), torch.from_numpy(found[chosen])

    def test_set() -> tuple[torch.Tensor, torch.Tensor]:
        return pictures(images("t10k")), torch.from_numpy(labels("t10k"))

    return TrainingJob(model, [conv1, conv2, fc1, fc2], batch, test_set)


def accuracy(model: torch.nn.Module) -> float:
    """The share of the test images that a model tells right."""
    import torch

    correct = 0
    with torch.no_grad():
        for start in range(0, len(labels("t10k")), 500):
            part = slice(start, start + 500)
            found = model(pictures(images("t10k")[part])).argmax(1).numpy()
            correct += int((found == labels("t10k")[part]).sum())
    return correct / len(labels("t10k"))


def initialise(layer: torch.nn.Conv2d | torch.nn.Linear, deviation: float | None = None) -> None:
    """He's initialisation, or normal with a deviation. PyTorch's own starts so slowly here that the spread between
    seeds after 100 iterations is several points of accuracy; with this it is half a point."""
    import torch

    if deviation is None:
        torch.nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    else:
        torch.nn.init.normal_(layer.weight, std=deviation)
    assert layer.bias is not None
    torch.nn.init.zeros_(layer.bias)


def pictures(pixels: npt.NDArray[np.uint8]) -> torch.Tensor:
    """Images as float32 N×1×28×28 with mean 0 and deviation 1, channels last (the CPU's faster kernels)."""
    import torch

    return torch.from_numpy(normalised(pixels)[:, None]).to(memory_format=torch.channels_last)

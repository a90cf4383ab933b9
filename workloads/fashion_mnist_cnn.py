"""A small CNN on Fashion-MNIST: two convolutions, two matrices, 52,138 parameters; a step of 16 images takes
milliseconds on one core, and its large matrix makes messages of tens of packets.

The images are Debian's package dataset-fashion-mnist, or the four .gz files of the original in $DLCP_DATA.
"""

from __future__ import annotations

import gzip
import os
import struct
from functools import cache, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dlcp.errors import MachineCannot

if TYPE_CHECKING:
    import torch

    from dlcp.agents.scripts import JobOptions
    from dlcp.frameworks.pytorch import TrainingJob

LAYERS = (("conv1", 80), ("conv2", 1_168), ("fc1", 50_240), ("fc2", 650))

DATA_DIRECTORY = Path("/usr/share/datasets/fashion-mnist")
FILES = {
    "train-images-idx3-ubyte.gz": 60_000 * 784,
    "train-labels-idx1-ubyte.gz": 60_000,
    "t10k-images-idx3-ubyte.gz": 10_000 * 784,
    "t10k-labels-idx1-ubyte.gz": 10_000,
}
"""File → values in it."""
OUTPUT_DEVIATION = 0.05
"""Of the last layer's initial weights: all classes start about equally likely."""
PIXEL_MEAN, PIXEL_DEVIATION = 0.2860, 0.3530
"""Of the training images, pixels from 0 to 1."""


def preload() -> None:
    """Read the images and run one step, so that an agent forked afterwards starts in milliseconds."""
    from dlcp.agents.scripts import JobOptions

    warm = job(JobOptions(seed=0, worker=0, workers=1, batch=16))
    inputs, labels = warm.batch(0)
    warm.loss(warm.model(inputs), labels).backward()  # type: ignore[no-untyped-call]
    images("t10k")


def job(options: JobOptions) -> TrainingJob:
    """One rank's model, data and loss; the same initial parameters at every rank with the same seed."""
    import torch

    from dlcp.frameworks.pytorch import TrainingJob

    torch.manual_seed(options.seed)
    conv1, conv2 = torch.nn.Conv2d(1, 8, 3, padding=1), torch.nn.Conv2d(8, 16, 3, padding=1)
    fc1, fc2 = torch.nn.Linear(16 * 7 * 7, 64), torch.nn.Linear(64, 10)
    for layer, deviation in ((conv1, None), (conv2, None), (fc1, None), (fc2, OUTPUT_DEVIATION)):
        _initialise(layer, deviation)
    pool, relu = torch.nn.MaxPool2d(2), torch.nn.ReLU()
    model = torch.nn.Sequential(conv1, relu, pool, conv2, relu, pool, torch.nn.Flatten(), fc1, relu, fc2)

    def batch(iteration: int) -> tuple[torch.Tensor, torch.Tensor]:
        chosen = order(options, len(labels("train")), iteration)
        return normalised(images("train")[chosen]), torch.from_numpy(labels("train")[chosen])

    def test_set() -> tuple[torch.Tensor, torch.Tensor]:
        return normalised(images("t10k")), torch.from_numpy(labels("t10k"))

    return TrainingJob(model, [conv1, conv2, fc1, fc2], batch, test_set)


def accuracy(model: torch.nn.Module) -> float:
    """The share of the test images that a model tells right."""
    import torch

    correct = 0
    with torch.no_grad():
        for start in range(0, len(labels("t10k")), 500):
            part = slice(start, start + 500)
            found = model(normalised(images("t10k")[part])).argmax(1).numpy()
            correct += int((found == labels("t10k")[part]).sum())
    return correct / len(labels("t10k"))


def order(options: JobOptions, count: int, iteration: int) -> npt.NDArray[np.int64]:
    """Which images a worker sees in an iteration: a new shuffle every epoch, workers take turns in it."""
    together = options.workers * options.batch
    epoch, step = divmod(iteration, count // together)
    start = step * together + options.worker * options.batch
    return shuffle(options.seed, epoch, count)[start : start + options.batch]


@lru_cache(maxsize=2)
def shuffle(seed: int, epoch: int, count: int) -> npt.NDArray[np.int64]:
    """A permutation of all images, the same at every worker."""
    return np.random.default_rng([seed, 6, epoch]).permutation(count)


def _initialise(layer: torch.nn.Conv2d | torch.nn.Linear, deviation: float | None) -> None:
    """He's initialisation, or normal with a deviation. PyTorch's own starts so slowly here that the spread between
    seeds after 100 iterations is several points of accuracy; with this it is half a point."""
    import torch

    if deviation is None:
        torch.nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    else:
        torch.nn.init.normal_(layer.weight, std=deviation)
    assert layer.bias is not None
    torch.nn.init.zeros_(layer.bias)


def normalised(pixels: npt.NDArray[np.uint8]) -> torch.Tensor:
    """Images as float32 N×1×28×28 with mean 0 and deviation 1, channels last (the CPU's faster kernels)."""
    import torch

    scaled = (pixels.astype(np.float32) / 255.0 - np.float32(PIXEL_MEAN)) / np.float32(PIXEL_DEVIATION)
    return torch.from_numpy(scaled[:, None]).to(memory_format=torch.channels_last)


@cache
def images(part: str) -> npt.NDArray[np.uint8]:
    """All images of "train" or "t10k", N×28×28."""
    return _read(f"{part}-images-idx3-ubyte.gz", header_bytes=16).reshape(-1, 28, 28)


@cache
def labels(part: str) -> npt.NDArray[np.int64]:
    """Their classes, 0 to 9."""
    return _read(f"{part}-labels-idx1-ubyte.gz", header_bytes=8).astype(np.int64)


def _read(name: str, header_bytes: int) -> npt.NDArray[np.uint8]:
    """The values of an IDX file. MachineCannot when it is missing or not what it should be."""
    path = Path(os.environ.get("DLCP_DATA", DATA_DIRECTORY)) / name
    hint = "apt-get install dataset-fashion-mnist, or set DLCP_DATA to a directory with Fashion-MNIST's four .gz files"
    try:
        with gzip.open(path, "rb") as file:
            raw = file.read()
    except (OSError, EOFError) as error:
        raise MachineCannot(str(path), f"cannot read the Fashion-MNIST images: {error}", hint) from None
    count = FILES[name]
    magic = struct.unpack(">I", raw[:4])[0] if len(raw) >= header_bytes else 0
    if magic != 0x800 + (header_bytes - 4) // 4 or len(raw) != header_bytes + count:
        raise MachineCannot(
            str(path), f"it holds {len(raw)} bytes, not the {header_bytes + count} of the original", hint
        )
    return np.frombuffer(raw, np.uint8, offset=header_bytes)

"""Writes workloads/resnet50.yaml: ResNet-50 v1.5 layer by layer, from its published architecture alone.

    python workloads/make_resnet50.py            prints the file
    python workloads/make_resnet50.py --write    writes it beside this script

Parameters and FLOPs follow from the architecture (He et al. 2016, with the stride in the 3×3 convolution) and are
exact. Times are derived: a roofline gives each layer's share,

    t = FLOPs / compute rate + bytes / memory rate + a fixed cost a layer

with rates fitted to per-layer profiles of a V100-class GPU (PipeDream's, fp32), and all forward and all backward times
are then scaled to two published totals: the training throughput, and PipeDream's ratio of backward to forward.
A layer is one convolution with the batch normalisation and activation that follow it.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path

BATCH = 64
IMAGE = 224
CLASSES = 1000
STAGES = ((3, 64), (4, 128), (6, 256), (3, 512))
"""Bottleneck blocks and their inner channels."""
EXPANSION = 4

THROUGHPUT_IMAGES_PER_S = 367.0
"""One V100 16 GB, fp32: NVIDIA DeepLearningExamples, ResNet50 v1.5 for PyTorch, container 21.03."""
BACKWARD_OVER_FORWARD = 1.43
"""PipeDream's measured ResNet-50 profile (V100, fp32)."""


@dataclass(frozen=True)
class Roofline:
    """What bounds a layer. The backward rates count the forward pass's FLOPs and bytes."""

    flops_per_s: float
    bytes_per_s: float
    fixed_s: float


FORWARD = Roofline(25e12, 500e9, 0.31e-3)
BACKWARD = Roofline(12e12, 375e9, 0.08e-3)
ACTIVATION_PASSES = 4
"""Times that an output crosses memory: written by the convolution, read twice and written once by normalisation and
activation (its statistics need a pass of their own)."""


@dataclass(frozen=True)
class Layer:
    """Counts for one image; FLOPs are two for each multiply-accumulate of the convolution or matrix."""

    name: str
    parameters: int
    flops: float
    inputs: int
    outputs: int

    def time_s(self, bound: Roofline) -> float:
        """For a batch, before the totals are scaled to the published ones."""
        moved = 4 * (BATCH * (self.inputs + ACTIVATION_PASSES * self.outputs) + self.parameters)
        return BATCH * self.flops / bound.flops_per_s + moved / bound.bytes_per_s + bound.fixed_s


def convolution(name: str, channels: int, filters: int, kernel: int, size: int, stride: int) -> Layer:
    """A convolution without bias, padded to keep the size but for the stride, and its batch normalisation."""
    out = size // stride
    weights = channels * filters * kernel * kernel
    return Layer(
        name,
        parameters=weights + 2 * filters,
        flops=2.0 * weights * out * out,
        inputs=channels * size * size,
        outputs=filters * out * out,
    )


def architecture() -> list[Layer]:
    """All 54 layers with parameters, input side first."""
    layers = [convolution("conv1", 3, 64, 7, IMAGE, 2)]
    channels, size = 64, IMAGE // 4  # the stem's convolution and its pooling halve the image each
    for stage, (blocks, inner) in enumerate(STAGES, start=1):
        for block in range(blocks):
            stride = 2 if stage > 1 and block == 0 else 1
            where = f"layer{stage}.{block}"
            layers += [
                convolution(f"{where}.conv1", channels, inner, 1, size, 1),
                convolution(f"{where}.conv2", inner, inner, 3, size, stride),
                convolution(f"{where}.conv3", inner, inner * EXPANSION, 1, size // stride, 1),
            ]
            if block == 0:
                layers.append(convolution(f"{where}.downsample", channels, inner * EXPANSION, 1, size, stride))
            channels, size = inner * EXPANSION, size // stride
    weights = channels * CLASSES
    return [*layers, Layer("fc", weights + CLASSES, 2.0 * weights, channels, CLASSES)]


def render() -> str:
    """The text of workloads/resnet50.yaml."""
    layers = architecture()
    total_s = BATCH / THROUGHPUT_IMAGES_PER_S
    forward_s = total_s / (1 + BACKWARD_OVER_FORWARD)
    forward = _scaled([layer.time_s(FORWARD) for layer in layers], forward_s)
    backward = _scaled([layer.time_s(BACKWARD) for layer in layers], total_s - forward_s)
    lines = [
        "# ResNet-50 v1.5 as its layers, input side first. Written by workloads/make_resnet50.py; do not edit.",
        "kind: profile",
        "name: resnet50",
        "source: >-",
        "  parameters and FLOPs from the published architecture (exact); times by a roofline per layer, scaled to",
        f"  {THROUGHPUT_IMAGES_PER_S:g} images/s (NVIDIA DeepLearningExamples, ResNet50 v1.5 for PyTorch, V100 16 GB",
        f"  fp32) and to PipeDream's backward/forward ratio of {BACKWARD_OVER_FORWARD:g}",
        "source_quality: derived",
        "strict_loss_bound: 2.4 %",
        "strict_source: >-",
        "  MLT (NSDI 2024), profile of ResNet-50 by zeroing gradients at random, as quoted by a later paper: as many",
        "  rounds, the same accuracy",
        "device: NVIDIA V100, fp32",
        f"batch: {BATCH}",
        f"parameters: {sum(layer.parameters for layer in layers)}",
        "layers:",
    ]
    for layer, ahead_s, back_s in zip(layers, forward, backward, strict=True):
        times = f"forward: {ahead_s * 1e3:.4f} ms, backward: {back_s * 1e3:.4f} ms"
        lines.append(f"  - {{name: {layer.name}, parameters: {layer.parameters}, {times}}}")
    return "\n".join(lines) + "\n"


def _scaled(values: list[float], total: float) -> list[float]:
    factor = total / sum(values)
    return [value * factor for value in values]


if __name__ == "__main__":
    if sys.argv[1:] == ["--write"]:
        Path(__file__).with_name("resnet50.yaml").write_text(render(), encoding="utf-8")
    else:
        print(render(), end="")

"""Models written down as their layers, input side first: what has parameters, how much it computes, what it moves.

Everything follows from the published architectures and is exact; make_profiles.py adds times. A layer is one
convolution, matrix or embedding, with the bias, normalisation and activation that follow it. Two FLOPs are one
multiply-accumulate; counts are for one sample (an image, a sequence, a token: what a profile's batch counts).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

CLASSES = 1000
"""Of ImageNet."""


@dataclass(frozen=True)
class Layer:
    """parameters; and for one sample: FLOPs of the forward pass, values read and values written.

    weight_passes: how often the parameters cross memory in a forward pass (a recurrent matrix: once a time step).
    """

    name: str
    parameters: int
    flops: float
    inputs: float
    outputs: float
    weight_passes: float = 1.0


class Images:
    """Layers as a picture passes them: what comes in next is remembered."""

    def __init__(self, size: int, channels: int = 3, normalised: bool = True) -> None:
        """normalised: convolutions have batch normalisation (two parameters a filter), and a bias otherwise."""
        self.layers: list[Layer] = []
        self.size = size
        self.channels = channels
        self._extra = 2 if normalised else 1

    def convolution(
        self,
        name: str,
        filters: int,
        kernel: int | tuple[int, int],
        stride: int = 1,
        pad: bool = True,
        of: tuple[int, int] | None = None,
    ) -> tuple[int, int]:
        """(channels, size) that come out; `of` says what comes in, if it is not what came out last.

        pad: the size is kept but for the stride, and shrinks by the kernel otherwise.
        """
        channels, size = of or (self.channels, self.size)
        high, wide = (kernel, kernel) if isinstance(kernel, int) else kernel
        out = -(-size // stride) if pad else (size - high) // stride + 1
        weights = channels * filters * high * wide
        self.layers.append(
            Layer(name, weights + self._extra * filters, 2.0 * weights * out * out, channels * size * size,
                  filters * out * out)
        )  # fmt: skip
        self.channels, self.size = filters, out
        return filters, out

    def branch(self, name: str, of: tuple[int, int], steps: Sequence[tuple[int, int | tuple[int, int], int]]) -> int:
        """Convolutions one after the other, (filters, kernel, stride); strides shrink without padding. Channels out."""
        for number, (filters, kernel, stride) in enumerate(steps):
            of = self.convolution(f"{name}.{number}", filters, kernel, stride, pad=stride == 1, of=of)
        return of[0]

    def pool(self, size: int) -> None:
        """Pooling has no parameters; only the size changes."""
        self.size = size

    def matrix(self, name: str, outputs: int, inputs: int | None = None) -> None:
        """A fully connected layer with bias; of the channels, or of so many inputs."""
        inputs = inputs or self.channels
        self.layers.append(matrix(name, inputs, outputs))
        self.channels, self.size = outputs, 1


def matrix(name: str, inputs: int, outputs: int, times: float = 1.0, extra: int = 0, more: float = 0.0) -> Layer:
    """A matrix with bias that is applied `times` in a sample; extra parameters, and more FLOPs, of what follows it."""
    return Layer(name, (inputs + 1) * outputs + extra, 2.0 * inputs * outputs * times + more, inputs * times,
                 outputs * times)  # fmt: skip


def alexnet() -> list[Layer]:
    """Krizhevsky 2014 ("one weird trick"), as torchvision has it; 224²."""
    net = Images(227, normalised=False)  # 224 and its padding
    net.convolution("conv1", 64, 11, 4, pad=False)
    net.pool(27)
    net.convolution("conv2", 192, 5)
    net.pool(13)
    for name, filters in (("conv3", 384), ("conv4", 256), ("conv5", 256)):
        net.convolution(name, filters, 3)
    net.matrix("fc6", 4096, 256 * 6 * 6)
    net.matrix("fc7", 4096)
    net.matrix("fc8", CLASSES)
    return net.layers


def vgg16() -> list[Layer]:
    """Simonyan and Zisserman 2015, configuration D; 224²."""
    net = Images(224, normalised=False)
    for block, (count, filters) in enumerate(((2, 64), (2, 128), (3, 256), (3, 512), (3, 512)), start=1):
        for number in range(1, count + 1):
            net.convolution(f"conv{block}_{number}", filters, 3)
        net.pool(net.size // 2)
    net.matrix("fc6", 4096, 512 * 7 * 7)
    net.matrix("fc7", 4096)
    net.matrix("fc8", CLASSES)
    return net.layers


def resnet50() -> list[Layer]:
    """He et al. 2016, version 1.5: the stride in the 3×3 convolution; 224²."""
    net = Images(224)
    net.convolution("conv1", 64, 7, 2)
    net.pool(56)
    for stage, (blocks, inner) in enumerate(((3, 64), (4, 128), (6, 256), (3, 512)), start=1):
        for block in range(blocks):
            stride = 2 if stage > 1 and block == 0 else 1
            where, came = f"layer{stage}.{block}", (net.channels, net.size)
            net.convolution(f"{where}.conv1", inner, 1)
            net.convolution(f"{where}.conv2", inner, 3, stride)
            net.convolution(f"{where}.conv3", 4 * inner, 1)
            if block == 0:
                net.convolution(f"{where}.downsample", 4 * inner, 1, stride, of=came)
    net.matrix("fc", CLASSES)
    return net.layers


def googlenet() -> list[Layer]:
    """Szegedy et al. 2015, as torchvision has it (batch normalisation, 3×3 in the third branch), without the two
    auxiliary classifiers; 224²."""
    net = Images(224)
    net.convolution("conv1", 64, 7, 2)
    net.pool(56)
    net.convolution("conv2", 64, 1)
    net.convolution("conv3", 192, 3)
    modules = {
        28: (("3a", 64, 96, 128, 16, 32, 32), ("3b", 128, 128, 192, 32, 96, 64)),
        14: (("4a", 192, 96, 208, 16, 48, 64), ("4b", 160, 112, 224, 24, 64, 64), ("4c", 128, 128, 256, 24, 64, 64),
             ("4d", 112, 144, 288, 32, 64, 64), ("4e", 256, 160, 320, 32, 128, 128)),
        7: (("5a", 256, 160, 320, 32, 128, 128), ("5b", 384, 192, 384, 48, 128, 128)),
    }  # fmt: skip
    for size, found in modules.items():
        net.pool(size)
        for name, one, three_in, three, five_in, five, pooled in found:
            of = (net.channels, size)
            net.channels = (
                net.branch(f"{name}.branch1", of, [(one, 1, 1)])
                + net.branch(f"{name}.branch2", of, [(three_in, 1, 1), (three, 3, 1)])
                + net.branch(f"{name}.branch3", of, [(five_in, 1, 1), (five, 3, 1)])
                + net.branch(f"{name}.branch4", of, [(pooled, 1, 1)])
            )
            net.size = size
    net.matrix("fc", CLASSES)
    return net.layers


def inception_v3() -> list[Layer]:
    """Szegedy et al. 2016, as torchvision has it, without the auxiliary classifier; 299²."""
    net = Images(299)
    net.convolution("conv1a", 32, 3, 2, pad=False)
    net.convolution("conv2a", 32, 3, pad=False)
    net.convolution("conv2b", 64, 3)
    net.pool(73)
    net.convolution("conv3b", 80, 1)
    net.convolution("conv4a", 192, 3, pad=False)
    net.pool(35)
    for name, pooled in (("5b", 32), ("5c", 64), ("5d", 64)):
        _mixed(net, name, [[(64, 1, 1)], [(48, 1, 1), (64, 5, 1)], [(64, 1, 1), (96, 3, 1), (96, 3, 1)],
                           [(pooled, 1, 1)]])  # fmt: skip
    _mixed(net, "6a", [[(384, 3, 2)], [(64, 1, 1), (96, 3, 1), (96, 3, 2)]], shrinks_to=17)
    across, down = (1, 7), (7, 1)
    for name, inner in (("6b", 128), ("6c", 160), ("6d", 160), ("6e", 192)):
        _mixed(net, name, [
            [(192, 1, 1)], [(inner, 1, 1), (inner, across, 1), (192, down, 1)],
            [(inner, 1, 1), (inner, down, 1), (inner, across, 1), (inner, down, 1), (192, across, 1)], [(192, 1, 1)],
        ])  # fmt: skip
    _mixed(net, "7a", [[(192, 1, 1), (320, 3, 2)], [(192, 1, 1), (192, across, 1), (192, down, 1), (192, 3, 2)]],
           shrinks_to=8)  # fmt: skip
    for name in ("7b", "7c"):
        of = (net.channels, net.size)
        channels = net.branch(f"{name}.branch1", of, [(320, 1, 1)])
        channels += _fork(net, f"{name}.branch2", of, [(384, 1, 1)])
        channels += _fork(net, f"{name}.branch3", of, [(448, 1, 1), (384, 3, 1)])
        net.channels = channels + net.branch(f"{name}.branch4", of, [(192, 1, 1)])
    net.matrix("fc", CLASSES)
    return net.layers


def _mixed(
    net: Images, name: str, branches: list[list[tuple[int, int | tuple[int, int], int]]], shrinks_to: int = 0
) -> None:
    """Branches of one input side by side; one that shrinks has a pooled copy of its input besides."""
    of = (net.channels, net.size)
    channels = sum(net.branch(f"{name}.branch{i}", of, steps) for i, steps in enumerate(branches, start=1))
    net.channels = channels + (of[0] if shrinks_to else 0)
    net.size = shrinks_to or of[1]


def _fork(net: Images, name: str, of: tuple[int, int], steps: list[tuple[int, int | tuple[int, int], int]]) -> int:
    """A branch that ends in a 1×3 and a 3×1 convolution side by side. Channels out."""
    net.branch(name, of, steps)
    stem = (net.channels, net.size)
    return (
        net.convolution(f"{name}.across", 384, (1, 3), of=stem)[0]
        + net.convolution(f"{name}.down", 384, (3, 1), of=stem)[0]
    )


def _block(name: str, width: int, inner: int, length: int, cross: bool = False) -> list[Layer]:
    """A transformer's block for a sequence of so many tokens: attention (to another sequence, too), then two matrices.

    Scores and their sum count with the query, key and value matrices; each norm with the matrix before it.
    """
    parts = ["attention", "cross"] if cross else ["attention"]
    layers = []
    for part in parts:
        scores = 2 * 2.0 * length * length * width
        layers.append(matrix(f"{name}.{part}.qkv", width, 3 * width, length, more=scores))
        layers.append(matrix(f"{name}.{part}.out", width, width, length, extra=2 * width))
    layers.append(matrix(f"{name}.mlp.up", width, inner, length))
    layers.append(matrix(f"{name}.mlp.down", inner, width, length, extra=2 * width))
    return layers


def _embedding(name: str, rows: int, width: int, length: int, extra: int = 0) -> Layer:
    """A table of rows, of which a sample reads one a token; its gradient is dense."""
    return Layer(name, rows * width + extra, 0.0, width * length, width * length)


def _logits(name: str, width: int, vocabulary: int, length: int, norms: int = 1) -> Layer:
    """The last norm, and the scores of all words by the embedding's own table (tied: its parameters count there)."""
    return Layer(name, 2 * width * norms, 2.0 * width * vocabulary * length, width * length, vocabulary * length)


def transformer(width: int = 512, inner: int = 2048, vocabulary: int = 37_000, length: int = 32) -> list[Layer]:
    """Vaswani et al. 2017, six and six blocks, the embedding shared by both sides and the softmax; base by default.

    A sample is one target token and one source token, of sentences of `length`.
    """
    layers = [_embedding("embedding", vocabulary, width, 2 * length)]
    for number in range(6):
        layers += _block(f"encoder.{number}", width, inner, length)
    for number in range(6):
        layers += _block(f"decoder.{number}", width, inner, length, cross=True)
    layers.append(_logits("logits", width, vocabulary, length, norms=2))
    return [_per_token(layer, length) for layer in layers]


def _per_token(layer: Layer, length: int) -> Layer:
    return Layer(layer.name, layer.parameters, layer.flops / length, layer.inputs / length, layer.outputs / length)


def bert_base(length: int = 384) -> list[Layer]:
    """Devlin et al. 2019, uncased, with pooler; a sample is a sequence."""
    width = 768
    layers = [
        _embedding("embeddings.words", 30_522, width, length),
        _embedding("embeddings.positions", 512 + 2, width, length, extra=2 * width),
    ]
    for number in range(12):
        layers += _block(f"encoder.{number}", width, 4 * width, length)
    return [*layers, matrix("pooler", width, width)]


def gpt2_small(length: int = 1024) -> list[Layer]:
    """Radford et al. 2019, 12 blocks; a sample is a sequence."""
    width, vocabulary = 768, 50_257
    layers = [_embedding("words", vocabulary, width, length), _embedding("positions", 1024, width, length)]
    for number in range(12):
        layers += _block(f"block.{number}", width, 4 * width, length)
    return [*layers, _logits("logits", width, vocabulary, length)]


def lstm(width: int = 1500, vocabulary: int = 10_000, length: int = 35) -> list[Layer]:
    """Zaremba et al. 2014, the large word model of Penn Treebank: two layers, 35 steps; a sample is a sequence.

    The input's matrix is applied to all steps at once, the recurrent one step by step.
    """
    layers = [_embedding("embedding", vocabulary, width, length)]
    for number in (1, 2):
        gates = 2 * 4 * width * width
        layers.append(
            Layer(f"lstm{number}", gates + 2 * 4 * width, 2.0 * gates * length, width * length, 4 * width * length,
                  weight_passes=(1 + length) / 2)
        )  # fmt: skip
    return [*layers, matrix("softmax", width, vocabulary, length)]

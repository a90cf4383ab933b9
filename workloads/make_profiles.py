"""Writes the model profiles, workloads/<name>.yaml, from public definitions and published measurements alone.

    python workloads/make_profiles.py                  names the profiles
    python workloads/make_profiles.py resnet50         prints one
    python workloads/make_profiles.py --write          writes all of them beside this script

Parameters and FLOPs follow from the architectures (architectures.py) and are exact. Times come in one of three ways,
and every file says which:

measured   per layer on a GPU, published by PipeDream (SOSP 2019; github.com/msr-fiddle/pipedream, profiler/).
derived    a roofline gives each layer's share, t = FLOPs / compute rate + bytes / memory rate + a fixed cost a layer,
           with rates fitted to PipeDream's profiles (fp32, V100-class); all are then scaled so that a step takes as
           long as published for this model and GPU, or by what the roofline misses a sibling by: a model of the same
           kind of layers whose time is published.
roofline   the same rates and nothing to scale them to. Of PipeDream's models, each left out of the fit in turn, such
           totals were 0.56 to 1.31 of the measured ones.
"""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import architectures as known
from architectures import Layer


@dataclass(frozen=True)
class Roofline:
    """What bounds a layer. The backward rates count the forward pass's FLOPs and bytes."""

    flops_per_s: float
    bytes_per_s: float
    fixed_s: float


FORWARD = Roofline(25e12, 500e9, 0.31e-3)
BACKWARD = Roofline(12e12, 375e9, 0.08e-3)
ACTIVATION_PASSES = 4
"""Times that an output crosses memory: written by the layer, read twice and written once by normalisation and
activation (its statistics need a pass of their own)."""

Times = list[tuple[float, float]]
"""Seconds forward and backward of each layer, for a batch."""

V100, P100 = "NVIDIA V100, fp32", "NVIDIA P100, fp32"
PIPEDREAM = "PipeDream's profile (SOSP 2019; V100-class GPU, fp32, PyTorch)"
NO_BOUND = """no bound is published for this model; this is the least of DLCP's profiled ones (0.6 to 3.5 % over ten
models), by zeroing gradients at random: as many rounds, the same accuracy"""
DBLP_BOUND = "DBLP (arXiv 2605.01989), its bound in the critical regime: as many rounds, the same accuracy"


def roofline_s(layer: Layer, batch: int, bound: Roofline) -> float:
    """A layer's time for a batch, before anything is scaled to what is published."""
    moved = 4 * (batch * (layer.inputs + ACTIVATION_PASSES * layer.outputs) + layer.parameters * layer.weight_passes)
    return batch * layer.flops / bound.flops_per_s + moved / bound.bytes_per_s + bound.fixed_s


def roofline(layers: list[Layer], batch: int) -> Times:
    """The roofline's times of all layers."""
    return [(roofline_s(layer, batch, FORWARD), roofline_s(layer, batch, BACKWARD)) for layer in layers]


def total_s(times: Times) -> float:
    """A whole step: forward and backward."""
    return sum(forward_s + backward_s for forward_s, backward_s in times)


def scaled(times: Times, step_s: float, backward_over_forward: float | None = None) -> Times:
    """The same shares, so that a step takes step_s, in which all backward times have a ratio to all forward times
    (None: the roofline's own)."""
    ahead_s, back_s = (sum(one[leg] for one in times) for leg in (0, 1))
    ratio = back_s / ahead_s if backward_over_forward is None else backward_over_forward
    ahead, back = step_s / (1 + ratio) / ahead_s, step_s * ratio / (1 + ratio) / back_s
    return [(forward_s * ahead, backward_s * back) for forward_s, backward_s in times]


def missed_by(layers: list[Layer], batch: int, step_s: float) -> float:
    """How many times as long as by the roofline a step takes that was measured."""
    return step_s / total_s(roofline(layers, batch))


TRANSFORMER_BIG_TOKENS, TRANSFORMER_BIG_TOKENS_PER_S = 2560, 7635.0
"""NVIDIA DeepLearningExamples, PyTorch/Translation/Transformer: one V100 16 GB, FP32, tokens a batch and a second."""
BERT_BASE_SEQUENCES_PER_S = 42.0
"""Lambda's GPU benchmark, pytorch-train-throughput-fp32.csv: bert_base_squad, V100 16 GB, 24 sequences a batch."""
TRANSFORMER_BIG_MISSED_BY = missed_by(
    known.transformer(width=1024, inner=4096), TRANSFORMER_BIG_TOKENS,
    TRANSFORMER_BIG_TOKENS / TRANSFORMER_BIG_TOKENS_PER_S,
)  # fmt: skip
BERT_BASE_MISSED_BY = missed_by(known.bert_base(), 24, 24 / BERT_BASE_SEQUENCES_PER_S)

ALEXNET_MS = (
    (23.885, 8.286), (4.518, 6.997), (3.687, 6.879), (4.962, 7.385), (3.730, 5.979),
    (2.208, 3.111), (1.358, 1.409), (0.453, 0.474),
)  # fmt: skip
VGG16_MS = (
    (26.753, 30.166), (54.451, 124.220), (17.514, 42.386), (26.786, 58.787), (12.191, 19.715), (19.098, 28.486),
    (16.963, 36.722), (10.275, 15.270), (16.207, 22.579), (13.458, 30.093), (6.392, 7.647), (4.533, 7.586),
    (5.050, 9.057), (2.852, 4.605), (0.986, 0.766), (0.393, 0.548),
)  # fmt: skip
"""PipeDream's profiles: forward and backward of each convolution or matrix with the activation and pooling after it."""


@dataclass(frozen=True)
class Model:
    """What a profile is made of. times: how its layers' times are found; how_good: where they come from, in words."""

    name: str
    title: str
    layers: list[Layer]
    device: str
    batch: int
    times: Callable[[list[Layer], int], Times]
    how_good: str
    quality: str = "derived"
    batch_is: str = "images"
    strict: tuple[str, str] = ("0.6 %", NO_BOUND)

    def layer_times(self) -> Times:
        """Seconds forward and backward of each layer, for a batch."""
        return self.times(self.layers, self.batch)


def _published(per_s: float, backward_over_forward: float | None = None) -> Callable[[list[Layer], int], Times]:
    """The roofline's shares of a step that takes as long as so many samples a second say."""
    return lambda layers, batch: scaled(roofline(layers, batch), batch / per_s, backward_over_forward)


def _missed(factor: float) -> Callable[[list[Layer], int], Times]:
    """The roofline's times, each as much longer as its sibling's step was."""
    return lambda layers, batch: [(ahead * factor, back * factor) for ahead, back in roofline(layers, batch)]


def _measured(milliseconds: tuple[tuple[float, float], ...]) -> Callable[[list[Layer], int], Times]:
    return lambda layers, batch: [(ahead / 1e3, back / 1e3) for ahead, back in milliseconds]


def models() -> dict[str, Model]:
    """All of them, by name."""
    found = [
        Model("alexnet", "AlexNet", known.alexnet(), V100, 256, _measured(ALEXNET_MS), quality="measured",
              how_good=f"""measured per layer: {PIPEDREAM}, 256 images. Its first convolution takes three times as long
              forward as backward, which looks like a cost of the first call: take the forward pass for too long.""",
              strict=("0.8 %", DBLP_BOUND)),
        Model("vgg16", "VGG-16", known.vgg16(), V100, 128, _measured(VGG16_MS), quality="measured",
              how_good=f"measured per layer: {PIPEDREAM}, 128 images; 190 images/s, backward/forward 1.88"),
        Model("resnet50", "ResNet-50 v1.5", known.resnet50(), V100, 64, _published(367.0, 1.43),
              how_good="""a roofline per layer, scaled to 367 images/s (NVIDIA DeepLearningExamples, ResNet50 v1.5 for
              PyTorch, container 21.03, V100 16 GB, fp32) and to PipeDream's backward/forward ratio of 1.43. Totals as
              measured; shares of single layers correlate with measured ones by 0.4 to 0.95.""",
              strict=("2.4 %", """MLT (NSDI 2024), profile of ResNet-50 by zeroing gradients at random, as quoted by a
              later paper: as many rounds, the same accuracy""")),
        Model("inception-v3", "Inception-v3", known.inception_v3(), P100, 64, _published(142.0, 1.38),
              how_good="""a roofline per layer, scaled to 142 images/s (TensorFlow's own benchmarks of 2017, one P100 of
              a DGX-1, synthetic data, batch 64) and to PipeDream's backward/forward ratio of 1.38. Totals as measured;
              shares of single layers correlate with measured ones by 0.4 to 0.95."""),
        Model("googlenet", "GoogLeNet", known.googlenet(), P100, 128, _published(468.0),
              how_good="""a roofline per layer, scaled to 468 images/s (Dell, Deep Learning Performance with P100 GPUs,
              2016: NV-Caffe, one P100, batch 128; their network has auxiliary classifiers and no batch normalisation).
              Backward/forward is the roofline's own: not measured."""),
        Model("transformer", "Transformer, base", known.transformer(), V100, 2560, _missed(TRANSFORMER_BIG_MISSED_BY),
              batch_is="target tokens",
              how_good=f"""a roofline per layer, times {TRANSFORMER_BIG_MISSED_BY:.2f}: what it misses the big model
              by (7635 tokens/s in batches of 2560; NVIDIA DeepLearningExamples, Transformer for PyTorch, V100 16 GB,
              fp32). No time of the base model itself was found for this GPU."""),
        Model("bert-base", "BERT-base, uncased", known.bert_base(), V100, 24, _published(BERT_BASE_SEQUENCES_PER_S),
              batch_is="sequences of 384 tokens",
              how_good="""a roofline per layer, scaled to 42 sequences/s (Lambda's GPU benchmark: fine-tuning on SQuAD,
              batch 24, PyTorch, V100 16 GB, fp32). Backward/forward is the roofline's own: not measured."""),
        Model("gpt2-small", "GPT-2 small", known.gpt2_small(), V100, 4, _missed(BERT_BASE_MISSED_BY),
              batch_is="sequences of 1024 tokens",
              how_good=f"""a roofline per layer, times {BERT_BASE_MISSED_BY:.2f}: what it misses BERT-base by, whose
              blocks have the same matrices (42 sequences/s of 384 tokens; Lambda's GPU benchmark, V100 16 GB, fp32).
              Longer sequences and the large softmax are not in that factor.""", strict=("0.8 %", DBLP_BOUND)),
        Model("lstm", "LSTM word model (Penn Treebank, large)", known.lstm(), V100, 20, roofline,
              batch_is="sequences of 35 words",
              quality="roofline", how_good="""a roofline per layer and nothing to scale it to; of models whose times
              are known, such totals were 0.56 to 1.31 of the measured ones, but those are convolutional: the weakest of
              the profiles."""),
    ]  # fmt: skip
    return {model.name: model for model in found}


def render(model: Model) -> str:
    """The text of a profile's file."""
    lines = [
        f"# {model.title} as its layers, input side first. Written by workloads/make_profiles.py; do not edit.",
        "kind: profile",
        f"name: {model.name}",
        "source: >-",
        *_folded(f"""{model.title}: parameters and FLOPs from the published architecture (exact); a batch counts
        {model.batch_is}"""),
        f"source_quality: {model.quality}",
        "times: >-",
        *_folded(model.how_good),
        f"strict_loss_bound: {model.strict[0]}",
        "strict_source: >-",
        *_folded(model.strict[1]),
        f"device: {model.device}",
        f"batch: {model.batch}",
        f"parameters: {sum(layer.parameters for layer in model.layers)}",
        "layers:",
    ]  # fmt: skip
    for layer, (ahead_s, back_s) in zip(model.layers, model.layer_times(), strict=True):
        times = f"forward: {ahead_s * 1e3:.4f} ms, backward: {back_s * 1e3:.4f} ms"
        lines.append(f"  - {{name: {layer.name}, parameters: {layer.parameters}, {times}}}")
    return "\n".join(lines) + "\n"


def _folded(text: str) -> list[str]:
    """A sentence as YAML's folded lines."""
    return textwrap.wrap(" ".join(text.split()), 110, initial_indent="  ", subsequent_indent="  ",
                         break_on_hyphens=False)  # fmt: skip


def main(arguments: list[str]) -> None:
    """See above."""
    found = models()
    if arguments == ["--write"]:
        for model in found.values():
            Path(__file__).with_name(f"{model.name}.yaml").write_text(render(model), encoding="utf-8")
    elif len(arguments) == 1 and arguments[0] in found:
        print(render(found[arguments[0]]), end="")
    else:
        print("\n".join(found))


if __name__ == "__main__":
    main(sys.argv[1:])

"""The committed profiles are what their generator writes, and its totals are the published ones."""

from __future__ import annotations

import runpy
import sys
from typing import Any

import numpy as np
import pytest
import yaml

from dlcp.model.workload import Profile
from dlcp.paths import WORKLOADS

PARAMETERS = {
    "alexnet": 61_100_840,
    "vgg16": 138_357_544,
    "resnet50": 25_557_032,
    "googlenet": 6_624_904,
    "inception-v3": 23_834_568,
    "transformer": 63_084_544,
    "bert-base": 109_482_240,
    "gpt2-small": 124_439_808,
    "lstm": 66_034_000,
}
"""torchvision's (GoogLeNet and Inception-v3 without auxiliary classifiers) and transformers' models of these names;
torch.nn.Transformer's 44,140,544 and a table of 37,000 × 512 (the paper says 65 million); torch.nn's two LSTMs of 1500
with embedding and softmax of 10,000 words (the paper says 66 million)."""
GFLOP = {"alexnet": 1.43, "vgg16": 30.94, "resnet50": 8.18, "inception-v3": 11.43, "googlenet": 3.00}
"""Forward, one image (224², Inception-v3 299²), two FLOPs per multiply-accumulate (torch.utils.flop_counter)."""
STEP = {
    "alexnet": (256, 3000, 0.90),
    "vgg16": (128, 190, 1.88),
    "resnet50": (64, 367, 1.43),
    "inception-v3": (64, 142, 1.38),
    "googlenet": (128, 468, None),
    "bert-base": (24, 42, None),
}
"""Published: samples a batch, samples a second, backward over forward."""


@pytest.fixture(scope="module")
def generator() -> dict[str, Any]:
    sys.path.insert(0, str(WORKLOADS))
    try:
        return runpy.run_path(str(WORKLOADS / "make_profiles.py"))
    finally:
        sys.path.remove(str(WORKLOADS))


@pytest.fixture(scope="module")
def models(generator: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = generator["models"]()
    return found


def stored(name: str) -> Profile:
    return Profile.model_validate(yaml.safe_load((WORKLOADS / f"{name}.yaml").read_text(encoding="utf-8")))


def test_profiles__are_those_of_the_generator(models: dict[str, Any]) -> None:
    kinds = {path.stem: yaml.safe_load(path.read_text(encoding="utf-8"))["kind"] for path in WORKLOADS.glob("*.yaml")}
    assert set(models) == set(PARAMETERS) == {name for name, kind in kinds.items() if kind == "profile"}


@pytest.mark.parametrize("name", PARAMETERS)
def test_file__is_what_the_generator_writes(name: str, generator: dict[str, Any], models: dict[str, Any]) -> None:
    assert (WORKLOADS / f"{name}.yaml").read_text(encoding="utf-8") == generator["render"](models[name])


@pytest.mark.parametrize("name", PARAMETERS)
def test_profile__has_the_published_parameters_and_says_how_good_its_times_are(name: str) -> None:
    profile = stored(name)
    assert profile.parameters == sum(layer.parameters for layer in profile.layers) == PARAMETERS[name]
    assert profile.times.startswith("measured" if profile.source_quality == "measured" else "a roofline")
    assert profile.strict_loss_bound is not None
    assert profile.strict_source
    assert all(layer.forward_s > 0 and layer.backward_s > 0 for layer in profile.layers)


@pytest.mark.parametrize("name", GFLOP)
def test_flops__are_within_two_per_cent_of_the_published(name: str, models: dict[str, Any]) -> None:
    assert sum(layer.flops for layer in models[name].layers) / 1e9 == pytest.approx(GFLOP[name], rel=0.02)


@pytest.mark.parametrize("name", STEP)
def test_times__add_up_to_the_published_throughput_and_ratio(name: str) -> None:
    batch, per_s, ratio = STEP[name]
    profile = stored(name)
    forward_s, backward_s = (
        sum(getattr(layer, f"{leg}_s") for layer in profile.layers) for leg in ("forward", "backward")
    )
    assert profile.batch == batch
    assert batch / (forward_s + backward_s) == pytest.approx(per_s, rel=2e-3)
    if ratio is not None:
        assert backward_s / forward_s == pytest.approx(ratio, abs=5e-3)
    assert 0.8 < backward_s / forward_s < 2.0


@pytest.mark.parametrize("name", ["alexnet", "vgg16", "resnet50", "bert-base"])
def test_roofline__alone_is_near_what_was_measured_on_its_gpu(
    name: str, generator: dict[str, Any], models: dict[str, Any]
) -> None:
    """Scaling to the published totals corrects the roofline, it does not replace it (bounds as for PipeDream's)."""
    model = models[name]
    alone_s = generator["total_s"](generator["roofline"](model.layers, model.batch))
    assert 0.5 < alone_s / generator["total_s"](model.layer_times()) < 1.5


@pytest.mark.parametrize("name", ["alexnet", "vgg16"])
def test_roofline__knows_which_layers_take_long(name: str, generator: dict[str, Any], models: dict[str, Any]) -> None:
    """Against the times that were measured layer by layer: the profiles say "correlate by 0.4 to 0.95"."""
    model = models[name]
    derived, measured = (
        [sum(times) for times in found]
        for found in (generator["roofline"](model.layers, model.batch), model.layer_times())
    )
    assert np.corrcoef(derived, measured)[0, 1] > 0.4

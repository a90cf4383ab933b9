"""The committed profile is what its generator writes, and the generator's totals are the published ones."""

from __future__ import annotations

import importlib.util
import sys
from types import ModuleType

import pytest
import yaml

from dlcp.model.workload import Profile
from dlcp.paths import WORKLOADS

PARAMETERS = 25_557_032
"""torchvision.models.resnet50, and every table that cites it."""
GFLOP = 8.18
"""Forward, 224², batch 1, two FLOPs per multiply-accumulate (torch.utils.flop_counter)."""


@pytest.fixture(scope="module")
def generator() -> ModuleType:
    spec = importlib.util.spec_from_file_location("make_resnet50", WORKLOADS / "make_resnet50.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["make_resnet50"] = module
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def profile() -> Profile:
    return Profile.model_validate(yaml.safe_load((WORKLOADS / "resnet50.yaml").read_text(encoding="utf-8")))


def test_file__is_what_the_generator_writes(generator: ModuleType) -> None:
    assert (WORKLOADS / "resnet50.yaml").read_text(encoding="utf-8") == generator.render()


def test_parameters__are_exact(generator: ModuleType, profile: Profile) -> None:
    assert profile.parameters == sum(layer.parameters for layer in profile.layers) == PARAMETERS
    assert len(profile.layers) == 54


def test_flops__are_within_two_per_cent_of_the_published(generator: ModuleType) -> None:
    total = sum(layer.flops for layer in generator.architecture()) / 1e9
    assert total == pytest.approx(GFLOP, rel=0.02)


def test_times__add_up_to_the_published_throughput_and_ratio(profile: Profile) -> None:
    forward_s, backward_s = (
        sum(getattr(layer, f"{leg}_s") for layer in profile.layers) for leg in ("forward", "backward")
    )
    assert profile.batch / (forward_s + backward_s) == pytest.approx(367, rel=1e-3)
    assert backward_s / forward_s == pytest.approx(1.43, rel=1e-3)


def test_roofline__alone_is_near_the_published_throughput(generator: ModuleType) -> None:
    """Scaling to the published totals corrects the roofline, it does not replace it (bounds as for PipeDream's)."""
    layers = generator.architecture()
    total_s = sum(layer.time_s(generator.FORWARD) + layer.time_s(generator.BACKWARD) for layer in layers)
    assert 0.5 < total_s / (generator.BATCH / generator.THROUGHPUT_IMAGES_PER_S) < 1.5

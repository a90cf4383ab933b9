"""docs/add-a-congestion-controller.md, step by step."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from guides import block

from dlcp.model.transport.settings import TransportSettings
from dlcp.transport._native_build import NATIVE

GUIDE = "add-a-congestion-controller"
HERE = Path(__file__).parent
CONGESTION = NATIVE / "congestion"
FLAGS = ("-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", "-fsanitize=undefined", "-fno-sanitize-recover")


def test_guide__its_controller_is_found_by_its_name_and_halves_once_a_round_trip(tmp_path: Path) -> None:
    """10 packets; nothing proven while idle; one more a window; half at a loss, and no second time within its srtt."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed; apt-get install gcc")
    source, program = tmp_path / "congestion_aimd.c", tmp_path / "toy"
    source.write_text(block(GUIDE, "c"), encoding="utf-8")
    sources = (source, CONGESTION / "congestion.c", HERE / "congestion_toy.c")
    subprocess.run(["gcc", *FLAGS, f"-I{CONGESTION}", *sources, "-o", program], check=True, timeout=60)
    done = subprocess.run([program], check=True, capture_output=True, text=True, timeout=10)
    assert done.stdout == "10.0 11.0 5.5 5.5"


def test_guide__a_scheme_may_name_its_controller() -> None:
    settings = eval(block(GUIDE, "python"), {"TransportSettings": TransportSettings})
    assert settings.congestion_control == "aimd"

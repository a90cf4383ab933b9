"""The README's picture, drawn by the script that makes it, from made-up results and from the stored sample."""

from __future__ import annotations

import runpy
import shutil
import struct
import sys
import tarfile
from pathlib import Path

import numpy as np
import pytest
from matplotlib.figure import Figure
from synthetic_results import PROFILE, make_results

from dlcp.paths import REPOSITORY
from dlcp.report.analysis.comparison import compare
from dlcp.report.data.load import load
from dlcp.report.data.metrics import Samples
from dlcp.report.plots.job_comparison import draw_tail
from dlcp.report.plots.overview import overview
from dlcp.report.plots.style import SchemeStyle

SCRIPT = REPOSITORY / "analysis" / "make_picture.py"
STORED = REPOSITORY / "analysis" / "images" / "quickstart.png"


def size_px(picture: Path) -> tuple[int, int]:
    header = picture.read_bytes()[:24]
    assert header.startswith(b"\x89PNG")
    width, height = struct.unpack(">II", header[16:])
    return width, height


def draw(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> None:
    monkeypatch.setattr(sys, "argv", [str(SCRIPT), *arguments])
    runpy.run_path(str(SCRIPT), run_name="__main__")


def test_script__draws_the_same_picture_of_the_same_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with tarfile.open(REPOSITORY / "analysis" / "sample.tar.xz") as archive:
        archive.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    (experiment,) = (path for path in tmp_path.iterdir() if path.is_dir())
    one, two = tmp_path / "new" / "one.png", tmp_path / "new" / "two.png"
    draw(monkeypatch, str(experiment), str(one))
    draw(monkeypatch, str(experiment), str(two))
    assert one.read_bytes() == two.read_bytes()
    assert size_px(one)[0] == size_px(STORED)[0] == 1104


@pytest.mark.parametrize(("iterations", "marks"), [(5, 0), (100, 1)])
def test_tail__marks_a_percentile_only_where_the_samples_carry_it(iterations: int, marks: int) -> None:
    ax = Figure().subplots()
    values = 1 + np.arange(1000) * 37 % 1000 / 1000  # the slow ones far apart, so from as many iterations as there are
    draw_tail(ax, Samples(values, np.arange(1000) * iterations // 1000), SchemeStyle("#000000", "-", "o", ""), "x")
    assert len(ax.lines) == 1 + marks  # 1000 samples carry the p99 if ten iterations have slow ones, the p99.9 never


def test_stored_picture__is_small() -> None:
    assert STORED.stat().st_size < 150_000


def test_overview__names_schemes_and_regime_and_refuses_what_does_not_count(tmp_path: Path) -> None:
    root = make_results(tmp_path, repeats=2, iterations=5, tensors=2, suspect=(("DLCP", PROFILE, 0),))
    figure = overview(compare(load(root)), PROFILE)
    tail, *times = figure.axes
    legend = tail.get_legend()
    assert legend is not None
    assert [text.get_text() for text in legend.get_texts()] == ["TCP", "TCP tuned", "DLCP", "ideal transport"]
    assert [ax.get_xlabel() for ax in times] == ["hollow: suspect run, not in the mean"] * 2
    assert "port buffer 50 kB = 33 packets" in figure.get_supxlabel()
    for run in root.iterdir():
        if not run.name.endswith("-profile-0") or run.name.startswith("tcp"):
            shutil.rmtree(run)
    with pytest.raises(ValueError, match="no run of job 'profile' counts"):
        overview(compare(load(root)), PROFILE)

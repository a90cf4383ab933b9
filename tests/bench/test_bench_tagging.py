"""`dlcp bench tagging`, small; and that what it compares does the same. Nothing is timed."""

from __future__ import annotations

import numpy as np
import pytest
from bench_command import bench, figure, report

from dlcp.bench.transport.endpoint_process import gradients
from dlcp.bench.transport.tagging import METRICS, Core, tag_with_numpy

PACKET = 360


def test_it_compares_the_core_with_numpy_and_a_read_pass() -> None:
    found = report("tagging", "--size", "2MB", "--repeats", "2", "--rounds", "1")
    assert figure(found, "C core")["repeats"] == 2
    for name in ("numpy", "one read pass", "memcpy of the same bytes"):
        ours, theirs = figure(found, "C core")["values"], figure(found, name)["values"]
        assert figure(found, f"C core ÷ {name}")["values"] == pytest.approx(
            [a / b for a, b in zip(ours, theirs, strict=True)]
        )


@pytest.mark.parametrize("metric", METRICS)
@pytest.mark.parametrize("elements", [5 * PACKET, 300 * PACKET, 123 * PACKET + 7])
def test_core_and_numpy_find_the_same_classes(metric: str, elements: int) -> None:
    data = gradients(3, 0, elements)
    with Core(data, metric) as core:
        left = core.departures()
    classes, order = tag_with_numpy(data, metric)
    assert [number for number, _ in left] == list(order)
    assert [one for _, one in left] == list(classes[order])
    assert set(classes) == {1, 2}


def test_metrics_differ_where_they_should() -> None:
    """A packet of one large value among zeros is small by its mean and large by its maximum."""
    data = np.full(4 * PACKET, 1e-3, np.float32)
    data[PACKET : 2 * PACKET] = 0
    data[PACKET] = 0.1
    found = {}
    for metric in METRICS:
        with Core(data, metric) as core:
            found[metric] = dict(core.departures())[1]
    assert found == {"mean": 2, "l2": 1, "max": 1}


@pytest.mark.parametrize(
    ("arguments", "words"),
    [(("--size", "100B"), "--size"), (("--repeats", "0"), "--repeats"), (("--metric", "median"), "--metric")],
)
def test_wrong_arguments_end_with_2(arguments: tuple[str, ...], words: str) -> None:
    done = bench("tagging", *arguments)
    assert done.returncode == 2
    assert words in done.stderr + done.stdout
    assert "Traceback" not in done.stderr

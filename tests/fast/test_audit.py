"""The promises of a run, each broken once."""

import copy
from typing import Any

import pytest

from dlcp.substrates.result_audit import broken_promises

ITERATIONS: dict[str, list[Any]] = {"iteration": [0, 0, 1, 1], "parameters_crc32": [7, 7, 9, 9]}
MESSAGES: dict[str, list[Any]] = {
    "iteration": [0, 0],
    "tensor": [3, 3],
    "leg": ["push", "pull"],
    "src": ["h1", "h2"],
    "dst": ["h2", "h1"],
    "bytes": [1000, 1000],
    "delivered_bytes": [900, 1000],
    "lost_bytes": [100, 0],
    "loss_bound": [0.1, 0.0],
    "lost_energy_share": [0.05, 0.0],
    "energy_bound": [0.06, 1.0],
}


def test_a_run_within_its_bounds_keeps_every_promise() -> None:
    assert broken_promises(ITERATIONS, MESSAGES) == ""


def lossy_pull() -> dict[str, list[Any]]:
    """The pull of iteration 0 lost 10 of its 1000 B, as it might."""
    messages = copy.deepcopy(MESSAGES)
    messages["loss_bound"][1], messages["lost_bytes"][1], messages["delivered_bytes"][1] = 0.01, 10, 990
    return messages


def test_workers_may_differ_only_where_pulls_lost_something() -> None:
    iterations, messages = copy.deepcopy(ITERATIONS), copy.deepcopy(MESSAGES)
    iterations["parameters_crc32"][1] = 8
    assert "different parameters after iteration 0" in broken_promises(iterations, messages)
    messages["loss_bound"][1] = 0.01
    assert "different parameters after iteration 0" in broken_promises(iterations, messages), "it might, but did not"
    assert broken_promises(iterations, lossy_pull()) == ""


@pytest.mark.parametrize("drift_lasts", [False, True])
def test_what_a_pull_lost_is_mended_by_the_next_only_where_it_carries_parameters(drift_lasts: bool) -> None:
    iterations = copy.deepcopy(ITERATIONS)
    iterations["parameters_crc32"][3] = 8
    found = broken_promises(iterations, lossy_pull(), drift_lasts=drift_lasts)
    assert found == ("" if drift_lasts else "workers hold different parameters after iteration 1")


@pytest.mark.parametrize(
    ("table", "column", "row", "value", "words"),
    [
        ("iterations", "parameters_crc32", 3, 8, "different parameters after iteration 1"),
        ("messages", "loss_bound", 0, 0.09, "tensor 3, push h1 → h2 lost 100 of 1000 B, its bound is 0.09"),
        ("messages", "lost_energy_share", 0, 0.07, "push h1 → h2 lost 0.07 of its energy, its bound is 0.06"),
        ("messages", "delivered_bytes", 1, 999, "999 B delivered and 0 B lost of 1000 B do not add up"),
    ],
)
def test_a_broken_promise_is_named(table: str, column: str, row: int, value: float, words: str) -> None:
    tables = {"iterations": copy.deepcopy(ITERATIONS), "messages": copy.deepcopy(MESSAGES)}
    tables[table][column][row] = value
    assert words in broken_promises(tables["iterations"], tables["messages"])

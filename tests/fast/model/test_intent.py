"""What an experiment adds to the QoS intent of each of its schemes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from dlcp import schemes
from dlcp.errors import Problem
from dlcp.model.experiment import Experiment, experiment_intent
from dlcp.model.qos import Pfc, QosIntent, QueueIntent
from dlcp.paths import EXPERIMENTS
from dlcp.runner.machine.lab_equivalent import sentences
from dlcp.runner.planning.check import Ready
from dlcp.switches.bpf.aqm_words import render
from dlcp.verification.limits import full_bytes
from experiments import document, small


def experiment(folder: Path, **changes: Any) -> Experiment:
    return small(folder, **changes).experiment


BARE = QosIntent(name="bare", port_buffer="40 kB", queues={3: QueueIntent(alpha=8.0), 5: QueueIntent(reserved="3 kB")})


PLAIN = QosIntent(name="plain", port_buffer="40 kB")


def test_a_static_experiment_that_says_nothing_leaves_the_schemes_intent(tmp_path: Path) -> None:
    assert experiment_intent(experiment(tmp_path, buffering="static"), BARE) == BARE


@pytest.mark.parametrize(("alpha", "memory_bytes"), [(0.25, 200_000), (1.0, 80_000), (8.0, 45_000)])
def test_by_default_a_queue_that_is_alone_ends_at_the_port_buffer(
    tmp_path: Path, alpha: float, memory_bytes: int
) -> None:
    made = experiment_intent(experiment(tmp_path, buffering={"kind": "dynamic", "alpha": alpha}), PLAIN)
    assert made.shared_buffer_bytes == memory_bytes
    assert memory_bytes * alpha / (1 + alpha) == pytest.approx(40_000)
    assert [made.alpha_of(number) for number in range(8)] == [alpha] * 8
    assert [made.reserved_of(number) for number in range(8)] == [1514] * 8
    assert made.port_buffer_bytes == memory_bytes + 8 * 1514, "a port has no other limit"
    assert made.queues == {}, "no queue is named that the scheme does not name"


def test_dynamic_thresholds_of_alpha_1_are_the_default(tmp_path: Path) -> None:
    said = {"kind": "dynamic", "alpha": 1, "minimum": "1514 B"}
    assert experiment(tmp_path).buffering == experiment(tmp_path, buffering=said).buffering
    assert experiment(tmp_path, buffering="dynamic").buffering == experiment(tmp_path).buffering


def test_what_a_scheme_reserves_it_pays_with_what_its_queues_share(tmp_path: Path) -> None:
    made = experiment_intent(experiment(tmp_path), BARE)
    assert (made.reserved_of(5), made.reserved_of(4)) == (3_000, 1514)
    assert made.shared_buffer_bytes == 2 * (40_000 - (3_000 - 1514))
    assert (made.alpha_of(3), made.alpha_of(4)) == (8.0, 1.0)
    # the port that the scheme's queue floods, and its reservation, hold together what a plain scheme's would
    assert made.shared_buffer_bytes / 2 + made.reserved_of(5) == 40_000 + 1514


def test_no_shipped_scheme_has_more_memory_than_a_plain_one(tmp_path: Path) -> None:
    """The lone queue of a port, and all that is reserved beyond the minima, never exceed the port's buffer."""
    for name in schemes.names():
        made = experiment_intent(experiment(tmp_path), schemes.scheme_class(name)().intent(40_000))
        beyond = sum(made.reserved_of(number) - 1514 for number in range(8))
        assert (made.shared_buffer_bytes or 0) / 2 + beyond == pytest.approx(40_000, abs=1), name
        assert {made.alpha_of(number) for number in range(8)} == {1.0}, name


def held_bytes(made: QosIntent, flooding: int) -> float:
    """Bytes that so many queues of one port hold when all of them are full, where thresholds settle (test_aqm)."""
    alpha = made.alpha_of(0)
    shared_bytes = (made.shared_buffer_bytes or 0) * flooding * alpha / (1 + flooding * alpha)
    return shared_bytes + flooding * made.reserved_of(0)


def test_the_emulator_s_page_says_how_much_more_a_scheme_of_three_queues_holds(tmp_path: Path) -> None:
    tcp, dlcp = (schemes.scheme_class(name)().intent(40_000) for name in ("tcp", "dlcp"))
    page = (EXPERIMENTS.parent / "EMULATOR.md").read_text(encoding="utf-8")
    for alpha, more in ((1, "46 % more"), (8, "9 % more")):
        whole = experiment(tmp_path, buffering={"alpha": alpha})
        one, three = held_bytes(experiment_intent(whole, tcp), 1), held_bytes(experiment_intent(whole, dlcp), 3)
        assert f"{one / 1000:.1f} kB. DLCP" in page
        assert f"{three / 1000:.1f} kB" in page
        assert f"{100 * (three / one - 1):.0f} % more" == more
        assert more in page


def test_more_than_the_port_buffer_cannot_be_reserved(tmp_path: Path) -> None:
    greedy = PLAIN.model_copy(update={"queues": {number: QueueIntent(reserved="21 kB") for number in (4, 5)}})
    with pytest.raises(Problem, match="nothing is left to share"):
        experiment_intent(experiment(tmp_path), greedy)


@pytest.mark.parametrize("buffering", ["dynamic", "static"])
def test_the_experiments_alpha_is_for_queues_without_their_own(tmp_path: Path, buffering: str) -> None:
    changes = {"shared_buffer": {"size": "200 kB", "alpha": 0.5}, "buffering": buffering}
    made = experiment_intent(experiment(tmp_path, **changes), BARE)
    assert made.shared_buffer_bytes == 200_000
    assert {number: made.alpha_of(number) for number in range(8)} == dict.fromkeys(range(8), 0.5) | {3: 8.0}
    assert made.queue(5).reserved_bytes == 3_000
    assert (made.port_buffer_bytes == 40_000) == (buffering == "static")


def test_a_lossless_queue_has_a_pool_of_its_own(tmp_path: Path) -> None:
    pfc = {"queues": [3], "xoff": "20 kB", "xon": "10 kB"}
    made = experiment_intent(experiment(tmp_path, pfc=pfc), PLAIN)
    assert (made.reserved_of(3), made.reserved_of(2)) == (40_000, 1514)
    assert made.shared_buffer_bytes == 80_000
    assert full_bytes(made, 3, 0, 1) == 40_000 - 1, "it takes nothing of the memory of lossy queues"
    assert full_bytes(made, 2, 0, 1) == pytest.approx(40_000 + 1514, abs=1514)


def test_a_lossless_queue_with_a_lower_limit_has_a_pool_of_that_size(tmp_path: Path) -> None:
    changes = {"pfc": {"queues": [3], "xoff": "20 kB", "xon": "10 kB"}, "queues": [{"queue": 3, "limit": "30 kB"}]}
    made = experiment_intent(experiment(tmp_path, **changes), PLAIN)
    assert full_bytes(made, 3, 0, 1) == 30_000 - 1
    assert render(made)  # which refuses a queue that reserves more than its limit


def test_a_queue_reserves_no_more_than_its_limit(tmp_path: Path) -> None:
    made = experiment_intent(
        experiment(tmp_path, buffering={"minimum": "6 kB"}, queues=[{"queue": 1, "limit": "4 kB"}]), PLAIN
    )
    assert (made.reserved_of(1), made.reserved_of(0)) == (4_000, 6_000)


def test_the_experiments_switches_balance_as_it_says(tmp_path: Path) -> None:
    scheme = BARE.model_copy(update={"load_balancing": "per-packet", "switch_load_balancing": {"s1": "flowlet"}})
    made = experiment_intent(experiment(tmp_path, load_balancing={"s1": "round-robin"}), scheme)
    assert (made.load_balancing, made.switch_load_balancing) == ("per-packet", {"s1": "round-robin"})


def test_pfc_is_the_experiments(tmp_path: Path) -> None:
    pfc = {"queues": [3], "xoff": "20 kB", "xon": "10 kB"}
    assert experiment_intent(experiment(tmp_path, pfc=pfc), BARE).pfc == Pfc.model_validate(pfc)


def test_the_experiments_queues_change_what_they_name_and_leave_the_rest(tmp_path: Path) -> None:
    rules = [
        {"queue": 0, "weight": 1},
        {"queue": 1, "weight": 3, "limit": "20 kB"},
        {"queue": 5, "averaging": 6, "alpha": 2.0},
    ]
    changes = {"shared_buffer": {"size": "200 kB", "alpha": 0.5}, "queues": rules, "flowlet_gap": "2 ms"}
    ready = small(tmp_path, **changes)
    made = experiment_intent(ready.experiment, BARE)
    assert [made.queue(number).weight for number in range(3)] == [1, 3, None]
    assert (made.queue(1).limit_bytes, made.alpha_of(1)) == (20_000, 0.5)
    assert (made.queue(5).averaging, made.queue(5).alpha, made.queue(5).reserved_bytes) == (6, 2.0, 3_000)
    assert (made.alpha_of(3), made.flowlet_gap_s) == (8.0, 0.002)
    assert [line for line in sentences(ready) if line.startswith("queue")] == [
        "queue 0    weight 1",
        "queue 1    at most 20 kB, weight 3",
        "queue 5    2 times what is free of the shared buffer, drops by the backlog averaged over about 64 packets",
    ]


def test_what_does_not_hold_together_is_refused(tmp_path: Path) -> None:
    scheme = BARE.model_copy(update={"queues": {1: QueueIntent(weight=2)}})
    with pytest.raises(ValidationError, match="weighted queues"):
        experiment_intent(experiment(tmp_path), scheme)


def test_a_plan_tells_the_shared_buffer(tmp_path: Path) -> None:
    ready = small(tmp_path, shared_buffer={"size": "200 kB", "alpha": 0.5})
    assert [line for line in sentences(ready) if line.startswith("shared")] == [
        "shared     200 kB a switch: 132 packets; a queue may hold 0.5 times what is free of it; stands for 20 MB"
    ]


def buffer_lines(ready: Ready) -> list[str]:
    return [line for line in sentences(ready) if line.split()[0] in ("buffer", "shared", "minimum")]


def test_a_plan_tells_how_switches_buffer_in_units_of_the_lab(tmp_path: Path) -> None:
    amount = "26 packets, 3.2 ms of line rate in lab time; stands for 4 MB"
    assert buffer_lines(small(tmp_path)) == [
        f"buffer     40 kB for a queue that is alone: {amount}",
        "shared     80 kB a switch: 52 packets; a queue may hold 1 times what is free of it; stands for 8 MB",
        "minimum    each queue has 1.514 kB of its own (151.4 kB)",
    ]
    assert buffer_lines(small(tmp_path, buffering="static")) == [
        f"buffer     40 kB a port, one pool of all its queues: {amount}"
    ]
    jobs = document()["jobs"]
    own = small(
        tmp_path, jobs={"one": jobs["one"], "two": jobs["two"] | {"port_buffer": "20 kB", "buffering": "static"}}
    )
    assert buffer_lines(own) == [
        f"buffer     40 kB for a queue that is alone: {amount} (job one)",
        "shared     80 kB a switch: 52 packets; a queue may hold 1 times what is free of it; stands for 8 MB (job one)",
        "minimum    each queue has 1.514 kB of its own (151.4 kB) (job one)",
        "buffer     20 kB a port, one pool of all its queues: 13 packets, 1.6 ms of line rate in lab time; "
        "stands for 2 MB (job two)",
    ]

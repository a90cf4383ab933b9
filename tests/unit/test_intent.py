"""What an experiment adds to the QoS intent of each of its schemes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from dlcp.model.experiment import Experiment, experiment_intent
from dlcp.model.qos import Pfc, QosIntent, QueueIntent
from dlcp.runner.stands_for import sentences
from experiments import small


def experiment(folder: Path, **changes: Any) -> Experiment:
    return small(folder, **changes).experiment


BARE = QosIntent(name="bare", port_buffer="40 kB", queues={3: QueueIntent(alpha=8.0), 5: QueueIntent(reserved="3 kB")})


def test_an_experiment_that_says_nothing_leaves_the_schemes_intent(tmp_path: Path) -> None:
    assert experiment_intent(experiment(tmp_path), BARE) == BARE


def test_the_experiments_alpha_is_for_queues_without_their_own(tmp_path: Path) -> None:
    made = experiment_intent(experiment(tmp_path, shared_buffer={"size": "200 kB", "alpha": 0.5}), BARE)
    assert made.shared_buffer_bytes == 200_000
    assert {number: made.queue(number).alpha for number in range(8)} == dict.fromkeys(range(8), 0.5) | {3: 8.0}
    assert made.queue(5).reserved_bytes == 3_000


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
    assert (made.queue(1).limit_bytes, made.queue(1).alpha) == (20_000, 0.5)
    assert (made.queue(5).averaging, made.queue(5).alpha, made.queue(5).reserved_bytes) == (6, 2.0, 3_000)
    assert (made.queue(3).alpha, made.flowlet_gap_s) == (8.0, 0.002)
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

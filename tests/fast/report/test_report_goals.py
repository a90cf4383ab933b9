"""The way to a target accuracy: a scheme of which a run never gets there does not look fast by the runs that do."""

from __future__ import annotations

from pathlib import Path

import pytest
from synthetic_results import write_run

from dlcp.model.experiment import Expectation
from dlcp.model.result import RunResult
from dlcp.report.analysis.changes import changes
from dlcp.report.analysis.comparison import Comparison, compare
from dlcp.report.analysis.expectations import evaluate
from dlcp.report.analysis.repeats import unranked
from dlcp.report.data.load import load
from dlcp.report.plots.loss import accuracy_against_loss, loss_table

TARGET = 0.8
NEVER = "2 of 5 runs of lossy 40 % never reach the target"


def write(root: Path, label: str, repeat: int, accuracies: tuple[float, ...], lost: float) -> None:
    """A run that was tested after every 100 steps of 1 s, and lost a share of one message."""
    steps = [100 * (number + 1) for number in range(len(accuracies))]
    result = RunResult(
        run_id=f"{label}-{repeat}".replace(" ", "-"),
        experiment="tiny",
        scheme="masked",
        is_dlcp=False,
        label=label,
        job="j",
        repeat=repeat,
        seed=repeat,
        substrate="inprocess",
        status="ok",
        jct_s=10.0,
        run={"job": {"target_accuracy": TARGET}},
        statistics={"gradient": {"lost_energy_share": 2 * lost}},
    )
    training = {
        "job": ["j"] * len(steps),
        "step": steps,
        "time_s": [0.01 * step for step in steps],
        "loss": [1.0] * len(steps),
        "accuracy": list(accuracies),
    }
    message = {
        "job": "j",
        "iteration": 0,
        "warmup": False,
        "tensor": 0,
        "layer": 0,
        "leg": "push",
        "src": "h1",
        "dst": "h2",
        "bytes": 1000,
        "start_s": 0.0,
        "end_s": 1.0,
        "delivered_bytes": 1000,
        "lost_bytes": int(1000 * lost),
        "resent_bytes": 0,
        "probes": 0,
        "loss_bound": 1.0,
        "lost_energy_share": lost / 2,
        "energy_bound": 1.0,
        "tensor_bytes": 1000,
    }
    messages = {name: [value] for name, value in message.items()}
    write_run(root / result.run_id, result, {"training": training, "messages": messages})


def compared(root: Path) -> Comparison:
    """Without loss every run gets there in 150 steps; with it three do in 100, and two never."""
    for repeat in range(5):
        write(root, "lossless", repeat, (0.75, 0.85, 0.9), 0.0)
        write(root, "lossy 5 %", repeat, (0.75, 0.85, 0.89), 0.05)
        write(root, "lossy 40 %", repeat, (0.81, 0.82, 0.82) if repeat < 3 else (0.6, 0.7, 0.79), 0.4)
    return compare(load(root), subject="lossless")


@pytest.mark.parametrize("metric", ["steps_to_accuracy", "time_to_accuracy_s"])
def test_no_mean__while_a_run_never_reaches_the_target(tmp_path: Path, metric: str) -> None:
    found = compared(tmp_path)
    (job,) = found.jobs
    assert job.estimates["lossless", metric].value == pytest.approx(150.0 if metric[0] == "s" else 1.5)
    refused = job.estimates["lossy 40 %", metric]
    assert (refused.value, refused.n, refused.why) == (None, 3, NEVER)
    gain = job.gains["lossy 40 %", metric]
    assert (gain.verdict, gain.estimate.value, gain.estimate.why) == ("n/a", None, NEVER)
    assert job.gains["lossy 5 %", metric].estimate.n == 5
    assert not [one for one in unranked(found) if one.gain.metric.name == metric and one.gain.against == "lossy 40 %"]
    rows = {(one.label, one.metric.name): one for one in changes(found, found).rows}
    assert rows["lossy 40 %", metric].estimate.why == f"{NEVER} here; {NEVER} there"


def test_no_claim__about_a_way_that_not_all_runs_went(tmp_path: Path) -> None:
    line = Expectation(job="j", metric="steps_to_accuracy", scheme="lossy 40 %", against="lossless", relation="better")
    lines = [line, line.model_copy(update={"relation": "not-worse"}), line.model_copy(update={"scheme": "lossy 5 %"})]
    found = evaluate(compared(tmp_path), lines)
    assert [(one.verdict, one.words) for one in found[:2]] == [("cannot tell", NEVER)] * 2
    assert found[2].verdict == "does not hold"  # both take 150 steps


def test_loss_table__is_of_series_of_labels_and_of_the_gradients_energy(tmp_path: Path) -> None:
    found = compared(tmp_path)
    table = loss_table(found, "j").set_index("label")
    assert list(table.index) == ["lossless", "lossy 5 %", "lossy 40 %"]  # numbers by their size
    assert list(table["series"]) == ["lossless", "lossy", "lossy"]
    assert table["lost_share"].tolist() == pytest.approx([0.0, 0.05, 0.4])
    assert table["lost_energy"].tolist() == pytest.approx([0.0, 0.1, 0.8])  # not what single messages say
    assert table["steps_to_accuracy"].notna().tolist() == [True, True, False]
    figure = accuracy_against_loss(found, "j")
    assert figure is not None
    assert "not here, as a run never reached the target: lossy 40 %" in figure.axes[2].get_title(loc="left")

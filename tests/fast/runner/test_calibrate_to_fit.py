"""`dlcp run` of an experiment that fits itself: when a packet's cost is measured, kept, and what is said of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlcp.cli import main
from dlcp.errors import MachineCannot, Problem, Problems
from dlcp.model.base import OnProgress
from dlcp.runner.machine import calibration
from dlcp.runner.machine.calibration import Calibration, fingerprint
from dlcp.runner.preview import preflight


@pytest.fixture
def measured(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[Calibration]:
    """The calibrations that were measured, one after the other; each says another cost."""
    monkeypatch.setenv("DLCP_STATE", str(tmp_path / "state"))
    monkeypatch.setattr(preflight, "preflight_emulation", lambda: None)
    made: list[Calibration] = []

    def measure(on_progress: OnProgress) -> Calibration:
        on_progress(0.5, "half of it")
        facts = {
            "format": 1,
            "measured": "2024-06-07T08:00:00+00:00",
            "fingerprint": fingerprint(),
            "bare_us": 2.0,
            "ends_us": 30.0 + len(made),
            "hop_us": 7.0,
            "late_us": 80.0,
            "other_busy": 0.3,
            "spread": 0.05,
        }
        made.append(Calibration.model_validate(facts))
        return made[-1]

    monkeypatch.setattr(calibration, "measure", measure)
    return made


def test_a_fresh_machine_is_measured_once_and_kept(
    measured: list[Calibration], capsys: pytest.CaptureFixture[str]
) -> None:
    costs = main._calibrate_to_fit()
    assert costs is not None
    assert costs.ends_s == pytest.approx(30e-6)
    said = capsys.readouterr()
    assert "this machine is not calibrated: measuring what a packet costs here, once, in about 20 s" in said.out
    assert "half of it" in said.err
    assert f"kept in {calibration.path()}" in said.out
    assert main._calibrate_to_fit() is None, "what is stored counts"
    assert len(measured) == 1


def test_a_spoiled_one_is_kept_and_says_so(measured: list[Calibration]) -> None:
    """Or every resume would measure again, and might choose another dilation."""
    first = main._calibrate_to_fit()
    assert first is not None
    assert "others' work took 30%" in first.source
    assert "doctor --calibrate" in first.source
    assert calibration.costs() == first


def test_where_it_cannot_be_kept_it_counts_once_with_a_warning(
    measured: list[Calibration], capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    (tmp_path / "state").write_text("in the way")
    costs = main._calibrate_to_fit()
    assert costs is not None
    assert costs.measured
    said = capsys.readouterr().err
    assert "cannot be kept" in said
    assert "another run may choose another dilation" in said
    assert "DLCP_STATE=FOLDER" in said
    assert main._calibrate_to_fit() is not None
    assert len(measured) == 2


def test_where_nothing_can_be_measured_the_defaults_count_with_a_warning(
    measured: list[Calibration], capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(on_progress: OnProgress) -> Calibration:
        raise MachineCannot("calibration", "the figures make no sense together", "repeat on a quiet machine")

    monkeypatch.setattr(calibration, "measure", fail)
    assert main._calibrate_to_fit() is None
    assert "warning: calibration: the figures make no sense" in capsys.readouterr().err


def test_a_machine_that_lacks_something_is_told_all_of_it_first(
    measured: list[Calibration], monkeypatch: pytest.MonkeyPatch
) -> None:
    def lacks() -> None:
        raise Problems([Problem("root", "is needed")])

    monkeypatch.setattr(preflight, "preflight_emulation", lacks)
    with pytest.raises(Problems):
        main._calibrate_to_fit()
    assert measured == []

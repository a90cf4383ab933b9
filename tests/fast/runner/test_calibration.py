"""A stored calibration: whose it is, what happens when it is another's or damaged, and how rounds become figures."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from dlcp.errors import MachineCannot
from dlcp.runner.machine import calibration
from dlcp.runner.machine.calibration import DEFAULT, Calibration, costs, costs_of, fingerprint, load, store
from dlcp.substrates.emulate.measure_packet_cost import BARE, IDLE, ONE_SWITCH, THREE_SWITCHES, Window, sum_up


@pytest.fixture(autouse=True)
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("DLCP_STATE", str(tmp_path / "state"))
    return tmp_path / "state"


def sample(**changes: object) -> Calibration:
    facts = {
        "format": 1,
        "measured": "2024-06-07T08:00:00+00:00",
        "fingerprint": fingerprint(),
        "bare_us": 2.0,
        "ends_us": 4.5,
        "hop_us": 1.5,
        "late_us": 80.0,
        "other_busy": 0.01,
        "spread": 0.05,
    }
    return Calibration.model_validate(facts | changes)


def test_without_one_the_defaults_count_and_say_so() -> None:
    found = costs()
    assert (found.ends_s, found.hop_s, found.measured) == (DEFAULT.ends_s, DEFAULT.hop_s, False)
    assert "not calibrated" in found.source
    assert "doctor --calibrate" in calibration.command()


def test_what_is_stored_counts(state: Path) -> None:
    file = store(sample())
    assert file == state / "calibration.json"
    found = costs()
    assert (found.ends_s, found.hop_s, found.measured) == pytest.approx((4.5e-6, 1.5e-6, True))
    assert "2024-06-07" in found.source
    assert stat.S_IMODE(file.stat().st_mode) == 0o644, "a plan of any user reads it"
    assert json.loads(file.read_text())["ends_us"] == 4.5
    assert [path.name for path in state.iterdir()] == ["calibration.json"]


@pytest.mark.parametrize("field", ["cpu", "cores", "kernel", "switch_sha256", "dlcp"])
def test_another_machine_s_or_version_s_is_not_used(field: str) -> None:
    other = 1000 if field == "cores" else "another"
    store(sample(fingerprint=fingerprint().model_copy(update={field: other})))
    found = load()
    assert found.calibration is None
    assert f"{field} was {other!r}" in found.why
    assert not costs().measured


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is damaged"),
        ("{", "is damaged"),
        ("[1, 2]", "is damaged"),
        ('{"format": 2}', "format"),
        (json.dumps(sample().model_dump() | {"ends_us": -1.0}), "ends_us"),
        (json.dumps(sample().model_dump() | {"hop_us": float("nan")}), "hop_us"),
    ],
)
def test_a_damaged_file_is_told_and_the_defaults_count(text: str, words: str, state: Path) -> None:
    state.mkdir()
    (state / "calibration.json").write_text(text)
    found = load()
    assert found.calibration is None
    assert words in found.why
    assert "calibration.json" in found.why
    assert not costs().measured


def test_a_file_that_cannot_be_read_is_told(state: Path) -> None:
    (state / "calibration.json").mkdir(parents=True)
    assert "cannot be read" in load().why


def test_a_failed_write_keeps_the_old_one(monkeypatch: pytest.MonkeyPatch, state: Path) -> None:
    store(sample())

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        store(sample(ends_us=9.0))
    assert costs().ends_s == pytest.approx(4.5e-6)
    assert [path.name for path in state.iterdir()] == ["calibration.json"]


def test_a_busy_machine_spoils_it() -> None:
    assert sample().spoiled == ""
    assert "others' work took 30%" in sample(other_busy=0.3).spoiled
    assert "differ by 90%" in sample(spread=0.9).spoiled


def test_a_spoiled_one_makes_no_packet_cheaper_than_the_default() -> None:
    cheap = {"ends_us": 10.0, "hop_us": 1.0}
    assert costs_of(sample(**cheap)).ends_s == pytest.approx(10e-6)
    spoiled = costs_of(sample(**cheap, other_busy=0.5))
    assert (spoiled.ends_s, spoiled.hop_s) == (DEFAULT.ends_s, DEFAULT.hop_s)
    dear = costs_of(sample(ends_us=50.0, hop_us=9.0, other_busy=0.5))
    assert (dear.ends_s, dear.hop_s) == (pytest.approx(50e-6), pytest.approx(9e-6))


def test_a_spoiled_one_that_was_kept_is_told_wherever_it_counts() -> None:
    store(sample(other_busy=0.3))
    assert "others' work took 30%" in costs().source


def windows(idle: float, bare_us: float, one_us: float, three_us: float) -> dict[str, list[Window]]:
    """Five alike rounds of a second and ten thousand packets; idle: cores that others take."""
    packets = 10_000
    cost = {BARE: bare_us, ONE_SWITCH: one_us, THREE_SWITCHES: three_us}
    found = {name: [Window(1.0, idle + us * 1e-6 * packets, packets, 1e-4)] * 5 for name, us in cost.items()}
    return found | {IDLE: [Window(1.0, idle, 0, 1e-4)] * 5}


def test_rounds_become_the_cost_of_ends_and_hops() -> None:
    found = sum_up(windows(0.1, bare_us=3.0, one_us=7.0, three_us=11.0))
    assert found.hop_s == pytest.approx(2e-6)
    assert found.ends_s == pytest.approx(5e-6)
    assert found.bare_s == pytest.approx(3e-6)
    assert found.other_busy == pytest.approx(0.1 / (os.cpu_count() or 1))
    assert found.spread == pytest.approx(0.0, abs=1e-9)


def test_others_share_is_of_all_cores_not_of_those_that_this_process_may_use(monkeypatch: pytest.MonkeyPatch) -> None:
    """/proc/stat counts the busy seconds of all cores, with any CPU affinity."""
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    monkeypatch.setattr(os, "sched_getaffinity", lambda pid: {0})
    assert sum_up(windows(2.0, bare_us=3.0, one_us=7.0, three_us=11.0)).other_busy == pytest.approx(0.25)


def test_one_odd_round_does_not_count() -> None:
    seen = windows(0.0, bare_us=3.0, one_us=7.0, three_us=11.0)
    seen[THREE_SWITCHES][2] = Window(1.0, 0.9, 10_000, 0.01)
    assert sum_up(seen).hop_s == pytest.approx(2e-6)


@pytest.mark.parametrize(
    ("bare_us", "one_us", "three_us"),
    [(3.0, 7.0, 6.0), (-1.0, 7.0, 11.0), (0.0, 7.0, 11.0), (3.0, 7.0, 7.00001), (3.0, 7.0, 3_000.0)],
    ids=["no cost of a hop", "a bare pair for less than nothing", "for nothing", "a hop for a nanosecond", "for ms"],
)
def test_figures_that_make_no_sense_are_refused(bare_us: float, one_us: float, three_us: float) -> None:
    with pytest.raises(MachineCannot, match="make no sense") as caught:
        sum_up(windows(0.0, bare_us=bare_us, one_us=one_us, three_us=three_us))
    assert "quiet" in caught.value.hint

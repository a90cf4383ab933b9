"""What an earlier page said stands beside what these runs say, in words of what changed."""

from __future__ import annotations

import csv
import re
import subprocess
from pathlib import Path

import pytest
from synthetic_results import PROFILE, REAL, make_results

from dlcp.errors import Problem
from dlcp.paths import REPOSITORY
from dlcp.report.analysis.comparison import Comparison, compare
from dlcp.report.analysis.earlier_page import COLUMNS, before
from dlcp.report.analysis.headroom import headroom
from dlcp.report.data.load import load

EARLIER = f"""{",".join(COLUMNS)}
quickstart,{PROFILE},DLCP,1.50,"TCP (or UDP)",-2.5,-3.0,1.0
quickstart,{PROFILE},TCP,2.25,,,,
quickstart,{PROFILE},gone since,9.99,,,,
another,{PROFILE},TCP,7.77,,,,
"""


@pytest.fixture(scope="module")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Comparison:
    return compare(load(make_results(tmp_path_factory.mktemp("results"), repeats=6, iterations=6, tensors=4)))


def test_both_stand_side_by_side(comparison: Comparison, tmp_path: Path) -> None:
    (tmp_path / "before.csv").write_text(EARLIER, encoding="utf-8")
    (tmp_path / "before.md").write_text("The ground was another.\n", encoding="utf-8")
    text = "\n".join(before(tmp_path, [comparison]))
    job = comparison.job(PROFILE)
    assert job is not None
    assert "The ground was another." in text
    assert "−2.5 % [−3.0, 1.0] over TCP (or UDP)" in text
    now = job.estimates["TCP", "jct_over_ideal"].value
    assert f"| TCP | 2.25 → {now:.2f} |" in text
    assert not any(other in text for other in ("gone since", "9.99", "7.77", "| TCP tuned"))


def test_one_job_under_both_buffer_models_tells_the_machine_from_the_buffer(
    comparison: Comparison, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "before.csv").write_text(EARLIER, encoding="utf-8")
    (tmp_path / "before.md").write_text("The ground was another.\n", encoding="utf-8")
    assert "The machine or the buffer?" not in "\n".join(before(tmp_path, [comparison]))
    for name, value in {"BUFFERS": "quickstart", "SINGLE_POOL": PROFILE, "DYNAMIC": REAL}.items():
        monkeypatch.setattr(f"dlcp.report.analysis.earlier_page.{name}", value)
    monkeypatch.setattr("dlcp.report.analysis.earlier_page.SAME_JOB", ("quickstart", PROFILE))
    lines = "\n".join(before(tmp_path, [comparison])).partition("The machine or the buffer?")[2].splitlines()
    one_pool, dynamic = (comparison.job(job) for job in (PROFILE, REAL))
    assert one_pool is not None
    assert dynamic is not None
    times = [job.estimates["TCP", "jct_over_ideal"].value for job in (one_pool, dynamic)]
    assert f"| TCP | 2.25 | {times[0]:.2f} | {times[1]:.2f} |" in lines
    (gains,) = (line for line in lines if line.startswith("| DLCP over the best other | −2.5 % [−3.0, 1.0] over TCP"))
    rooms = {room.job: room.gain_words for room in headroom(comparison)}
    assert gains.index(rooms[PROFILE]) < gains.index(rooms[REAL])


def test_without_an_earlier_page_there_is_no_chapter(comparison: Comparison, tmp_path: Path) -> None:
    assert list(before(tmp_path, [comparison])) == []


@pytest.mark.parametrize(
    ("files", "said"),
    [
        ({"before.csv": "experiment,job\nquickstart,profile\n", "before.md": "words"}, "lacks label, jct_over_ideal"),
        ({"before.csv": EARLIER}, "before.md: is not there"),
    ],
)
def test_what_lacks_is_named(files: dict[str, str], said: str, comparison: Comparison, tmp_path: Path) -> None:
    for name, text in files.items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    with pytest.raises(Problem, match=said):
        list(before(tmp_path, [comparison]))


def test_the_shipped_figures_are_those_of_the_page_that_their_words_name() -> None:
    """Its table of gains has the best other scheme, the gain, and what an ideal transport would add to that scheme."""
    analysis = REPOSITORY / "analysis"
    named = re.search(r"the page at commit ([0-9a-f]{7,})", (analysis / "before.md").read_text(encoding="utf-8"))
    assert named is not None
    shown = subprocess.run(
        ["git", "-c", f"safe.directory={REPOSITORY}", "-C", str(REPOSITORY), "show", f"{named[1]}:analysis/RESULTS.md"],
        capture_output=True,
        text=True,
        check=False,
        timeout=30,
    )
    if shown.returncode:
        pytest.skip(f"this checkout has no commit {named[1]}; git fetch --unshallow brings it")
    with (analysis / "before.csv").open(newline="", encoding="utf-8") as file:
        rows = {(row["experiment"], row["job"], row["label"]): row for row in csv.DictReader(file)}
    gains = [row for row in rows.values() if row["rival"]]
    assert gains
    for row in gains:
        experiment, job = row["experiment"], row["job"]
        rival = rows[experiment, job, row["rival"].split(" (")[0]]
        gain, low, high = (float(row[f"{name}_percent"]) for name in ("gain", "low", "high"))
        most = 100 * (float(rival["jct_over_ideal"]) - 1)
        line = re.search(
            rf"^\| {experiment} \| {job} \| [^|]* \| [^|]* \| {row['label']} \| {re.escape(row['rival'])} "
            r"\| (\S+) % \[(\S+), (\S+)\] \| (\S+) % \|",
            shown.stdout.replace("−", "-"),
            re.MULTILINE,
        )
        assert line is not None, f"{experiment}, {job}, {row['label']}: no such row on that page"
        assert [float(figure) for figure in line.groups()[:3]] == [gain, low, high]
        assert float(line[4]) == pytest.approx(most, abs=0.101), f"{experiment}, {job}: {rival['label']} over its ideal"

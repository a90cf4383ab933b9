"""The whole report, end to end, on made-up results."""

from __future__ import annotations

import csv
import itertools
import json
import math
import re
from html import unescape
from html.parser import HTMLParser
from pathlib import Path

import pandas as pd
import pytest
from rich.console import Console
from synthetic_results import PROFILE, REAL, make_results, record_again

from dlcp.errors import ExitCode
from dlcp.model.experiment import Expectation
from dlcp.model.tables import write_columns
from dlcp.report import ReportSummary, report
from dlcp.report.data.load import load
from dlcp.report.plots.fabric import queues
from dlcp.report.plots.style import scheme_styles

LABELS = ("TCP", "TCP tuned", "DLCP")


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Six repeats, one run of each job suspect."""
    suspect = (("TCP", PROFILE, 2), ("DLCP", REAL, 1))
    root = make_results(tmp_path_factory.mktemp("results"), repeats=6, tensors=8, suspect=suspect)
    run = root / "tcp-real-5" / "result.json"
    run.write_text(json.dumps(json.loads(run.read_text()) | {"status": "failed", "reason": "<b>no & answer</b>"}))
    return root


@pytest.fixture(scope="module")
def printed(results: Path) -> tuple[ReportSummary, str]:
    console = Console(width=110, record=True, file=open("/dev/null", "w"))  # noqa: SIM115 - lives as long as the console
    summary = report(results, console=console)
    return summary, console.export_text()


@pytest.fixture(scope="module")
def html(printed: tuple[ReportSummary, str]) -> str:
    return printed[0].html.read_text(encoding="utf-8")


def test_report__lies_beside_the_results_and_leaves_them_alone(
    printed: tuple[ReportSummary, str], results: Path
) -> None:
    summary, _ = printed
    assert summary.html == results / "report.html"
    stored = {file.name for kind in ("csv", "parquet") for file in results.glob(f"report-*.{kind}")}
    assert {file.name for file in summary.files} == stored
    for file in results.glob("report-*.parquet"):
        assert len(pd.read_parquet(file)) == len(file.with_suffix(".csv").read_text().splitlines()) - 1
    assert not list(results.glob("*.part"))
    assert len(load(results).runs) == 36


def test_summary__counts_and_judges(printed: tuple[ReportSummary, str]) -> None:
    summary, _ = printed
    assert summary.statuses == {"ok": 33, "suspect": 2, "failed": 1}
    assert summary.exit_code == ExitCode.RUN_FAILED
    # Of the real job's six pairs one has a suspect side and another a failed one.
    assert [one.verdict for one in summary.outcomes] == ["holds", "holds", "holds", "cannot tell", "holds"]
    assert summary.problems == ()
    assert len(summary.headline) == 8


def test_terminal__has_every_scheme_gain_refusal_and_suspect(printed: tuple[ReportSummary, str]) -> None:
    _, text = printed
    for label in LABELS:
        rows = re.findall(rf"^ {label}(?: !1 suspect)?  ", text, re.MULTILINE)
        assert len(rows) == 7, "tables: 3 of the profile job, 4 of the real one"
    assert text.count("TCP !1 suspect  ") == 3, "of the profile job"
    assert text.count(" over TCP tuned ") == 7
    assert "TCP: 5 runs (left out: 1 suspect)" in text
    assert "TCP: 5 runs (left out: 1 failed)" in text
    assert "message p99.9 needs 10000 samples, there are 7360: TCP" in text
    assert "! DLCP, real, repeat 2 is suspect: CPU idle 4 % is below 10 %" in text
    assert "✓ profile: job completion of DLCP better than TCP" in text


def test_page__is_whole_html_without_anything_from_outside(html: str) -> None:
    stack: list[str] = []
    sources: list[str] = []
    links: list[str] = []
    places: list[str] = []

    class Walk(HTMLParser):
        def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
            if tag not in ("meta", "img", "br"):
                stack.append(tag)
            sources.extend(value or "" for name, value in attrs if name in ("src", "srcset"))
            links.extend(value or "" for name, value in attrs if name == "href")
            places.extend(f"#{value}" for name, value in attrs if name == "id")

        def handle_endtag(self, tag: str) -> None:
            assert stack.pop() == tag

    Walk().feed(html)
    assert stack == []
    assert len(sources) == 13  # two of all jobs, four of the profile job, six of the real one, the topology
    assert links == places  # the table of contents has every section, in order
    assert len(links) >= 10
    assert all(source.startswith("data:image/svg+xml;base64,") for source in sources)
    assert not re.search(r"https?://|url\(|@import|<script|<link", html)


def digits(half: float) -> int:
    """Decimals that show two significant digits of half an interval."""
    return max(1 - math.floor(math.log10(half)), 0)


def test_page__holds_the_numbers_of_the_csv_files(html: str, printed: tuple[ReportSummary, str]) -> None:
    summary, _ = printed
    (path,) = (file for file in summary.files if file.name == "report-figures.csv")
    text = unescape(html)
    for row in csv.DictReader(path.open()):
        if row["metric"] == "jct_s":
            value, half = float(row["value"]), float(row["high"]) - float(row["value"])
            shown = [(value * factor, half * factor) for factor in (1, 1e3)]  # seconds, or milliseconds
            assert any(f"{one:.{digits(end)}f} ± {end:.{digits(end)}f}" in text for one, end in shown)
    for sentence in summary.headline:
        assert sentence in text


def test_page__names_schemes_knobs_regime_and_doubts_and_escapes_them(html: str) -> None:
    text = unescape(html)
    for label in LABELS:
        assert f"{label}</td>" in text
    assert '<tr class="differs"><td>knobs</td><td>rto_min_s</td><td>200 ms</td><td>5 ms</td><td>–</td></tr>' in html
    assert "<dt>byte scale</dt><dd>25</dd>" in html
    assert "<dt>port buffer</dt><dd>50 kB = 33 packets = 1 ms of lab line rate</dd>" in html
    assert "<dt>TCP tuned: RTO floor</dt><dd>5 ms (lab time)</dd>" in html
    assert "<p>Nothing: read back from every switch and host, equal to what was meant.</p>" in html
    assert "TCP, profile, repeat 3</td><td>suspect</td>" in html
    assert "&lt;b&gt;no &amp; answer&lt;/b&gt;" in html
    assert "<b>no" not in html


@pytest.mark.long
def test_page__is_the_same_again(printed: tuple[ReportSummary, str], html: str, results: Path, tmp_path: Path) -> None:
    again = report(results, tmp_path / "elsewhere")
    assert again.html == tmp_path / "elsewhere" / "report.html"
    assert again.html.read_text(encoding="utf-8") == html


@pytest.mark.long
def test_page__warns_of_what_must_not_happen(tmp_path: Path) -> None:
    root = make_results(tmp_path, repeats=1, iterations=2, tensors=1)
    file = root / "dlcp-real-0" / "result.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"traffic": {"dlcp": 1, "tcp": 99}}))
    summary = report(root)
    assert summary.exit_code == ExitCode.SUSPECT
    assert "gradients or parameters went over dlcp and tcp" in summary.html.read_text(encoding="utf-8")


def test_page__of_one_repeat_and_one_scheme_claims_nothing(tmp_path: Path) -> None:
    root = make_results(tmp_path, repeats=1, iterations=2, tensors=1)
    summary = report(root / "tcp-profile-0")
    assert summary.html == root / "tcp-profile-0" / "report.html"
    assert {one.verdict for one in summary.outcomes} == {"cannot tell"}
    assert summary.exit_code == ExitCode.FINE
    assert summary.headline == (f"TCP finishes job profile in {summary.headline[0].split(' in ')[1]}",)


def test_styles__are_apart_in_colour_lightness_line_and_marker(results: Path) -> None:
    looks = list(scheme_styles(load(results)).values())
    lightness = sorted(
        sum(weight * int(look.colour[i : i + 2], 16) for weight, i in ((0.3, 1), (0.59, 3), (0.11, 5)))
        for look in looks
    )
    assert all(light - dark > 35 for dark, light in itertools.pairwise(lightness))
    assert len({str(look.line) for look in looks}) == len({look.marker for look in looks}) == len(looks)


@pytest.mark.parametrize("status", [pytest.param("suspect", marks=pytest.mark.long), "failed"])
def test_page__shows_a_job_of_which_no_run_counts(tmp_path: Path, status: str) -> None:
    root = make_results(tmp_path, repeats=2, iterations=2, tensors=1)
    for run in root.glob("*-real-*/result.json"):
        run.write_text(json.dumps(json.loads(run.read_text()) | {"status": status, "reason": "no CPU was left"}))
    if status == "failed":  # early, before there was anything to write down
        for table in root.glob("*-real-*/*.parquet"):
            table.unlink()
        record_again(root)
    html = report(root).html.read_text(encoding="utf-8")
    assert ">Job real</h2>" in html
    assert f'<td class="n">0 + 2 {status}</td>' in html


@pytest.mark.long
def test_queues__show_marks_only_where_there_are_some(tmp_path: Path) -> None:
    root = make_results(tmp_path, repeats=1, iterations=2, tensors=1)
    for run, marks in (("tcp-real-0", 0), ("tcp-tuned-real-0", 0), ("dlcp-real-0", 0), ("dlcp-profile-0", 7)):
        file = root / run / "ports.parquet"
        table = pd.read_parquet(file)
        table["marked_ce_packets"] = marks
        table.loc[table["queue"] == 7, "dropped_tail_packets"] = 0
        if marks == 0:
            table["dropped_wred_packets"] = 0
        write_columns(root / run, "ports", {name: table[name].tolist() for name in table})
    record_again(root)
    loaded = load(root)
    plain, marked = (queues(loaded, job, LABELS) for job in (REAL, PROFILE))
    assert plain is not None
    assert marked is not None
    assert (len(plain.axes), len(marked.axes)) == (3, 6)
    legends = [[text.get_text() for text in one.legends[0].get_texts()] for one in (plain, marked)]
    precedences = [f"precedence {p}" for p in range(3)]
    assert legends[0] == ["precedence 0", "tail drop"]
    assert legends[1] == [*precedences, "WRED drop, CE mark", "tail drop"]
    html = report(root).html.read_text(encoding="utf-8")
    assert html.count("What switches dropped (marked: none), all ports") == 2  # caption and alternative text
    assert html.count("What switches dropped and marked, all ports") == 2


@pytest.mark.long
def test_report__judges_the_lines_that_it_is_given(tmp_path: Path) -> None:
    root = make_results(tmp_path, repeats=1, iterations=2, tensors=1)
    line = Expectation(job=PROFILE, metric="jct_s", scheme="dlcp", against="TCP", relation="not-worse")
    summary = report(root, expect=[line])
    assert [one.claim for one in summary.outcomes] == ["profile: job completion of dlcp no worse than TCP"]
    assert "job completion of dlcp no worse than TCP" in summary.html.read_text(encoding="utf-8")

"""Files that ask for more memory, time or stack than there is are refused in a sentence, at their place."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlcp.errors import Problem, Problems
from dlcp.files.bounded_yaml import MAX_DEPTH, MAX_VALUES
from dlcp.files.json_text import MAX_DEPTH as MAX_JSON_DEPTH
from dlcp.files.json_text import parse_json
from dlcp.model.loading.document import MAX_BYTES, read_document
from dlcp.runner.lab import deployment_record
from dlcp.runner.lab.hosts import read_settings
from dlcp.runner.machine import calibration

ERRORS = Path(__file__).parents[2] / "errors"
DEEP = "[" * 100_000


def problems_of(tmp_path: Path, text: str) -> list[str]:
    file = tmp_path / "file.yaml"
    file.write_text(text, encoding="utf-8")
    return [problem.what for problem in read_document(file).problems]


def test_yaml__what_is_within_the_bounds_is_read(tmp_path: Path) -> None:
    levels = MAX_DEPTH - 1  # the mapping at the top is one
    assert problems_of(tmp_path, f"a: {'[' * levels}{']' * levels}") == []
    values = MAX_VALUES // 2 - 3  # the mapping, the keys, the list, and the alias that repeats the list
    text = f"a: &a [{', '.join(['x'] * values)}]\nb: *a\n"
    assert problems_of(tmp_path, text) == []
    assert read_document(tmp_path / "file.yaml").get(("b", values - 1)) == "x"


@pytest.mark.parametrize(
    ("text", "what"),
    [
        (f"a: {'[' * MAX_DEPTH}{']' * MAX_DEPTH}", f"not YAML: more than {MAX_DEPTH} levels of lists and mappings"),
        (f"a: &a [{', '.join(['x'] * (MAX_VALUES // 2))}]\nb: *a\n", f"not YAML: more than {MAX_VALUES} values"),
        ("a: !!int ''", "not YAML: '' is not of type int"),
        ("a: !!timestamp soon", "not YAML: 'soon' is not of type timestamp"),
        ("a: !!seq x", "not YAML: the tag tag:yaml.org,2002:seq is not supported"),
        ("a: 2024-13-45", "not YAML: month must be in 1..12"),
        ("# " + "x" * MAX_BYTES, f"is larger than {MAX_BYTES} bytes"),
    ],
    ids=["levels", "values", "int", "timestamp", "scalar list", "date", "bytes"],
)
def test_yaml__what_is_beyond_a_bound_is_named(tmp_path: Path, text: str, what: str) -> None:
    (said,) = problems_of(tmp_path, text)
    assert said.startswith(what)


def test_yaml__an_endless_file_is_refused() -> None:
    (problem,) = read_document(Path("/dev/zero")).problems
    assert problem.what == f"is larger than {MAX_BYTES} bytes"


@pytest.mark.parametrize("name", ["yaml-bomb", "yaml-deep", "yaml-nul"])
def test_settings_of_hosts__are_read_within_the_same_bounds(name: str) -> None:
    with pytest.raises(Problems) as caught:
        read_settings(ERRORS / f"{name}.yaml")
    assert caught.value.problems[0].what.startswith("not YAML: ")


@pytest.mark.parametrize("text", ["- mtu", "dlcp_host_settings: 9000"])
def test_settings_of_hosts__are_a_mapping(tmp_path: Path, text: str) -> None:
    file = tmp_path / "settings.yaml"
    file.write_text(text)
    with pytest.raises(Problem, match="does not hold settings"):
        read_settings(file)


def test_json__is_bounded_in_depth_and_the_place_is_named() -> None:
    within = "[" * MAX_JSON_DEPTH + "]" * MAX_JSON_DEPTH
    assert parse_json(within) is not None
    for text in (f'{{"a": "]]\\"]",\n"b": {within}}}', f'{{"a": "]]\\"]",\n"b": {DEEP}'):
        with pytest.raises(ValueError, match=f"nested deeper than {MAX_JSON_DEPTH} levels: line 2 column 69"):
            parse_json(text)


@pytest.mark.parametrize("text", ["{", DEEP, "[1]"])
def test_a_damaged_record_of_a_deployment_is_named(tmp_path: Path, text: str) -> None:
    (tmp_path / "outcome.json").write_text(text)
    with pytest.raises(Problem, match="record") as caught:
        deployment_record.read_json(tmp_path / "outcome.json")
    assert caught.value.where == str(tmp_path / "outcome.json")


def test_a_deeply_nested_calibration_is_damaged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLCP_STATE", str(tmp_path))
    calibration.path().write_text(DEEP)
    assert "is damaged (nested deeper than" in calibration.load().why

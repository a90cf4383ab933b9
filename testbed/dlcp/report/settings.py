"""What the runs were made with, as rows for people: regime, knobs side by side, QoS, provenance."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from dlcp.report.load import Results, Run
from dlcp.report.words import show_name, show_setting


def regime_rows(results: Results) -> list[tuple[str, str]]:
    """The scaling regime: name, value with unit."""
    regime = results.runs[0].result.regime
    return [(show_name(name), show_setting(name, value)) for name, value in regime.items()]


def knob_rows(results: Results) -> list[dict[str, Any]]:
    """A row a knob: name, one text a label ("–" where the scheme lacks it), whether the schemes differ in it."""
    labels = results.labels()
    knobs = {label: _first(results, label).result.knobs for label in labels}
    names = dict.fromkeys(name for label in labels for name in knobs[label])
    rows = []
    for name in names:
        texts = [show_setting(name, knobs[label][name]) if name in knobs[label] else "–" for label in labels]
        rows.append({"name": name, "texts": texts, "differs": len(set(texts)) > 1})
    return sorted(rows, key=lambda row: not row["differs"])


def differing_qos(results: Results) -> list[dict[str, str]]:
    """Where a switch could not do what was meant: label, path, intended, effective."""
    rows = []
    for label in results.labels():
        result = _first(results, label).result
        intended, effective = dict(_flat(result.intended)), dict(_flat(result.effective))
        for path in dict.fromkeys((*intended, *effective)):
            meant, done = intended.get(path, "–"), effective.get(path, "–")
            if effective and meant != done:
                name = path.rsplit(".", 1)[-1]
                rows.append({"label": label, "path": path, "intended": show_setting(name, meant),
                             "effective": show_setting(name, done)})  # fmt: skip
    return rows


def provenance_rows(results: Results) -> list[tuple[str, str]]:
    """What the runs say of machine and code; where they differ, every value with its number of runs."""
    values: dict[str, dict[str, int]] = {}
    for run in results.runs:
        for path, value in _flat(run.result.provenance):
            seen = values.setdefault(path, {})
            text = show_setting(path, value)
            seen[text] = seen.get(text, 0) + 1
    rows = []
    for path, seen in values.items():
        if len(seen) == 1:
            rows.append((path, next(iter(seen))))
        elif len(seen) <= 4:
            rows.append((path, ";  ".join(f"{text} ({count} runs)" for text, count in seen.items())))
        else:
            rows.append((path, f"{len(seen)} different values, from {min(seen)} to {max(seen)}"))
    seeds = sorted({run.result.seed for run in results.runs})
    substrates = sorted({run.result.substrate for run in results.runs})
    return [("substrate", ", ".join(substrates)), ("seeds", ", ".join(str(seed) for seed in seeds)), *rows]


def _first(results: Results, label: str) -> Run:
    return next(run for run in results.runs if run.result.label == label)


def _flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Nested dictionaries and lists as (dotted path, leaf)."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from _flat(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list) and value:
        for i, inner in enumerate(value):
            yield from _flat(inner, f"{path}.{i}")
    else:
        yield path, value

"""Settings of the runs, as rows for people: regime, mishaps, QoS, provenance. Knobs: dlcp.report.analysis.fairness."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any

from pydantic import TypeAdapter

from dlcp.model.faults import Fault
from dlcp.model.result import RunResult
from dlcp.report.data.formatting import show_setting
from dlcp.report.data.load import Results, faults
from dlcp.report.data.regime_facts import facts_of_jobs


def regime_rows(results: Results) -> list[tuple[str, str]]:
    """The scaling regime: name, value with unit; where the jobs differ, the value of each."""
    return facts_of_jobs({job: results.example(job).regime for job in results.jobs})


def fault_lines(results: Results) -> list[str]:
    """Faults planned in every run, in words, and their times; where the jobs differ, each with its job."""
    by_job = {job: _fault_words(results.example(job)) for job in results.jobs}
    if all(words == by_job[results.jobs[0]] for words in by_job.values()):
        return by_job[results.jobs[0]]
    return [f"{job}: {line}" for job, words in by_job.items() for line in words or ["no fault"]]


def _fault_words(result: RunResult) -> list[str]:
    planned = TypeAdapter(list[Fault]).validate_python(faults(result))
    return [f"{fault.what}, {fault.when}" for fault in planned]


def differing_qos(results: Results) -> list[dict[str, str]] | None:
    """Where switches or hosts did other than was meant: label, path, intended, effective, runs. None: not read back."""
    read_back = [run.result for run in results.runs if run.result.intended and run.result.effective]
    if not read_back:
        return None
    counts: Counter[tuple[str, str, str, str]] = Counter()
    for result in read_back:
        intended = dict(flat(_each(result.intended, result.effective)))
        effective = dict(flat(_each(result.effective, result.intended)))
        for path in dict.fromkeys((*intended, *effective)):
            if path not in intended or path not in effective or intended[path] != effective[path]:
                name = path.rsplit(".", 1)[-1]
                meant, done = (
                    show_setting(name, side[path]) if path in side else "–" for side in (intended, effective)
                )
                counts[result.label, path, meant, done] += 1
    return [
        {"label": label, "path": path, "intended": meant, "effective": done, "runs": str(runs)}
        for (label, path, meant, done), runs in counts.items()
    ]


def _each(side: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    """A side of the comparison, with "all" spelt out where the other side tells ports or hosts apart."""
    spelt = dict(side)
    for kind, members in side.items():
        other_value = other.get(kind)
        if (
            isinstance(members, dict)
            and set(members) == {"all"}
            and isinstance(other_value, dict)
            and "all" not in other_value
        ):
            spelt[kind] = dict.fromkeys(other_value, members["all"])
    return spelt


def provenance_rows(results: Results) -> list[tuple[str, str]]:
    """Machine and code of the runs; where runs differ, every value with its number of runs."""
    values: dict[str, dict[str, int]] = {}
    for run in results.runs:
        for path, value in flat(run.result.provenance):
            counts = values.setdefault(path, {})
            text = show_setting(path, value)
            counts[text] = counts.get(text, 0) + 1
    rows = []
    for path, counts in values.items():
        if len(counts) == 1:
            rows.append((path, next(iter(counts))))
        elif len(counts) <= 4:
            rows.append((path, ";  ".join(f"{text} ({count} runs)" for text, count in counts.items())))
        else:
            rows.append((path, f"{len(counts)} different values, from {min(counts)} to {max(counts)}"))
    seeds = sorted({run.result.seed for run in results.runs})
    substrates = sorted({run.result.substrate for run in results.runs})
    return [("substrate", ", ".join(substrates)), ("seeds", ", ".join(str(seed) for seed in seeds)), *rows]


def flat(value: Any, path: str = "") -> Iterator[tuple[str, Any]]:
    """Nested dictionaries and lists as (dotted path, leaf); one that is empty is a leaf."""
    if isinstance(value, dict) and value:
        for name, inner in value.items():
            yield from flat(inner, f"{path}.{name}" if path else str(name))
    elif isinstance(value, list) and value:
        for i, inner in enumerate(value):
            yield from flat(inner, f"{path}.{i}")
    else:
        yield path, value

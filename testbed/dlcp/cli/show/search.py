"""Output of a search: the points it tries, and their results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from rich.text import Text

from dlcp.cli.show.common import console, minutes, print_rows
from dlcp.model.loading.search_record import Point, Search
from dlcp.runner.planning.estimate import guess_s
from dlcp.runner.planning.plan import Cell
from dlcp.runner.search import Tuner, Tuning


def print_tuning_summary(tuner: Tuner, todo: Sequence[Cell]) -> None:
    """How many searches, how many runs, how long they take; what of the record does not count any more."""
    out = console()
    for line in tuner.redone:
        out.print(Text(f"{line}: it is made again", style="yellow"), soft_wrap=True)
    points = sum(len(search.points) for search in tuner.searches)
    text = f"{len(tuner.searches)} searches with {points} points: "
    text += (
        f"{len(todo)} runs to make, about {minutes(guess_s(todo))}, a guess from the ideal times"
        if todo
        else "all done"
    )
    out.print(text, soft_wrap=True)


def print_tuning(tuning: Tuning) -> None:
    """Each search as a table, a row a point."""
    out = console()
    for search in tuning.searches:
        print_rows([_row(search, point) for point in search.points], title=f"\n{search.label}, job {search.job}")
        if search.chosen is None:
            why = "no point has had all its runs trusted" if search.complete else "runs are missing"
            out.print(Text(f"nothing chosen: {why}; the same command goes on", style="yellow"))
        elif search.undecided:
            text = f"{search.undecided} points without trusted runs could not be chosen; the same command tries again"
            out.print(Text(text, style="yellow"), soft_wrap=True)
    out.print(Text(f"record: {tuning.path}", style="dim"), soft_wrap=True)


def tuning_data(tuning: Tuning) -> dict[str, Any]:
    """For JSON."""
    return {
        "record": str(tuning.path),
        "made": tuning.made,
        "redone": tuning.redone,
        "searches": [search.model_dump(mode="json") for search in tuning.searches],
    }


def _row(search: Search, point: Point) -> dict[str, Any]:
    mean_s = point.mean_jct_s
    times = ", ".join("–" if run.jct_s is None else f"{run.jct_s:.2f}" for run in point.runs)
    return point.knobs | {
        "mean JCT, s": "" if mean_s is None else f"{mean_s:.2f}",
        "runs, s": times,
        "": _mark(search, point),
    }


def _mark(search: Search, point: Point) -> str:
    if point.unfit:
        return f"cannot do: {point.unfit}"
    if point.knobs == search.chosen:
        return "chosen"
    return ", ".join(sorted({run.status for run in point.runs if run.status != "ok"}))

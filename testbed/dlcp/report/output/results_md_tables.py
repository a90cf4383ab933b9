"""Tables of RESULTS.md: a metric over jobs and schemes, and what a search tried. Markdown, a line at a time."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import pandas as pd

from dlcp.model.metrics import IDEAL_OF, REACHABLE_OF, Metric
from dlcp.report.analysis.comparison import Comparison, JobComparison
from dlcp.report.analysis.fairness import COSTS, NOT_THERE, costs, search_ends, searches
from dlcp.report.analysis.remarks import message_sizes_remark
from dlcp.report.data.formatting import Unit, show_estimate, unit_of
from dlcp.report.data.load import ideals_s_of

MOST_REASONS = 6
"""Refusals that are listed below a table, and schemes that are named with each."""
_OUT = ("suspect", "failed", "unsupported")
_SHOWN_COSTS = {"of_gradients": "{:.2f}", "sent_ratio": "{:.2f}", "resent_share": "{:.1f}", "agent_s_per_gb": "{:.0f}"}
"""Costs of a scheme that the page shows, and how; all of them are in `dlcp report`."""


def metric_table(comparison: Comparison, metric: Metric) -> Iterator[str]:
    """Schemes are rows, jobs columns, one unit for all. Runs that do not count are counted next to the figure."""
    jobs = [job for job in comparison.jobs if metric in job.metrics]
    unit = unit_of(metric, [job.estimates[label, metric.name].value for job in jobs for label in job.labels])
    yield f"**{metric.title} ({unit.sign})**: {metric.description}; 95 % intervals."
    yield ""
    yield _row(["", *(job.job for job in jobs)])
    yield _rule(len(jobs) + 1)
    for label in dict.fromkeys(label for job in comparison.jobs for label in job.labels):
        yield _row([label, *(_cell(job, label, metric, unit) for job in jobs)])
    for name, of in (("*ideal transport*", IDEAL_OF), ("*least of any transport*", REACHABLE_OF)):
        bounds = [_bounds_s(comparison, job.job, of.get(metric.name)) for job in jobs]
        if any(bounds):
            yield _row([name, *(_range([bound * unit.factor for bound in each]) for each in bounds)])
    yield ""
    yield from _refusals(jobs, metric)
    if metric.quantile is not None and not metric.name.startswith("iteration_"):
        remarks = (message_sizes_remark(comparison.results, job.job) for job in jobs)
        yield from (f"* {job.job}: {remark}" for job, remark in zip(jobs, remarks, strict=True) if remark)
    yield ""


def search_table(comparison: Comparison) -> Iterator[str]:
    """The knobs that were searched: a row a point that was tried, a column a job; the chosen one in bold. Nothing
    where nothing was searched."""
    rows = searches(comparison.results)
    if rows.empty:
        return
    jobs = list(dict.fromkeys(rows["job"]))
    runs = rows["runs"].max()
    yield (
        f"**Knobs that were searched**: mean job completion (s) of {runs} runs a point, with seeds that are never "
        "measured; in bold what the runs above use."
    )
    yield ""
    yield _row(["scheme", "knobs", *jobs])
    yield _rule(len(jobs) + 2)
    for (label, knobs), group in rows.groupby(["label", "knobs"], sort=False):
        by_job: dict[str, dict[Any, Any]] = {row["job"]: row for row in group.to_dict("records")}
        cells = []
        for job in jobs:
            row = by_job.get(job, {"why": "–", "chosen": False})
            text = row["why"] or ("n/a" if pd.isna(row["jct_s"]) else f"{row['jct_s']:.3g}")
            cells.append(f"**{text}**" if row["chosen"] else text)
        yield _row([str(label), str(knobs), *cells])
    yield ""
    yield from _search_ends(comparison)


def _search_ends(comparison: Comparison) -> Iterator[str]:
    """Say which searches ended at an end of what they tried, so that a rival may be better than it is shown here."""
    ends = search_ends(comparison.results)
    for (label, knob, value, tried), group in ends.groupby(["label", "knob", "value", "tried"], sort=False):
        yield (
            f"* {label}: the best `{knob}` in {', '.join(group['job'])} is {value}, at an end of what was tried "
            f"({tried}); a better one may lie beyond."
        )
    if len(ends):
        yield ""


def cost_table(comparison: Comparison) -> Iterator[str]:
    """Table of the costs of each scheme: schemes are rows, costs columns, the mean over each job's trusted runs and
    over the jobs that all schemes ran. Nothing where no run records any."""
    table = costs(comparison.results)
    table = table[table["cost"].isin(list(_SHOWN_COSTS)) & table["value"].notna()]
    if not table["cost"].eq("sent_ratio").any():
        return
    everywhere = table.groupby("job")["label"].nunique()
    jobs = list(everywhere[everywhere == everywhere.max()].index)
    means = table[table["job"].isin(jobs)].groupby(["label", "cost"], sort=False)["value"].mean().unstack()
    means = means.reindex([label for label in comparison.results.labels() if label in means.index])
    titles = {name: COSTS[name] for name in _SHOWN_COSTS if name in means}
    meanings = "; ".join(f"{title}: {meaning}" for title, meaning in titles.values())
    yield f"**What it takes** (mean over {', '.join(jobs)}). {meanings}."
    yield ""
    yield _row(["", *(title for title, _ in titles.values())])
    yield _rule(len(titles) + 1)
    for label, means_of in means.iterrows():
        yield _row(
            [
                str(label),
                *(
                    NOT_THERE if pd.isna(means_of[name]) else _SHOWN_COSTS[name].format(means_of[name])
                    for name in titles
                ),
            ]
        )
    yield ""


def _cell(job: JobComparison, label: str, metric: Metric, unit: Unit) -> str:
    estimate = job.estimates.get((label, metric.name))
    if estimate is None:
        return "–"
    out = [f"{job.counts[label][status]} {status}" for status in _OUT if job.counts[label].get(status)]
    return show_estimate(estimate, metric, unit, with_unit=False) + (f" ({', '.join(out)})" if out else "")


def _refusals(jobs: Iterable[JobComparison], metric: Metric) -> Iterator[str]:
    """Why figures or intervals are missing, a line a reason, and whose."""
    labels: dict[str, list[str]] = {}
    for job in jobs:
        for label in job.labels:
            if why := job.estimates[label, metric.name].why:
                labels.setdefault(why, []).append(f"{label} in {job.job}")
    for why, cells in list(labels.items())[:MOST_REASONS]:
        more = f" and {len(cells) - MOST_REASONS} more" if len(cells) > MOST_REASONS else ""
        yield f"* {', '.join(cells[:MOST_REASONS])}{more}: {why}"
    if len(labels) > MOST_REASONS:
        yield f"* and {len(labels) - MOST_REASONS} more such reasons"


def _bounds_s(comparison: Comparison, job: str, name: str | None) -> list[float]:
    """Return a figure of RunResult.ideal by label; nothing for a metric that has none."""
    return [] if name is None else list(ideals_s_of(comparison.results, job, name).values())


def _range(values: Sequence[float]) -> str:
    """Return the least and the greatest value as text; one where both look the same, a dash where there is none."""
    if not values:
        return "–"
    low, high = (f"{end:.3g}" for end in (min(values), max(values)))
    return low if low == high else f"{low}–{high}"


def _row(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _rule(columns: int) -> str:
    return "|---" * columns + "|"

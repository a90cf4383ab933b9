"""Lab time: what a run measured in its slow motion, divided by its time dilation. All that a report shows is in it.

Tables and result.json keep the emulation's own seconds. Shares, counts, and CPU time of this machine have no dilation.
"""

from __future__ import annotations

import pandas as pd

from dlcp.model.result import RunResult

COLUMNS: dict[str, tuple[str, ...]] = {
    "iterations": ("start_s", "end_s", "compute_s", "exposed_comm_s"),
    "messages": ("start_s", "end_s"),
    "flows": ("planned_s", "start_s", "end_s"),
    "training": ("time_s",),
    "backlog": ("time_s",),
    "hosts": ("time_s",),
}
"""Table → its columns that are times of the emulation. `codec_s` and `sched_late_s` are this machine's."""


def dilation(result: RunResult) -> float:
    """Emulated seconds a lab second."""
    return float(result.regime.get("time_dilation", 1.0))


def in_lab_time(result: RunResult) -> RunResult:
    """The same run with its completion time, and the ideal transport's times, in lab seconds."""
    d = dilation(result)
    if d == 1.0:
        return result
    ideal = {name: value / d if name.endswith("_s") else value for name, value in result.ideal.items()}
    return result.model_copy(update={"jct_s": None if result.jct_s is None else result.jct_s / d, "ideal": ideal})


def table_in_lab_time(table: pd.DataFrame, name: str, result: RunResult) -> pd.DataFrame:
    """The same table of a run (any of its columns), its times in lab seconds."""
    present = [column for column in COLUMNS.get(name, ()) if column in table]
    d = dilation(result)
    return table.assign(**{column: table[column] / d for column in present}) if d != 1.0 and present else table

"""When the workers of a job may hold different parameters: what a run is judged by, and what a report checks again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any


def drift_lasts(run: Mapping[str, Any]) -> bool:
    """Return whether no later pull repairs what one lost. run: a result's definition (RunResult.run). Definitions that
    do not say it are of the time when this was so in a transpose alone.
    """
    lasts = run.get("drift_lasts")
    return run.get("job", {}).get("pattern") == "transpose" if lasts is None else bool(lasts)


def may_differ(iterations: Iterable[int], lossy_pulls: Iterable[int], *, lasts: bool) -> set[int]:
    """Those iterations after which workers need not hold the same parameters.

    lossy_pulls: iterations of which a pull lost something (one that might have lost, and did not, excuses nothing).
    lasts: whether no later pull repairs it (drift_lasts of the job's pattern); then all later iterations are excused,
    too.
    """
    lossy = set(lossy_pulls)
    if not lossy or not lasts:
        return lossy
    return {iteration for iteration in iterations if iteration >= min(lossy)}

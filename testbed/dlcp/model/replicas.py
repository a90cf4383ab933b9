"""When the workers of a job may hold different parameters: what a run is judged by, and what a report checks again."""

from __future__ import annotations

from collections.abc import Iterable


def drift_lasts(pattern: str) -> bool:
    """Whether what a pull lost is mended by no later one: in a transpose, whose pulls carry means, not parameters."""
    return pattern == "transpose"


def may_differ(iterations: Iterable[int], lossy_pulls: Iterable[int], *, lasts: bool) -> set[int]:
    """Those iterations after which workers need not hold the same parameters.

    lossy_pulls: iterations of which a pull lost something (one that might have lost, and did not, excuses nothing).
    lasts: drift_lasts of the job's pattern: then all later iterations are excused, too.
    """
    lossy = set(lossy_pulls)
    if not lossy or not lasts:
        return lossy
    return {iteration for iteration in iterations if iteration >= min(lossy)}

"""Whether the machine is in the results: the same experiment at several time dilations.

An emulated second stands for 1/d lab seconds, and everything is stretched alike (packets, messages and buffers
stay). JCT ÷ d is then the same at any d, unless the machine takes part; twice the dilation is a machine twice as
fast. The JCT at the largest dilation is the reference, and a faster run's difference from it is the machine's bias.

A run that its monitors believe in a biased cell is a false "ok"; a suspect run of an unbiased cell is a false
"suspect". The monitors' bounds (dlcp.substrates.fidelity) are set so that there is none of the former.
"""

from __future__ import annotations

import itertools
import math
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from statistics import fmean, stdev
from typing import Any

from dlcp.agents.machine_monitor import cores
from dlcp.errors import Problem
from dlcp.model.base import OnProgress
from dlcp.model.experiment import SchemeChoice
from dlcp.model.loading.explain import did_you_mean
from dlcp.model.run import Run
from dlcp.runner.machine.dilation import dilated
from dlcp.runner.machine.scale_down import require_declared_compute
from dlcp.runner.planning.check import Ready
from dlcp.runner.planning.plan import seed_of, tenants_of
from dlcp.substrates.base import Substrate
from dlcp.substrates.emulate.substrate import Emulation

FALSE_OK = "FALSE OK"
"""Verdict on a cell whose believed trials are biased."""
LARGEST_BIAS = 0.03
"""What an "ok" run's JCT may differ by from that of a machine twice as fast: less than the differences between schemes
that the comparison reports as clear."""
_PLANTED = Path(__file__).with_name("busy_loop.py")
_SUSPECT_WORDS = 100


@dataclass(frozen=True)
class Options:
    """What to sweep. labels: schemes of the experiment. dilations: factors on the experiment's own, the largest of
    which is the reference. planted: shares of one core that a busy loop takes meanwhile; 0 = none. first: number of the
    first repeat, from which its seed follows."""

    job: str
    labels: tuple[str, ...]
    dilations: tuple[float, ...] = (1.0, 2.0, 4.0)
    planted: tuple[float, ...] = (0.0,)
    repeats: int = 3
    first: int = 0

    @property
    def reference(self) -> float:
        """The dilation that all others are compared with."""
        return max(self.dilations)


@dataclass(frozen=True)
class Trial:
    """One run. jct_lab_s: JCT ÷ dilation, None of a run that failed. objected: monitors out of bounds. values: of all
    monitors, in lab time."""

    label: str
    dilation: float
    planted: float
    repeat: int
    status: str
    jct_lab_s: float | None
    objected: tuple[str, ...]
    reason: str
    values: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Cell:
    """The trials of one scheme at one dilation and one planted load.

    bias: mean over believed trials of JCT ÷ that of the reference with the same seed, less 1; suspect_bias: the same
    over suspect ones; None without a pair. half_width: of the 95 % t-interval of bias; None of fewer than two pairs.
    ok, suspect, failed: how many trials. objected: monitor → in how many trials it did.
    """

    label: str
    dilation: float
    planted: float
    jct_lab_s: float | None
    bias: float | None
    half_width: float | None
    suspect_bias: float | None
    ok: int
    suspect: int
    failed: int
    objected: dict[str, int]
    reference: bool

    @property
    def false_ok(self) -> int:
        """Trials that their monitors believed, with a mean bias beyond LARGEST_BIAS in either direction."""
        return self.ok if self.bias is not None and abs(self.bias) > LARGEST_BIAS else 0

    @property
    def false_suspect(self) -> int:
        """Trials that their monitors suspected, with a mean bias that is not beyond LARGEST_BIAS."""
        return self.suspect if self.suspect_bias is not None and abs(self.suspect_bias) <= LARGEST_BIAS else 0

    @property
    def verdict(self) -> str:
        """The monitors' verdict on the cell, in words for a table."""
        if self.failed:
            return f"{self.failed} failed"
        if self.bias is None and self.suspect_bias is None:
            return "no reference"
        if self.false_ok:
            return FALSE_OK
        if self.ok:
            return "holds; some suspect" if self.suspect else "holds"
        return "holds, though suspect" if self.false_suspect else "caught"


def options_for(
    ready: Ready,
    job: str | None,
    labels: Sequence[str] | None,
    dilations: Sequence[float],
    planted: Sequence[float],
    repeats: int,
) -> Options:
    """The options of a sweep, checked. Problem for a job or a scheme that the experiment lacks, or a bad number;
    Problems for a job that cannot be dilated."""
    jobs = [name for name, one in ready.experiment.jobs.items() if one.measured]
    names = [choice.label for choice in ready.experiment.schemes]
    for word, value, known in [("--job", job, jobs), *(("--scheme", label, names) for label in labels or ())]:
        if value is not None and value not in known:
            raise Problem(word, f"{ready.path} has no {value!r}", did_you_mean(value, known))
    if len(set(dilations)) < 2 or min(dilations) < 1:
        hint = "such as --dilation 1 --dilation 2, each 1 or more"
        raise Problem("--dilation", "a bias is seen between two of them", hint)
    chosen = job or jobs[0]
    require_declared_compute(ready, [chosen], dilated(ready.experiment, max(dilations)).scaling)
    if not all(0 <= share <= cores() for share in planted):
        raise Problem("--planted", "is a share of one core", f"from 0 to {cores()}, such as 0.2")
    if repeats < 1:
        raise Problem("--repeats", f"{repeats} is too few", "1 or more; 3 for an interval")
    return Options(chosen, tuple(labels or names), tuple(sorted(set(dilations))), tuple(planted), repeats)


def sweep(ready: Ready, options: Options, on_progress: OnProgress, on_trial: Callable[[Trial], None]) -> list[Trial]:
    """Make every run, repeats outermost and schemes innermost, so that what drifts meets all alike; needs root.

    The reference has no planted load: it is what loads are compared with.
    """
    plan = list(_order(options))
    trials: list[Trial] = []
    with Emulation() as substrate:
        for number, (repeat, planted, dilation, label) in enumerate(plan):
            load = f", beside a busy loop of {planted:.0%}" if planted else ""
            on_progress(number / len(plan), f"{label} at {dilation:g} times the dilation{load}, repeat {repeat + 1}")
            with busy_loop(planted):
                trials.append(_try(substrate, ready, options.job, label, dilation, planted, repeat))
            on_trial(trials[-1])
    return trials


def _order(options: Options) -> Iterator[tuple[int, float, float, str]]:
    references = [(0.0, options.reference)]
    loaded = [
        (share, dilation)
        for share in options.planted
        for dilation in options.dilations
        if dilation != options.reference
    ]
    for repeat in range(options.first, options.first + options.repeats):
        for (planted, dilation), label in itertools.product(loaded + references, options.labels):
            yield repeat, planted, dilation, label


def cells(trials: Sequence[Trial]) -> list[Cell]:
    """Trials of a sweep, put together by scheme, dilation and planted load; the references first of each scheme."""
    largest = max(one.dilation for one in trials)
    reference = {(one.label, one.repeat): one for one in trials if one.dilation == largest and not one.planted}
    keys = sorted({(one.label, -one.dilation, one.planted) for one in trials})
    return [
        _cell([one for one in trials if (one.label, -one.dilation, one.planted) == key], reference, largest)
        for key in keys
    ]


def _cell(trials: list[Trial], reference: dict[tuple[str, int], Trial], largest: float) -> Cell:
    first = trials[0]
    believed, suspect = (_biases(trials, reference, status) for status in ("ok", "suspect"))
    finished = [one.jct_lab_s for one in trials if one.jct_lab_s is not None]
    objected = [name for one in trials for name in one.objected]
    return Cell(
        first.label,
        first.dilation,
        first.planted,
        jct_lab_s=fmean(finished) if finished else None,
        bias=fmean(believed) if believed else None,
        half_width=_half_width(believed),
        suspect_bias=fmean(suspect) if suspect else None,
        ok=sum(one.status == "ok" for one in trials),
        suspect=sum(one.status == "suspect" for one in trials),
        failed=sum(one.status == "failed" for one in trials),
        objected={name: objected.count(name) for name in dict.fromkeys(objected)},
        reference=first.dilation == largest and not first.planted,
    )


def _biases(trials: Iterable[Trial], reference: Mapping[tuple[str, int], Trial], status: str) -> list[float]:
    """Biases of the trials with a status whose reference, of the same seed, was believed."""
    pairs = [(one, reference.get((one.label, one.repeat))) for one in trials if one.status == status]
    return [
        one.jct_lab_s / other.jct_lab_s - 1
        for one, other in pairs
        if other is not None and other.status == "ok" and one.jct_lab_s is not None and other.jct_lab_s is not None
    ]


def _half_width(values: Sequence[float]) -> float | None:
    if len(values) < 2:
        return None
    from scipy.stats import t

    return float(t.ppf(0.975, len(values) - 1)) * stdev(values) / math.sqrt(len(values))


def unsettled(ready: Ready, options: Options) -> list[str]:
    """Labels with a knob that a search has yet to choose: the first value of each is swept."""
    searched = {one.label for one in ready.experiment.schemes if one.search}
    return [one for one in options.labels if one in searched and (one, options.job) not in ready.searches]


def untrusted(found: Iterable[Cell]) -> list[str]:
    """Labels without a reference run that its own monitors believe: nothing can be said of them."""
    return [one.label for one in found if one.reference and not one.ok]


def summary(ready: Ready, options: Options, trials: list[Trial]) -> dict[str, Any]:
    """The sweep as data: cells, trials, counts of false verdicts."""
    found = cells(trials)
    compared = [one for one in found if not one.reference]
    return {
        "experiment": ready.experiment.name,
        "time_dilation": ready.experiment.scaling.time_dilation,
        "options": asdict(options),
        "largest_bias": LARGEST_BIAS,
        "unsettled": unsettled(ready, options),
        "cells": [asdict(one) | {"verdict": one.verdict} for one in found],
        "trials": [asdict(one) for one in trials],
        "runs": sum(one.ok + one.suspect + one.failed for one in compared),
        "false_ok": sum(one.false_ok for one in compared),
        "false_suspect": sum(one.false_suspect for one in compared),
        "failed": sum(one.failed for one in found),
        "untrusted": untrusted(found),
    }


@contextmanager
def busy_loop(share: float) -> Iterator[list[int]]:
    """A process beside the block that keeps so much of one core busy, in turns of 50 ms; more than 1: several. Yields
    their ids."""
    shares = [1.0] * int(share) + ([share % 1] if share % 1 else [])
    loops = [subprocess.Popen([sys.executable, str(_PLANTED), str(one)]) for one in shares]
    try:
        yield [loop.pid for loop in loops]
    finally:
        for loop in loops:
            loop.kill()
            loop.wait()


def _try(
    substrate: Substrate, ready: Ready, job_name: str, label: str, dilation: float, planted: float, repeat: int
) -> Trial:
    """One run, in a folder that is thrown away."""
    whole = replace(ready, experiment=dilated(ready.experiment, dilation))
    experiment = whole.experiment.of_job(job_name)
    job, choice = experiment.jobs[job_name], _choice(ready, label, job_name)
    seed = seed_of(experiment.seed, f"invariance/{job_name}", repeat)
    tenants = tenants_of(whole, job_name, label)
    workload = ready.workloads[job.workload]
    run = Run("0" * 12, experiment, choice, job_name, job, workload, repeat, seed, "emulate", tenants)
    with tempfile.TemporaryDirectory(prefix="dlcp-invariance-") as folder:
        result = substrate.run(run, Path(folder), lambda share, text: None)
    d = experiment.scaling.time_dilation
    return Trial(
        label,
        dilation,
        planted,
        repeat,
        str(result.status),
        jct_lab_s=result.jct_s / d if result.jct_s else None,
        objected=tuple(name for name, one in result.fidelity.items() if not one["ok"]),
        reason=result.reason[:_SUSPECT_WORDS],
        values={name: one["value"] for name, one in result.fidelity.items()},
    )


def _choice(ready: Ready, label: str, job_name: str) -> SchemeChoice:
    """A scheme with its knobs for a job; of knobs that a search has yet to choose, the first value of each."""
    choice = ready.choice(label, job_name)
    written = next(one for one in ready.experiment.schemes if one.label == label)
    if not written.search or (label, job_name) in ready.searches:
        return choice
    return written.of_job(job_name, {knob: values[0] for knob, values in written.search.items()})

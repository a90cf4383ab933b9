"""Whether this machine is in the results of any shipped experiment: a small `dlcp verify machine` for each of them.

    python tests/bench/shipped_loads.py [EXPERIMENT ...] [--repeats 2] [--iterations 3]

Of each experiment that is emulated: the job that takes most of the machine in the mean, under DLCP and under the scheme
that takes most beside it, at the experiment's own time dilation and at twice that, with few iterations. A believed run
must have the JCT of the machine twice as fast within 3 %. A row is printed as soon as it is known, with the half-width
of the 95 % interval; all of them take an hour. As root, on a quiet machine. Where a believed run differs by more, as
many repeats are made again, and all are judged together: the mean of two is off by 3 % in one of some hundred cells,
whatever the machine does. Exits with 1 when a run failed, no run at twice the dilation was believed, or a bias is
beyond 3 % by its whole interval; one whose interval reaches below 3 % is "undecided": more repeats say more.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
from bias_sweep import judged

from dlcp.errors import Problem, Problems
from dlcp.model.loading.experiment_files import experiment_names, find_experiment
from dlcp.runner.machine.invariance import FALSE_OK, LARGEST_BIAS, Options, options_for
from dlcp.runner.machine.job_load import load_of, loads_of
from dlcp.runner.planning.check import Ready, common_substrate, ready
from dlcp.runner.preview.outline import as_emulated, this_machine
from dlcp.schemes.base import UnfitError

DEAREST = ("ByteScheduler", "P3", "OptiReduce", "DCTCP over UDP", "TCP tuned", "TCP")
"""Rivals by what they take of a CPU, the dearest first."""


def with_fewer(whole: Ready, job: str, iterations: int) -> Ready:
    """The experiment with so many iterations of a job and of what runs beside it, one of them warm-up."""
    jobs = dict(whole.experiment.jobs)
    for name in (job, *jobs[job].beside):
        less = {"iterations": min(iterations, jobs[name].iterations), "warmup_iterations": 1, "evaluations": 1}
        jobs[name] = jobs[name].model_copy(update=less)
    return replace(whole, experiment=whole.experiment.model_copy(update={"jobs": jobs}))


def fit(whole: Ready, job: str, labels: list[str]) -> bool:
    """Whether every scheme can run the job; some need more iterations to learn from."""
    work = whole.experiment.jobs[job]
    try:
        for label in labels:
            whole.schemes[label].for_job(work, whole.workloads[work.workload])
    except UnfitError:
        return False
    return True


def chosen(name: str, repeats: int, iterations: int) -> tuple[Ready, Options, str] | None:
    """The sweep of one experiment and what the job takes of the machine; None when it is not emulated."""
    whole = ready(find_experiment(name))
    if common_substrate(whole.schemes.values()) != "emulate" or not any(
        job.measured for job in whole.experiment.jobs.values()
    ):
        return None
    whole, _ = as_emulated(whole)
    machine = this_machine(fit=whole.experiment.scaling.fit)
    job = max(loads_of(whole, machine), key=lambda load: load.cpu).job
    load = load_of(whole, job, machine)
    labels = [choice.label for choice in whole.experiment.schemes]
    ours = ["DLCP"] if "DLCP" in labels else labels[-1:]
    swept = ours + [label for label in DEAREST if label in labels][:1]
    fewer = with_fewer(whole, job, iterations)
    whole = fewer if fit(fewer, job, swept) else whole
    return whole, options_for(whole, job, swept, (1.0, 2.0), (0.0,), repeats), f"{load.cpu:.2f} of {load.usable:.2f}"


def objections(found: dict[str, Any], label: str) -> str:
    """Name the monitors that objected to a scheme's runs at either dilation, and how often; "" if none did."""
    counts = Counter[str]()
    for cell in found["cells"]:
        if cell["label"] == label:
            counts.update(cell["objected"])
    return f" ({', '.join(f'{monitor} {count}' for monitor, count in counts.items())})" if counts else ""


def row(name: str, job: str, load: str, found: dict[str, Any]) -> bool:
    """Print one line a scheme: bias, verdicts; whether all of it holds."""
    for cell in found["cells"]:
        if cell["reference"]:
            continue
        bias = "none believed" if cell["bias"] is None else f"{cell['bias']:+.1%}"
        if cell["half_width"] is not None:
            bias += f" ± {cell['half_width']:.1%}"
        counts = f"{cell['ok']} of {cell['ok'] + cell['suspect'] + cell['failed']} ok"
        verdict = "undecided" if undecided(cell) else cell["verdict"]
        line = f"{name:17} {job:16} {cell['label']:15} {load:13} {bias:>16} {counts:>11}  {verdict}"
        print(line + objections(found, cell["label"]), flush=True)
    biased = any(cell["verdict"] == FALSE_OK and not undecided(cell) for cell in found["cells"])
    return not (found["failed"] or biased or found["untrusted"])


def undecided(cell: dict[str, Any]) -> bool:
    """Whether believed runs differ by more than 3 %, but so much from each other that it may be chance."""
    if cell["verdict"] != FALSE_OK:
        return False
    return cell["half_width"] is None or abs(cell["bias"]) - cell["half_width"] <= LARGEST_BIAS


def main() -> None:
    """Sweep, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiments", nargs="*", metavar="EXPERIMENT")
    parser.add_argument("--repeats", type=int, default=2)
    parser.add_argument("--iterations", type=int, default=3)
    options = parser.parse_args()
    holds = True
    print(f"{'experiment':17} {'job':16} {'scheme':15} {'cores, mean':13} {'bias':>16} {'believed':>11}")
    for name in options.experiments or experiment_names():
        try:
            planned = chosen(name, options.repeats, options.iterations)
        except (Problem, Problems) as problem:
            print(f"{name:17} not swept: {' '.join(str(problem).split())}", flush=True)
            continue
        if planned is None:
            continue
        whole, sweep_options, load = planned
        holds &= row(name, sweep_options.job, load, judged(whole, sweep_options)[0])
    sys.exit(not holds)


if __name__ == "__main__":
    main()

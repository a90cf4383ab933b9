"""A process that makes runs of the substrate `inprocess`, one after the other, until its caller is done with it."""

from __future__ import annotations

import signal
import time
from pathlib import Path
from typing import Any, NoReturn

from pydantic import TypeAdapter

from dlcp.agents.process.inprocess_job import InProcessJob
from dlcp.errors import ExitCode, Problem
from dlcp.model.base import OnProgress
from dlcp.model.result import TABLES, RunResult
from dlcp.model.run import Run
from dlcp.model.tables import write_columns, write_rows
from dlcp.model.units import show_duration
from dlcp.substrates.json_lines import Say, answer_all
from dlcp.substrates.run_plan import RunPlan, plan_run
from dlcp.transport.contract.tensors import PACKET_ELEMENTS

PROGRESS_EVERY_S = 0.2


def main() -> NoReturn:
    """Make the runs that are asked for on standard input. Ctrl-C is the caller's to hear, who then ends it."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    answer_all(_make)


def conduct(plan: RunPlan, directory: Path, on_progress: OnProgress) -> RunResult:
    """Train, write the tables into `directory`, return the result. Problem when the masks do not fit the job."""
    result = plan.blank_result()
    spec = plan.spec
    begun_s, limit_s = time.monotonic(), plan.run.experiment.time_limit_s

    def on_iteration(done: int) -> None:
        if time.monotonic() - begun_s > limit_s:
            what = f"{done} of {spec.iterations} iterations took longer than the time limit of {show_duration(limit_s)}"
            raise Problem(where, what, "a longer time_limit, or fewer iterations", exit_code=ExitCode.RUN_FAILED)
        on_progress(done / spec.iterations, f"iteration {done} of {spec.iterations}")

    if plan.tenants:
        what = (
            f"{', '.join(one.spec.name for one in plan.tenants)} should run beside it, but there is no network to share"
        )
        raise Problem(
            f"job {result.job}", what, "leave `beside` out, or run it on emulate", exit_code=ExitCode.RUN_FAILED
        )
    where = f"scheme {result.label}, job {result.job}"
    try:
        trained = InProcessJob(spec, plan.settings).run(on_iteration)
    except ValueError as error:
        hint = "change the scheme's knobs, or the job"
        raise Problem(where, str(error), hint, exit_code=ExitCode.RUN_FAILED) from error
    tables = {"iterations": trained.iterations, "messages": trained.messages, "training": trained.training}
    for name in TABLES:
        if name in tables:
            write_columns(directory, name, tables[name])
        else:
            write_rows(directory, name, [])
    result.regime = {
        "network": "none: one process",
        "workers": len(spec.workers),
        "packet_values": PACKET_ELEMENTS,
        "messages": len(spec.tensors(plan.settings)),
    }
    result.topology = {}
    result.statistics = {
        "gradient": {"lost_energy_share": trained.lost_energy_share},
        "inprocess": {"took_s": time.monotonic() - begun_s},
    }
    result.warnings.append("trained in one process: no time in this result is a measurement, steps are")
    return result


def _make(request: dict[str, Any], say: Say) -> None:
    said_s = 0.0

    def on_progress(share: float, text: str) -> None:
        nonlocal said_s
        if time.monotonic() - said_s >= PROGRESS_EVERY_S:
            said_s = time.monotonic()
            say({"progress": share, "text": text})

    plan = plan_run(TypeAdapter(Run).validate_python(request["run"]))
    result = conduct(plan, Path(request["directory"]), on_progress)
    say({"result": result.model_dump(mode="json")})


if __name__ == "__main__":
    main()

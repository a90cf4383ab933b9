"""`dlcp tune`: parse, call, print. As in cli.py, the command that needs a slow import is where it stands."""

from __future__ import annotations

from typing import Annotated

from cyclopts import Parameter

from dlcp.cli_bench import Json


def tune(
    experiment: str,
    *,
    scheme: Annotated[list[str] | None, Parameter(negative="")] = None,
    job: Annotated[list[str] | None, Parameter(negative="")] = None,
    json: Json = False,
) -> int:
    """Try the knobs that an experiment's schemes `search`, and record which are best for each job. Again = resume.

    Every combination runs twice on the experiment's own fabric, with seeds that are never measured. The record,
    tuned/EXPERIMENT.yaml beside the experiment, says all that was tried; `dlcp run` needs it and uses what it chose.

    Parameters
    ----------
    scheme
        Label of a scheme with a `search`, if not all; may be said several times.
    job
        Name of a job, if not all; may be said several times.
    """
    from dlcp import screen
    from dlcp.model.load import find_experiment
    from dlcp.progress import progress_on
    from dlcp.runner import tune as tuning
    from dlcp.runner.check import ready
    from dlcp.runner.preflight import preflight_tuning
    from dlcp.screen_tune import print_tuning, print_tuning_summary, tuning_data

    experiment_ready = ready(find_experiment(experiment))
    tuner = tuning.Tuner(experiment_ready, scheme, job)
    todo = [trial.cell for trial in tuner.todo()]
    preflight_tuning(experiment_ready, tuner.substrate, todo)
    if not json:
        print_tuning_summary(tuner, todo)
    with progress_on(screen.console(error=json)) as listener:
        found = tuning.tune(tuner, listener)
    if json:
        screen.print_json(tuning_data(found))
    else:
        print_tuning(found)
    return found.exit_code

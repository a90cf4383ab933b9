"""`dlcp tune`: parse, call, print. As in main.py, the command that needs a slow import is where it stands."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from dlcp.cli.bench import Json

if TYPE_CHECKING:
    from dlcp.runner.planning.check import Ready
    from dlcp.runner.search import Tuner, Tuning


def tune(
    experiment: str,
    *,
    scheme: Annotated[list[str] | None, Parameter(negative="")] = None,
    job: Annotated[list[str] | None, Parameter(negative="")] = None,
    json: Json = False,
) -> int:
    """Try the knobs that an experiment's schemes `search`, and record which are best for each job. Again = resume.

    Every combination runs twice on the experiment's own fabric, with seeds that are never measured. The record,
    tuned/EXPERIMENT.yaml in the experiment's folder, lists every trial; `dlcp run` uses the chosen values, and first
    makes the searches that are missing.

    Parameters
    ----------
    scheme
        Label of a scheme with a `search`, if not all; may be said several times.
    job
        Name of a job, if not all; may be said several times.
    """
    from dlcp.cli.show import common
    from dlcp.cli.show.search import print_tuning, tuning_data
    from dlcp.model.loading.experiment_files import find_experiment
    from dlcp.runner.planning.check import ready
    from dlcp.runner.search import Tuner

    experiment_ready = ready(find_experiment(experiment))
    tuning = _search(experiment_ready, Tuner(experiment_ready, scheme, job), json=json)
    if json:
        common.print_json(tuning_data(tuning))
    else:
        print_tuning(tuning)
    return tuning.exit_code


def searched(lacking: Ready) -> Ready:
    """Make the searches that an experiment lacks, as `dlcp tune` does, and read it again with the chosen values.

    Knobs for which no value could be chosen stay `untuned`.
    """
    from dlcp.cli.show import common
    from dlcp.cli.show.search import print_tuning
    from dlcp.runner.planning.check import ready
    from dlcp.runner.search import Tuner

    common.console().print(f"{lacking.experiment.name}: its schemes' knobs are searched first, as by `dlcp tune`")
    print_tuning(_search(lacking, Tuner(lacking)))
    return ready(lacking.path, lacking.workload_folder)


def _search(whole: Ready, tuner: Tuner, *, json: bool = False) -> Tuning:
    """Say what is to be done and do it."""
    from dlcp.cli.show import common
    from dlcp.cli.show.progress import progress_on
    from dlcp.cli.show.search import print_tuning_summary
    from dlcp.runner import search as tuning
    from dlcp.runner.preview.preflight import preflight_tuning

    todo = [trial.cell for trial in tuner.todo()]
    preflight_tuning(whole, tuner.substrate, todo)
    if not json:
        print_tuning_summary(tuner, todo)
    with progress_on(common.console(error=json)) as listener:
        return tuning.tune(tuner, listener)

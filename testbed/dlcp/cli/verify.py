"""`dlcp verify`: parse, call, print. As in main.py, the command that needs a slow import is where it stands."""

from __future__ import annotations

from typing import Annotated

from cyclopts import App, Parameter

from dlcp.cli.bench import Json
from dlcp.errors import ExitCode, needs_extra

verify = App(name="verify", help="Prove what results rest on.")


@verify.command
def machine(
    experiment: str = "machine-bias",
    *,
    job: str | None = None,
    scheme: Annotated[list[str] | None, Parameter(negative="")] = None,
    dilation: Annotated[list[float] | None, Parameter(negative="")] = None,
    planted: Annotated[list[float] | None, Parameter(negative="")] = None,
    repeats: int = 3,
    json: Json = False,
) -> int:
    """Test whether this machine distorts results: one experiment at several time dilations (needs root).

    Everything is stretched alike, so that JCT ÷ dilation would be the same at each, if the machine took no part; twice
    the dilation is a machine twice as fast. A run that its monitors believe must be within 3 % of the largest
    dilation's; exit code 4 when one is not, or when a reference is suspect itself.

    * the heaviest load that is admitted, against a machine twice and four times as fast: `dlcp verify machine`
    * whether the monitors see others' work: `dlcp verify machine --scheme DLCP --planted 0.1 --planted 0.4`
    * the load of any experiment: `dlcp verify machine headline`

    Parameters
    ----------
    experiment
        An experiment, or a path to its file; one that is fitted to the machine is swept from there on.
    job
        One of its jobs; the first, if not given.
    scheme
        Label of a scheme; may be given several times. All of the experiment's, if not given.
    dilation
        A factor on the experiment's own time dilation; may be given several times. 1, 2 and 4, if not given.
    planted
        Share of one core that a busy loop takes during the runs, but for the references; may be given several times.
    repeats
        Runs of each cell, with seeds of their own, in turn.
    """
    from dlcp.cli.show import common
    from dlcp.cli.show.progress import measuring_on
    from dlcp.model.loading.experiment_files import find_experiment
    from dlcp.runner.machine import invariance
    from dlcp.runner.planning.check import ready
    from dlcp.runner.preview.outline import as_emulated

    with needs_extra("report", "dlcp verify machine"):
        import scipy.stats  # noqa: F401 - the summary needs it, after minutes of runs
    experiment_ready, fitted = as_emulated(ready(find_experiment(experiment)))
    if fitted:
        common.console(error=True).print(fitted, soft_wrap=True, markup=False)
    options = invariance.options_for(
        experiment_ready, job, scheme, dilation or (1.0, 2.0, 4.0), [0.0, *(planted or ())], repeats
    )
    with measuring_on(common.console(error=True)) as on_progress:
        trials = invariance.sweep(experiment_ready, options, on_progress, lambda trial: None)
    summary_rows = invariance.summary(experiment_ready, options, trials)
    (common.print_json if json else common.print_invariance)(summary_rows)
    if summary_rows["failed"]:
        return ExitCode.RUN_FAILED
    return ExitCode.SUSPECT if summary_rows["false_ok"] or summary_rows["untrusted"] else ExitCode.FINE

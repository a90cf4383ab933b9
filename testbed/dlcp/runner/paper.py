"""The comparison as a whole: every shipped experiment, each reduced as its own file says, one after the other.

The runs are those of `dlcp run EXPERIMENT`, of the same names: what is there is kept, in both directions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from dlcp.errors import MachineCannot, Problem
from dlcp.model.experiment import Experiment
from dlcp.model.loading.document import read_document
from dlcp.model.loading.experiment_files import experiment_names, find_experiment
from dlcp.runner.planning.check import Ready, ready
from dlcp.runner.planning.estimate import guess_s
from dlcp.runner.planning.plan import Cell, Unsupported, usual_substrate
from dlcp.runner.preview.outline import Outline, outline
from dlcp.runner.preview.preflight import preflight, preflight_tuning
from dlcp.runner.running.execute import Execution, Listener, execute
from dlcp.runner.search import Tuner, tune


@dataclass(frozen=True)
class Part:
    """One shipped experiment. whole: as its file has it. outline: of the reduced one; None: this machine cannot make
    it, and `cannot` says why. to_tune: runs that its searches lack, before it can be made."""

    whole: Ready
    outline: Outline | None
    cannot: str = ""
    to_tune: tuple[Cell, ...] = ()

    @property
    def name(self) -> str:
        """The experiment's."""
        return self.whole.experiment.name

    @property
    def cells(self) -> tuple[Cell, ...]:
        """The runs of the reduced experiment."""
        return self.outline.plan.cells if self.outline is not None else ()

    @property
    def unsupported(self) -> tuple[Unsupported, ...]:
        """Schemes that cannot run here, and why."""
        return self.outline.plan.unsupported if self.outline is not None else ()

    @property
    def todo(self) -> tuple[Cell, ...]:
        """Those of them that have no result yet."""
        return self.outline.todo if self.outline is not None else ()

    @property
    def seconds(self) -> float:
        """Seconds that they take, with those of its searches, as far as is known."""
        return (self.outline.estimate.seconds if self.outline is not None else 0.0) + guess_s(self.to_tune)


def shipped(*, quick: bool = False) -> list[str]:
    """Names of the experiments that come with the toolkit and say how they are reduced, or what of them is quick."""
    documents = {name: read_document(find_experiment(name)) for name in experiment_names()}
    return [name for name, document in documents.items() if document.get((_word(quick=quick),)) is not None]


def parts(results: Path, only: Sequence[str] = (), *, quick: bool = False) -> list[Part]:
    """The experiments, planned. only: names or files of some. quick: each as its `quick` says, not its `reduced`.
    Problem when one of them does not say it; Problems when its file is wrong."""
    return [_part(_load_whole(name, quick=quick), results) for name in only or shipped(quick=quick)]


def tuned(part: Part, results: Path, listener: Listener) -> Part:
    """The same with its searches made, which its rivals' knobs follow from; the part itself when none is missing.

    Problem when another process tunes there; Problems when this machine lacks what runs need.
    """
    fewer = reduced(part.whole)
    if part.outline is None or not fewer.untuned:
        return part
    tuner = Tuner(fewer)
    preflight_tuning(fewer, tuner.substrate, [trial.cell for trial in tuner.todo()])
    tune(tuner, listener)
    reloaded = ready(part.whole.path)
    kept = reloaded.experiment.model_copy(update={"reduced": part.whole.experiment.reduced})
    return _part(replace(reloaded, experiment=kept), results)


def make(part: Part, results: Path, listener: Listener) -> Execution | None:
    """Make the missing runs of one experiment; None when this machine cannot.

    Problem when another process makes runs of it; Problems when this machine lacks what every run needs, or a search
    has not been made.
    """
    if part.outline is None:
        return None
    preflight(part.outline, results)
    return execute(part.outline.plan, results, listener)


def reduced(whole: Ready) -> Ready:
    """The part of an experiment that its `reduced` names: fewer repeats, jobs or schemes, the rest untouched."""
    experiment = whole.experiment
    part = experiment.reduced
    if part is None:
        return whole
    labels = part.schemes or tuple(choice.label for choice in experiment.schemes)
    jobs = part.jobs or tuple(experiment.jobs)
    jobs += tuple(concurrent for name in jobs for concurrent in experiment.jobs[name].beside)
    fewer = experiment.model_copy(
        update={
            "repeats": part.repeats or experiment.repeats,
            "jobs": {name: job for name, job in experiment.jobs.items() if name in jobs},
            "schemes": tuple(choice for choice in experiment.schemes if choice.label in labels),
        }
    )
    return replace(
        whole,
        experiment=fewer,
        schemes={label: choice for label, choice in whole.schemes.items() if label in labels},
        untuned=[
            (wanted, why) for wanted, why in whole.untuned if wanted.job in jobs and wanted.choice.label in labels
        ],
    )


def reduction(whole: Experiment) -> str:
    """In words: what of an experiment its reduced part leaves out."""
    part = whole.reduced
    parts = []
    if part is not None and part.repeats is not None and part.repeats < whole.repeats:
        parts.append(f"{part.repeats} of {whole.repeats} repeats")
    for kind, kept, of in (
        ("jobs", part and part.jobs, list(whole.jobs)),
        ("schemes", part and part.schemes, [choice.label for choice in whole.schemes]),
    ):
        if kept and len(kept) < len(of):
            left_out = ", ".join(name for name in of if name not in kept)
            parts.append(f"{len(kept)} of {len(of)} {kind} (without {left_out})")
    return "; ".join(parts) or "whole"


def _word(*, quick: bool) -> str:
    return "quick" if quick else "reduced"


def _load_whole(name: str, *, quick: bool) -> Ready:
    """An experiment whose `reduced` is what of it is to be made."""
    loaded = ready(find_experiment(name))
    word = _word(quick=quick)
    part = loaded.experiment.quick if quick else loaded.experiment.reduced
    if part is None:
        text = f"does not say what of it is part of the {'quick ' if quick else ''}comparison"
        raise Problem(str(loaded.path), text, f"write `{word}: {{}}`, or which repeats, jobs or schemes")
    return replace(loaded, experiment=loaded.experiment.model_copy(update={"reduced": part}))


def _part(whole: Ready, results: Path) -> Part:
    part = reduced(whole)
    to_tune = tuple(trial.cell for trial in Tuner(part).todo()) if part.untuned else ()
    try:
        return Part(whole, outline(part, usual_substrate(whole), results), to_tune=to_tune)
    except MachineCannot as problem:
        return Part(whole, None, f"{problem.where}: {problem.what}")

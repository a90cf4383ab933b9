"""Runs of an experiment on a lab: what fits there, in which order, who may change it, and who has it meanwhile."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from dlcp.errors import ExitCode, MachineCannot, Problem, Problems
from dlcp.model.base import OnProgress
from dlcp.model.experiment import experiment_intent
from dlcp.model.host_settings import HostSettings
from dlcp.model.lab.inventory import Lab
from dlcp.model.qos import QosIntent
from dlcp.model.topology import Graph
from dlcp.runner.lab import deploy as deploying
from dlcp.runner.lab import hosts
from dlcp.runner.lab.deployment_record import lab_folder, lab_secret, lock_path, read_json
from dlcp.runner.lab.fabric_plan import plan_fabric
from dlcp.runner.planning.check import Ready
from dlcp.runner.planning.plan import Cell, Plan
from dlcp.substrates.lab.fabric_lock import held
from dlcp.substrates.lab.fit import require_fit
from dlcp.substrates.lab.state import Held
from dlcp.substrates.lab.substrate import LabSubstrate
from dlcp.substrates.run_plan import plan_run
from dlcp.switches.vendor.render import Rendered


@dataclass(frozen=True)
class LabChoice:
    """A lab to run on. deploy: whether its switches and hosts may be changed. degrade: where a switch lacks something,
    it may do what its system declares instead."""

    lab: Lab
    deploy: bool = False
    degrade: bool = False

    @property
    def where(self) -> str:
        """What tells its runs from those elsewhere."""
        return f"{self.lab.name}, degraded where it must be" if self.degrade else self.lab.name

    def intent(self, intent: QosIntent) -> QosIntent:
        """A scheme's intent as it is asked for here."""
        return intent.model_copy(update={"on_unsupported": "degrade"}) if self.degrade else intent


def lacking(ready: Ready, choice: LabChoice) -> dict[str, str]:
    """Label → why a lab's switches cannot do that scheme. Raises Problems when the experiment does not fit the lab, or
    they can do none."""
    require_fit(ready.experiment, choice.lab)
    found: dict[str, str] = {}
    problems: list[Problem] = []
    for label, scheme in ready.schemes.items():
        for fabric in ready.experiment.fabrics:
            intent = experiment_intent(fabric, scheme.intent(fabric.port_buffer_bytes))
            try:
                plan_fabric(choice.lab, choice.intent(intent))
            except Problems as error:
                problems += error.problems
                found[label] = "; ".join(" ".join(f"{one.what}, {one.hint}".split()) for one in error.problems)
    if len(found) == len(ready.schemes):
        raise Problems(problems)
    return found


def few_deployments(plan: Plan) -> Plan:
    """The plan's runs with those next to each other, in every repeat, that need the same of switches and hosts; first
    those that need what the repeat before ended with. So the order stays a random one, and a repeat's runs together."""
    ordered: list[Cell] = []
    last = ""
    for repeat in dict.fromkeys(cell.run.repeat for cell in plan.cells):
        groups: dict[str, list[Cell]] = {}
        for cell in plan.cells:
            if cell.run.repeat == repeat:
                groups.setdefault(needs(cell), []).append(cell)
        for need in sorted(groups, key=lambda need: need != last):  # stable: the others as they came
            ordered += groups[need]
            last = need
    return replace(plan, cells=tuple(ordered))


def needs(cell: Cell) -> str:
    """What a run needs of switches and hosts: the same text for the same needs."""
    plan = plan_run(cell.run)
    unnamed = plan.intent.model_copy(update={"name": ""})
    return f"{unnamed.model_dump_json()} {plan.hosts.model_dump_json()}"


@contextmanager
def opened_lab(choice: LabChoice, experiment: Path, todo: Sequence[Cell]) -> Iterator[LabSubstrate]:
    """The substrate of a lab for some runs; nobody else may have its fabric meanwhile. Where nothing may be changed, it
    raises Problems when something is not as the runs need it, before the first."""
    words = ["dlcp", "run", str(experiment), "--on", "lab", "--lab", str(choice.lab.path), "--deploy"]
    operator = LabOperator(choice, f"{shlex.join(words + ['--degrade'] * choice.degrade)} brings it there")
    graph = todo[0].run.experiment.topology.graph
    with (
        held(lock_path(choice.lab), f"running {todo[0].run.experiment.name}"),
        LabSubstrate(choice.lab, graph, operator) as substrate,
    ):
        if not choice.deploy:
            substrate.require(cell.run for cell in todo)
        yield substrate


@contextmanager
def opened_for_probes(choice: LabChoice, graph: Graph, how: str) -> Iterator[LabSubstrate]:
    """The substrate of a lab, to verify it; nobody else may have its fabric meanwhile. how: as for verify_on_lab."""
    operator = LabOperator(choice, f"{how} brings it there")
    with held(lock_path(choice.lab), "verifying"), LabSubstrate(choice.lab, graph, operator) as substrate:
        yield substrate


@dataclass
class LabOperator:
    """See dlcp.substrates.lab.substrate.Operator."""

    choice: LabChoice
    how: str
    _rendered: dict[str, Mapping[str, Rendered]] = field(default_factory=dict)

    @property
    def changes(self) -> bool:
        """See Operator."""
        return self.choice.deploy

    def rendered(self, intent: QosIntent) -> Mapping[str, Rendered]:
        """See Operator."""
        key = intent.model_dump_json()
        if key not in self._rendered:
            self._rendered[key] = plan_fabric(self.choice.lab, self.choice.intent(intent))
        return self._rendered[key]

    def held(self) -> Mapping[str, Held]:
        """See Operator."""
        found = deploying.found(self.choice.lab)
        return {name: Held(one.digest, one.differences) for name, one in found.items()}

    def name_of(self, digest: str) -> str:
        """See Operator: as the deployments that are kept tell it."""
        for plan in sorted(lab_folder(self.choice.lab).glob("*/plan.json"), reverse=True):
            said = read_json(plan) or {}
            if any(one.get("digest") == digest for one in said.get("switches", {}).values()):
                return str(said["intent"]["name"])
        return "an intent that is not known here"

    def secret(self) -> bytes:
        """See Operator."""
        return lab_secret(self.choice.lab)

    def collect(self, folder: Path) -> Mapping[str, str]:
        """See Operator."""
        return deploying.collect(self.choice.lab, folder)

    def deploy(self, intent: QosIntent, on_progress: OnProgress) -> None:
        """See Operator."""
        outcome = deploying.deploy(
            self.choice.lab, self.choice.intent(intent), yes=True, listener=deploying.Steps(_quiet(on_progress))
        )
        if outcome.interrupted:
            raise KeyboardInterrupt
        if outcome.exit_code != ExitCode.FINE:
            told = "; ".join(
                f"{phase}: {f'{name}: ' if name else ''}{why}"
                for phase, failed in outcome.failed.items()
                for name, why in failed.items()
            )
            what = f"deploying {intent.name} did not work ({outcome.status}): {told or 'see the folder'}"
            raise MachineCannot(str(outcome.folder), what, "dlcp switch diff shows what each switch would be told")

    def set_hosts(self, settings: HostSettings, on_progress: OnProgress) -> None:
        """See Operator."""
        try:
            hosts.set_up(self.choice.lab, settings, on_progress=_quiet(on_progress))
        except MachineCannot:
            raise
        except Problem as problem:
            raise MachineCannot(problem.where, problem.what, problem.hint) from problem


def _quiet(on_progress: OnProgress) -> OnProgress:
    """A run's progress bar belongs to the run: of what comes before it, only the words."""
    return lambda _, text: on_progress(0.0, text)

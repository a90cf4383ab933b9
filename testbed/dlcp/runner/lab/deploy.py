"""A QoS intent onto every switch of a lab, or back: the playbooks, run and heard, as one call with one outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from dlcp.errors import ExitCode, Problem
from dlcp.model.base import OnProgress
from dlcp.model.lab.inventory import Lab
from dlcp.model.qos import QosIntent
from dlcp.runner.lab import deployment_record
from dlcp.runner.lab.fabric_plan import plan_fabric
from dlcp.runner.lab.playbooks import Event, Ran, run_playbook
from dlcp.substrates.lab.fabric_lock import held
from dlcp.switches.vendor.render import Rendered

FINE = ("looked", "unchanged", "deployed", "rolled back")
"""Outcomes that are what was asked for."""
ENDED = (*FINE, "refused", "restored", "timers", "mixed")
"""Outcomes that a playbook leaves when it came to its end."""


class Listener(Protocol):
    """Is told how a deployment goes on."""

    def planned(self, rendered: Mapping[str, Rendered]) -> None:
        """What each switch is to be told; nothing has been reached yet."""

    def begins(self, phase: str, switches: int) -> None:
        """A phase begins on so many switches."""

    def advances(self, phase: str, done: int) -> None:
        """So many switches are through."""

    def fails(self, phase: str, switch: str, why: str) -> None:
        """On one switch it did not work."""

    def differs(self, diffs: Mapping[str, str]) -> None:
        """Switch → what would change there, "" = nothing."""


class Silent:
    """A listener for whom the outcome is enough."""

    def planned(self, rendered: Mapping[str, Rendered]) -> None:
        """See Listener."""

    def begins(self, phase: str, switches: int) -> None:
        """See Listener."""

    def advances(self, phase: str, done: int) -> None:
        """See Listener."""

    def fails(self, phase: str, switch: str, why: str) -> None:
        """See Listener."""

    def differs(self, diffs: Mapping[str, str]) -> None:
        """See Listener."""


class Steps(Silent):
    """A listener that only tells which phase has begun, as OnProgress does: share and text."""

    def __init__(self, on_progress: OnProgress) -> None:
        self._on_progress = on_progress

    def begins(self, phase: str, switches: int) -> None:
        """The share is that of the phases, not of time."""
        share = _PHASES.index(phase) / len(_PHASES) if phase in _PHASES else 0.9
        self._on_progress(share, f"deploying: {phase.lower()}")


@dataclass(frozen=True)
class Outcome:
    """How it ended.

    status: looked (differences were shown), unchanged (there are none), deployed, rolled back; refused (nothing was
    changed), restored (it failed; every switch is as before), timers (those not reached restore themselves), mixed (a
    person must act). diffs: switch → what changes there. failed: phase → switch → why. folder: what is kept of it.
    interrupted: a person ended it.
    """

    status: str
    folder: Path
    diffs: dict[str, str] = field(default_factory=dict)
    failed: dict[str, dict[str, str]] = field(default_factory=dict)
    interrupted: bool = False

    @property
    def exit_code(self) -> ExitCode:
        """Of the command. A switch that is not reached, or shows a stranger's key, is a run that failed (1), not this
        machine (3): the same command may work in a minute."""
        if self.interrupted:
            return ExitCode.INTERRUPTED
        return ExitCode.FINE if self.status in FINE else ExitCode.RUN_FAILED

    def data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "status": self.status,
            "deployment": self.folder.name,
            "folder": str(self.folder),
            "diffs": self.diffs,
            "failed": self.failed,
            "interrupted": self.interrupted,
        }


@dataclass(frozen=True)
class Found:
    """What a switch holds. digest: "" = nothing of ours. differences: between that and what it was told; drift."""

    digest: str
    differences: tuple[str, ...]


_PHASES = ("Preflight", "Back up", "Compare", "Apply", "Read back", "Confirm", "Confirm again", "Restore")
"""Tasks of the playbooks that hold a phase, in their order."""


def deploy(
    lab: Lab,
    intent: QosIntent,
    *,
    yes: bool,
    check: bool = False,
    confirm_within_s: float | None = None,
    listener: Listener | None = None,
) -> Outcome:
    """The intent onto the whole fabric, or nothing: see playbooks/README.md.

    yes: without it, differences are found and nothing is changed. check: Ansible's own dry run, the same.
    confirm_within_s: how long the switches wait for the end before they turn back by themselves. Raises Problems when
    intent or inventory cannot be, MachineCannot when the fabric is taken; then nothing was reached. What fails later is
    in the outcome. Interrupted, it turns back what it has changed.
    """
    heard = listener or Silent()
    rendered = plan_fabric(lab, intent)
    heard.planned(rendered)
    with held(deployment_record.lock_path(lab), f"deploying {intent.name}"):
        folder = deployment_record.new_folder(lab)
        deployment_record.write_plan(folder, lab, intent, rendered)
        variables: dict[str, Any] = {"dlcp_folder": str(folder), "intent": intent.name, "yes": yes}
        if confirm_within_s is not None:
            variables["dlcp_confirm_within_s"] = confirm_within_s
        phases = _Phases(heard, len(lab.switches), folder)
        ran = run_playbook(
            "deploy", lab, variables, events=folder / deployment_record.EVENTS, on_event=phases.hear, check=check
        )
        return _outcome(lab, folder, ran, phases)


def rollback(lab: Lab, *, yes: bool, of: str = "", original: bool = False, listener: Listener | None = None) -> Outcome:
    """Every switch back to what it was before a deployment (the last, unless `of` names one), or before anything of
    ours (original). Raises Problem when there is none, MachineCannot when the fabric is taken."""
    if not original:
        of = deployment_record.to_undo(lab, of).name
    with held(deployment_record.lock_path(lab), "rolling back"):
        folder = deployment_record.new_folder(lab)
        phases = _Phases(listener or Silent(), len(lab.switches), folder)
        variables = {"dlcp_folder": str(folder), "yes": yes, "of": of, "original": original}
        ran = run_playbook("rollback", lab, variables, events=folder / deployment_record.EVENTS, on_event=phases.hear)
        record = deployment_record.read_json(folder / deployment_record.OUTCOME)
        status = "looked" if record is None and ran.status == "successful" else (record or {}).get("status", "refused")
        return Outcome(status, folder, failed=phases.failed, interrupted=ran.status == "canceled")


def found(lab: Lab, intent: QosIntent | None = None) -> dict[str, Found]:
    """Switch → what it holds. With an intent, what it would need is kept beside it, in the folder. Raises Problem, with
    every reason, when a switch could not be read."""
    folder = deployment_record.new_folder(lab)
    if intent is not None:
        deployment_record.write_plan(folder, lab, intent, plan_fabric(lab, intent))
    phases = _Phases(Silent(), len(lab.switches), folder)
    variables = {"dlcp_folder": str(folder), "intent": intent.name if intent else ""}
    ran = run_playbook("verify", lab, variables, events=folder / deployment_record.EVENTS, on_event=phases.hear)
    read = (deployment_record.read_json(folder / deployment_record.FOUND) or {}).get("found", {})
    silent = [name for name in lab.switches if read.get(name) is None]
    if silent:
        reasons = phases.failed.get("Read", {})
        told = "; ".join(f"{name}: {reasons.get(name, ran.said or 'no answer')}" for name in silent)
        raise Problem(str(lab.path), f"not every switch could be read: {told}", exit_code=ExitCode.RUN_FAILED)
    return {name: Found(one["digest"], tuple(one["differences"])) for name, one in read.items()}


def collect(lab: Lab, folder: Path) -> dict[str, str]:
    """Keep what every switch counted, in its own words, as folder/<switch>/counters.txt (or .json). Returns, of those
    that were not read, switch → why."""
    folder = folder.resolve()
    phases = _Phases(Silent(), len(lab.switches), folder)
    ran = run_playbook(
        "collect", lab, {"dlcp_folder": str(folder)}, events=folder / deployment_record.EVENTS, on_event=phases.hear
    )
    reasons = {name: why for failed in phases.failed.values() for name, why in failed.items()}
    return {
        name: reasons.get(name, ran.said or "no answer")
        for name in lab.switches
        if not any((folder / name).glob("counters.*"))
    }


def _outcome(lab: Lab, folder: Path, ran: Ran, phases: _Phases) -> Outcome:
    """What the playbook recorded; where it was cut short while the fabric was being changed, it is turned back here."""
    record = deployment_record.read_json(folder / deployment_record.OUTCOME) or {}
    status = record.get("status", "")
    if phases.changing and status not in ENDED:
        status = _turn_back(lab, folder, phases)
        deployment_record.write_json(folder / deployment_record.OUTCOME, {**record, "status": status})
    elif status not in ENDED:
        status = "refused"
        if not phases.failed and ran.status != "canceled":
            phases.failed["Plan"] = {"": ran.said or ran.status}
    return Outcome(status, folder, deployment_record.diffs(folder), phases.failed, interrupted=ran.status == "canceled")


def _turn_back(lab: Lab, folder: Path, phases: _Phases) -> str:
    """Restore what a deployment that was cut short has changed; those that it does not reach have their timers, unless
    some may have confirmed. Cut short again, nobody knows: mixed."""
    own = folder / "turning-back"
    variables = {"dlcp_folder": str(own), "yes": True, "of": folder.name, "turning_back": True}
    phases.listener.begins("Turn back", len(lab.switches))
    run_playbook(
        "rollback",
        lab,
        {**variables, "confirming": phases.confirming},
        events=folder / deployment_record.EVENTS,
        on_event=phases.hear,
    )
    status = str((deployment_record.read_json(own / deployment_record.OUTCOME) or {}).get("status", "mixed"))
    return "restored" if status == "rolled back" else status


class _Phases:
    """Ansible's events → phases, for a listener."""

    def __init__(self, listener: Listener, switches: int, folder: Path) -> None:
        self.listener, self.switches, self.folder = listener, switches, folder
        self.phase = ""
        self.failed: dict[str, dict[str, str]] = {}
        self.changing = self.confirming = False
        self._through: set[str] = set()

    def hear(self, event: Event) -> None:
        """One event."""
        if event.kind == "task":
            self._begins(event)
        elif event.kind in ("failed", "unreachable") and not event.task.startswith("Gate") and event.task != "Outcome":
            why = event.message.strip()
            self.failed.setdefault(self.phase or event.task, {})[event.host] = why
            self.listener.fails(self.phase, event.host, why)
        elif event.role and event.host not in self._through:
            self._through.add(event.host)
            self.listener.advances(self.phase, len(self._through))

    def _begins(self, event: Event) -> None:
        if event.task.startswith("Gate after the comparison"):
            self.listener.differs(deployment_record.diffs(self.folder))
        if event.role or event.task not in (*_PHASES, "Read", "Read what was restored") or event.task == self.phase:
            return
        self.phase, self._through = event.task, set()
        self.changing = self.changing or event.task == "Apply"
        self.confirming = self.confirming or event.task == "Confirm"
        self.listener.begins(self.phase, self.switches)

"""The settings of a lab's hosts, set up and restored by the playbooks, as one call with one outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from dlcp.errors import ExitCode, Problem, Problems
from dlcp.model.base import OnProgress
from dlcp.model.host_settings import HostSettings
from dlcp.model.lab.inventory import Lab
from dlcp.model.loading.document import read_document
from dlcp.runner.lab import deployment_record
from dlcp.runner.lab.host_manifest import MANIFEST
from dlcp.runner.lab.playbooks import Event, run_playbook
from dlcp.schemes.tcp import CONTROL_SYSCTL
from dlcp.substrates.lab.fabric_lock import held

_MS = 1000


@dataclass(frozen=True)
class HostsOutcome:
    """How it ended.

    status: looked (nothing was to be changed), applied, restored; failed, undone (some host failed, all are as before
    the call), mixed (a person must act). hosts: name → rows {name, status, was, wanted, reason} of its settings.
    interrupted: a person ended it, which is not undone by itself.
    failed: host → why. folder: what is kept of it. said: what Ansible said where nothing was even looked at.
    """

    status: str
    folder: Path
    hosts: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    said: str = ""
    interrupted: bool = False

    @property
    def fine(self) -> bool:
        """It is as it was asked for."""
        return self.status in ("looked", "applied", "restored")

    @property
    def exit_code(self) -> ExitCode:
        """Exit code of the command."""
        if self.interrupted:
            return ExitCode.INTERRUPTED
        return ExitCode.FINE if self.fine else ExitCode.RUN_FAILED

    @property
    def changed(self) -> list[str]:
        """Hosts on which something was, or would be, changed."""
        return self._with("changed")

    @property
    def skipped(self) -> list[str]:
        """Hosts that lack something that was asked for."""
        return self._with("skipped")

    def data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "status": self.status,
            "folder": str(self.folder),
            "hosts": self.hosts,
            "failed": self.failed,
            "said": self.said,
        }

    def require_fine(self) -> None:
        """Raises Problem with every reason when it is not."""
        if self.fine:
            return
        reasons = "; ".join(f"{name}: {why}" for name, why in sorted(self.failed.items())) or self.said
        ending = {"mixed": "NOT every host is as it was before"}.get(self.status, "every host is as it was before")
        text = f"not every host could be set up ({ending}): {reasons}"
        raise Problem(str(self.folder), text, "dlcp hosts restore puts everything back", exit_code=ExitCode.RUN_FAILED)

    def _with(self, status: str) -> list[str]:
        return [name for name, rows in self.hosts.items() if any(row["status"] == status for row in rows)]


def set_up(
    lab: Lab, settings: HostSettings | None, *, folder: Path | None = None, on_progress: OnProgress | None = None
) -> HostsOutcome:
    """Set up a scheme's settings on all hosts of a lab or on none; None = no scheme has any, and what the last one
    asked for goes back. An operator's own settings stay as long as the scheme does not ask for others.

    Raises Problem when a host fails, MachineCannot when another process has the fabric, KeyboardInterrupt when a person
    ended it.
    """
    wanted = {} if settings is None else words_of(settings)
    outcome = apply_hosts(lab, wanted, layer="scheme", yes=True, folder=folder, on_progress=on_progress)
    if outcome.interrupted:
        raise KeyboardInterrupt
    outcome.require_fine()
    return outcome


def apply_hosts(
    lab: Lab,
    settings: Mapping[str, Any] | None,
    *,
    layer: Literal["host", "scheme"] = "host",
    yes: bool,
    folder: Path | None = None,
    on_progress: OnProgress | None = None,
) -> HostsOutcome:
    """playbooks/hosts.yml. settings: those of module dlcp_host; None = what the inventory's group_vars say.

    yes: without it, differences are found and nothing is changed.
    """
    name = "dlcp_host_scheme" if layer == "scheme" else "dlcp_host_settings"
    values = {} if settings is None else {name: dict(settings)}
    return _run("hosts", lab, {**values, "yes": yes}, "setting hosts up", folder, on_progress)


def restore(
    lab: Lab, *, yes: bool = True, folder: Path | None = None, on_progress: OnProgress | None = None
) -> HostsOutcome:
    """playbooks/host_restore.yml: every host as it was before it was first touched."""
    return _run("host_restore", lab, {"yes": yes}, "restoring hosts", folder, on_progress)


def words_of(settings: HostSettings) -> dict[str, Any]:
    """A scheme's settings in the words of module dlcp_host. As in the emulator, routes name the congestion control."""
    sysctls = {name: value for name, value in settings.sysctls.items() if name != CONTROL_SYSCTL}
    floor = {} if settings.rto_min_s is None else {"rto_min_ms": max(1, round(settings.rto_min_s * _MS))}
    name = settings.sysctls.get(CONTROL_SYSCTL)
    control = {} if name is None else {"congestion_control": name}
    return {"sysctls": sysctls, **floor, **control}


def read_settings(path: Path) -> dict[str, Any]:
    """A file of settings. Raises Problem when it is no mapping."""
    if not path.exists():
        raise Problem(str(path), "no such file", "playbooks/roles/dlcp_host/defaults/main.yml shows the words")
    document = read_document(path)
    if document.problems:
        raise Problems(document.problems)
    settings = document.data
    if isinstance(settings, dict):
        settings = settings.get("dlcp_host_settings", settings) or {}
    if not isinstance(settings, dict):
        raise Problem(str(path), "does not hold settings, `word: value`", "such as: mtu: 9000")
    return settings


def _run(
    playbook: str, lab: Lab, variables: dict[str, Any], what: str, folder: Path | None, on_progress: OnProgress | None
) -> HostsOutcome:
    failed: dict[str, str] = {}

    def hear(event: Event) -> None:
        if event.kind in ("failed", "unreachable") and event.host and not event.task.startswith(("Gate", "Outcome")):
            failed.setdefault(event.host, event.message.strip())
        elif event.kind == "task" and event.role and on_progress is not None:
            on_progress(0.5, f"{what}: {event.task.lower()}")

    with held(deployment_record.lock_path(lab), what):
        kept = deployment_record.new_folder(lab, folder or "")
        events = kept / deployment_record.EVENTS
        ran = run_playbook(playbook, lab, {**variables, "dlcp_folder": str(kept)}, events=events, on_event=hear)
    if ran.status == "canceled":
        status = "mixed" if variables["yes"] else "failed"
        return HostsOutcome(status, kept, said="interrupted", interrupted=True)
    record = deployment_record.read_json(kept / MANIFEST)
    if record is None:
        message = ran.said or "; ".join(f"{name}: {why}" for name, why in failed.items()) or ran.status
        return HostsOutcome("failed", kept, said=message)
    rows = {name: host["rows"] for name, host in record["hosts"].items()}
    reasons = {name: host["failed"] for name, host in record["hosts"].items() if host["failed"]}
    return HostsOutcome(record["status"], kept, rows, {**reasons, **record.get("stuck", {})})

"""Run one of our playbooks on a lab by ansible-runner, as `ansible-playbook` would by hand, and hear what it does."""

from __future__ import annotations

import json
import os
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dlcp.errors import needs_extra
from dlcp.model.lab.inventory import Lab
from dlcp.paths import PLAYBOOKS
from dlcp.runner.lab.interrupt import interruptible

_ASKED_EVERY_S = 1
"""How soon an interrupt is noticed while Ansible says nothing."""
_ENDINGS = {
    "runner_on_ok": "ok",
    "runner_on_failed": "failed",
    "runner_on_unreachable": "unreachable",
    "runner_on_skipped": "skipped",
}
_STATUS = "non-zero return code"
"""All that Ansible itself says of a command that failed."""
SHOWN = 500
"""Characters of what such a command said that an event repeats."""


@dataclass(frozen=True)
class Event:
    """Something that Ansible did. kind: task (it begins, on all hosts), or how it ended on one: ok, failed,
    unreachable, skipped. message: of the module. at: ISO 8601. duration_s: of an ending."""

    kind: str
    at: str
    play: str
    task: str
    role: str = ""
    host: str = ""
    changed: bool = False
    ignored: bool = False
    message: str = ""
    duration_s: float = 0.0


@dataclass(frozen=True)
class Ran:
    """A playbook that ended. status: of ansible-runner: successful, failed, canceled, timeout. said: why it is not."""

    status: str
    returned: int
    said: str


def run_playbook(
    name: str,
    lab: Lab,
    variables: Mapping[str, Any],
    *,
    events: Path,
    on_event: Callable[[Event], None] = lambda event: None,
    check: bool = False,
) -> Ran:
    """playbooks/<name>.yml on the lab's inventory. events: a file that each event is added to as it comes, a line.

    Raises MachineCannot without ansible-runner. What fails on a device is an event and Ran.status, not an exception.
    Interrupted (SIGINT, SIGTERM), Ansible is ended with all its processes, and the status is canceled.
    """
    runner = _ansible_runner()
    events.parent.mkdir(parents=True, exist_ok=True)
    wrong: list[str] = []
    playbook = PLAYBOOKS / f"{name}.yml"
    with (
        tempfile.TemporaryDirectory(prefix="dlcp-ansible-") as private,
        events.open("a", encoding="utf-8") as log,
        interruptible(playbook) as interrupted,
    ):

        def hear(raw: dict[str, Any]) -> bool:
            event = _event(raw)
            if event is not None:
                log.write(json.dumps(asdict(event), ensure_ascii=False) + "\n")
                log.flush()
                on_event(event)
            elif raw.get("event") in ("error", "verbose") and "ERROR" in raw.get("stdout", ""):
                wrong.append(raw["stdout"])
            return False  # ansible-runner keeps no copy

        ran = runner.run(
            private_data_dir=private,
            playbook=str(playbook),
            inventory=str(lab.path.resolve()),
            extravars=dict(variables),
            cmdline="--check" if check else None,
            envvars=_environment(),
            event_handler=hear,
            cancel_callback=interrupted,
            settings={"pexpect_timeout": _ASKED_EVERY_S},
            quiet=True,
        )
    return Ran(str(ran.status), int(ran.rc or 0), "\n".join(wrong))


def _ansible_runner() -> Any:
    with needs_extra("lab", "ansible-runner", "is not installed"):
        import ansible_runner
    return ansible_runner


def _environment() -> dict[str, str]:
    """ansible-playbook of this Python's own environment, under our configuration."""
    return {
        "ANSIBLE_CONFIG": str(PLAYBOOKS / "ansible.cfg"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}",
        "ANSIBLE_NOCOLOR": "1",
        "ANSIBLE_HOST_KEY_CHECKING": "True",  # ansible-runner says False where nobody says otherwise
        # Variables of plays outdo these (playbooks/vars/connection.yml); but nothing of the caller's is to be read.
        "ANSIBLE_SSH_HOST_KEY_CHECKING": "True",
        "ANSIBLE_PARAMIKO_HOST_KEY_CHECKING": "True",
        "ANSIBLE_NETCONF_HOST_KEY_CHECKING": "True",
        "ANSIBLE_HOST_KEY_AUTO_ADD": "False",
        "ANSIBLE_PARAMIKO_HOST_KEY_AUTO_ADD": "False",
        "ANSIBLE_SSH_ARGS": "",
        "ANSIBLE_SSH_COMMON_ARGS": "",
    }


def _event(raw: Mapping[str, Any]) -> Event | None:
    """An event worth keeping. What Ansible censors (no_log) comes censored."""
    data = raw.get("event_data", {})
    kind = "task" if raw["event"] == "playbook_on_task_start" else _ENDINGS.get(raw["event"], "")
    if not kind:
        return None
    result = data.get("res") or {}
    return Event(
        kind=kind,
        at=str(raw.get("created", "")),
        play=data.get("play", ""),
        task=data.get("task", ""),
        role=data.get("role", "") or "",
        host=data.get("host", ""),
        changed=bool(result.get("changed")),
        ignored=bool(data.get("ignore_errors")),
        message=_message(result),
        duration_s=float(data.get("duration") or 0),
    )


def _message(result: Mapping[str, Any]) -> str:
    message = str(result.get("msg") or result.get("censored") or "")
    output = " ".join(str(result.get(name) or "").strip() for name in ("stdout", "stderr")).strip()
    return f"{message} {result.get('rc')}: {output[-SHOWN:]}" if message == _STATUS and output else message

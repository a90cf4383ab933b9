"""Check inventory and intent, render for every switch, take the fabric's lock, begin the deployment's folder.

Runs on the controller, once, before anything is reached. Args: intent (name or file; "" = none is rendered), degrade,
folder ("" = a new one beside the inventory; one that has a plan keeps it), what (for whoever finds the lock taken),
group (default dlcp_switches; dlcp_hosts for a play of theirs); undo (a deployment is to be taken back), of (which; "" =
the last), original (everything, instead). Facts, for all: dlcp_folder, dlcp_deployment (its name, or that of the one to
take back), dlcp_restore_to, dlcp_go, dlcp_sound, dlcp_confirming, dlcp_unconfirmed.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from dlcp.errors import Problem, Problems
from dlcp.model.lab.inventory import HOSTS, SWITCHES, Lab, LabHost, LabSwitch
from dlcp.model.lab.load_inventory import load_inventory
from dlcp.model.lab.ssh_words import EXTRA_ARGS, is_connection_word, refused_ssh_options
from dlcp.runner.lab import deployment_record
from dlcp.runner.lab.fabric_plan import plan_fabric
from dlcp.substrates.lab import fabric_lock
from dlcp.switches.vendor.files import find_intent, load_intent


class ActionModule(ActionBase):
    """See the module's docstring."""

    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """The facts; a failure that names every problem."""
        super().run(tmp, task_vars)
        try:
            lab = load_inventory(Path((task_vars or {})["inventory_file"]))
            group = self._task.args.get("group", SWITCHES)
            _same_fabric(lab, group, task_vars or {})
            undone = _undone(self._task.args, lab)
            folder = _begin(self._task.args, lab, group)
        except (Problem, Problems) as error:
            raise AnsibleActionFail(str(error)) from error
        begun = {"dlcp_go": False, "dlcp_sound": False, "dlcp_confirming": False, "dlcp_unconfirmed": []}
        facts = {"dlcp_folder": str(folder), "dlcp_deployment": folder.name, **begun, **undone}
        self._display.display(f"kept in {folder}")
        return {"changed": False, "ansible_facts": facts, "msg": f"kept in {folder}"}


def _undone(args: dict[str, Any], lab: Lab) -> dict[str, Any]:
    """What is to be restored, where a deployment is to be taken back."""
    if not args.get("undo"):
        return {}
    if args.get("original"):
        return {"dlcp_deployment": None, "dlcp_restore_to": "original"}
    return {"dlcp_deployment": deployment_record.to_undo(lab, args.get("of", "")).name, "dlcp_restore_to": "previous"}


def _begin(args: dict[str, Any], lab: Lab, group: str) -> Path:
    intended = args.get("intent", "")
    what = args.get("what") or f"deploying {intended}"
    fabric_lock.take(deployment_record.lock_path(lab), what, pid=os.getppid())
    folder = deployment_record.new_folder(lab, args.get("folder", ""))
    if intended and not (folder / deployment_record.PLAN).is_file():
        intent = load_intent(find_intent(intended))
        if args.get("degrade"):
            intent = intent.model_copy(update={"on_unsupported": "degrade"})
        rendered = plan_fabric(lab, intent)
        deployment_record.write_plan(folder, lab, intent, rendered)
    for name in lab.hosts if group == HOSTS else lab.switches:
        (folder / name).mkdir(parents=True, exist_ok=True)
    return folder


def _same_fabric(lab: Lab, group: str, known: dict[str, Any]) -> None:
    """What Ansible would reach is what was checked: no more, no less, nowhere else."""
    names = known["groups"][group]
    checked: Mapping[str, LabSwitch | LabHost] = lab.hosts if group == HOSTS else lab.switches
    if strangers := sorted(set(names) ^ set(checked)):
        what = f"Ansible's group {group} and the inventory differ in {', '.join(strangers)}"
        raise Problem(str(lab.path), what, "give one inventory file, and no other")
    if left_out := sorted(set(names) - set(known["ansible_play_hosts_all"])):
        raise Problem(
            "--limit", f"leaves out {', '.join(left_out)}: a fabric is changed whole or not at all", "no --limit"
        )
    for name in names:
        login = checked[name].login
        said = known["hostvars"][name]
        if refused := sorted(word for word in said if is_connection_word(word)):
            what = f"{name}: {', '.join(refused)} may not be set: the playbooks say how a device is reached"
            raise Problem(str(lab.path), what, "remove it from the inventory, group_vars, host_vars and -e")
        if options := refused_ssh_options(str(said.get(EXTRA_ARGS) or "")):
            what = f"{name}: {EXTRA_ARGS} may not have {', '.join(options)}: it would change how a device is reached"
            raise Problem(str(lab.path), what, "remove it from the inventory, group_vars, host_vars and -e")
        reached = (said.get("ansible_host"), int(said.get("ansible_port", 22)), said.get("ansible_user"))
        if reached != (login.address, login.port, login.user):
            what = f"group_vars or -e would lead to {reached}, not to {(login.address, login.port, login.user)}"
            raise Problem(str(lab.path), f"{name}: {what}", "say it in the inventory, where it is checked")

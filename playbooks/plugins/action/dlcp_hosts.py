"""After a phase on all hosts: look at them together, write the manifest, say how it goes on.

Runs on the controller, once. Args: step (applied, restored, carry, outcome), looked (nothing was to be changed). Facts:
dlcp_sound; dlcp_to_undo, who was changed. The manifest is hosts.json in dlcp_folder: {status, hosts: {name: {rows,
changed, failed}}}.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from dlcp.runner.lab import deployment_record
from dlcp.runner.lab.host_manifest import MANIFEST, listing, manifest


class ActionModule(ActionBase):
    """See the module's docstring."""

    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Facts and a message for a person; a failure where hosts failed and nothing follows that mends it."""
        super().run(tmp, task_vars)
        known = task_vars or {}
        step = self._task.args["step"]
        if step == "carry":
            sound = all(known["hostvars"][name].get("dlcp_sound") for name in known["ansible_play_hosts_all"])
            hosts = (deployment_record.read_json(Path(known["dlcp_folder"], MANIFEST)) or {"hosts": {}})["hosts"]
            changed = [name for name, one in hosts.items() if one["changed"]]
            return {"changed": False, "ansible_facts": {"dlcp_sound": sound, "dlcp_to_undo": changed}}
        path = Path(known["dlcp_folder"], MANIFEST)
        if step == "outcome":
            raise AnsibleActionFail(self._undone(path, known))
        looked = bool(self._task.args.get("looked")) or self._task.check_mode
        found = manifest(known["hostvars"], known["ansible_play_hosts_all"], known["ansible_play_hosts"], "hosts")
        status = "failed" if found.failed else "looked" if looked else step
        deployment_record.write_json(path, {"status": status, "hosts": found.hosts})
        told = listing(found.failed) if found.failed else found.told(looked=looked)
        self._display.display(told)
        if found.failed and (looked or step == "restored"):
            raise AnsibleActionFail(f"not every host could be {'looked at' if looked else step}\n{told}")
        return {"changed": False, "ansible_facts": {"dlcp_sound": not found.failed}, "msg": told}

    def _undone(self, path: Path, known: dict[str, Any]) -> str:
        """How it ended when some host failed."""
        before = deployment_record.read_json(path) or {"hosts": {}}
        names = known["ansible_play_hosts_all"]
        why = {name: row["failed"] for name, row in before["hosts"].items() if row.get("failed")}
        failures = {name: known["hostvars"][name].get("dlcp_failures", {}).get("undo") for name in names}
        keeps = "it keeps what it was set to until `dlcp hosts restore` reaches it"
        stuck = {name: f"{text.strip()}; {keeps}" for name, text in failures.items() if text}
        deployment_record.write_json(path, {**before, "status": "mixed" if stuck else "undone", "stuck": stuck})
        ending = f"NOT as before:\n{listing(stuck)}" if stuck else "every host is as it was before this call"
        return f"not every host could be set up:\n{listing(why)}\n{ending}"

"""Action: the module of the same name, with its words taken from the inventory and the deployment."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

FROM_VARIABLES = {
    "deployment": "dlcp_deployment",
    "restore_after_s": "dlcp_confirm_within_s",
    "restore_to": "dlcp_restore_to",
    "writer": "dlcp_sonic_writer",
    "socket": "dlcp_sonic_socket",
    "config_command": "dlcp_sonic_config",
    "folder": "dlcp_sonic_state",
}
"""Word of the module → variable. What no variable says is the module's default, or its complaint."""
RENDERED = ("look", "apply")
"""Phases that need what was rendered, where anything was."""


class ActionModule(ActionBase):  # type: ignore[misc]
    """`dlcp_configdb: {phase: PHASE}`. A backup goes into the deployment's folder on the controller."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Run the module on the switch."""
        result: dict[str, Any] = super().run(tmp, task_vars)
        words, known = dict(self._task.args), task_vars or {}
        for word, variable in FROM_VARIABLES.items():
            if word not in words and variable in known:
                words[word] = self._templar.template(known[variable]) or ""
        words["ports"] = list(self._templar.template(known["dlcp_ports"]))
        own = Path(self._templar.template(known["dlcp_folder"]), known["inventory_hostname"])
        if words["phase"] in RENDERED and (own / "rendered.json").is_file():
            rendered = self._templar.template(known["dlcp_rendered"])
            words.update(configuration=rendered["configuration"], digest=rendered["digest"])
        result.update(self._execute_module("dlcp_configdb", module_args=words, task_vars=task_vars))
        if "backup" in result:
            (own / "config_db.json").write_text(result.pop("backup") + "\n", encoding="utf-8")
        return result

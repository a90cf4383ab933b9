"""Keep a fact of a switch in the deployment's folder. Args: fact; file (its name there, without an ending)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase

from dlcp.runner.lab.deployment_record import write_json


class ActionModule(ActionBase):
    """See the module's docstring."""

    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Text as text, anything else as JSON; nothing where the fact was never set."""
        super().run(tmp, task_vars)
        known = task_vars or {}
        if self._task.args["fact"] not in known:
            return {"changed": False, "msg": "nothing to keep"}
        fact = self._templar.template(known[self._task.args["fact"]])
        own = Path(known["dlcp_folder"], known["inventory_hostname"])
        if isinstance(fact, str):
            path = own / f"{self._task.args['file']}.txt"
            path.write_text(fact, encoding="utf-8")
        else:
            path = own / f"{self._task.args['file']}.json"
            write_json(path, fact)
        return {"changed": False, "msg": f"kept in {path}"}

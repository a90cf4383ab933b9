"""Show and keep what would change on a switch, `dlcp_diff`. In check mode it counts as changed then."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """See the module's docstring."""

    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """A result with the diff, as Ansible shows it under --diff."""
        super().run(tmp, task_vars)
        known = task_vars or {}
        diff = str(self._templar.template(known["dlcp_diff"]))
        Path(known["dlcp_folder"], known["inventory_hostname"], "diff.txt").write_text(diff, encoding="utf-8")
        shown = {"prepared": diff if diff.endswith("\n") else diff + "\n"} if diff else {}
        return {"changed": bool(diff) and self._task.check_mode, "diff": shown, "differs": bool(diff)}

"""Remember on the controller why a phase failed for a switch. Args: phase. Fact: dlcp_failures {phase: why}."""

from __future__ import annotations

from typing import Any

from ansible.plugins.action import ActionBase


class ActionModule(ActionBase):
    """See the module's docstring."""

    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Adds one entry to the fact."""
        super().run(tmp, task_vars)
        known = task_vars or {}
        why = (known.get("ansible_failed_result") or {}).get("msg") or "failed without a word"
        failures = {**known.get("dlcp_failures", {}), self._task.args["phase"]: str(why)}
        return {"changed": False, "ansible_facts": {"dlcp_failures": failures}, "msg": str(why)}

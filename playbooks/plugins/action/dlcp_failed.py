"""Remember on the controller why a phase failed for a switch. Args: phase.

Facts: dlcp_failures {phase: why}; dlcp_unreached, the phases in which it could not be reached.
"""

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
        result = known.get("ansible_failed_result") or {}
        phase, why = self._task.args["phase"], str(result.get("msg") or "failed without a word")
        failures = {**known.get("dlcp_failures", {}), phase: why}
        unreached = [*known.get("dlcp_unreached", []), *([phase] if result.get("dlcp_unreached") else [])]
        facts = {"dlcp_failures": failures, "dlcp_unreached": unreached}
        return {"changed": False, "ansible_facts": facts, "msg": why}

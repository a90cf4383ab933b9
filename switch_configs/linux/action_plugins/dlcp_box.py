"""Ask the program of ours on a Linux switch: `python -m dlcp.switches.linux VERB`, JSON in, JSON out, one SSH command.

Args: verb; input (a mapping); save (a file on the controller that keeps the answer). Facts: verb diff → dlcp_diff;
read → dlcp_found; counters → dlcp_counters. Inventory words: dlcp_python, dlcp_state (the state's folder, if not the
usual one). In check mode the verbs that change something do nothing.
"""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from dlcp.errors import decode_problem
from dlcp.files.json_text import parse_json
from dlcp.runner.lab.deployment_record import write_json
from dlcp.switches.linux.state import STATE_VARIABLE

CHANGING = ("apply", "confirm", "restore", "reset")


class ActionModule(ActionBase):
    """See the module's docstring."""

    _supports_check_mode = True

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """The answer; a failure with where, what and hint of each of the program's own problems."""
        super().run(tmp, task_vars)
        known = task_vars or {}
        args = self._task.args
        verb, given = args["verb"], args.get("input", {})
        if verb in CHANGING and self._task.check_mode:
            return {"changed": False, "skipped": True, "msg": f"{verb} changes something"}
        answer = self._ask(verb, given, known)
        if args.get("save"):
            write_json(Path(args["save"]), answer)
        if verb == "facts":
            _refuse_pending(answer)
        return {"changed": verb in CHANGING and bool(answer.get("changed")), "answer": answer, **_facts(verb, answer)}

    def _ask(self, verb: str, given: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
        state = known.get("dlcp_state")
        words = [*(["env", f"{STATE_VARIABLE}={state}"] if state else [])]
        words += [known.get("dlcp_python", "/opt/dlcp/bin/python"), "-m", "dlcp.switches.linux", verb]
        done = self._low_level_execute_command(shlex.join(words), in_data=json.dumps(given).encode())
        try:
            answer = parse_json(done["stdout"])
        except ValueError:
            said = (done["stderr"] or done["stdout"]).strip()[-500:]
            raise AnsibleActionFail(f"{shlex.join(words)}: exit code {done['rc']}, no answer: {said}") from None
        if done["rc"] or "problem" in answer:
            raise AnsibleActionFail(_problems(answer, done))
        return dict(answer)


def _problems(answer: dict[str, Any], done: dict[str, Any]) -> str:
    """All that it says is wrong, one after the other."""
    if "problem" not in answer:
        return f"exit code {done['rc']}: {done['stderr'].strip()[-500:]}"
    return "\n".join(str(decode_problem(one)) for one in answer.get("problems") or [answer["problem"]])


def _refuse_pending(answer: dict[str, Any]) -> None:
    """A deployment that was cut short: its timer decides, not we."""
    pending = answer.get("pending")
    if pending:
        left = f"{float(pending['until_s']):.0f} s"
        raise AnsibleActionFail(
            f"deployment {pending['deployment']} was never confirmed; its timer restores this switch in {left}\n"
            f"    wait for it, or turn it back at once: dlcp switch rollback --deployment {pending['deployment']}"
        )


def _facts(verb: str, answer: dict[str, Any]) -> dict[str, Any]:
    match verb:
        case "diff":
            return {"ansible_facts": {"dlcp_diff": answer["diff"] if answer["changed"] else ""}}
        case "read":
            return {"ansible_facts": {"dlcp_found": {key: answer[key] for key in ("digest", "differences")}}}
        case "counters":
            return {"ansible_facts": {"dlcp_counters": answer}}
    return {}

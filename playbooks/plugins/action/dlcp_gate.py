"""The gate after a phase of a deployment: looks at all switches together and says how the fabric goes on.

Runs on the controller, once a phase. Args: phase; go_on (after the diff: whether to); turning_back (a rollback ends a
deployment that was cut short: whoever cannot be read is tried all the same), confirming (some may have confirmed it).
Of a role: dlcp_timed, false where its system has no timer that turns back by itself. Before anything has been changed a
gate fails; after that it sets facts for all: dlcp_go (something is to be changed), dlcp_sound (all is well so far),
dlcp_confirming (timers may be off), dlcp_unconfirmed (who did not confirm). What it decides is
dlcp.runner.lab.phase_verdict's; the way back is playbooks/README.md's.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from ansible.errors import AnsibleActionFail
from ansible.plugins.action import ActionBase

from dlcp.runner.lab import deployment_record, phase_verdict

FATAL = {"preflight": "preflight", "backup": "backup", "diff": "diff", "before restore": "read", "counters": "counters"}
"""Gates before which nothing has been changed, by the phase that must have worked: the deployment just ends there."""


class ActionModule(ActionBase):
    """See the module's docstring."""

    _requires_connection = False

    def run(self, tmp: str | None = None, task_vars: dict[str, Any] | None = None) -> dict[str, Any]:
        """Facts and a message for a person; a failure where the deployment ends here."""
        super().run(tmp, task_vars)
        fabric = _Fabric(task_vars or {})
        phase = self._task.args["phase"]
        turning_back = bool(self._task.args.get("turning_back"))
        if phase in FATAL and not turning_back:
            fabric.stop_if(FATAL[phase])
        match phase:
            case "backup" | "before restore":
                fabric.keep_before()
                go = phase == "before restore" and bool(self._task.args.get("go_on")) and not self._task.check_mode
                facts, msg = {"dlcp_go": go}, fabric.in_force()
            case "verify":
                facts, msg = {}, fabric.verified()
            case "rolled back":
                confirming = bool(self._task.args.get("confirming"))
                facts, msg = {}, fabric.rolled_back(turning_back=turning_back, confirming=confirming)
            case "diff":
                facts, msg = fabric.after_diff(go_on=bool(self._task.args.get("go_on")), check=self._task.check_mode)
            case "apply" | "read":
                facts, msg = fabric.after(phase)
            case "confirm" | "confirm again":
                facts, msg = fabric.after_confirm(phase)
            case "outcome":
                fabric.end()
            case _:
                facts, msg = {}, "all fine"
        self._display.display(msg)
        return {"changed": False, "ansible_facts": facts, "msg": msg}


class _Fabric:
    """All switches of the play, as the controller knows them."""

    def __init__(self, known: dict[str, Any]) -> None:
        self.folder = Path(known["dlcp_folder"])
        self.hosts = list(known["ansible_play_hosts_all"])
        self.vars = {name: known["hostvars"][name] for name in self.hosts}
        present = set(known["ansible_play_hosts"])
        self.deployment: str | None = known.get("dlcp_deployment")
        wanted = (deployment_record.read_json(self.folder / deployment_record.PLAN) or {}).get("switches", {})
        self.planned = bool(wanted)
        self.switches = [
            phase_verdict.Switch(
                name=name,
                present=name in present,
                failures=said.get("dlcp_failures", {}),
                unreached=said.get("dlcp_unreached", []),
                diff=said.get("dlcp_diff", ""),
                found=said.get("dlcp_found"),
                wanted=wanted.get(name, {}).get("digest", ""),
                timed=said.get("dlcp_timed", True),
            )
            for name, said in self.vars.items()
        ]
        self.differing = [one for one in self.switches if one.diff]

    def stop_if(self, phase: str) -> None:
        """End here when the phase did not work everywhere."""
        if reasons := phase_verdict.failed(phase, self.switches):
            self.record("refused", phase, reasons)
            raise AnsibleActionFail(f"{phase} failed; nothing was changed\n{phase_verdict.listing(reasons)}")

    def keep_before(self) -> None:
        """What each switch held before anything was changed."""
        digests = {one.name: one.found["digest"] for one in self.switches if one.found is not None}
        deployment_record.write_json(self.folder / deployment_record.BEFORE, digests)

    def in_force(self) -> str:
        """What each switch holds, in words."""
        held = {one.name: one.found["digest"] or "nothing of ours" for one in self.switches if one.found is not None}
        return f"in force:\n{phase_verdict.listing(held)}"

    def verified(self) -> str:
        """What was read of every switch, kept; a failure when any differs from its intent or from what it was told."""
        reasons = {
            **phase_verdict.deviations(self.switches, digests=self.planned),
            **phase_verdict.failed("read", self.switches),
        }
        found = {one.name: one.found for one in self.switches}
        deployment_record.write_json(self.folder / deployment_record.FOUND, {"found": found, "reasons": reasons})
        if reasons:
            raise AnsibleActionFail(f"not as intended\n{phase_verdict.listing(reasons)}")
        return self.in_force()

    def rolled_back(self, *, turning_back: bool, confirming: bool) -> str:
        """A rollback that reached everybody; a failure names those that it did not, and it can be repeated."""
        reasons = phase_verdict.failed("restore", self.switches)
        undone = self.folder.parent / str(self.deployment)
        before = deployment_record.read_json(undone / deployment_record.BEFORE) or {} if self.deployment else {}
        reasons = {**phase_verdict.not_as_before(self.switches, before), **reasons}
        ending = phase_verdict.turned_back(reasons, self.switches, confirming=confirming or not turning_back)
        self.record(ending.status if reasons else "rolled back", "restore", reasons)
        if reasons:
            raise AnsibleActionFail(f"not everything is back; repeat it\n{phase_verdict.listing(reasons)}")
        if self.deployment and (outcome := deployment_record.read_json(undone / deployment_record.OUTCOME)):
            deployment_record.write_json(undone / deployment_record.OUTCOME, {**outcome, "status": "rolled back"})
        return self.in_force()

    def after_diff(self, *, go_on: bool, check: bool) -> tuple[dict[str, Any], str]:
        """Whether to go on."""
        many = f"{len(self.differing)} of {len(self.switches)} switches"
        go = bool(self.differing) and go_on and not check
        if not self.differing:
            msg = "nothing to do: every switch is as the intent wants it"
        elif go:
            msg = f"{many} will be changed"
        else:
            msg = f"{many} would be changed; nothing was (-e yes=true goes on)"
        if not go:
            self.record("unchanged" if not self.differing else "looked", "diff", {})
        return {"dlcp_go": go, "dlcp_sound": go}, msg

    def after(self, phase: str) -> tuple[dict[str, Any], str]:
        """After apply and read."""
        concerned = self.differing if phase == "apply" else self.switches
        reasons = phase_verdict.failed(phase, concerned)
        if phase == "read":
            reasons = {**phase_verdict.deviations(self.switches), **reasons}
        if reasons:
            self.record("turning back", phase, reasons)
            return {"dlcp_sound": False}, f"{phase} failed; all is turned back\n{phase_verdict.listing(reasons)}"
        facts = {"dlcp_confirming": True} if phase == "read" else {}
        return {"dlcp_sound": True, **facts}, f"{phase}: fine on all"

    def after_confirm(self, phase: str) -> tuple[dict[str, Any], str]:
        """The first time, whoever did not answer is asked again."""
        asked = set(self.unconfirmed()) if phase == "confirm again" else {one.name for one in self.differing}
        reasons = phase_verdict.failed(phase, (one for one in self.switches if one.name in asked))
        if not reasons:
            self.record("deployed", phase, {})
            return {"dlcp_sound": True, "dlcp_unconfirmed": []}, "confirmed on all"
        facts = {"dlcp_sound": phase == "confirm", "dlcp_unconfirmed": list(reasons)}
        then = "they are asked again" if phase == "confirm" else "all is turned back"
        self.record("turning back", phase, reasons)
        return facts, f"not confirmed; {then}\n{phase_verdict.listing(reasons)}"

    def unconfirmed(self) -> list[str]:
        """Who did not confirm the first time."""
        return sorted({name for said in self.vars.values() for name in said.get("dlcp_unconfirmed", [])})

    def end(self) -> None:
        """The outcome of a deployment that was turned back: always a failure, which says how the fabric stands."""
        confirming = any(said.get("dlcp_confirming") for said in self.vars.values())
        before = deployment_record.read_json(self.folder / deployment_record.BEFORE) or {}
        reasons = {
            **phase_verdict.not_as_before(self.differing, before),
            **phase_verdict.failed("restore", self.differing),
        }
        ending = phase_verdict.turned_back(reasons, self.differing, confirming=confirming)
        self.record(ending.status, "restore", reasons)
        words = {
            "restored": "every switch is as it was before",
            "timers": f"not reached: {', '.join(ending.waiting)}; their own timers restore them",
            "mixed": f"THE FABRIC MAY BE MIXED: {', '.join(ending.stuck)} may hold the new configuration for good; "
            "all others are as before. Restore them by hand (playbooks/README.md)",
        }
        raise AnsibleActionFail(f"the deployment failed; {words[ending.status]}\n{phase_verdict.listing(reasons)}")

    def record(self, status: str, phase: str, reasons: phase_verdict.Reasons) -> None:
        """outcome.json, so far: phases that failed before stay in it."""
        path = self.folder / deployment_record.OUTCOME
        before = (deployment_record.read_json(path) or {}).get("failed", {})
        outcome = {
            "status": status,
            "changed": [one.name for one in self.differing] if status not in ("refused", "looked") else [],
            "failed": {**before, **({phase: dict(reasons)} if reasons else {})},
        }
        deployment_record.write_json(path, outcome)

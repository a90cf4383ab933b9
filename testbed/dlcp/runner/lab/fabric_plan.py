"""One intent for every switch of a lab, rendered before anything is reached; all that stands against it at once."""

from __future__ import annotations

from dlcp.errors import Problem, Problems
from dlcp.model.lab.inventory import Lab, LabSwitch
from dlcp.model.qos import QosIntent
from dlcp.paths import PLAYBOOKS
from dlcp.switches.vendor.render import Rendered, render

PHASES = ("preflight", "backup", "diff", "apply", "read", "confirm", "restore", "counters")
"""Task files of a role that deploys a system: roles/switch_<system>/tasks/<phase>.yml."""


def plan_fabric(lab: Lab, intent: QosIntent) -> dict[str, Rendered]:
    """Switch → what it is to be told. Raises Problems: those of every switch, each told once, by the line of the first
    switch that has it; nothing is made then."""
    found: dict[str, Rendered] = {}
    problems: dict[tuple[str, str], tuple[Problem, list[str]]] = {}
    for name, switch in lab.switches.items():
        try:
            _deployable(switch)
            found[name] = render(intent, switch.device)
        except (Problem, Problems) as error:
            for one in error.problems if isinstance(error, Problems) else [error]:
                key = (one.what.replace(name, "*"), one.hint)
                problems.setdefault(key, (_at(switch, one), []))[1].append(name)
    if problems:
        raise Problems([_together(problem, names) for problem, names in problems.values()])
    return found


def _deployable(switch: LabSwitch) -> None:
    """Whether there are playbooks for it, or only a rendering."""
    role = PLAYBOOKS / "roles" / f"switch_{switch.device.system}" / "tasks"
    missing = [phase for phase in PHASES if not (role / f"{phase}.yml").is_file()]
    if missing:
        hint = f"dlcp switch render makes its configuration; to deploy it, write {role} ({', '.join(missing)})"
        raise Problem("", f"no playbooks for the system {switch.device.system}", hint)


def _at(switch: LabSwitch, problem: Problem) -> Problem:
    """What was found of a device, at the device's line in the inventory."""
    name = switch.device.name
    inner = problem.where.removeprefix(name).lstrip(":, ")
    what = f"{inner}: {problem.what}" if inner else problem.what
    return Problem(switch.where, f"{name}: {what}", problem.hint, exit_code=problem.exit_code)


def _together(problem: Problem, names: list[str]) -> Problem:
    if len(names) == 1:
        return problem
    what = f"{problem.what} (and so {', '.join(names[1:])})"
    return Problem(problem.where, what, problem.hint, exit_code=problem.exit_code)

"""One intent for every switch of a lab, rendered before anything is reached; all that stands against it at once."""

from __future__ import annotations

from pathlib import Path

from dlcp.errors import Problem, Problems
from dlcp.model.lab.inventory import Lab, LabSwitch
from dlcp.model.qos import QosIntent
from dlcp.paths import SWITCH_CONFIGS
from dlcp.switches.vendor.render import Rendered, render

PHASES = ("preflight", "backup", "diff", "apply", "read", "confirm", "restore", "counters")
"""Task files of a system that has its own way: switch_configs/<system>/tasks/<phase>.yml."""

LINES_ROLE = "switch_lines"
"""The role of systems that take their configuration line by line: tasks/main.yml of these names it."""
LINES_PARTS = ("look", "pending", "compare", "apply", "accept", "reject", "restore", "counters")
"""Task files that this role asks of such a system."""


def plan_fabric(lab: Lab, intent: QosIntent) -> dict[str, Rendered]:
    """Switch → its rendered configuration. Raises Problems: those of every switch, each once, by the line of the first
    switch that has it; nothing is made then."""
    rendered: dict[str, Rendered] = {}
    problems: dict[tuple[str, str], tuple[Problem, list[str]]] = {}
    for name, switch in lab.switches.items():
        try:
            _deployable(switch)
            rendered[name] = render(intent, switch.device)
        except (Problem, Problems) as error:
            for each in error.problems if isinstance(error, Problems) else [error]:
                key = (each.what.replace(name, "*"), each.hint)
                problems.setdefault(key, (_at(switch, each), []))[1].append(name)
    if problems:
        raise Problems([_together(problem, names) for problem, names in problems.values()])
    return rendered


def missing_tasks(system: str, folder: Path) -> list[str]:
    """Return the names of task files that a system lacks to be deployed; none are missing of one that can be."""
    tasks = folder / system / "tasks"
    main = tasks / "main.yml"
    by_lines = main.is_file() and LINES_ROLE in main.read_text(encoding="utf-8")
    wanted = ("main", *(LINES_PARTS if by_lines else PHASES))
    return [name for name in wanted if not (tasks / f"{name}.yml").is_file()]


def _deployable(switch: LabSwitch) -> None:
    """Refuse a switch for which there is a rendering, but no playbooks."""
    missing = missing_tasks(switch.device.system, SWITCH_CONFIGS)
    if missing:
        tasks = SWITCH_CONFIGS / switch.device.system / "tasks"
        hint = f"dlcp switch render makes its configuration; to deploy it, write {tasks} ({', '.join(missing)})"
        raise Problem("", f"no playbooks for the system {switch.device.system}", hint)


def _at(switch: LabSwitch, problem: Problem) -> Problem:
    """Problem of a device, at the device's line in the inventory."""
    name = switch.device.name
    inner = problem.where.removeprefix(name).lstrip(":, ")
    text = f"{inner}: {problem.what}" if inner else problem.what
    return Problem(switch.where, f"{name}: {text}", problem.hint, exit_code=problem.exit_code)


def _together(problem: Problem, names: list[str]) -> Problem:
    if len(names) == 1:
        return problem
    text = f"{problem.what} (and so {', '.join(names[1:])})"
    return Problem(problem.where, text, problem.hint, exit_code=problem.exit_code)

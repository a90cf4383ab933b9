"""The whole way of a lab, shown on one that this machine builds of namespaces: deploy, verify, run, put back.

Each step is a command that a person would type, run as it is; what the nodes hold is compared before and after.
"""

from __future__ import annotations

import json
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dlcp.errors import ExitCode
from dlcp.isolation.private_namespaces import RUNTIME, start_private
from dlcp.runner.preview.preflight import preflight_lab_demo
from dlcp.substrates.namespace_lab.namespace_lab import DEFAULT_TOPOLOGY, NamespaceLab, controller_environment

EXPERIMENT = "lab-demo"
INTENT = "dlcp-wred"
PAGE = Path("results", "lab-demo.html")
"""Where the report's page is left, from the current folder."""
_STATE = (
    "ip -o route show table all; ip -o link; tc qdisc; tc filter show dev eth1 egress; "
    "ethtool -k eth1; sysctl -a 2>/dev/null | grep -E '^net[.]ipv4' | grep -v -e nf_conntrack -e fastopen_key"
)
"""Files that a deployment and a run change on a node."""


@dataclass(frozen=True)
class Step:
    """A command of ours, and why it is given. accepts: the exit codes with which the demonstration goes on."""

    why: str
    words: tuple[str, ...]
    accepts: tuple[ExitCode, ...] = (ExitCode.FINE,)


def steps(results: Path) -> list[Step]:
    """The demonstration in its order; the last two put everything back and are taken whatever happened before."""
    suspect = (ExitCode.FINE, ExitCode.SUSPECT)
    return [
        Step(
            f"Deploy the QoS intent {INTENT} onto all switches: over SSH, all of them or none",
            ("switch", "apply", INTENT, "--yes"),
        ),
        Step(
            "Prove with packets that the switches do what the intent says",
            ("switch", "verify", INTENT, "--on", "lab"),
            suspect,
        ),
        Step(
            "Train over TCP and over DLCP; the lab gets each scheme's QoS and host settings as runs need them",
            ("run", EXPERIMENT, "--on", "lab", "--deploy", "--results", str(results)),
            suspect,
        ),
        Step("Put the hosts back", ("hosts", "restore", "--yes")),
        Step("Put the switches back", ("switch", "rollback", "--original", "--yes")),
    ]


_RESTORING = 2


def demonstrate(results: Path | None) -> int:
    """Build a lab, show all, take it down. results: a folder to keep the runs in; None = they go with the lab, and only
    the page that compares them stays, as PAGE.

    Returns the exit status. Raises Problems with all that this machine lacks.
    """
    preflight_lab_demo()
    return start_private(f"{__name__}:main", [json.dumps(str(results.resolve()) if results else None)]).attend()


def main(arguments: list[str]) -> int:
    """Entry point inside the namespaces; one argument, where results are kept, as JSON."""
    request = json.loads(arguments[0])
    began = time.monotonic()
    _say("Build a lab on this machine: every node has its own network, processes, files and sshd")
    with NamespaceLab(DEFAULT_TOPOLOGY, RUNTIME / "lab") as lab:
        graph = lab.plan.graph
        took_s = time.monotonic() - began
        print(f"{len(graph.switches)} switches, {len(graph.hosts)} hosts, in {took_s:.1f} s: {lab.path}", flush=True)
        before = _states(lab)
        results = Path(request) if request else RUNTIME / "results"
        code, doubted = _show(steps(results), controller_environment(lab.path))
        _say("Compare every node with what it was before")
        differing = [node for node, state in _states(lab).items() if state != before[node]]
    for doubt in doubted:
        print(doubt)
    if differing:
        print(f"NOT as before: {', '.join(differing)}")
        code = code or int(ExitCode.RUN_FAILED)
    else:
        print(f"{len(before)} of {len(before)} nodes are as before: routes, queues, filters, offloads, sysctls")
    print(f"\nThe lab is gone; nothing of it is left. {time.monotonic() - began:.0f} s in all.")
    if request is None and (made := RUNTIME / "results" / EXPERIMENT / "report.html").is_file():
        PAGE.parent.mkdir(exist_ok=True)
        shutil.copyfile(made, PAGE)
        print(f"What the runs showed, as a page: {PAGE}")
    return code


def _show(all_steps: Sequence[Step], environment: dict[str, str]) -> tuple[int, list[str]]:
    """Take the steps; what puts back is taken even if one before failed. Returns the first exit code that is none to
    accept, and a line for each step whose outcome is accepted, but not wholly believed."""
    code, doubted = int(ExitCode.FINE), []
    for number, step in enumerate(all_steps):
        if code and number < len(all_steps) - _RESTORING:
            continue
        _say(step.why)
        print(f"$ dlcp {shlex.join(step.words)}", flush=True)
        command = [str(Path(sys.executable).with_name("dlcp")), *step.words]
        try:
            status = subprocess.run(command, env=environment, check=False).returncode
        except KeyboardInterrupt:
            status = int(ExitCode.INTERRUPTED)
        if status not in step.accepts:
            print(f"that ended with exit code {status}; what was changed is put back")
            code = code or status
        elif status == ExitCode.SUSPECT:
            doubted.append(
                f"Not all of `dlcp {' '.join(step.words[:2])}` is to be believed: its last lines above say what and "
                "why. `make lab-demo` shows all of it again, when nothing else runs on this machine."
            )
    return code, doubted


def _states(lab: NamespaceLab) -> dict[str, str]:
    return {
        name: subprocess.run(
            node.inside(["sh", "-c", _STATE]), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=False
        ).stdout
        for name, node in lab.nodes.items()
    }


def _say(what: str) -> None:
    print(f"\n== {what}", flush=True)

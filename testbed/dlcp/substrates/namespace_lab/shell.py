"""A shell on the controller of a namespace lab, or one command there."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
from collections.abc import Mapping
from typing import Any

from dlcp.isolation.private_namespaces import RUNTIME, start_private
from dlcp.substrates.namespace_lab.namespace_lab import SSH_CONFIG, NamespaceLab, controller_environment

_RC = """\
[ -f ~/.bashrc ] && [ -n "$PS1" ] && . ~/.bashrc
PS1='(lab) \\w \\$ '
ssh() {{ command ssh -F {config} "$@"; }}
"""
_GREETING = """\
A lab of {many} on this machine; it goes away with this shell.
  ssh l1                 a switch;  ssh h1  a host;  nodes: {nodes}
  DLCP_LAB={path}, which dlcp, ansible -i "$DLCP_LAB" and others read
"""


def lab_shell(topology: str | Mapping[str, Any], command: str | None) -> int:
    """Build a lab in private namespaces and give a shell on its controller, DLCP_LAB set; with `command` run that line
    alone. Returns its exit status; nothing is left afterwards but what was written into folders of the machine."""
    return start_private(f"{__name__}:main", [json.dumps({"topology": topology, "command": command})]).attend()


def main(arguments: list[str]) -> int:
    """Entry point inside the namespaces; one argument, the request as JSON."""
    request = json.loads(arguments[0])
    with NamespaceLab(request["topology"], RUNTIME / "lab") as lab:
        rc = lab.folder / "bashrc"
        rc.write_text(_RC.format(config=shlex.quote(str(lab.folder / SSH_CONFIG))))
        env = controller_environment(lab.path)
        if request["command"] is not None:
            line = f". {shlex.quote(str(rc))}\n{request['command']}"
            return subprocess.run(["bash", "-c", line], env=env, check=False).returncode
        graph = lab.plan.graph
        many = f"{len(graph.switches)} switches and {len(graph.hosts)} hosts"
        print(_GREETING.format(many=many, nodes=" ".join(lab.plan.nodes), path=lab.path), end="", flush=True)
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        return subprocess.run(["bash", "--rcfile", str(rc), "-i"], env=env, check=False).returncode

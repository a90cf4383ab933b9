"""The agent's units brought to life on a node of a lab, where no systemd is the first process.

systemd-socket-activate, a part of systemd, listens where the socket unit says, and starts what the service unit says at
every connection: its ExecStart, as its user, with its environment, its capabilities and no others, with a /tmp of its
own. The rest of its sandbox (system call and address family filters, read-only file systems) is not in force here.
"""

from __future__ import annotations

import configparser
import importlib.util
import shlex
import shutil
import sys
from pathlib import Path

from running_lab import RunningLab

from dlcp.paths import REPOSITORY

UNITS = REPOSITORY / "playbooks/plugins/module_utils/dlcp_agent_units.py"
NEEDED = {"systemd-socket-activate": "systemd", "setpriv": "util-linux", "runuser": "util-linux"}
CALLER, STRANGER = "lab", "other"
"""A user in the agent's group, and one that is not."""
PIDFILE, START = "/run/dlcp-listener.pid", "/run/dlcp-agent-start"
"""The listener's process id; a script that begins an agent, so that no command line but an agent's looks like one."""


def lacking() -> str:
    """Why units cannot be brought to life on this machine; empty when they can."""
    for tool, package in NEEDED.items():
        if shutil.which(tool) is None:
            return f"no {tool} here; apt-get install {package} brings it"
    private = Path("/tmp")
    if any(private in place.parents for place in (REPOSITORY, Path(sys.executable))):
        return f"{REPOSITORY} or its Python is in /tmp, which an agent has of its own; check it out elsewhere"
    return ""


def texts(python: str) -> dict[str, configparser.ConfigParser]:
    """Sections of the units that the role installs, by file name."""
    spec = importlib.util.spec_from_file_location("dlcp_agent_units", UNITS)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    found = {}
    for name, text in module.units(python).items():
        parser = found[name] = configparser.ConfigParser(interpolation=None)
        parser.optionxform = str  # type: ignore[assignment,method-assign]
        parser.read_string(text)
    return found


def furnish(lab: RunningLab, host: str) -> str:
    """Users and rights as a host of a rack has them. Returns why other users than root cannot run dlcp there."""
    places = {Path(sys.executable), Path(sys.executable).resolve(), Path(sys.base_prefix), REPOSITORY / "testbed"}
    passed = sorted({str(parent) for place in places for parent in place.parents})
    lab.on(host, f"chmod o+x {shlex.join(passed)} 2>/dev/null || true")
    lab.on(host, "chmod 644 /etc/ssh/authorized_keys; useradd --system --user-group --no-create-home dlcp")
    lab.on(host, f"useradd -m -p '*' {CALLER}; useradd -m -p '*' {STRANGER}; gpasswd --add {CALLER} dlcp")
    return lab.on(
        host, f"runuser -u {CALLER} -- {sys.executable} -c 'import dlcp.agents.process.agent' 2>&1 || true"
    ).strip()


def listen(lab: RunningLab, host: str) -> None:
    """What systemd does with dlcp-agent.socket, until `deafen`."""
    found = texts(sys.executable)
    socket, service = found["dlcp-agent.socket"]["Socket"], found["dlcp-agent@.service"]["Service"]
    assert socket["Accept"] == service["PrivateTmp"] == service["NoNewPrivileges"] == "yes"
    assert service["StandardInput"] == service["StandardOutput"] == "socket"
    path = socket["ListenStream"]
    kept, ambient = (_capabilities(service[f"{kind}"]) for kind in ("CapabilityBoundingSet", "AmbientCapabilities"))
    rights = f"--reuid {service['User']} --regid {service['Group']} --init-groups --no-new-privs"
    rights += f" --bounding-set={kept} --inh-caps={ambient} --ambient-caps={ambient}"
    become = f"mount -t tmpfs -o mode=1777 tmpfs /tmp; umask {service['UMask']}; cd /; "
    become += f"exec setpriv {rights} {service['ExecStart']}"
    variables = [*service["Environment"].split(), f"PYTHONPATH={REPOSITORY / 'testbed'}"]
    words = ["systemd-socket-activate", "--accept", "--inetd", "--listen", path]
    words += [word for one in variables for word in ("-E", one)]
    words += ["unshare", "--mount", "--propagation", "private", "sh", START]
    lab.on(host, f"printf %s {shlex.quote(become)} > {START}")
    access = f"chgrp {socket['SocketGroup']} {path}; chmod {socket['SocketMode']} {path}"
    lab.on(
        host,
        f"mkdir -p {Path(path).parent}; {shlex.join(words)} </dev/null >/run/listener.log 2>&1 & echo $! > {PIDFILE}; "
        f"for try in $(seq 100); do test -S {path} && break; sleep 0.05; done; {access}",
    )


def deafen(lab: RunningLab, host: str) -> None:
    """No unit any more; agents that run go on."""
    lab.on(host, f"kill $(cat {PIDFILE}); rm -r /run/dlcp")


def _capabilities(said: str) -> str:
    """As setpriv takes them."""
    return ",".join(["-all", *(f"+{name.removeprefix('CAP_').lower()}" for name in said.split())])

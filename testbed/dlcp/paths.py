"""Where the parts of a checkout are: experiments, topologies, intents, workloads, switch systems, playbooks; and the
commands that repair an installation."""

from __future__ import annotations

import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
EXPERIMENTS = REPOSITORY / "testbed" / "experiments"
TOPOLOGIES = REPOSITORY / "testbed" / "topologies"
INTENTS = REPOSITORY / "testbed" / "intents"
SWITCH_CONFIGS = REPOSITORY / "switch_configs"
WORKLOADS = REPOSITORY / "workloads"
PLAYBOOKS = REPOSITORY / "playbooks"
ANALYSIS = REPOSITORY / "analysis"


def install_command(extra: str) -> str:
    """The command that adds an optional part of this package to the Python that runs now."""
    return f"{sys.executable} -m pip install --editable '{REPOSITORY}[{extra}]'"


def sudo_command() -> str:
    """How sudo finds this `dlcp`: its own path leaves virtual environments out."""
    return f"sudo {Path(sys.executable).with_name('dlcp')}"


def sshd() -> Path | None:
    """The SSH server's program: the machine's, or the one that `make setup` puts into the virtual environment (as
    files only: there may be no user `sshd` and no /run/sshd then). None: there is none."""
    places = (Path("/usr/sbin/sshd"), Path("/usr/bin/sshd"), Path(sys.prefix) / "bin" / "sshd")
    return next((place for place in places if place.is_file()), None)

"""`dlcp lab`: parse, call, print. As in main.py, the command that needs a slow import is where it stands."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from cyclopts import App, Parameter

lab = App(name="lab", help="A lab of network namespaces on this machine: real SSH, real routes, nothing left.")


@lab.command
def shell(
    topology: str | None = None, *, command: Annotated[str | None, Parameter(name=["--command", "-c"])] = None
) -> int:
    """Build a lab and open a shell on its controller, DLCP_LAB set; the lab goes away with the shell.

    Parameters
    ----------
    topology
        A name in testbed/topologies; default: leaf-spine-4, two leaves, two spines and four hosts.
    command
        Run this one command instead, such as 'ssh h1 ping -c 3 198.18.4.2'; its exit code is returned.
    """
    from dlcp.runner.shells import open_lab_shell

    return open_lab_shell(topology, command)


@lab.command
def demo(*, results: Path | None = None) -> int:
    """Show the whole way on a lab of namespaces: deploy, verify with packets, run over TCP and DLCP, put everything
    back.

    Parameters
    ----------
    results
        A folder to keep the runs in; default: they go away with the lab, and results/lab-demo.html stays.
    """
    from dlcp.runner.lab_demo import demonstrate

    return demonstrate(results)

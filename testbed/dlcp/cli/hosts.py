"""`dlcp hosts`: parse, call, print. As in main.py, the command that needs a slow import is where it stands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from cyclopts import App

from dlcp.cli.bench import Json
from dlcp.cli.switch import LabFile, Yes

if TYPE_CHECKING:
    from dlcp.runner.lab.hosts import HostsOutcome

hosts = App(name="hosts", help="The hosts of a lab: their settings, set up and restored.")


@hosts.command
def apply(settings: Path | None = None, *, lab: LabFile = None, yes: Yes = False, json: Json = False) -> int:
    """Bring every host of a lab to its settings, or none; every old value is saved first.

    Parameters
    ----------
    settings
        A YAML file of settings; default: `dlcp_host_settings` of the inventory's group_vars.
    """
    from dlcp.runner.lab.find_lab import find_lab
    from dlcp.runner.lab.hosts import apply_hosts, read_settings

    wanted = None if settings is None else read_settings(settings)
    return _ended(apply_hosts(find_lab(lab), wanted, yes=yes), json=json)


@hosts.command
def restore(*, lab: LabFile = None, yes: Yes = False, json: Json = False) -> int:
    """Put every host of a lab back to what it was before it was first set up."""
    from dlcp.runner.lab import hosts as hosts_of
    from dlcp.runner.lab.find_lab import find_lab

    return _ended(hosts_of.restore(find_lab(lab), yes=yes), json=json)


def _ended(outcome: HostsOutcome, *, json: bool) -> int:
    from dlcp.cli.show import common
    from dlcp.cli.show import hosts as show_hosts

    if json:
        common.print_json(outcome.data())
    else:
        show_hosts.print_hosts(outcome)
    return outcome.exit_code

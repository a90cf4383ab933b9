"""Choice of the lab of a command: its inventory's file, the environment's, or the one in this folder."""

from __future__ import annotations

import os
from pathlib import Path

from dlcp.errors import Problem
from dlcp.model.lab.inventory import Lab
from dlcp.model.lab.load_inventory import load_inventory

ENVIRONMENT = "DLCP_LAB"
HERE = Path("lab.yaml")


def find_lab(file: Path | None = None) -> Lab:
    """The inventory named, else that of DLCP_LAB, else ./lab.yaml, checked. Raises Problem or Problems."""
    path = file or Path(os.environ.get(ENVIRONMENT) or HERE)
    if not path.is_file():
        hint = "dlcp switch inventory TOPOLOGY writes one; dlcp lab shell opens a lab on this machine"
        text = f"no such inventory (--lab, or {ENVIRONMENT}, or {HERE} in this folder)"
        raise Problem(str(path), text, hint)
    return load_inventory(path)

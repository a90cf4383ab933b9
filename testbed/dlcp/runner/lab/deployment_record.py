"""What is kept of a deployment: deployments/<lab>/<stamp>/, written while it goes on, readable when it went wrong.

plan.json: what was to be done. before.json: the digest that each switch held. found.json: what `verify` read.
<switch>/rendered.json, diff.txt, backup.*: of each switch. events.jsonl: what Ansible did, one event a line.
outcome.json: how it ended; a folder without one was cut short.
"""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dlcp.errors import Problem
from dlcp.files.atomic_file import write_whole
from dlcp.files.json_text import parse_json
from dlcp.model.lab.inventory import Lab
from dlcp.model.qos import QosIntent
from dlcp.switches.vendor.render import Rendered

FOLDER = "deployments"
"""Beside the inventory, unless a person says otherwise: whoever deploys by the same inventory sees the same."""
LOCK = "lock"
"""In the lab's folder: see substrates.lab.fabric_lock."""
SECRET = "secret"
"""In the lab's folder: what jobs' cookies, and so TCP's source ports, follow from."""
SECRET_BYTES = 32
PLAN, BEFORE, FOUND, EVENTS, OUTCOME = "plan.json", "before.json", "found.json", "events.jsonl", "outcome.json"


def lab_folder(lab: Lab) -> Path:
    """Where a lab's deployments are kept."""
    return lab.path.resolve().parent / FOLDER / lab.name


def lock_path(lab: Lab) -> Path:
    """The lock of a lab's fabric."""
    return lab_folder(lab) / LOCK


def lab_secret(lab: Lab) -> bytes:
    """32 bytes for this lab's runs alone, drawn when they are first asked for; kept for the owner's eyes. Whoever asks
    has the lab's lock. Problem when they are somebody else's."""
    path = lab_folder(lab) / SECRET
    try:
        if not path.exists():
            path.parent.mkdir(parents=True, exist_ok=True)
            write_whole(path, secrets.token_bytes(SECRET_BYTES), mode=0o600)
        return path.read_bytes()
    except PermissionError as error:
        hint = "run as its owner; or remove it: runs then take other paths through flow-hash switches than those before"
        raise Problem(str(path), "this user may not read the secret of the lab's runs", hint) from error


def stamp() -> str:
    """The name of a deployment, in the order of time, which no other one has: 20260102T030405Z-1a2b."""
    return f"{datetime.now(UTC):%Y%m%dT%H%M%SZ}-{secrets.token_hex(2)}"


def new_folder(lab: Lab, said: str | Path = "") -> Path:
    """A folder for what is kept of a deployment, for this user alone: a switch's whole configuration may hold secrets.
    said: which, instead of a new one of the lab's."""
    folder = Path(said) if said else lab_folder(lab) / stamp()
    folder.mkdir(parents=True, exist_ok=True)
    folder.chmod(0o700)
    return folder


def write_plan(folder: Path, lab: Lab, intent: QosIntent, rendered: Mapping[str, Rendered]) -> None:
    """Begin a folder: the plan, and for each switch a folder with what it is to be told."""
    for name, one in rendered.items():
        own = folder / name
        own.mkdir(parents=True, exist_ok=True)
        write_json(own / "rendered.json", one.data())
    plan = {
        "lab": lab.name,
        "inventory": str(lab.path.resolve()),
        "intent": intent.model_dump(mode="json"),
        "switches": {name: _told(one) for name, one in rendered.items()},
    }
    write_json(folder / PLAN, plan)


def write_json(path: Path, data: Any) -> None:
    """Whole or not at all."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_whole(path, (json.dumps(data, indent=2, ensure_ascii=False) + "\n").encode())


def read_json(path: Path) -> dict[str, Any] | None:
    """Return a record, or None where it was never written. Problem when it is damaged."""
    try:
        record = parse_json(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise Problem(str(path), f"cannot be read as a record: {error}", "move it away") from error
    if not isinstance(record, dict):
        raise Problem(str(path), "is not a record: not one object", "move it away")
    return record


def diffs(folder: Path) -> dict[str, str]:
    """Switch → what was to change there, "" = nothing; those that were compared."""
    return {file.parent.name: file.read_text(encoding="utf-8") for file in sorted(folder.glob("*/diff.txt"))}


def to_undo(lab: Lab, name: str = "") -> Path:
    """The folder of the deployment that is to be taken back: that of this name, else the last that was confirmed.
    Raises Problem when there is none."""
    folder = lab_folder(lab) / name if name else last_deployed(lab)
    if folder is None:
        hint = "--deployment names one (by hand: of), --original takes all of ours off"
        raise Problem(str(lab_folder(lab)), "no deployment to roll back", hint)
    if folder.parent != lab_folder(lab) or not (folder / PLAN).is_file():
        hint = f"known: {', '.join(sorted(plan.parent.name for plan in lab_folder(lab).glob(f'*/{PLAN}'))) or 'none'}"
        raise Problem(str(folder), "is no deployment that was begun from here", hint)
    return folder


def last_deployed(lab: Lab) -> Path | None:
    """The folder of the last deployment that changed the fabric and was confirmed, and has not been rolled back."""
    for folder in sorted(lab_folder(lab).glob("*Z-*"), reverse=True):
        status = (read_json(folder / OUTCOME) or {}).get("status")
        if status == "deployed":
            return folder
    return None


def _told(rendered: Rendered) -> dict[str, Any]:
    data = rendered.data()
    return {key: data[key] for key in ("system", "chip", "digest", "degradations", "differences", "notes")}

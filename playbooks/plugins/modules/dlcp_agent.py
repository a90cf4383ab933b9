#!/usr/bin/python
"""dlcp's package and the agent's units on one host."""

from __future__ import annotations

DOCUMENTATION = r"""
module: dlcp_agent
short_description: Install dlcp from wheels and the agent's systemd units, or take both off
description:
  - The package goes into a virtual environment of its own, from a folder of wheels and nothing else (offline).
  - A virtual environment that this module did not make is left alone; so is a unit of that name.
  - Where no systemd runs, the units are a row with status C(skipped).
options:
  state:
    description: present, or absent (what this module made is removed).
    type: str
    choices: [present, absent]
    default: present
  python:
    description: The environment's Python, an absolute path that ends in bin/python.
    type: path
    required: true
  wheels:
    description: A folder on the host with wheels of dlcp and of what it needs; empty = no package.
    type: str
    default: ""
  units:
    description: Whether to install the units.
    type: bool
    default: false
  callers:
    description: Users who may connect to the agent; with the units, they become members of its group. Root may anyway.
    type: list
    elements: str
    default: []
author: dlcp
"""

EXAMPLES = r"""
- name: The agent
  dlcp_agent: {python: /opt/dlcp/bin/python, wheels: /var/lib/dlcp/wheels, units: true, callers: [lab]}
"""

RETURN = r"""
rows:
  description: "One of package and of units: name, status (same, changed, skipped), was, wanted, reason."
  type: list
  returned: always
"""

import grp
import hashlib
import pwd
import shutil
import sys
from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.dlcp_agent_units import HEAD, SOCKET, USER, units
from ansible.module_utils.dlcp_host_part import Refused, must
from ansible.module_utils.private_folder import make_private, replace_file

SYSTEMD = Path("/run/systemd/system")
UNITS = Path("/etc/systemd/system")
MADE = Path("/var/lib/dlcp/made-user")
"""Is there when the user was made here, and not found."""
CALLERS = Path("/var/lib/dlcp/made-callers")
"""Users who were made members of the group here, one a line."""
MARK = "made-by-dlcp"
NOTHING = "none"
INSTALL_LIMIT_S = 600.0
"""Some hundred MB of wheels, unpacked and compiled on a slow disk."""


def main() -> None:
    """Entry point on the managed host."""
    module = AnsibleModule(
        {
            "state": {"type": "str", "choices": ["present", "absent"], "default": "present"},
            "python": {"type": "path", "required": True},
            "wheels": {"type": "str", "default": ""},
            "units": {"type": "bool", "default": False},
            "callers": {"type": "list", "elements": "str", "default": []},
        },
        supports_check_mode=True,
    )
    said, rows = module.params, []
    present = said["state"] == "present"
    try:
        if said["wheels"] or not present:
            rows.append(_package(Path(said["python"]), said["wheels"] if present else "", check=module.check_mode))
        if said["units"] or not present:
            rows.append(_units(said["python"], said["callers"], present=present, check=module.check_mode))
    except (Refused, OSError) as error:
        module.fail_json(msg=str(error), rows=rows)
    changed = [row for row in rows if row["status"] == "changed"]
    diff = {
        side: "".join(f"{row['name']} = {row[key]}\n" for row in changed)
        for side, key in (("before", "was"), ("after", "wanted"))
    }
    module.exit_json(changed=bool(changed), rows=rows, diff=diff)


def _package(python: Path, wheels: str, *, check: bool) -> dict[str, Any]:
    """The environment with exactly these wheels; none = no environment."""
    folder = python.parent.parent
    row = {"name": f"package in {folder}"}
    mark = folder / MARK
    if folder.exists() and not mark.exists():
        if not wheels:
            return {**row, "status": "same"}
        return {**row, "status": "skipped", "reason": f"{folder} is not of dlcp's making: it is left as it is"}
    was = mark.read_text(encoding="utf-8") if mark.exists() else NOTHING
    wanted = _digest(Path(wheels)) if wheels else NOTHING
    row = {**row, "was": was, "wanted": wanted, "status": "same" if was == wanted else "changed"}
    if check or was == wanted:
        return row
    if folder.exists():
        shutil.rmtree(folder)
    if wheels:
        folder.mkdir(parents=True)
        mark.write_text(NOTHING, encoding="utf-8")  # what is cut short here is still ours to remove
        must([_base_python(), "-m", "venv", str(folder)])
        must([str(python), "-I", "-m", "pip", "install", "-q", "--no-index", "--find-links", wheels, "dlcp"])
        must([str(python), "-I", "-c", "import dlcp"])
        mark.write_text(wanted, encoding="utf-8")
    return row


def _units(python: str, callers: list[str], *, present: bool, check: bool) -> dict[str, Any]:
    """The unit files as they are to be, and the socket listening."""
    row = {"name": "agent's units"}
    if not SYSTEMD.is_dir():
        if not present:
            return {**row, "status": "same"}
        return {**row, "status": "skipped", "reason": "no systemd runs here"}
    wanted = units(python)
    found = {name: _text(UNITS / name) for name in wanted}
    if strange := [name for name, text in found.items() if text and not text.startswith(HEAD)]:
        return {**row, "status": "skipped", "reason": f"{', '.join(strange)} is not of dlcp's making"}
    strangers = [name for name in callers if name != "root" and name not in _members()] if present else []
    same = found == wanted and not strangers if present else not any(found.values())
    row = {**row, "was": _state(found), "wanted": _state(wanted if present else {}), "status": "same"}
    if same:
        return row
    if strangers:
        row["wanted"] += f", open to {', '.join(strangers)}"
    row["status"] = "changed"
    if not check and present:
        _install(wanted, strangers)
    elif not check:
        _remove(wanted)
    return row


def _install(wanted: dict[str, str], strangers: list[str]) -> None:
    make_private(str(MADE.parent))
    if not _user():
        MADE.touch()  # beforehand: killed in between, it is still known whose it is
        must(["useradd", "--system", "--user-group", "--no-create-home", "--shell", "/usr/sbin/nologin", USER])
    if strangers:
        known = _text(CALLERS)
        replace_file(str(CALLERS), (known + "".join(f"{caller}\n" for caller in strangers)).encode())
    for caller in strangers:
        must(["gpasswd", "--add", caller, USER])
    for name, text in wanted.items():
        replace_file(str(UNITS / name), text.encode(), mode=0o644)
    must(["systemctl", "daemon-reload"])
    must(["systemctl", "enable", "--now", SOCKET])


def _remove(wanted: dict[str, str]) -> None:
    must(["systemctl", "disable", "--now", SOCKET])
    for name in wanted:
        (UNITS / name).unlink(missing_ok=True)
    must(["systemctl", "daemon-reload"])
    for caller in _text(CALLERS).splitlines():
        if caller in _members():
            must(["gpasswd", "--delete", caller, USER])
    CALLERS.unlink(missing_ok=True)
    if MADE.exists():
        if _user():
            must(["userdel", USER])
        MADE.unlink()


def _user() -> bool:
    return any(one.pw_name == USER for one in pwd.getpwall())


def _members() -> list[str]:
    return next((one.gr_mem for one in grp.getgrall() if one.gr_name == USER), [])


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8") if path.exists() else ""


def _state(texts: dict[str, str]) -> str:
    whole = "".join(text for _, text in sorted(texts.items()))
    return hashlib.sha256(whole.encode()).hexdigest()[:12] if whole else NOTHING


def _digest(wheels: Path) -> str:
    """Of all wheels, by name and content. Raises Refused when there are none."""
    total = hashlib.sha256()
    names = sorted(wheels.glob("*.whl"))
    if not names:
        raise Refused(f"{wheels} holds no wheels")
    for wheel in names:
        total.update(wheel.name.encode() + b"\0" + hashlib.sha256(wheel.read_bytes()).digest())
    return total.hexdigest()[:12]


def _base_python() -> str:
    """The Python that an environment is made of: not one of another environment."""
    return shutil.which("python3", path="/usr/local/bin:/usr/bin:/bin") or sys.executable


if __name__ == "__main__":
    main()

"""A host's settings brought to what is wanted, and back: saved first, written, read back.

The file of saved values, {"first": {setting: value}, "last": {…}, "asked": [setting]}, is written before anything else
is: `first` holds what each setting was before this tool ever touched it, and is never overwritten; `last` what was
before the last call; `asked` what calls have asked for: what the next one does not ask for goes back to its first
value.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.dlcp_host_part import Absent, Part, Refused

_BETWEEN = "|"
_FIRST, _LAST, _ASKED = "first", "last", "asked"


class Failed(Exception):  # noqa: N818 - it is told to a person
    """The host is not as it was asked to be. The text says what, and what state it is left in."""


class Store:
    """The file of saved values."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, Any]:
        """What is saved; nothing where nothing is."""
        try:
            return json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {_FIRST: {}, _LAST: {}, _ASKED: []}

    def save(self, before: Mapping[str, str], asked: Sequence[str]) -> None:
        """Values that are about to change, and what they are changed for. On disk when it returns."""
        kept = self.read()
        every = sorted({*kept[_ASKED], *asked})
        self._write({_FIRST: {**before, **kept[_FIRST]}, _LAST: dict(before), _ASKED: every})

    def keep(self, left: Mapping[str, str]) -> None:
        """What is still to be put back; nothing = the file goes."""
        if left:
            self._write({_FIRST: dict(left), _LAST: {}, _ASKED: sorted(left)})
        else:
            self._path.unlink(missing_ok=True)

    def _write(self, data: Mapping[str, Any]) -> None:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        partial = self._path.with_name(self._path.name + ".tmp")
        with partial.open("w", encoding="utf-8") as file:
            json.dump(data, file, indent=1)
            file.flush()
            os.fsync(file.fileno())
        os.replace(partial, self._path)


def apply(parts: Sequence[Part], settings: Mapping[str, Any], store: Store, *, check: bool) -> list[dict[str, Any]]:
    """Bring a host to its settings; check: only say what would change. Returns rows {name, status, was, wanted, …}.

    Raises Failed: what this call had changed is then as it was before it, unless the text says otherwise.
    """
    rows: list[dict[str, Any]] = []
    plan: list[tuple[Part, dict[str, str]]] = []
    before: dict[str, str] = {}
    kept = store.read()
    for part in parts:
        try:
            wanted = part.wanted(settings)
            changes = _compare(part, wanted, rows, before)
            old = {name: kept[_FIRST][_key(part, name)] for name in _names(part, kept[_ASKED]) if name not in wanted}
            changes.update(_compare(part, old, left := [], before))
            rows += [{**row, "reason": "no longer asked for"} for row in left if row["status"] == "changed"]
        except Refused as error:
            raise Failed(f"{error}; nothing was changed") from error
        if changes:
            plan.append((part, changes))
    if check or not plan:
        return rows
    store.save(before, [_key(part, name) for part, changes in plan for name in changes])
    try:
        for part, changes in plan:
            part.write(changes)
        for part, changes in plan:
            _require(part, changes)
    except Refused as error:
        left = _put_back(parts, before)
        state = "as before this call" if not left else "NOT as before: {}".format("; ".join(left.values()))
        raise Failed(f"{error}; the host is {state}") from error
    return rows


def put_back(parts: Sequence[Part], store: Store, which: str, *, check: bool) -> list[dict[str, Any]]:
    """Every saved value as it was: which = "first": before this tool; "last": before its last call.

    Raises Failed that names what could not be put back; that stays saved.
    """
    kept = store.read()
    saved = kept[which]
    rows = []
    gone = set()
    for part in parts:
        names = _names(part, saved)
        for name, found in part.read(names).items():
            key = _key(part, name)
            row = {"name": f"{part.tag} {name}", "wanted": saved[key]}
            if isinstance(found, Absent):
                gone.add(key)
                rows.append({**row, "status": "skipped", "reason": found.reason})
            else:
                rows.append({**row, "was": found, "status": "same" if found == saved[key] else "changed"})
    if check:
        return rows
    present = {key: value for key, value in saved.items() if key not in gone}
    left = _put_back(parts, present)
    if which == _FIRST:
        store.keep({key: saved[key] for key in left})
    if left:
        raise Failed("not put back: {}".format("; ".join(left.values())))
    return rows


def _compare(part: Part, wanted: dict[str, str], rows: list[dict[str, Any]], before: dict[str, str]) -> dict[str, str]:
    """What of a part must change; tells rows and what to save."""
    if not wanted:
        return {}
    changes = {}
    found = part.read(list(wanted))
    for name, value in wanted.items():
        row = {"name": f"{part.tag} {name}", "wanted": value}
        was = found[name]
        if isinstance(was, Absent):
            rows.append({**row, "status": "skipped", "reason": was.reason})
            continue
        value = part.settled(name, value, was)
        rows.append({**row, "wanted": value, "was": was, "status": "same" if value == was else "changed"})
        if value != was:
            changes[name] = value
    if changes:
        names = [*changes, *part.beside(list(changes))]
        known = part.read(names)
        before.update({_key(part, n): v for n, v in known.items() if not isinstance(v, Absent)})
    return changes


def _require(part: Part, values: Mapping[str, str]) -> None:
    for name, found in part.read(list(values)).items():
        if isinstance(found, Absent) or found != values[name]:
            shown = found.reason if isinstance(found, Absent) else found
            raise Refused(f"{part.tag} {name} was set to {values[name]} but reads {shown}")


def _put_back(parts: Sequence[Part], saved: Mapping[str, str]) -> dict[str, str]:
    """Write what differs, the last part first, and once more: to put one back may move another. Returns what is left,
    setting → why."""
    left: dict[str, str] = {}
    for _ in range(2):
        left = {}
        for part in reversed(parts):
            names = _names(part, saved)
            changes = {n: saved[_key(part, n)] for n in names}
            found = part.read(names)
            changes = {name: value for name, value in changes.items() if found[name] != value}
            try:
                if changes:
                    part.write(changes)
                    _require(part, changes)
            except Refused as error:
                left.update({_key(part, name): str(error) for name in changes})
    return left


def _key(part: Part, name: str) -> str:
    return part.tag + _BETWEEN + name


def _names(part: Part, saved: Iterable[str]) -> list[str]:
    start = _key(part, "")
    return [key[len(start) :] for key in saved if key.startswith(start)]

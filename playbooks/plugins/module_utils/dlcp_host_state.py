"""A host's settings brought to what is wanted, and back: saved first, written, read back.

Settings come in layers, the host's own (an operator's) below a scheme's (of a run): what a layer no longer asks for
goes back to what the other asks for, or to what it was at first. The file of saved values is written before all else:
first   setting → its value before this tool ever touched it; never overwritten
last    setting → its value before the last call
asked   layer → {setting: value}; asked_before: the same before the last call
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from ansible.module_utils.dlcp_host_part import Absent, Part, Refused
from ansible.module_utils.private_folder import make_private, replace_file

LAYERS = ("host", "scheme")
"""The later one wins."""
_BETWEEN = "|"
_FIRST, _LAST, _ASKED, _ASKED_BEFORE = "first", "last", "asked", "asked_before"


class Failed(Exception):  # noqa: N818 - it is told to a person
    """The host is not as it was asked to be. The text says what, and what state it is left in."""


class Store:
    """The file of saved values."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> dict[str, Any]:
        """What is saved; nothing where nothing is."""
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
        except FileNotFoundError:
            return {_FIRST: {}, _LAST: {}, _ASKED: {}, _ASKED_BEFORE: {}}
        except (OSError, ValueError) as error:
            raise Failed(f"{self._path} cannot be read: {error}; nothing was changed") from error
        return found

    def save(self, before: Mapping[str, str], asked: Mapping[str, Mapping[str, str]]) -> None:
        """Values that are about to change, and what is asked for from here on. On disk when it returns."""
        kept = self.read()
        first = {**before, **kept[_FIRST]}
        self._write({_FIRST: first, _LAST: dict(before), _ASKED: dict(asked), _ASKED_BEFORE: kept[_ASKED]})

    def undone(self) -> None:
        """The last call is as if it had not been."""
        kept = self.read()
        self._write({**kept, _LAST: {}, _ASKED: kept[_ASKED_BEFORE]})

    def keep(self, left: Mapping[str, str]) -> None:
        """What is still to be put back; nothing = the file goes."""
        if left:
            self._write({_FIRST: dict(left), _LAST: {}, _ASKED: {}, _ASKED_BEFORE: {}})
        else:
            self._path.unlink(missing_ok=True)

    def _write(self, data: Mapping[str, Any]) -> None:
        try:
            make_private(str(self._path.parent))
            replace_file(str(self._path), json.dumps(data, indent=1).encode())
        except OSError as error:
            raise Failed(f"{self._path} cannot be written: {error}") from error


def apply(
    parts: Sequence[Part], settings: Mapping[str, Any], store: Store, *, layer: str, check: bool
) -> list[dict[str, Any]]:
    """Bring a host to a layer's settings; check: only say what would change. Returns rows {name, status, was, wanted}.

    Raises Failed: what this call had changed is then as it was before it, unless the text says otherwise.
    """
    rows: list[dict[str, Any]] = []
    plan: list[tuple[Part, dict[str, str]]] = []
    before: dict[str, str] = {}
    kept = store.read()
    try:
        own = {_key(part, name): value for part in parts for name, value in part.wanted(settings).items()}
        asked = {name: values for name, values in {**kept[_ASKED], layer: own}.items() if values}
        wanted = {key: value for one in LAYERS for key, value in asked.get(one, {}).items()}
        for part in parts:
            changes = _compare(part, _of(part, wanted), rows, before)
            dropped = {key: value for key, value in kept[_FIRST].items() if key not in wanted and _is_asked(key, kept)}
            changes.update(_compare(part, _of(part, dropped), gone := [], before))
            rows += [{**row, "reason": "no longer asked for"} for row in gone if row["status"] == "changed"]
            if changes:
                plan.append((part, changes))
    except (Refused, ValueError, TypeError, AttributeError) as error:
        raise Failed(f"{error}; nothing was changed") from error
    if check or (not plan and asked == kept[_ASKED]):
        return rows
    store.save(before, asked)
    try:
        for part, changes in plan:
            part.write(changes)
        for part, changes in plan:
            _require(part, changes)
    except Exception as error:  # whatever it is: no host is left half-way
        left = _put_back(parts, before)
        store.undone()
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
    elif not left:
        store.undone()
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
            changes = {n: saved[_key(part, n)] for n in _names(part, saved)}
            try:
                found = part.read(list(changes))
                changes = {name: value for name, value in changes.items() if found[name] != value}
                if changes:
                    part.write(changes)
                    _require(part, changes)
            except Exception as error:  # the other parts are put back all the same
                left.update({_key(part, name): str(error) for name in changes})
    return left


def _of(part: Part, values: Mapping[str, str]) -> dict[str, str]:
    """A part's own, by its names."""
    return {name: values[_key(part, name)] for name in _names(part, values)}


def _is_asked(key: str, kept: Mapping[str, Any]) -> bool:
    """Whether any layer asked for it; what was only saved beside is the host's own matter."""
    return any(key in one for one in kept[_ASKED].values())


def _key(part: Part, name: str) -> str:
    return part.tag + _BETWEEN + name


def _names(part: Part, saved: Iterable[str]) -> list[str]:
    start = _key(part, "")
    return [key[len(start) :] for key in saved if key.startswith(start)]

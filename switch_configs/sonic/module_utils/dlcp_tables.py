"""SONiC's CONFIG_DB as tables: which rows and fields are a deployment's to set, what they are to become, and the
operations (RFC 6902) that lead there. Pure; runs on the switch with its own Python (3.9 or later), without dlcp.

Tables: table → key → field → value, as `sonic-cfggen -d --print-data` prints them. A scope is the part of tables that
is ours: rows named DLCP, rows of our ports' queues, and some fields of rows that we share with others.
"""

from __future__ import annotations

import copy
import difflib
import re
from collections.abc import Iterable, Iterator
from typing import Any

Tables = dict[str, dict[str, dict[str, Any]]]
Operation = dict[str, Any]

NAMED = (
    "DSCP_TO_TC_MAP",
    "TC_TO_QUEUE_MAP",
    "TC_TO_PRIORITY_GROUP_MAP",
    "MAP_PFC_PRIORITY_TO_QUEUE",
    "SCHEDULER",
    "WRED_PROFILE",
    "BUFFER_PROFILE",
)
"""Tables whose rows have names of their own; ours begin with DLCP. Others refer to them."""
OUR_NAME = re.compile(r"DLCP(_.*)?")

QUEUED = ("QUEUE", "BUFFER_QUEUE", "BUFFER_PG")
"""Tables of `port|queue` or `port|first-last`."""

PORT_FIELDS = ("dscp_to_tc_map", "tc_to_queue_map", "tc_to_pg_map", "pfc_to_queue_map", "pfc_enable", "pfcwd_sw_enable")
"""Fields of PORT_QOS_MAP that an intent decides; others of the row are other people's."""
PAUSES = ("pfc_enable", "pfcwd_sw_enable")
"""Of these, those that an intent without PFC takes away: else the port would go on pausing."""

GLOBAL = {"PFC_WD": "POLL_INTERVAL", "SWITCH_HASH": "ecmp_hash_algorithm"}
"""Tables whose row GLOBAL has one field of ours."""


def scope_of(tables: Tables, ports: Iterable[str]) -> Tables:
    """The part of tables that is a deployment's to set, for these ports. A copy."""
    ours = set(ports)
    found: Tables = {}

    def take(table: str, key: str, row: dict[str, Any]) -> None:
        found.setdefault(table, {})[key] = dict(row)

    for table, rows in tables.items():
        for key, row in rows.items():
            if (table in NAMED and OUR_NAME.fullmatch(key)) or (table in QUEUED and key.split("|")[0] in ours):
                take(table, key, row)
            elif table == "PORT_QOS_MAP" and key in ours:
                take(table, key, {field: row[field] for field in PORT_FIELDS if field in row})
            elif table == "PFC_WD" and key in ours:
                take(table, key, row)
            elif table in GLOBAL and key == "GLOBAL" and GLOBAL[table] in row:
                take(table, key, {GLOBAL[table]: row[GLOBAL[table]]})
    return {table: kept for table, rows in found.items() if (kept := {k: r for k, r in rows.items() if r})}


def with_scope(tables: Tables, scope: Tables, ports: Iterable[str]) -> Tables:
    """Tables with another scope in place of theirs; what is not in the scope stays as it is. A copy.

    PFC_WD|GLOBAL stays where other rows of PFC_WD do: the Generic Config Updater never takes it away.
    """
    result = copy.deepcopy(tables)
    watched = copy.deepcopy(tables.get("PFC_WD", {}).get("GLOBAL"))
    for table, rows in scope_of(tables, ports).items():
        for key, fields in rows.items():
            row = result[table][key]
            for field in fields:
                del row[field]
            if not row:
                del result[table][key]
    for table, rows in scope.items():
        for key, fields in rows.items():
            result.setdefault(table, {}).setdefault(key, {}).update(fields)
    if result.get("PFC_WD") and watched is not None:
        result["PFC_WD"].setdefault("GLOBAL", watched)
    return {table: rows for table, rows in result.items() if rows}


def intended(patch: dict[str, dict[str, Any]], original: Tables, ports: Iterable[str]) -> Tables:
    """The scope that a rendered configuration (an RFC 7396 merge patch) asks for, upon what was there before anything
    of ours: `original`, a scope.

    Rows of QUEUED that the patch gives are as it says, alone; ranges around them are split, and keep what they said of
    the queues that the patch does not name.
    """
    ours = list(ports)
    asked: Tables = {
        table: {key: {f: v for f, v in row.items() if v is not None} for key, row in rows.items() if row is not None}
        for table, rows in patch.items()
    }
    for table, rows in asked.items():
        for key in rows:
            port = key.split("|")[0]
            if (table in QUEUED or table == "PORT_QOS_MAP") and port not in ours:
                raise ValueError(f"{table}|{key} is of no port of this deployment")
            if table in NAMED and not OUR_NAME.fullmatch(key):
                raise ValueError(f"{table}|{key} has no name of ours")
            if table not in (*NAMED, *QUEUED, "PORT_QOS_MAP", *GLOBAL):
                raise ValueError(f"{table} is no table that a deployment sets")
    result: Tables = {}
    for table in {*asked, *original}:
        rows = asked.get(table, {})
        if table in NAMED:
            result[table] = rows
        elif table in QUEUED:
            result[table] = {**split(original.get(table, {}), rows), **rows}
        elif table == "PORT_QOS_MAP":
            before = original.get(table, {})
            result[table] = {
                port: {**{f: v for f, v in before.get(port, {}).items() if f not in PAUSES}, **rows.get(port, {})}
                for port in {*before, *rows}
            }
        elif table == "PFC_WD" and not any(port in rows for port in ours):
            result[table] = {key: row for key, row in original[table].items() if key == "GLOBAL"}
        else:
            result[table] = {**original.get(table, {}), **rows}
    return {table: kept for table, rows in result.items() if (kept := {k: r for k, r in rows.items() if r})}


def split(rows: dict[str, dict[str, Any]], taken: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Rows `port|queue` and `port|first-last` without the queues that other rows take; what is left of a range keeps
    its row, in as few ranges as there are."""
    gone = {(port, queue) for port, queues in map(_queues, taken) for queue in queues}
    result = {}
    for key, row in rows.items():
        port, queues = _queues(key)
        left = [queue for queue in queues if (port, queue) not in gone]
        if len(left) == len(queues):
            result[key] = dict(row)
            continue
        for first, last in _runs(left):
            result[f"{port}|{first}" if first == last else f"{port}|{first}-{last}"] = dict(row)
    return result


def _queues(key: str) -> tuple[str, list[int]]:
    """Ethernet0|3-5 → Ethernet0, [3, 4, 5]"""
    port, _, queues = key.partition("|")
    first, _, last = queues.partition("-")
    return port, list(range(int(first), int(last or first) + 1))


def _runs(numbers: list[int]) -> Iterator[tuple[int, int]]:
    start = None
    for number in numbers:
        if start is None:
            start = number
        if number + 1 not in numbers:
            yield start, number
            start = None


def operations(live: Tables, wanted: Tables) -> list[Operation]:
    """What leads from one to the other: exact, and each valid after those before it. Tables that others refer to are
    filled first and emptied last; no table is left empty, which CONFIG_DB cannot hold."""
    order = sorted({*live, *wanted}, key=lambda table: (table not in NAMED, table))
    made = [one for table in order for one in _made(table, live.get(table, {}), wanted.get(table, {}))]
    gone = [one for table in reversed(order) for one in _gone(table, live.get(table, {}), wanted.get(table, {}))]
    return made + gone


def _made(table: str, live: dict[str, Any], wanted: dict[str, Any]) -> Iterator[Operation]:
    if not live:
        if wanted:
            yield {"op": "add", "path": _pointer(table), "value": wanted}
        return
    for key in sorted(wanted):
        if key not in live:
            yield {"op": "add", "path": _pointer(table, key), "value": wanted[key]}
            continue
        for field, value in sorted(wanted[key].items()):
            if field not in live[key]:
                yield {"op": "add", "path": _pointer(table, key, field), "value": value}
            elif live[key][field] != value:
                yield {"op": "replace", "path": _pointer(table, key, field), "value": value}


def _gone(table: str, live: dict[str, Any], wanted: dict[str, Any]) -> Iterator[Operation]:
    if not wanted:
        if live:
            yield {"op": "remove", "path": _pointer(table)}
        return
    for key in sorted(live):
        if key not in wanted:
            yield {"op": "remove", "path": _pointer(table, key)}
            continue
        for field in sorted(set(live[key]) - set(wanted[key])):
            yield {"op": "remove", "path": _pointer(table, key, field)}


def _pointer(*steps: str) -> str:
    """RFC 6901."""
    return "".join("/" + step.replace("~", "~0").replace("/", "~1") for step in steps)


def lines(tables: Tables) -> list[str]:
    """One field a line, sorted, to be read and compared."""
    return sorted(
        f"{table}|{key}" + (f" {field}: {value}" if field else "")
        for table, rows in tables.items()
        for key, row in rows.items()
        for field, value in (row.items() or [("", "")])
    )


def difference(before: Tables, after: Tables, names: tuple[str, str]) -> str:
    """The lines that differ, as a unified diff without its surroundings; "" where none does."""
    found = difflib.unified_diff(lines(before), lines(after), *names, lineterm="", n=0)
    return "".join(line + "\n" for line in found if not line.startswith("@@"))

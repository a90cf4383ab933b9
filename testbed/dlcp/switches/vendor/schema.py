"""schema.yaml of a system that is given tables of rows: which there are, what may stand in them, what refers to what.

Our own words for what the system's models say, so that a mistake is found where no model is at hand.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import Field

from dlcp.model.base import Frozen

Tables = Mapping[str, Mapping[str, Mapping[str, Any] | None]]
"""Table → key → field → value, all text; None where something is taken away."""


class FieldRule(Frozen):
    """What a field may hold. integer: from, to. refers: a key of that table, which elsewhere may stand on the switch
    alone. matches: a regular expression."""

    integer: tuple[int, int] | None = None
    one_of: tuple[str, ...] | None = None
    refers: str | None = None
    elsewhere: bool = False
    matches: str | None = None


class Table(Frozen):
    """key, fields: by regular expressions. ordered: pairs of fields, the first not above the second. alone: of these
    fields at most one."""

    key: str
    fields: dict[str, FieldRule]
    ordered: tuple[tuple[str, str], ...] = ()
    alone: tuple[str, ...] = ()


class Schema(Frozen):
    """schema.yaml"""

    source: str
    tables: dict[str, Table] = Field(min_length=1)


def violations(schema: Schema, tables: Tables) -> list[str]:
    """All that is wrong with tables, each as "TABLE|key: what"."""
    found: list[str] = []
    for name, rows in tables.items():
        if name not in schema.tables:
            found.append(f"{name}: no such table")
            continue
        table = schema.tables[name]
        for key, fields in rows.items():
            if not re.fullmatch(table.key, key):
                found.append(f"{name}|{key}: no such key: {table.key}")
            if fields is not None:
                found += [f"{name}|{key}: {what}" for what in _row(table, fields, tables)]
    return found


def _row(table: Table, fields: Mapping[str, Any], tables: Tables) -> Iterator[str]:
    for field, value in fields.items():
        rule = next((rule for form, rule in table.fields.items() if re.fullmatch(form, field)), None)
        if rule is None:
            yield f"no such field: {field}"
        elif value is not None:
            yield from (f"{field} {value!r} {what}" for what in _value(rule, value, tables))
    for low, high in table.ordered:
        pair = [fields.get(low), fields.get(high)]
        if all(isinstance(one, str) and one.isdigit() for one in pair) and int(pair[0] or 0) > int(pair[1] or 0):
            yield f"{low} {pair[0]} is above {high} {pair[1]}"
    if len(present := [field for field in table.alone if fields.get(field) is not None]) > 1:
        yield f"{' and '.join(present)} exclude each other"


def _value(rule: FieldRule, value: Any, tables: Tables) -> Iterator[str]:
    if not isinstance(value, str):
        yield "is not text"
        return
    if rule.integer is not None:
        least, most = rule.integer
        if not re.fullmatch(r"-?\d+", value) or not least <= int(value) <= most:
            yield f"is no whole number from {least} to {most}"
    if rule.one_of is not None and value not in rule.one_of:
        yield f"is none of {', '.join(rule.one_of)}"
    if rule.matches is not None and not re.fullmatch(rule.matches, value):
        yield f"is not of the form {rule.matches}"
    if rule.refers is not None and (rule.refers in tables or not rule.elsewhere):
        row = tables.get(rule.refers, {}).get(value, None)
        if row is None:
            yield f"refers to no row of {rule.refers}"

"""SONiC's `config` upon a redis of the tests: checkpoint, apply-patch, rollback, as an image's Generic Config Updater
does them. What the updater checks by YANG is checked here by the schema of switch_configs/sonic.

Usage: sonic_config.py --socket S --checkpoints FOLDER [--strict-fields] [--fail-after N] COMMAND …
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

import jsonpatch
import redis

from dlcp.switches.vendor.schema import violations
from dlcp.switches.vendor.systems import load_system

Tables = dict[str, dict[str, dict[str, Any]]]


def read(database: redis.Redis) -> Tables:
    """As sonic-cfggen prints it."""
    tables: Tables = {}
    for key in sorted(database.scan_iter()):
        table, _, name = key.partition("|")
        row = {f.rstrip("@"): v.split(",") if f.endswith("@") else v for f, v in database.hgetall(key).items()}
        row.pop("NULL", None)
        tables.setdefault(table, {})[name] = row
    return tables


def write(database: redis.Redis, old: Tables, new: Tables, rows_written: int | None) -> None:
    """Row by row, as the updater does; stops with an error after so many rows."""
    flat_old, flat_new = flat(old), flat(new)
    changed = [key for key in sorted({*flat_old, *flat_new}) if flat_old.get(key) != flat_new.get(key)]
    for done, key in enumerate(changed):
        if done == rows_written:
            raise RuntimeError(f"after {done} rows: the database went away")
        database.delete(key)
        if key in flat_new:
            row = {
                f"{f}@" if isinstance(v, list) else f: ",".join(v) if isinstance(v, list) else v
                for f, v in flat_new[key].items()
            }
            database.hset(key, mapping=row or {"NULL": "NULL"})


def flat(tables: Tables) -> dict[str, dict[str, Any]]:
    """Key of redis → row."""
    return {f"{table}|{key}": row for table, rows in tables.items() for key, row in rows.items()}


def check(old: Tables, new: Tables, *, strict_fields: bool) -> None:
    """What the updater refuses. Raises ValueError."""
    if empty := [table for table, rows in new.items() if not rows]:
        raise ValueError(f"will result in empty tables which is not allowed in ConfigDb. Tables: {', '.join(empty)}")
    removed = [op["path"] for op in jsonpatch.make_patch(old, new) if op["op"] == "remove"]
    if illegal := {"/PFC_WD/GLOBAL", "/PFC_WD/GLOBAL/POLL_INTERVAL"} & set(removed):
        raise ValueError(f"Operation: remove is illegal on field: {illegal}")
    if strict_fields and old.get("WRED_PROFILE") != new.get("WRED_PROFILE"):
        name = "rdma_config_update_validator"
        raise ValueError(f"Modification of WRED_PROFILE table is illegal- validating function {name} returned False")
    schema = load_system("sonic").schema
    assert schema is not None
    known = {table: rows for table, rows in new.items() if table in schema.tables}
    if wrong := violations(schema, known):
        raise ValueError(f"Given patch will produce invalid config: {'; '.join(wrong)}")


def main() -> int:
    """One command."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--socket", required=True)
    parser.add_argument("--checkpoints", required=True, type=Path)
    parser.add_argument("--strict-fields", action="store_true")
    parser.add_argument("--fail-after", type=int)
    commands = parser.add_subparsers(dest="command", required=True)
    for name in ("checkpoint", "rollback", "delete-checkpoint"):
        commands.add_parser(name).add_argument("name")
    patched = commands.add_parser("apply-patch")
    patched.add_argument("--dry-run", action="store_true")
    patched.add_argument("path", type=Path)
    words = parser.parse_args()
    database = redis.Redis(unix_socket_path=words.socket, db=4, decode_responses=True)
    old = read(database)
    try:
        if words.command == "apply-patch":
            new = jsonpatch.apply_patch(old, json.loads(words.path.read_text()))
            check(old, new, strict_fields=words.strict_fields)
            if not words.dry_run:
                dead = words.checkpoints / "dead"  # once it has failed, it fails at once: what is to be undone as well
                limit = 0 if dead.exists() else words.fail_after
                if limit is not None:
                    dead.touch()
                write(database, old, new, limit)
        elif words.command == "checkpoint":
            words.checkpoints.mkdir(parents=True, exist_ok=True)
            (words.checkpoints / f"{words.name}.cp.json").write_text(json.dumps(old))
        elif words.command == "rollback":
            new = json.loads((words.checkpoints / f"{words.name}.cp.json").read_text())
            check(old, new, strict_fields=words.strict_fields)
            write(database, old, new, None)
        else:
            (words.checkpoints / f"{words.name}.cp.json").unlink()
    except Exception as error:
        print(f"Failed to {words.command} due to: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())

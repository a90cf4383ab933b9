"""A run's folder as it lies on disk: its result.json, and its tables against the sizes and checksums in there."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from dlcp.errors import Problem
from dlcp.files.json_text import parse_json
from dlcp.model.result import FORMAT_VERSION, RESULT_FILE, TABLES, TABLES_RECORDED_SINCE, RunResult, StoredTable
from dlcp.model.tables import check_rows, check_table, table_path


def read_result(folder: Path) -> RunResult:
    """Return what a run's result.json says, whatever has become of its tables.

    Problem, at the file, when there is none, when it is not a valid result, or when it is of a newer format.
    """
    file = folder / RESULT_FILE
    raw = _read(file)
    version = raw.get("format_version") if isinstance(raw, dict) else None
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise Problem(str(file), "names no format_version")
    if version > FORMAT_VERSION:
        problem = f"written in format {version}; this dlcp reads up to {FORMAT_VERSION}"
        raise Problem(str(file), problem, "read it with a newer dlcp")
    try:
        return RunResult.model_validate(raw)
    except ValidationError as error:
        first = error.errors()[0]
        raise Problem(str(file), f"{'.'.join(map(str, first['loc']))}: {first['msg']}") from error


def record_tables(folder: Path) -> dict[str, StoredTable]:
    """Return size and checksum of every table in a run's folder, by the table's name."""
    present = {name: table_path(folder, name) for name in TABLES}
    return {name: _stored(path) for name, path in present.items() if path.is_file()}


def damaged_tables(folder: Path, result: RunResult) -> dict[str, str]:
    """Return each table that is not as the run left it, and why: missing, changed, or not the run's.

    Results of a format before TABLES_RECORDED_SINCE have no checksums: the tables that are there are read in full.
    """
    checked = {name: _damage(folder, name, result) for name in TABLES}
    return {name: damage for name, damage in checked.items() if damage}


def _read(file: Path) -> Any:
    try:
        return parse_json(file.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Problem(str(file), f"no {RESULT_FILE}") from None
    except OSError as error:
        raise Problem(str(file), f"cannot be read: {error.strerror}") from error
    except ValueError as error:  # of JSON or of UTF-8
        raise Problem(str(file), f"not readable as JSON: {error}") from error


def _damage(folder: Path, table: str, result: RunResult) -> str:
    path = table_path(folder, table)
    recorded = result.tables.get(table)
    if recorded is not None:
        return _difference(path, recorded)
    if not path.is_file():
        return ""
    if result.format_version >= TABLES_RECORDED_SINCE:
        return f"{path.name} has no checksum in {RESULT_FILE}"
    return check_table(folder, table) or check_rows(folder, table)


def _difference(path: Path, recorded: StoredTable) -> str:
    try:
        size = path.stat().st_size
        if size != recorded.size_bytes:
            return f"{path.name} has {size} bytes, the run left {recorded.size_bytes}"
        return "" if _stored(path) == recorded else f"{path.name} has changed since the run: another SHA-256"
    except FileNotFoundError:
        return f"{path.name} is missing"
    except OSError as error:
        return f"{path.name} cannot be read: {error.strerror}"


def _stored(path: Path) -> StoredTable:
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return StoredTable(size_bytes=path.stat().st_size, sha256=digest)

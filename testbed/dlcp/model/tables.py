"""Parquet tables of a run: written against the schema of result.TABLES, and checked against it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlcp.errors import Problem
from dlcp.model.result import SINCE, TABLES

if TYPE_CHECKING:
    import pyarrow as pa


def write_rows(directory: Path, table: str, rows: Iterable[Mapping[str, Any]]) -> Path:
    """Write rows, each a mapping column → value, as `table` into `directory`; returns the file.

    Problem when a row lacks a column, has one too many, or a value does not fit its column's type.
    """
    columns: dict[str, list[Any]] = {name: [] for name in TABLES[table]}
    for number, row in enumerate(rows):
        if row.keys() != columns.keys():
            raise Problem(f"{table}, row {number}", _difference(set(row), set(columns)))
        for name, values in columns.items():
            values.append(row[name])
    return write_columns(directory, table, columns)


def write_columns(directory: Path, table: str, columns: Mapping[str, Sequence[Any]]) -> Path:
    """Write columns (sequences or 1-D arrays, all of one length) as `table` into `directory`; returns the file.

    Problem as for `write_rows`, and when lengths differ. Nulls are refused: no column may be unknown.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    schema = _schema(table)
    if set(columns) != set(schema.names):
        raise Problem(table, _difference(set(columns), set(schema.names)))
    arrays = [_array(f"{table}.{field.name}", columns[field.name], field.type) for field in schema]
    lengths = {name: len(array) for name, array in zip(schema.names, arrays, strict=True)}
    if len(set(lengths.values())) > 1:
        raise Problem(table, f"columns of different lengths: {lengths}")
    path = table_path(directory, table)
    pq.write_table(pa.Table.from_arrays(arrays, schema=schema), path)
    return path


def table_path(directory: Path, table: str) -> Path:
    """Return the file of a table in a run's folder."""
    return directory / f"{table}.parquet"


def check_table(directory: Path, table: str) -> str:
    """Return what is wrong with the stored table's columns, as a sentence; empty when they are those of the schema, or
    of an older one. Rows are not read: see `check_rows`."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = table_path(directory, table)
    if not path.is_file():
        return f"{path.name} is missing"
    try:
        schema = pq.read_schema(path)
    except (pa.ArrowException, OSError) as error:
        return f"{path.name} cannot be read: {error}"
    later = set(SINCE.get(table, ()))
    if set(schema.names) | later != set(TABLES[table]):
        return f"{path.name}: {_difference(set(schema.names) | later, set(TABLES[table]))}"
    wrong = [
        f"{field.name} is {schema.field(field.name).type}, not {field.type}"
        for field in _schema(table)
        if field.name in schema.names and schema.field(field.name).type != field.type
    ]
    return f"{path.name}: {'; '.join(wrong)}" if wrong else ""


def check_rows(directory: Path, table: str) -> str:
    """Return why the rows of a stored table cannot be read, as a sentence; empty when all can. Reads all of them."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    path = table_path(directory, table)
    try:
        with pq.ParquetFile(path) as file:
            for _ in file.iter_batches():
                pass
    except (pa.ArrowException, OSError) as error:
        return f"{path.name} cannot be read: {error}"
    return ""


def _schema(table: str) -> pa.Schema:
    """The Arrow schema of a table; KeyError when there is no such table."""
    import pyarrow as pa

    types = {
        "string": pa.string(),
        "bool": pa.bool_(),
        "int32": pa.int32(),
        "int64": pa.int64(),
        "double": pa.float64(),
        "list<int32>": pa.list_(pa.int32()),
        "list<int64>": pa.list_(pa.int64()),
    }
    return pa.schema([(column, types[kind]) for column, kind in TABLES[table].items()])


def _array(where: str, values: Sequence[Any], kind: pa.DataType) -> pa.Array:
    import pyarrow as pa

    try:
        if pa.types.is_integer(kind) and pa.types.is_floating(pa.array(values).type):
            raise TypeError("fractions are not cut off")
        array = pa.array(values, type=kind)
    except (pa.ArrowException, TypeError, ValueError, OverflowError) as error:
        raise Problem(where, f"a value is not of type {kind}: {error}") from error
    if array.null_count:
        raise Problem(where, f"{array.null_count} of {len(array)} values are missing")
    return array


def _difference(found: set[str], expected: set[str]) -> str:
    parts = []
    if expected - found:
        parts.append(f"column missing: {', '.join(sorted(expected - found))}")
    if found - expected:
        parts.append(f"column unknown: {', '.join(sorted(found - expected))}")
    return "; ".join(parts)

"""CONFIG_DB over redis' unix socket: read whole, written in one transaction. For a switch's own Python (3.9 or later).

`zip` has no `strict` there.
"""

from __future__ import annotations

import socket
from collections.abc import Iterator
from typing import Any

Tables = dict[str, dict[str, dict[str, Any]]]

NOTHING = ("NULL", "NULL")
"""How CONFIG_DB says that a row has no field."""
LIST = "@"
"""What ends the name of a field that is a list; its values stand between commas."""


class RedisError(Exception):
    """What redis answered instead."""


class Redis:
    """One connection. path: of the socket; number: of the database, 4 is CONFIG_DB."""

    def __init__(self, path: str, number: int, timeout_s: float = 10.0) -> None:
        self._socket = socket.socket(socket.AF_UNIX)
        self._socket.settimeout(timeout_s)
        self._socket.connect(path)
        self._answers = self._socket.makefile("rb")
        self.ask([["SELECT", str(number)]])

    def __enter__(self) -> Redis:
        return self

    def __exit__(self, *_: object) -> None:
        self._answers.close()
        self._socket.close()

    def ask(self, commands: list[list[str]]) -> list[Any]:
        """Send commands, get their answers. RedisError at the first that is an error."""
        sent = [part for command in commands for part in _written(command)]
        self._socket.sendall(b"".join(sent))
        answers = [self._answer() for _ in commands]
        for command, answer in zip(commands, answers):
            if isinstance(answer, RedisError):
                raise RedisError(f"{' '.join(command[:2])}: {answer}")
        return answers

    def _answer(self) -> Any:
        line = self._answers.readline()
        if not line.endswith(b"\r\n"):
            raise RedisError("redis closed the connection")
        kind, rest = line[:1], line[1:-2]
        if kind == b"+":
            return rest.decode()
        if kind == b"-":
            return RedisError(rest.decode())
        if kind == b":":
            return int(rest)
        if kind == b"$":
            return None if rest == b"-1" else self._answers.read(int(rest) + 2)[:-2].decode()
        if kind == b"*":
            return [self._answer() for _ in range(int(rest))]
        raise RedisError(f"redis speaks in an unknown way: {line!r}")


def _written(command: list[str]) -> Iterator[bytes]:
    yield b"*%d\r\n" % len(command)
    for part in command:
        coded = part.encode()
        yield b"$%d\r\n%s\r\n" % (len(coded), coded)


def read_tables(redis: Redis) -> Tables:
    """All tables, as `sonic-cfggen -d --print-data` prints them."""
    keys = sorted(key for key in redis.ask([["KEYS", "*|*"]])[0])
    tables: Tables = {}
    for key, flat in zip(keys, redis.ask([["HGETALL", key] for key in keys])):
        table, _, name = key.partition("|")
        fields = [pair for pair in zip(flat[::2], flat[1::2]) if pair != NOTHING]
        tables.setdefault(table, {})[name] = {
            field.rstrip(LIST): value.split(",") if field.endswith(LIST) else value for field, value in fields
        }
    return tables


def transaction(live: Tables, wanted: Tables) -> list[list[str]]:
    """The commands that lead from one to the other, all or none; [] where nothing differs."""
    made: list[list[str]] = []
    for table in sorted({*live, *wanted}):
        before, after = live.get(table, {}), wanted.get(table, {})
        for key in sorted({*before, *after}):
            made += _row(f"{table}|{key}", before.get(key), after.get(key))
    return [["MULTI"], *made, ["EXEC"]] if made else []


def _row(key: str, before: Any, after: Any) -> Iterator[list[str]]:
    if after is None:
        yield ["DEL", key]
        return
    old, new = _fields(before), _fields(after)
    if changed := [part for field, value in sorted(new.items()) if old.get(field) != value for part in (field, value)]:
        yield ["HSET", key, *changed]
    if gone := sorted(set(old) - set(new)):
        yield ["HDEL", key, *gone]


def _fields(row: Any) -> dict[str, str]:
    """A row as redis holds it; {} for one that is not there."""
    if row is None:
        return {}
    if not row:
        return dict([NOTHING])
    return {f + LIST if isinstance(v, list) else f: ",".join(v) if isinstance(v, list) else v for f, v in row.items()}


def for_redis_cli(commands: list[list[str]]) -> str:
    """The same commands, to be piped into redis-cli by a person or a timer."""
    quoted = [[part.replace("\\", "\\\\").replace('"', '\\"') for part in command] for command in commands]
    return "".join(" ".join(f'"{part}"' for part in command) + "\n" for command in quoted)

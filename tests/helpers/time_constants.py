"""Finds every time constant in the sources that a run is made of: names with a unit of time, and unnamed times.

C: #define and enum names with the word NS, US, MS or S in them, and numbers times MICROSECOND, MILLISECOND or SECOND.
Python: names that end in _S, _NS, _MS, _US (or the same in small letters, with a number as default), and numbers given
to calls and parameters that wait.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

TESTBED = Path(__file__).resolve().parents[2] / "testbed"
NATIVE = TESTBED / "native"
PACKAGES = ("agents", "files", "isolation", "model", "schemes", "substrates", "switches", "traffic", "transport")
"""What a run is made of, on an emulated fabric; commands, reports and benches measure in the host's time."""
NO_RUN = re.compile(r"switches/(linux|vendor)/|substrates/(lab|namespace_lab)/")
"""Switches and hosts of a lab, where a second is a second."""

_UNIT_WORD = re.compile(r"(?:^|_)(?:NS|US|MS|S|SECONDS?)(?:_|$)")
_DEFINE = re.compile(r"^#define (\w+)[ \t]+(\S.*)$", re.MULTILINE)
_MEMBER = re.compile(r"^\s*(?:enum \{ )?([A-Z]\w+) = [^,;]*\d", re.MULTILINE)
_UNNAMED = re.compile(r"\b\d+(?:\.\d+)?\s*\*\s*(?:MICROSECOND|MILLISECOND|SECOND)\b")
_SLEEP = re.compile(r"\b(?:\w*sleep|ppoll|poll|epoll_wait|alarm)\((?:[^;()]*,)?\s*[1-9]\d*\s*\)")
_WAITS = {"sleep", "wait", "settimeout", "select", "wait_for", "join", "acquire", "result", "communicate", "poll"}


def in_c(path: Path) -> Iterator[str]:
    """The names of a file's time constants; of an unnamed one its text."""
    text = re.sub(r"/\*.*?\*/", " ", path.read_text(encoding="utf-8"), flags=re.DOTALL)
    for name, value in _DEFINE.findall(text):
        if _UNIT_WORD.search(name) or re.search(r"MICROSECOND|MILLISECOND|\bSECOND\b", value):
            yield name
    yield from (name for name in _MEMBER.findall(text) if _UNIT_WORD.search(name))
    body = _DEFINE.sub("", text)
    yield from (re.sub(r"\s+", " ", text) for text in _UNNAMED.findall(body))
    yield from (re.sub(r"\s+", " ", text) for text in _SLEEP.findall(body))


def in_python(path: Path) -> Iterator[str]:
    """The names of a file's time constants: a constant's own, `function(parameter)`, or the text of a call."""
    tree = ast.parse(path.read_text(encoding="utf-8"))
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            names = [name.id for target in targets for name in ast.walk(target) if isinstance(name, ast.Name)]
            yield from (name for name in names if _is_time(name) and _has_number(node.value, name))
        elif isinstance(node, ast.FunctionDef):
            yield from (f"{node.name}({name})" for name in _defaults(node.args) if _is_time(name))
        elif isinstance(node, ast.Call):
            yield from _waiting(node)


def _is_time(name: str) -> bool:
    return bool(re.search(r"_(?:S|NS|MS|US|s|ns|ms|us|SECONDS)$", name)) or name in {"timeout", "interval"}


def _has_number(value: ast.expr | None, name: str) -> bool:
    """A constant has any value; other variables are times by themselves where they begin as a number above 0."""
    if value is None:
        return False
    if name.isupper():
        return True
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id == "Field":
        return any(_number(keyword.value) for keyword in value.keywords if keyword.arg == "default")
    return _number(value)


def _number(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int | float) and node.value not in (0, True)


def _defaults(arguments: ast.arguments) -> Iterator[str]:
    positional = [*arguments.posonlyargs, *arguments.args]
    pairs = [
        *zip(positional[len(positional) - len(arguments.defaults) :], arguments.defaults, strict=True),
        *zip(arguments.kwonlyargs, arguments.kw_defaults, strict=True),
    ]
    yield from (argument.arg for argument, value in pairs if value is not None and _number(value))


def _waiting(call: ast.Call) -> Iterator[str]:
    """A call that waits for a number of seconds, written out."""
    name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
    given = [
        *(call.args if name in _WAITS else []),
        *(keyword.value for keyword in call.keywords if keyword.arg and _is_time(keyword.arg)),
    ]
    if any(_number(value) for value in given):
        yield ast.unparse(call)


def time_constants() -> set[str]:
    """ "file: name" of all of them, files relative to testbed/."""
    constants = set()
    for path in sorted([*NATIVE.rglob("*.c"), *NATIVE.rglob("*.h")]):
        constants |= {f"native/{path.relative_to(NATIVE)}: {name}" for name in in_c(path)}
    for package in PACKAGES:
        for path in sorted((TESTBED / "dlcp" / package).rglob("*.py")):
            name = str(path.relative_to(TESTBED / "dlcp"))
            if not NO_RUN.search(name):
                constants |= {f"{name}: {constant}" for constant in in_python(path)}
    return constants

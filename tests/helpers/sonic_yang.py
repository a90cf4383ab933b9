"""CONFIG_DB → XML of SONiC's YANG models, judged by yanglint. Only the shape of the models is read here: which
container and list a table is, its keys, and the maps in it; what a value may be, libyang judges.

The models are not ours to ship: `make setup-dev` fetches them where github.com is reached, or SONIC_YANG_DIR names
sonic-buildimage's src/sonic-yang-models.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape

import jinja2

TOKEN = re.compile(r'//[^\n]*|/\*.*?\*/|"(?:\\.|[^"\\])*"|\'[^\']*\'|[{};]|[^\s{};"\']+', re.S)
LIMIT_S = 60
MODELS, TEMPLATES = "yang-models", "yang-templates"


@dataclass
class Statement:
    """One statement of YANG."""

    word: str
    argument: str = ""
    below: list[Statement] = field(default_factory=list)

    def all(self, word: str) -> list[Statement]:
        """The statements of a kind right below; those of a choice's cases too."""
        return [one for one in self._nodes() if one.word == word]

    def one(self, word: str, argument: str) -> Statement | None:
        """The one of that name."""
        return next((one for one in self.all(word) if one.argument == argument), None)

    def _nodes(self) -> Iterator[Statement]:
        for one in self.below:
            if one.word in ("choice", "case"):
                yield from one._nodes()
            else:
                yield one


def parsed(text: str) -> Statement:
    """A module."""
    tokens = [token for token in TOKEN.findall(text) if not token.startswith(("//", "/*"))]
    top = Statement("")
    stack, words = [top], list[str]()
    for token in tokens:
        if token not in "{};":
            words.append(token.strip("\"'"))
            continue
        if token != "}":
            made = Statement(words[0], "".join(word for word in words[1:] if word != "+"))
            stack[-1].below.append(made)
            if token == "{":
                stack.append(made)
        else:
            stack.pop()
        words = []
    return top.below[0]


@dataclass(frozen=True)
class Models:
    """A folder of YANG models, its templates rendered. tables: table → (module, its container)."""

    folder: Path
    tables: Mapping[str, tuple[Statement, Statement]]


def load_models(source: Path, folder: Path) -> Models:
    """Copy the models into a folder, templates rendered as the switch does. FileNotFoundError where there is none.

    source: sonic-buildimage's src/sonic-yang-models, or its yang-models. Since 2026 templates lie in yang-templates/
    beside yang-models/, before that among the models.
    """
    around = source.parent if source.name == MODELS else source
    places = [source, *(around / name for name in (MODELS, TEMPLATES))]
    files = {path.name: path for place in places for path in place.glob("*.yang*")}
    for path in (files[name] for name in sorted(files)):
        text = path.read_text(encoding="utf-8")
        if path.suffix == ".j2":
            text = jinja2.Template(text).render(yang_model_type="py")
        (folder / path.name.removesuffix(".j2")).write_text(text, encoding="utf-8")
    tables = {}
    for path in sorted(folder.glob("*.yang")):
        module = parsed(path.read_text(encoding="utf-8"))
        for top in module.all("container"):
            tables.update({table.argument: (module, table) for table in top.all("container")})
    if not tables:
        raise FileNotFoundError(f"{source} holds no YANG models of SONiC")
    return Models(folder, tables)


def to_xml(models: Models, tables: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """All tables as one document. KeyError names a table that no model knows."""
    modules: dict[str, list[str]] = {}
    for table, rows in tables.items():
        module, container = models.tables[table]
        inner = "".join(_row(container, key, row) for key, row in rows.items())
        modules.setdefault(module.argument, []).append(f"<{table}>{inner}</{table}>")
    spaces = {m.argument: m.all("namespace")[0].argument for m, _ in models.tables.values()}
    return "".join(f'<{name} xmlns="{spaces[name]}">{"".join(parts)}</{name}>\n' for name, parts in modules.items())


def _row(container: Statement, key: str, row: Mapping[str, Any]) -> str:
    if alone := container.one("container", key):
        return f"<{key}>{_fields(alone, row)}</{key}>"
    parts = key.split("|")
    for form in container.all("list"):
        keys = form.all("key")[0].argument.split()
        if len(keys) == len(parts):
            named = "".join(f"<{k}>{escape(part)}</{k}>" for k, part in zip(keys, parts, strict=True))
            return f"<{form.argument}>{named}{_fields(form, row)}</{form.argument}>"
    raise KeyError(f"{container.argument}|{key}")


def _fields(form: Statement, row: Mapping[str, Any]) -> str:
    """Leaves by name; where the list holds a list, the row is a map: field → value."""
    maps = form.all("list")
    if maps:
        key = maps[0].all("key")[0].argument
        value = next(leaf.argument for leaf in maps[0].all("leaf") if leaf.argument != key)
        name = maps[0].argument
        return "".join(f"<{name}><{key}>{f}</{key}><{value}>{v}</{value}></{name}>" for f, v in row.items())
    pairs = [(f, one) for f, value in row.items() for one in (value if isinstance(value, list) else [value])]
    return "".join(f"<{f}>{escape(str(value))}</{f}>" for f, value in pairs)


def judged(models: Models, tables: Mapping[str, Mapping[str, Mapping[str, Any]]]) -> str:
    """What yanglint finds wrong with tables; "" where nothing, whatever it warns of."""
    try:
        text = to_xml(models, tables)
    except KeyError as error:
        return f"no model knows {error}"
    data = models.folder / "config.xml"
    data.write_text(text, encoding="utf-8")
    modules = sorted({str(models.folder / f"{models.tables[table][0].argument}.yang") for table in tables})
    # -ii: all imported modules count as implemented; a condition on one that does not (such as sonic-queue's on
    # sonic-device_metadata) is skipped with a warning, or an error, depending on its words.
    command = ["yanglint", "-ii", "-p", str(models.folder), "-t", "config", *modules, str(data)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=LIMIT_S)
    return "" if done.returncode == 0 else done.stderr + done.stdout or f"yanglint ended with {done.returncode}"

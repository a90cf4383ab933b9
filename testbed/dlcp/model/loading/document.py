"""A YAML file with its places: every key and value knows its line and column, every syntax problem is kept."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from yaml.reader import ReaderError

from dlcp.errors import Problem
from dlcp.files.bounded_yaml import BoundedLoader, compose, construct_scalar

Loc = tuple[int | str, ...]
"""The way from the top of a file to a value: keys of mappings and positions in lists."""

MAX_BYTES = 4 * 2**20
"""Bytes of a file that is read. The largest of this repository has 9 kB; PyYAML takes a second for each 500 kB."""
_MERGE_TAG = "tag:yaml.org,2002:merge"


@dataclass(frozen=True)
class Mark:
    """A place in a file, counted from 1 as editors do."""

    line: int
    column: int


@dataclass
class Document:
    """A file as plain data, and where each part of it stands.

    data: dicts, lists and scalars; None when the file could not be read. problems: syntax errors, duplicate keys.
    grafts: other files whose content stands here in place of their names.
    """

    path: Path
    shown_path: str
    data: Any = None
    keys: dict[Loc, Mark] = field(default_factory=dict)
    values: dict[Loc, Mark] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)
    grafts: dict[Loc, Document] = field(default_factory=dict)

    def where(self, loc: Loc, *, key: bool = False) -> str:
        """file:line:col of the value at `loc` (or of its key); of the nearest parent that exists if it does not."""
        file, mark = self._find(loc, key=key)
        return f"{file.shown_path}:{mark.line}:{mark.column}"

    def line(self, loc: Loc) -> int:
        """The line of the same, to be named where the file is plain."""
        return self._find(loc, key=False)[1].line

    def get(self, loc: Loc) -> Any:
        """The raw value at `loc`; None when there is none."""
        value = self.data
        for step in loc:
            try:
                value = value[step]
            except (KeyError, IndexError, TypeError):
                return None
        return value

    def graft(self, key: str, other: Document) -> None:
        """Let another file's content stand for what this one says at a key of its top mapping."""
        self.data[key] = other.data
        self.grafts[(key,)] = other

    def _find(self, loc: Loc, *, key: bool) -> tuple[Document, Mark]:
        """The file that has the say at `loc`, and the place in it."""
        for stem, other in self.grafts.items():
            if loc[: len(stem)] == stem:
                return other._find(loc[len(stem) :], key=key)
        return self, (self.keys if key else self.values).get(loc) or self._nearest(loc)

    def _nearest(self, loc: Loc) -> Mark:
        while loc:
            if loc in self.keys:
                return self.keys[loc]
            if loc in self.values:
                return self.values[loc]
            loc = loc[:-1]
        return Mark(1, 1)


def read_document(path: Path) -> Document:
    """Read a YAML file of one mapping. Never raises for what the file says: see Document.problems.

    The file may hold MAX_BYTES, and YAML within the bounds of dlcp.files.bounded_yaml.
    """
    document = Document(path, _shown(path))
    try:
        with path.open("rb") as file:
            content = file.read(MAX_BYTES + 1)
        if len(content) > MAX_BYTES:
            document.problems.append(Problem(document.shown_path, f"is larger than {MAX_BYTES} bytes"))
            return document
        text = content.decode("utf-8")
    except OSError as error:
        document.problems.append(Problem(document.shown_path, f"cannot be read: {error.strerror}"))
        return document
    except UnicodeDecodeError as error:
        document.problems.append(Problem(document.shown_path, f"is not UTF-8 text (byte {error.start})"))
        return document
    try:
        node, loader = compose(text)
        if node is None:
            document.problems.append(Problem(document.where(()), "the file is empty"))
        else:
            document.data = _Builder(document, loader).build(node, ())
    except ReaderError as error:
        document.problems.append(_character_problem(document, text, error))
    except yaml.YAMLError as error:
        document.data = None
        document.problems.append(_syntax_problem(document, error))
    return document


def _shown(path: Path) -> str:
    """The path from here when the file lies below, else in full: short enough to read, good for an editor."""
    try:
        return str(path.resolve().relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def _character_problem(document: Document, text: str, error: ReaderError) -> Problem:
    line = text.count("\n", 0, error.position) + 1
    column = error.position - text.rfind("\n", 0, error.position)
    problem = f"not YAML: the character U+{error.character:04X} is not allowed"
    return Problem(f"{document.shown_path}:{line}:{column}", problem, "remove it; is this a text file?")


def _syntax_problem(document: Document, error: yaml.YAMLError) -> Problem:
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return Problem(document.where(()), f"not YAML: {error}")
    mark = error.problem_mark
    problem = f"not YAML: {error.problem}"
    if error.context and error.context_mark is not None and error.context_mark.line != mark.line:
        problem += f" ({error.context} that begins in line {error.context_mark.line + 1})"
    hint = "indent with spaces; YAML takes no tabs" if "'\\t'" in problem else ""
    return Problem(f"{document.shown_path}:{mark.line + 1}:{mark.column + 1}", problem, hint)


class _Builder:
    """Nodes → plain data, recording marks; duplicate keys become problems and the first one stands."""

    def __init__(self, document: Document, loader: BoundedLoader) -> None:
        self.document = document
        self.loader = loader

    def build(self, node: yaml.Node, loc: Loc) -> Any:
        """Return the data of `node`, which stands at `loc`."""
        self.document.values[loc] = _mark(node)
        if isinstance(node, yaml.MappingNode):
            return self._mapping(node, loc)
        if isinstance(node, yaml.SequenceNode):
            return [self.build(child, (*loc, i)) for i, child in enumerate(node.value)]
        return construct_scalar(self.loader, node)

    def _mapping(self, node: yaml.MappingNode, loc: Loc) -> dict[Any, Any]:
        built: dict[Any, Any] = {}
        for key_node, value_node in node.value:  # what is merged in comes first, so that own keys stand
            if key_node.tag == _MERGE_TAG:
                for other in _merged_mappings(value_node):
                    built = self._mapping(other, loc) | built
        keys: set[Any] = set()
        for key_node, value_node in node.value:
            if key_node.tag == _MERGE_TAG:
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                raise yaml.MarkedYAMLError(problem="a list or mapping as a key", problem_mark=key_node.start_mark)
            key = construct_scalar(self.loader, key_node)
            if key in keys:
                self._duplicate((*loc, key), key_node)
                continue
            keys.add(key)
            self.document.keys[*loc, key] = _mark(key_node)
            built[key] = self.build(value_node, (*loc, key))
        return built

    def _duplicate(self, loc: Loc, node: yaml.Node) -> None:
        first = self.document.keys[loc]
        mark = _mark(node)
        where = f"{self.document.shown_path}:{mark.line}:{mark.column}"
        problem = f"`{loc[-1]}` is said twice, first in line {first.line}"
        self.document.problems.append(Problem(where, problem, "keep one of them"))


def _merged_mappings(node: yaml.Node) -> list[yaml.MappingNode]:
    nodes = node.value if isinstance(node, yaml.SequenceNode) else [node]
    for value_node in nodes:
        if not isinstance(value_node, yaml.MappingNode):
            raise yaml.MarkedYAMLError(problem="`<<` can only merge mappings", problem_mark=value_node.start_mark)
    return list(nodes)


def _mark(node: yaml.Node) -> Mark:
    return Mark(node.start_mark.line + 1, node.start_mark.column + 1)

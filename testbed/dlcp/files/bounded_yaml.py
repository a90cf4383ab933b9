"""YAML text → nodes and scalars, within bounds that no file of a person comes near.

A few hundred bytes of YAML can stand for more values than any memory holds (aliases of aliases), or for more levels
than Python's stack. Both are counted while the nodes are composed, so that the first one beyond a bound is named by its
place and nothing of it is ever built.
"""

from __future__ import annotations

from typing import Any

import yaml
from yaml.events import AliasEvent

MAX_DEPTH = 64
"""Levels of lists and mappings. The files of this repository have 8 at most."""
MAX_VALUES = 100_000
"""Keys and values of one file, each alias counted as all that it repeats. The largest file here has 1562."""
MAX_NUMBER_CHARACTERS = 100
"""Characters of a number or a date. The time of Python's conversion grows with the square of the length."""

_STRING_TAG = "tag:yaml.org,2002:str"
_TAGS_OF_SCALARS = {
    f"tag:yaml.org,2002:{name}" for name in ("null", "bool", "int", "float", "timestamp", "str", "binary")
}

_TAGS_OF_COLLECTIONS = {"tag:yaml.org,2002:map", "tag:yaml.org,2002:seq"}


class BoundedLoader(yaml.SafeLoader):
    """PyYAML's safe loader, which raises MarkedYAMLError for what is beyond a bound or names itself."""

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._depth = 0
        self._values = 0
        self._extents: dict[yaml.Node, tuple[int, int]] = {}
        """Node that is complete → its values and its levels, itself included."""
        self._deepest = 0
        """Level of the deepest value so far of the node that is being composed."""

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Return the next node, counted."""
        event: yaml.Event = self.peek_event()  # type: ignore[no-untyped-call]
        if isinstance(event, AliasEvent):
            node = super().compose_node(parent, index)
            if node not in self._extents:
                raise _error("an alias stands inside what it names", event)
            values, levels = self._extents[node]
            self._count(values, self._depth + levels, event)
            return node
        before, deepest_before = self._values, self._deepest
        self._depth += 1
        self._deepest = self._depth
        self._count(1, self._depth, event)
        node = super().compose_node(parent, index)
        if isinstance(node, yaml.CollectionNode) and node.tag not in _TAGS_OF_COLLECTIONS:
            raise _error(f"the tag {node.tag} is not supported", event)
        if node is not None:
            self._extents[node] = (self._values - before, self._deepest - self._depth + 1)
        self._deepest = max(self._deepest, deepest_before)
        self._depth -= 1
        return node

    def _count(self, values: int, level: int, event: yaml.Event) -> None:
        self._values += values
        self._deepest = max(self._deepest, level)
        if self._values > MAX_VALUES:
            raise _error(f"more than {MAX_VALUES} values, each alias counted as all that it repeats", event)
        if level > MAX_DEPTH:
            raise _error(f"more than {MAX_DEPTH} levels of lists and mappings", event)


def compose(text: str) -> tuple[yaml.Node | None, BoundedLoader]:
    """Return the one document of a YAML text as nodes, None when it is empty, and a loader for `construct_scalar`.

    Raises YAMLError: a ReaderError for a character that YAML does not allow, else a MarkedYAMLError.
    """
    loader = BoundedLoader(text)
    try:
        return loader.get_single_node(), loader
    finally:
        loader.dispose()


def construct_scalar(loader: BoundedLoader, node: yaml.Node) -> Any:
    """Return the plain value of a scalar node. MarkedYAMLError when its text is not of its tag's type."""
    kind = node.tag.rpartition(":")[2]
    if node.tag not in _TAGS_OF_SCALARS:
        raise yaml.MarkedYAMLError(problem=f"the tag {node.tag} is not supported", problem_mark=node.start_mark)
    if node.tag != _STRING_TAG and kind != "binary" and len(node.value) > MAX_NUMBER_CHARACTERS:
        reason = f"a value of type {kind} with more than {MAX_NUMBER_CHARACTERS} characters"
        raise yaml.MarkedYAMLError(problem=reason, problem_mark=node.start_mark)
    try:
        return loader.construct_object(node)
    except ValueError as error:  # such as the date 2024-13-45
        raise yaml.MarkedYAMLError(problem=str(error), problem_mark=node.start_mark) from error
    except (LookupError, AttributeError, ArithmeticError) as error:  # PyYAML's, for `!!bool maybe` and the like
        reason = f"{node.value!r} is not of type {kind}"
        raise yaml.MarkedYAMLError(problem=reason, problem_mark=node.start_mark) from error


def _error(what: str, event: yaml.Event) -> yaml.MarkedYAMLError:
    mark = event.start_mark
    return yaml.MarkedYAMLError(problem=what, problem_mark=mark if isinstance(mark, yaml.Mark) else None)

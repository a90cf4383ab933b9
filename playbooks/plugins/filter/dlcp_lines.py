"""Filters: sessions of systems whose configuration is lines that set and unset paths, and of those whose configuration
is indented. The words that differ are data of each system.

Pure. What is deployed is kept as the name of a thing of our own without an effect, so that it comes and goes with the
configuration: a macro, an unused policy, an unused profile, an alias.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Words:
    """dlcp_lines of a system, in switch_configs/<system>/vars/main.yml.

    form: paths or indented. sets, unsets: beginnings of lines. mark: what keeps a digest; {} stands for it. timed:
    whether a commit takes itself back unless it is confirmed. gone: for a deployment that is not there any more.
    """

    form: str
    sets: str
    unsets: str
    mark: str
    timed: bool
    gone: str

    @property
    def marked(self) -> re.Pattern[str]:
        """A line of a running configuration that keeps a digest."""
        head = re.escape(self.sets + self.mark.split("{}")[0])
        return re.compile(rf"^{head}([0-9a-f]{{16}})(?![0-9a-f])", re.M)


def kept_digest(running: str, words: Words) -> str:
    """The digest that a configuration keeps; "" where none."""
    match = words.marked.search(running)
    return match[1] if match else ""


def unmarked(running: str, words: Words) -> list[str]:
    """The lines that take off what keeps a digest."""
    return [words.unsets + match[0].removeprefix(words.sets) for match in words.marked.finditer(running)]


def candidate(made: dict[str, Any], running: str, words: Words, deployed: dict[str, Any] | None = None) -> list[str]:
    """The lines that lead to what was rendered, in a configuration of that form."""
    return _CANDIDATES[words.form](made, running, words, deployed)


def set_candidate(
    made: dict[str, Any], running: str, words: Words, deployed: dict[str, Any] | None = None
) -> list[str]:
    """The lines that lead to what was rendered, upon what is there and what was deployed before: in a candidate
    configuration, taking a thing off and putting the same back is no change."""
    taken = _taken(running, [made, deployed or {}], words)
    return [
        *unmarked(running, words),
        *taken,
        *_lines(made["configuration"]),
        words.sets + words.mark.format(made["digest"]),
    ]


def set_restoring(before: str, running: str, words: Words, made: Iterable[dict[str, Any]]) -> list[str]:
    """The lines that lead back to what was there before, of what any of the deployments sets. made: what was rendered
    for them."""
    made = list(made)
    paths = [path for one in made for path in _paths(one, words)]
    ours = [
        line
        for line in _lines(before)
        if words.marked.match(line) or any(_below(line, words.sets + path) for path in paths)
    ]
    said = [line for one in made for line in _lines(one.get("configuration", "")) if line not in _lines(before)]
    left = [  # what a rollback leaves, because others may need it, and what was not there
        words.unsets + line.removeprefix(words.sets)
        for line in dict.fromkeys(said)
        if line in _lines(running) and not any(_below(line, words.sets + path) for path in paths)
    ]
    return [*unmarked(running, words), *_taken(running, made, words), *left, *ours]


def _taken(running: str, made: list[dict[str, Any]], words: Words) -> list[str]:
    """Lines that unset what a rendering of ours set and what is there: each path once."""
    there = _lines(running)
    paths = dict.fromkeys(path for one in made for path in _paths(one, words))
    return [words.unsets + path for path in paths if any(_below(line, words.sets + path) for line in there)]


def _paths(made: dict[str, Any], words: Words) -> list[str]:
    unsets = words.unsets
    return [line.removeprefix(unsets) for line in _lines(made.get("rollback", "")) if line.startswith(unsets)]


def _below(line: str, path: str) -> bool:
    return line == path or line.startswith(path + " ")


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def block_candidate(
    made: dict[str, Any], running: str, words: Words, deployed: dict[str, Any] | None = None
) -> list[str]:
    """The lines that lead to what was rendered, in an indented configuration that has no candidate: what another
    intent of ours left is taken off first, and only then, because these systems do at once what they are told."""
    other = deployed and deployed.get("digest") != made["digest"]
    gone = [*unmarked(running, words), *_lines((deployed or {}).get("rollback", ""))] if other else []
    return [*gone, *_lines(made["configuration"]), words.mark.format(made["digest"])]


_CANDIDATES = {"paths": set_candidate, "indented": block_candidate}


class FilterModule:
    """For Ansible, which gives the words as a mapping."""

    def filters(self) -> dict[str, Any]:
        """By name."""
        return {
            "dlcp_kept_digest": lambda running, words: kept_digest(running, Words(**words)),
            "dlcp_candidate": lambda made, running, words, deployed=None: candidate(
                made, running, Words(**words), deployed
            ),
            "dlcp_set_restoring": lambda before, running, words, made: set_restoring(
                before, running, Words(**words), made
            ),
            "dlcp_unmarked": lambda running, words: unmarked(running, Words(**words)),
        }

"""Filters: sessions of systems whose configuration is lines that set and unset paths (Junos, SR Linux, Cumulus), and of
those whose configuration is indented (NX-OS, OS10).

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
    """sets, unsets: what lines begin with. mark: what keeps a digest; {} stands for it."""

    sets: str
    unsets: str
    mark: str

    @property
    def marked(self) -> re.Pattern[str]:
        """A line of a running configuration that keeps a digest."""
        head = re.escape(self.sets + self.mark.split("{}")[0])
        return re.compile(rf"^{head}([0-9a-f]{{16}})(?![0-9a-f])", re.M)


WORDS = {
    "junos": Words("set ", "delete ", "class-of-service apply-macro dlcp-{}"),
    "srlinux": Words("set / ", "delete / ", "qos classifiers dscp-policy dlcp-{}"),
    "cumulus": Words("nv set ", "nv unset ", "qos mapping dlcp-{} trust l3"),
    "nxos": Words("", "no ", "cli alias name dlcp{} show policy-map"),
    "os10": Words("", "no ", 'alias dlcp{} "show qos maps"'),
}


def kept_digest(running: str, system: str) -> str:
    """The digest that a configuration keeps; "" where none."""
    match = WORDS[system].marked.search(running)
    return match[1] if match else ""


def unmarked(running: str, system: str) -> list[str]:
    """The lines that take off what keeps a digest."""
    words = WORDS[system]
    return [words.unsets + match[0].removeprefix(words.sets) for match in words.marked.finditer(running)]


def set_candidate(made: dict[str, Any], running: str, system: str, deployed: dict[str, Any] | None = None) -> list[str]:
    """The lines that lead to what was rendered, upon what is there and what was deployed before: in a candidate
    configuration, taking a thing off and putting the same back is no change."""
    words = WORDS[system]
    taken = _taken(running, [made, deployed or {}], system)
    return [
        *unmarked(running, system),
        *taken,
        *_lines(made["configuration"]),
        words.sets + words.mark.format(made["digest"]),
    ]


def set_restoring(before: str, running: str, system: str, made: Iterable[dict[str, Any]]) -> list[str]:
    """The lines that lead back to what was there before, of what any of the deployments sets. made: what was rendered
    for them."""
    words, made = WORDS[system], list(made)
    paths = [path for one in made for path in _paths(one, system)]
    ours = [
        line for line in _lines(before)
        if words.marked.match(line) or any(_below(line, words.sets + path) for path in paths)
    ]  # fmt: skip
    said = [line for one in made for line in _lines(one.get("configuration", "")) if line not in _lines(before)]
    left = [  # what a rollback leaves, because others may need it, and what was not there
        words.unsets + line.removeprefix(words.sets) for line in dict.fromkeys(said)
        if line in _lines(running) and not any(_below(line, words.sets + path) for path in paths)
    ]  # fmt: skip
    return [*unmarked(running, system), *_taken(running, made, system), *left, *ours]


def _taken(running: str, made: list[dict[str, Any]], system: str) -> list[str]:
    """Lines that unset what a rendering of ours set and what is there: each path once."""
    words, there = WORDS[system], _lines(running)
    paths = dict.fromkeys(path for one in made for path in _paths(one, system))
    return [words.unsets + path for path in paths if any(_below(line, words.sets + path) for line in there)]


def _paths(made: dict[str, Any], system: str) -> list[str]:
    unsets = WORDS[system].unsets
    return [line.removeprefix(unsets) for line in _lines(made.get("rollback", "")) if line.startswith(unsets)]


def _below(line: str, path: str) -> bool:
    return line == path or line.startswith(path + " ")


def _lines(text: str) -> list[str]:
    return [line.rstrip() for line in text.splitlines() if line.strip()]


def block_candidate(
    made: dict[str, Any], running: str, system: str, deployed: dict[str, Any] | None = None
) -> list[str]:
    """The lines that lead to what was rendered, in an indented configuration that has no candidate: what another
    intent of ours left is taken off first, and only then, because these systems do at once what they are told."""
    words = WORDS[system]
    other = deployed and deployed.get("digest") != made["digest"]
    gone = [*unmarked(running, system), *_lines((deployed or {}).get("rollback", ""))] if other else []
    return [*gone, *_lines(made["configuration"]), words.mark.format(made["digest"])]


class FilterModule:
    """For Ansible."""

    def filters(self) -> dict[str, Any]:
        """By name."""
        return {
            "dlcp_kept_digest": kept_digest,
            "dlcp_set_candidate": set_candidate,
            "dlcp_set_restoring": set_restoring,
            "dlcp_block_candidate": block_candidate,
            "dlcp_unmarked": unmarked,
        }

"""Filters: what of an EOS running configuration is a deployment's to set, and the lines that set or restore it.

Pure. All lines are meant for a configuration session, where taking a thing off and putting the same back is no change.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any

Block = tuple[str, list[str]]
"""A line at the margin, and the indented ones below it."""

DIGEST = re.compile(r"alias dlcp([0-9a-f]{16}) ")
"""The digest is kept as the name of an alias: a line of the configuration, which a session commits, and a commit timer
takes back, together with all others."""
OURS = re.compile(
    r"qos map (dscp|traffic-class) .*|qos profile DLCP|platform trident mmu queue profile DLCP( apply)?"
    r"|priority-flow-control pause watchdog .*|ip hardware fib load-balance distribution .*|alias dlcp[0-9a-f]{16} .*"
)
ON_PORT = re.compile(r"service-profile \S+")


def blocks(running: str) -> Iterator[Block]:
    """A configuration in its parts; comments are left out."""
    found: Block | None = None
    for line in running.splitlines():
        if not line.strip() or line.lstrip().startswith("!"):
            continue
        if not line.startswith(" "):
            if found:
                yield found
            found = line.rstrip(), []
        elif found:
            found[1].append(line.rstrip())
    if found:
        yield found


def scope(running: str, ports: Iterable[str]) -> list[str]:
    """The lines that a deployment on these ports sets, as they are."""
    interfaces = {f"interface {port}" for port in ports}
    found: list[str] = []
    for head, below in blocks(running):
        if OURS.fullmatch(head):
            found += [head, *below]
        elif head in interfaces and (kept := [line for line in below if ON_PORT.fullmatch(line.strip())]):
            found += [head, *kept]
    return found


def taken_off(running: str, ports: Iterable[str]) -> list[str]:
    """The lines that take off what a configuration of ours may leave behind: the ports' profile first, then what no
    port uses any more. Maps are not among them: each deployment says all of them."""
    found, profiles = [], []
    for head, below in blocks(running):
        if head in {f"interface {port}" for port in ports}:
            found += [head, "   no service-profile"] if any(ON_PORT.fullmatch(line.strip()) for line in below) else []
        elif head.startswith("priority-flow-control pause watchdog "):
            words = head.split()[3:]
            profiles.append(
                f"no priority-flow-control pause watchdog {' '.join(words[: 2 if words[0] == 'default' else 1])}"
            )
        elif head.startswith("ip hardware fib load-balance distribution "):
            profiles.append("no ip hardware fib load-balance distribution")
        elif head.startswith("alias dlcp") and DIGEST.match(head):
            profiles.append(f"no {' '.join(head.split()[:2])}")
        elif OURS.fullmatch(head) and not head.startswith("qos map"):
            profiles.append(f"no {head}")
    # "… profile DLCP apply" comes off before the profile itself
    return found + sorted(profiles, key=lambda line: not line.endswith(" apply"))


def candidate(configuration: str, running: str, ports: Iterable[str], digest: str) -> list[str]:
    """The session that leads from the running configuration to a rendered one."""
    ports = list(ports)
    return [*taken_off(running, ports), *configuration.splitlines(), f"alias dlcp{digest} show qos profile DLCP"]


def restoring(before: str, running: str, ports: Iterable[str]) -> list[str]:
    """The session that leads from the running configuration to what was there before, of what a deployment sets."""
    ports = list(ports)
    maps = []
    for head, _ in blocks(running):
        if match := re.fullmatch(r"(qos map dscp [\d ]+|qos map traffic-class \d to \S+).*", head):
            maps.append(f"no {re.sub(r' to traffic-class.*', '', head) if 'dscp' in head else match[1]}")
    return [*taken_off(running, ports), *maps, *scope(before, ports)]


def digest_of(running: str) -> str:
    """The digest that a configuration keeps; "" where none."""
    found = [match[1] for head, _ in blocks(running) if (match := DIGEST.match(head))]
    return found[0] if found else ""


def changed_lines(diff: str) -> list[str]:
    """The lines of a unified diff that say something."""
    return [line for line in diff.splitlines() if re.match(r"[-+](?![-+]{2} )", line)]


class FilterModule:
    """For Ansible."""

    def filters(self) -> dict[str, Any]:
        """By name."""
        return {
            "dlcp_eos_candidate": candidate,
            "dlcp_eos_restoring": restoring,
            "dlcp_eos_digest": digest_of,
            "dlcp_changed_lines": changed_lines,
        }

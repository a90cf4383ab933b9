"""Decision after a phase of a deployment, for the whole fabric: go on, turn back, or the final state. Pure.

A switch that has fallen out of Ansible's play says nothing: it has failed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

Reasons = Mapping[str, str]
"""Switch → why it did not do what it was to do."""

FELL_OUT = "fell out of the play"


@dataclass(frozen=True)
class Switch:
    """State of a switch after a phase.

    present: whether it is in the play still. failures: phase → why. unreached: those of them in which it could not be
    reached. diff: what was to change, "" = nothing. found: digest and differences as read back; wanted: the digest of
    what was rendered. timed: whether it turns back by itself when nobody confirms.
    """

    name: str
    present: bool
    failures: Mapping[str, str]
    unreached: Sequence[str] = ()
    diff: str = ""
    found: Mapping[str, Any] | None = None
    wanted: str = ""
    timed: bool = True


def failed(phase: str, switches: Iterable[Switch]) -> dict[str, str]:
    """Switch → why the phase did not work there."""
    reasons = {}
    for switch in switches:
        if phase in switch.failures:
            reasons[switch.name] = switch.failures[phase]
        elif not switch.present:
            reasons[switch.name] = FELL_OUT
    return reasons


def deviations(switches: Iterable[Switch], *, digests: bool = True) -> dict[str, str]:
    """Switch → how what was read back differs from what was rendered; without digests, from the last configuration
    sent.
    """
    reasons = {}
    for switch in switches:
        state = switch.found
        if state is None:
            reasons[switch.name] = "was not read back"
        elif digests and state["digest"] != switch.wanted:
            reasons[switch.name] = f"holds {state['digest'] or 'nothing of ours'}, not {switch.wanted}"
        elif state["differences"]:
            reasons[switch.name] = "differs from what it was told: " + "; ".join(map(str, state["differences"]))
    return reasons


@dataclass(frozen=True)
class Ending:
    """How a deployment that was turned back ended.

    status: restored = every switch is as it was. timers = those in `waiting` could not be reached, and turn back by
    themselves. mixed = those in `stuck` may hold the new configuration for good: a person must act.
    """

    status: str
    waiting: tuple[str, ...] = ()
    stuck: tuple[str, ...] = ()


def not_as_before(switches: Iterable[Switch], before: Mapping[str, str]) -> dict[str, str]:
    """Switch → what it holds after it was restored, where that is not what it held before. before: switch → digest."""
    reasons = {}
    for switch in switches:
        held, was = (switch.found or {}).get("digest"), before.get(switch.name)
        if held is not None and was is not None and held != was:
            reasons[switch.name] = f"holds {held or 'nothing of ours'}, not {was or 'nothing of ours'} as before"
    return reasons


def turned_back(left: Reasons, switches: Iterable[Switch], *, confirming: bool) -> Ending:
    """How the fabric stands after a restore.

    left: why some are not restored. confirming: whether any was asked to confirm, so that its timer may be off. One
    that was reached and is not as it was has no timer to wait for either, and some systems have none at all.
    """
    if not left:
        return Ending("restored")
    unreached = {switch.name for switch in switches if switch.timed and "restore" in switch.unreached}
    timed = set() if confirming else unreached
    stuck = tuple(name for name in left if name not in timed)
    waiting = tuple(name for name in left if name not in stuck)
    return Ending("mixed" if stuck else "timers", waiting=waiting, stuck=stuck)


def listing(reasons: Reasons) -> str:
    """A line a switch."""
    return "\n".join(f"  {name}: {why}" for name, why in reasons.items())

"""What goes wrong in a running fabric, on the experiment's timeline: planned as data, played by a thread.

Every change is made through the Fabric, and how late each took effect is measured: a fault that comes late happens to
another moment of the job. When the run is over, everything that still lasts is mended.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

from dlcp.agents.background_thread import Beside
from dlcp.agents.precise_waits import go_ahead
from dlcp.model.faults import FaultKind, GrayFailure, LinkDown, RateDrop
from dlcp.model.topology import Graph
from dlcp.substrates.emulate.fabric import Fabric

Event = Literal["end", "begin", "reroute"]
_ORDER: tuple[Event, ...] = ("end", "begin", "reroute")
"""Of what is due at one instant: a link mends before its next fault, and routes follow the links."""


@dataclass(frozen=True)
class Action:
    """One change of the fabric: fabric.<call>(*arguments), at_s after the job's start; infinite = when the run is over.

    fault: its number in the file, from 0. what: in words.
    """

    at_s: float
    fault: int
    event: Event
    what: str
    call: str
    arguments: tuple[Any, ...]


@dataclass(frozen=True)
class Done:
    """An action that was carried out. done_s: when it had taken effect, after the job's start; None: the run was over
    before, and it only mended."""

    action: Action
    done_s: float | None

    @property
    def late_s(self) -> float:
        """How long after its time it took effect."""
        return 0.0 if self.done_s is None else max(0.0, self.done_s - self.action.at_s)

    def data(self) -> dict[str, Any]:
        """For result.json."""
        action = self.action
        return {
            "fault": action.fault,
            "event": action.event,
            "what": action.what,
            "planned_s": action.at_s if math.isfinite(action.at_s) else None,
            "done_s": self.done_s,
            "late_s": self.late_s,
        }


def timeline(faults: Sequence[FaultKind], graph: Graph, limit_s: float) -> list[Action]:
    """Everything that is to be done, in order. limit_s: when the run is over at the latest."""
    actions: list[Action] = []
    for number, fault in enumerate(faults):
        actions += _actions(number, fault, graph, limit_s)
    actions.sort(key=lambda action: (action.at_s, _ORDER.index(action.event)))
    return _with_detours(actions, faults)


class FaultPlayer(Beside):
    """Carries a timeline out while its block lasts; start_s: the job's start (CLOCK_MONOTONIC).

    Leaving the block mends what still lasts.
    """

    def __init__(self, fabric: Fabric, actions: Sequence[Action], start_s: float) -> None:
        super().__init__("faults")
        self.done: list[Done] = []
        self.lasting: tuple[str, ...] = ()
        """What had begun and not ended when the block ended, in words."""
        self._fabric = fabric
        self._actions = tuple(actions)
        self._start_s = start_s

    @property
    def late_s(self) -> float:
        """The latest of all actions."""
        return max((done.late_s for done in self.done), default=0.0)

    def never(self) -> list[str]:
        """What was planned to begin and did not, because the job was over before, in words."""
        begun = {done.action.fault for done in self.done}
        return [
            f"{action.what}, planned at {action.at_s:g} s, did not happen: the job was over before"
            for action in self._actions
            if action.event == "begin" and action.fault not in begun
        ]

    def _work(self) -> None:
        go_ahead()
        for action in filter(lambda action: math.isfinite(action.at_s), self._actions):
            if self._over.wait(max(0.0, self._start_s + action.at_s - time.monotonic())):
                return
            self._call(action.call, *action.arguments)
            self.done.append(Done(action, time.monotonic() - self._start_s))
            if action.call == "set_rate":
                self._fabric.verify_link(*action.arguments[:2])

    def _put_right(self) -> None:
        """End what has begun; routes last."""
        over = [done.action for done in self.done]
        ended = {action.fault for action in over if action.event == "end"}
        lasting = {
            action.fault: action.what for action in over if action.event == "begin" and action.fault not in ended
        }
        self.lasting = tuple(lasting.values())
        for action in self._actions:
            if action.event == "end" and action.fault in lasting:
                self._call(action.call, *action.arguments)
                self.done.append(Done(action, None))
        if any(action.event == "reroute" for action in over):
            self._call("reroute", ())

    def _call(self, name: str, *arguments: Any) -> None:
        getattr(self._fabric, name)(*arguments)


def _actions(number: int, fault: FaultKind, graph: Graph, limit_s: float) -> list[Action]:
    """Begin and end of one fault, and its detours with their links left open."""
    end_s, what = fault.end_s, fault.what
    begin: tuple[str, tuple[Any, ...]]
    end: tuple[str, tuple[Any, ...]]
    if isinstance(fault, LinkDown):
        begin, end = ("set_link", (*fault.link, False)), ("set_link", (*fault.link, True))
    elif isinstance(fault, GrayFailure):
        begin, end = ("set_loss", (*fault.ends, fault.loss)), ("set_loss", (*fault.ends, 0.0))
    elif isinstance(fault, RateDrop):
        begin = "set_rate", (*fault.link, fault.rate_bps)
        end = "set_rate", (*fault.link, graph.link_rate_bps(*fault.link))
    else:
        for_s = limit_s if fault.for_s is None else fault.for_s
        begin, end = ("freeze", (*fault.port, fault.queue, for_s)), ("thaw", (*fault.port, fault.queue))
    found = [Action(fault.at_s, number, "begin", what, *begin), Action(end_s, number, "end", f"end of {what}", *end)]
    if isinstance(fault, LinkDown) and fault.reroute_after_s is not None:
        for noticed_s, words in ((fault.at_s, "detour round"), (end_s, "way back over")):
            text = f"{words} {' – '.join(fault.ends)}"
            found.append(Action(round(noticed_s + fault.reroute_after_s, 9), number, "reroute", text, "reroute", ()))
    return found


def _with_detours(actions: list[Action], faults: Sequence[FaultKind]) -> list[Action]:
    """Tell every detour which links the switches know to be down: a fault's first takes its link out, its second back
    in."""
    known: dict[int, tuple[str, str]] = {}
    found = []
    for action in actions:
        if action.event == "reroute":
            if action.fault in known:
                del known[action.fault]
            else:
                known[action.fault] = faults[action.fault].ends
            action = Action(action.at_s, action.fault, action.event, action.what, action.call, (tuple(known.values()),))
        found.append(action)
    return found

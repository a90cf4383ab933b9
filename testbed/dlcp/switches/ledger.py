"""The account of every packet in a fabric: nothing may be lost but where a counter says so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from dlcp.model.qos import PRECEDENCES, QUEUES
from dlcp.switches.layout import PortState, QueueState, Tally

_DROPS = ("dropped_wred", "dropped_tail", "dropped_loss")


@dataclass(frozen=True)
class Ledger:
    """One reading of all ports' states, by ifindex; switch_of: ifindex → switch, for the ports of switches."""

    states: Mapping[int, PortState]
    switch_of: Mapping[int, str]

    def drained(self) -> bool:
        """True when every queue of every port and host is empty."""
        return not any(_backlog(queue) for state in self.states.values() for queue in state.queues)

    def violations(self, names: Mapping[int, str]) -> list[str]:
        """What does not add up, in words; names: ifindex → port or host."""
        told = []
        for ifindex, state in self.states.items():
            for number in range(QUEUES):
                told += _queue_violations(f"{names[ifindex]} queue {number}", state.queues[number])
        for switch in sorted(set(self.switch_of.values())):
            told += self._switch_violations(switch)
        return told

    def _switch_violations(self, switch: str) -> list[str]:
        came_in, accounted = _Sum(), _Sum()
        for ifindex, owner in self.switch_of.items():
            if owner != switch:
                continue
            for queue in self.states[ifindex ^ 1].queues:
                came_in.add(queue.dequeued)
            accounted.add(self.states[ifindex].unrouted)
            for queue in self.states[ifindex].queues:
                accounted.add(queue.enqueued)
                for precedence in range(PRECEDENCES):
                    for drop in _DROPS:
                        accounted.add(getattr(queue.precedences[precedence], drop))
        if came_in == accounted:
            return []
        return [f"switch {switch}: {came_in} came in, {accounted} enqueued, dropped or unrouted"]


@dataclass
class _Sum:
    packets: int = 0
    bytes: int = 0

    def add(self, tally: Tally) -> None:
        self.packets += tally.packets
        self.bytes += tally.bytes

    def __str__(self) -> str:
        return f"{self.packets} packets ({self.bytes} B)"


def _backlog(queue: QueueState) -> int:
    return queue.enqueued.bytes - queue.dequeued.bytes


def _queue_violations(name: str, queue: QueueState) -> list[str]:
    put, taken = queue.enqueued, queue.dequeued
    if (put.packets, put.bytes) == (taken.packets, taken.bytes):
        return []
    return [
        f"{name}: {put.packets} packets ({put.bytes} B) enqueued, {taken.packets} packets ({taken.bytes} B) dequeued"
    ]

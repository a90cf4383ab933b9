"""Priority flow control, an experimental option: a loop beside the fabric looks at the queues and pauses their senders.

Real PFC is a frame that a switch sends within a microsecond, for each port that packets come in at. This loop looks
once in a PERIOD_S of lab time, and it simplifies: what a queue holds at the port that it leaves by decides for all
neighbours of the switch together, but the one that the port leads to. A paused port keeps a hundredth of its rate (HTB
does not forgive what a slower class has sent too much), and takes up to a hundred frame times to be at full speed
again.

So it holds at links of at most 100 Mbit/s, needs headroom between xoff and the port's buffer for what all neighbours
send in about two periods, and overstates how far a pause spreads where the congested port has few of the senders. How
late the loop was, and whether a lossless queue dropped all the same, is judged in every run (fidelity.BOUNDS).
"""

from __future__ import annotations

import time
from contextlib import nullcontext
from typing import Any

import numpy as np
import numpy.typing as npt

from dlcp.agents.background_thread import Beside
from dlcp.agents.precise_waits import go_ahead
from dlcp.model.qos import Pfc, QosIntent
from dlcp.model.topology import Graph
from dlcp.substrates.emulate.fabric import Fabric

PERIOD_S = 0.001
"""Between two looks, in lab time. At 100 Mbit/s a neighbour sends 8 frames in it."""

Pause = tuple[str, str, int]
"""A port that is paused: its node, the switch that it leads to, the queue."""


class PauseLoop(Beside):
    """Pauses and resumes while its block lasts; leaving the block resumes everything.

    pauses: how often a port was paused. time_dilation: so many seconds here are one of the lab.
    """

    def __init__(self, fabric: Fabric, graph: Graph, pfc: Pfc, time_dilation: float = 1.0) -> None:
        super().__init__("pfc")
        self._period_s = PERIOD_S * time_dilation
        self.pauses = 0
        self._fabric = fabric
        self._pfc = pfc
        self._queues = list(pfc.queues)
        self._upstream = [_upstream(graph, *port.split("-", 1)) for _, port in fabric.switch_ports]
        self._congested: npt.NDArray[np.bool_] = np.zeros((len(self._upstream), len(self._queues)), bool)
        self._paused: dict[Pause, float] = {}
        self._paused_s = 0.0
        self._late_s: list[float] = []

    @property
    def late_s(self) -> float:
        """99th percentile of how late the loop looked."""
        return float(np.quantile(self._late_s, 0.99)) if self._late_s else 0.0

    def data(self) -> dict[str, Any]:
        """For result.json. paused_s: summed over ports and queues."""
        latest_s = max(self._late_s, default=0.0)
        return {"pauses": self.pauses, "paused_s": self._paused_s, "late_p99_s": self.late_s, "latest_s": latest_s}

    def _work(self) -> None:
        go_ahead()
        due_s = time.monotonic()
        while not self._over.wait(max(0.0, due_s - time.monotonic())):
            now_s = time.monotonic()
            self._late_s.append(now_s - due_s)
            self._look()
            due_s = max(due_s, now_s - self._period_s) + self._period_s  # what was missed is late once

    def _put_right(self) -> None:
        self._set(set())

    def _look(self) -> None:
        backlogs = self._fabric.backlogs()[:, self._queues]
        above, below = backlogs > self._pfc.xoff_bytes, backlogs <= self._pfc.xon_bytes
        congested = above | self._congested & ~below
        if (congested == self._congested).all():
            return
        self._congested = congested
        self._set(
            {
                (*sender, self._queues[column])
                for port, column in np.argwhere(congested).tolist()
                for sender in self._upstream[port]
            }
        )

    def _set(self, wanted: set[Pause]) -> None:
        """Pause and resume what differs."""
        for pause in wanted - self._paused.keys():
            self._fabric.pause(*pause)
            self._paused[pause] = time.monotonic()
            self.pauses += 1
        for pause in self._paused.keys() - wanted:
            self._fabric.resume(*pause)
            self._paused_s += time.monotonic() - self._paused.pop(pause)


def pausing(fabric: Fabric, graph: Graph, intent: QosIntent, time_dilation: float) -> PauseLoop | nullcontext[None]:
    """What an intent asks for: a loop, or nothing."""
    return nullcontext() if intent.pfc is None else PauseLoop(fabric, graph, intent.pfc, time_dilation)


def _upstream(graph: Graph, switch: str, neighbour: str) -> list[tuple[str, str]]:
    """(node, switch) of all who send into a switch, but the one that the port leads to."""
    return [(node, switch) for node in graph.neighbours[switch] if node != neighbour]

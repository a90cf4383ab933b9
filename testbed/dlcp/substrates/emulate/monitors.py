"""One thread beside a run, ahead of the agents' own: how late timers are, whether full ports send at their rate, and
how long every queue is, where that is asked for.

It has the priority that DLCP's engines ask for, so that its lateness is that of what moves packets; agents in Python
are watched by themselves (agents.precise_waits).
"""

from __future__ import annotations

import math
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlcp.agents.background_thread import Beside
from dlcp.agents.precise_waits import Deadlines, go_ahead
from dlcp.model.frames import FRAME_BYTES
from dlcp.model.topology import Graph
from dlcp.substrates.emulate.fabric import Fabric

CANARY_S = 0.004
"""A timer is tried so often, in lab time: 250 a second take half a per cent of a core."""
LOOK_EVERY_S = 0.02
"""How often ports are looked at for one that is full, in lab time."""
STRETCH_FRAMES = 12
"""After so many frame times of the slowest full port the ports are looked at again: 1.5 ms at 100 Mbit/s."""
MOST_PARTS = 12
"""A stretch goes on so long while its ports stay full, 18 ms at 100 Mbit/s. What happens at its ends (a burst that has
just gone, a late look) weighed 3 to 5 % in stretches of one part, on a port that sent at exactly its rate."""
FULL_FRAMES = 16
"""Frames that must wait at a port to call it full: it cannot run empty in a stretch, a late end included."""
MIN_PARTS = 60
"""Fewer say nothing: a frame more or less at the ends of a stretch is 8 % of it, in the mean of sixty 1 %."""

Backlogs = npt.NDArray[np.uint64]


@dataclass
class Saturation:
    """Stretches in which a port had more waiting than it could send: what it sent, and what its shaper lets
    through. parts: of all stretches (MOST_PARTS)."""

    sent_bytes: float = 0.0
    expected_bytes: float = 0.0
    parts: int = 0

    @property
    def share(self) -> float | None:
        """Of the shapers' rates that full ports reached; None when too few were seen."""
        return self.sent_bytes / self.expected_bytes if self.parts >= MIN_PARTS else None


@dataclass
class Samples:
    """The table `backlog` as it grows: one array of (time, port, queue, bytes) a sample; late: how many samples were
    taken more than half an interval late."""

    times_s: list[float] = field(default_factory=list)
    found: list[tuple[npt.NDArray[np.int64], npt.NDArray[np.int64], Backlogs]] = field(default_factory=list)
    late: int = 0

    @property
    def late_share(self) -> float:
        """Share of the samples that were late."""
        return self.late / max(1, len(self.times_s))


@dataclass
class _Stretch:
    """full: the ports that have been full since begun_s. waiting: bytes at each port at looked_s, the last look.
    sent_bytes: of each device until begun_s."""

    full: npt.NDArray[np.bool_]
    waiting: Backlogs
    begun_s: float
    looked_s: float
    sent_bytes: dict[str, int]
    parts: int = 0


class Watch(Beside):
    """Watches a fabric from __enter__ to __exit__. every_s: how often backlogs are sampled; None = not.

    shaky: ports (SWITCH-NEIGHBOUR) whose rate changes or pauses on purpose: they are not held to it. time_dilation:
    emulated seconds for a second of the lab; what is done every few milliseconds is done as often in lab time.
    """

    def __init__(
        self,
        fabric: Fabric,
        graph: Graph,
        every_s: float | None,
        shaky: Collection[str] = (),
        *,
        time_dilation: float = 1.0,
    ) -> None:
        super().__init__("watch")
        self.saturation = Saturation()
        self.samples = Samples()
        self._fabric = fabric
        self._every_s = every_s
        self._own_every_s = {"canary": CANARY_S * time_dilation, "look": LOOK_EVERY_S * time_dilation}
        self._ports = fabric.switch_ports
        self._rates = np.array([graph.link_rate_bps(*port.split("-", 1)) / 8 for _, port in self._ports])
        self._steady = np.array([port not in shaky for _, port in self._ports], dtype=bool)
        self._canary = Deadlines()
        self._before: npt.NDArray[np.bool_] = np.zeros((len(self._ports), 1), dtype=bool)
        self._stretch: _Stretch | None = None

    @property
    def late_s(self) -> float:
        """99th percentile of how late timers came."""
        return self._canary.late_s()

    def table(self) -> dict[str, Any]:
        """Columns of the table `backlog`."""
        ports = np.concatenate([port for port, _, _ in self.samples.found] or [np.zeros(0, np.int64)])
        queues = np.concatenate([queue for _, queue, _ in self.samples.found] or [np.zeros(0, np.int64)])
        sizes = np.concatenate([size for _, _, size in self.samples.found] or [np.zeros(0, np.uint64)])
        counts = [len(port) for port, _, _ in self.samples.found]
        return {
            "time_s": np.repeat(np.array(self.samples.times_s, np.float64), counts),
            "switch": [self._ports[port][0] for port in ports],
            "port": [self._ports[port][1] for port in ports],
            "queue": queues.astype(np.int32),
            "backlog_bytes": sizes.astype(np.int64),
        }

    def _work(self) -> None:
        go_ahead()
        now_s = time.monotonic()
        every_s = dict(self._own_every_s)
        due_s = {name: now_s + seconds for name, seconds in every_s.items()} | {"end": math.inf}
        if self._every_s is not None:
            due_s["sample"], every_s["sample"] = now_s, self._every_s
        while not self._over.is_set():
            what = min(due_s, key=due_s.__getitem__)
            at_s = due_s[what]
            self._canary.sleep_until(at_s)
            late_s = time.monotonic() - at_s
            if what == "look" and self._stretch is None:
                due_s["end"] = self._begin_stretch()
            elif what == "sample":
                self._sample(late_s)
            elif what == "end":
                due_s["end"] = self._look_again()
            if what in every_s:
                missed = int(late_s // every_s[what])
                due_s[what] = at_s + every_s[what] * (1 + missed)

    def _sample(self, late_s: float) -> None:
        """Every queue that holds something, or did in the sample before."""
        assert self._every_s is not None
        backlogs = self._fabric.backlogs()
        self.samples.times_s.append(time.monotonic())
        holds = backlogs > 0
        ports, queues = np.nonzero(holds | self._before)
        self.samples.found.append((ports, queues, backlogs[ports, queues]))
        self.samples.late += late_s > self._every_s / 2
        self._before = holds

    def _begin_stretch(self) -> float:
        """Look for full ports; returns when to look at them again, never if there is none."""
        waiting = self._fabric.backlogs().sum(axis=1)
        full = self._full(waiting)
        if not full.any():
            return math.inf
        now_s = time.monotonic()
        self._stretch = _Stretch(full, waiting, now_s, now_s, _sent_bytes())
        return self._next_look_s(self._stretch)

    def _look_again(self) -> float:
        """What waited at the last look was more than could leave since, so a full port must have sent at its rate. Goes
        on while all are still full, else ends the stretch; returns when to look again, never after its end."""
        assert self._stretch is not None
        stretch, now_s = self._stretch, time.monotonic()
        stretch.full &= stretch.waiting >= self._rates * (now_s - stretch.looked_s)
        stretch.waiting, stretch.looked_s = self._fabric.backlogs().sum(axis=1), now_s
        stretch.parts += 1
        still = stretch.full & self._full(stretch.waiting)
        if stretch.parts < MOST_PARTS and stretch.full.any() and (still == stretch.full).all():
            return self._next_look_s(stretch)
        self._stretch = None
        after, seconds = _sent_bytes(), now_s - stretch.begun_s
        for index in np.nonzero(stretch.full)[0]:
            port = self._ports[index][1]
            self.saturation.sent_bytes += after[port] - stretch.sent_bytes[port]
            self.saturation.expected_bytes += float(self._rates[index]) * seconds
            self.saturation.parts += stretch.parts
        return math.inf

    def _full(self, waiting: Backlogs) -> npt.NDArray[np.bool_]:
        full: npt.NDArray[np.bool_] = self._steady & (waiting >= FULL_FRAMES * FRAME_BYTES)
        return full

    def _next_look_s(self, stretch: _Stretch) -> float:
        return stretch.looked_s + STRETCH_FRAMES * FRAME_BYTES / float(self._rates[stretch.full].min())


def _sent_bytes() -> dict[str, int]:
    """Device → bytes that have left by it, of the namespace that all switch ports are in."""
    lines = Path("/proc/thread-self/net/dev").read_text(encoding="ascii").splitlines()[2:]
    return {name.strip(): int(rest.split()[8]) for name, _, rest in (line.partition(":") for line in lines)}

"""Whether a run can be believed: what is watched, within which bounds, and what to say when one is left.

A value out of bounds makes a run `suspect`; it never stops it. Times are judged in lab time: what is late by 4 ms where
an emulated second stands for a quarter of a lab second is late by 1 ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlcp.agents.precise_waits import lateness


@dataclass(frozen=True)
class Bound:
    """A monitor's limit: the value must be at most (or, with `at_least`, at least) this. source: where it is from."""

    limit: float
    unit: str
    meaning: str
    source: str
    at_least: bool = False

    def holds(self, value: float) -> bool:
        """True when the value is within the bound."""
        return value >= self.limit if self.at_least else value <= self.limit


BOUNDS: dict[str, Bound] = {
    "cpu_busy": Bound(
        0.95,
        "share",
        "mean share of all cores that was busy while the job ran",
        "none is left for what comes at once; below that the waits for a core tell: runs at 0.84 to 0.95 next to other "
        "work were off by -0.1 to +2.3 % where those were short (dlcp verify machine)",
    ),
    "core_wait": Bound(
        0.15,
        "share",
        "share of the run in which an agent's threads waited for a core, in the mean over hosts",
        "JCT was that of a machine four times as fast up to it, and off by 4 % at 0.26, 17 % at 0.42 "
        "(dlcp verify machine)",
    ),
    "host_core_wait": Bound(
        0.25,
        "share",
        "the same, of the host whose agent waited most",
        "1.2 to 1.6 times the mean of all hosts in unbiased runs; a host that is starved alone hides in the mean",
    ),
    "engine_wait": Bound(
        0.03,
        "share",
        "share of the run in which threads of DLCP's engines waited for a core, in the mean over hosts",
        "0.01 to 0.025 in unbiased runs, 0.035 at a bias of 4 %, 0.055 at 17 % (dlcp verify machine)",
    ),
    "softirq_wait": Bound(
        0.15,
        "share",
        "share of the run in which the kernel's packet threads (ksoftirqd) waited for their cores",
        "engines go before them: 0.04 to 0.13 in unbiased runs, 0.16 to 0.34 in biased ones (dlcp verify machine)",
    ),
    "uncounted_waits": Bound(
        0,
        "kernels",
        "kernels that do not count how long threads wait for a core",
        "CPU use alone said ok of runs that were 42 % wrong; any distribution's kernel counts (CONFIG_SCHED_INFO)",
    ),
    "cpu_stolen": Bound(
        0.02,
        "share",
        "share of all cores' time that the hypervisor gave to other machines",
        "nothing in this machine sees who waits for a core meanwhile; proofs against theory are void above it, too",
    ),
    "compute_late": Bound(
        0.03,
        "share",
        "how much later than declared iterations had computed, in the mean, of the latest worker",
        "a job waits for its latest worker, so it takes as much longer; 3 % is what a believed run may be off",
    ),
    "softnet_dropped": Bound(0, "packets", "packets that the kernel dropped for want of CPU", "no wire does that"),
    "rx_overflow": Bound(0, "packets", "packets that a full socket buffer dropped", "no wire does that"),
    "sched_late_s": Bound(
        0.005,
        "s",
        "99th percentile of how late agents woke, of all their waits together",
        "40 frame times at 100 Mbit/s: later than that it shows as compute that the job did not have; together, "
        "because one agent's waits, 50 to 200, are too few for that percentile",
    ),
    "host_late_s": Bound(
        0.005,
        "s",
        "90th percentile of how late one host's agent woke, of the latest host",
        "as sched_late_s; a host that is starved alone hides among the waits of many others",
    ),
    "timer_late_s": Bound(
        0.002,
        "s",
        "99th percentile of how late timers came at the priority of DLCP's engines",
        "16 frame times at 100 Mbit/s: later than that it shows as queueing that the fabric did not cause",
    ),
    "fault_late_s": Bound(
        0.005,
        "s",
        "how late the latest fault or mending took effect",
        "timers and round trips are measured in it here; a timeline is written in tens of milliseconds",
    ),
    "pfc_late_s": Bound(
        0.002,
        "s",
        "99th percentile of how late the loop that pauses senders looked",
        "it looks every ms; at 100 Mbit/s a neighbour sends 12.5 kB into the headroom in each ms that it is late",
    ),
    "pfc_dropped_packets": Bound(
        0, "packets", "packets that lossless queues dropped for want of buffer", "PFC is there so that they do not"
    ),
    "clock_error": Bound(
        0.1,
        "share",
        "how far apart two hosts' clocks may be taken, against the median message's duration",
        "a message's time is taken from the clocks of two hosts: a tenth of it is the most that may be theirs",
    ),
    "clock_drift": Bound(
        200,
        "ppm",
        "what a host's clock surely ran faster or slower than the controller's",
        "crystals are within 100 ppm; more is a clock that was stepped or slewed, and between two readings of it times "
        "cannot be told",
    ),
    "link_utilisation": Bound(
        1.01,
        "share",
        "busiest switch port's bytes against its shaper's rate",
        "shapers were measured exact to 0.5 %, and a port's last packets leave after the job's end",
    ),
    "saturated_rate": Bound(
        0.95,
        "share",
        "what full switch ports sent against their shapers' rates",
        "1.00 to 1.01 seen, over TCP and DLCP alike: shapers are exact to 0.5 %, the ends of stretches add 0.5 %",
        at_least=True,
    ),
    "unaccounted_packets": Bound(
        0, "packets", "packets in minus packets out minus drops, over all ports and queues", "packets do not vanish"
    ),
    "device_lost_packets": Bound(
        0,
        "packets",
        "packets that switches' own devices lost before or behind the queues' account",
        "what a queue let go must reach the wire, and what the wire brought must reach a queue",
    ),
    "stray_packets": Bound(
        0, "packets", "packets that came in at a switch for nobody", "an experiment's hosts send to each other alone"
    ),
    "vanished_packets": Bound(
        0,
        "packets",
        "packets that hosts sent minus those that hosts received minus all counted drops",
        "packets do not vanish",
    ),
    "duplicated_packets": Bound(
        0,
        "packets",
        "packets that hosts received, or switches dropped, beyond those that hosts sent",
        "switches make no packets",
    ),
    "background_offered": Bound(
        0.98,
        "share",
        "background bytes handed to the network (of TCP: of flows begun) against due",
        "less is another load",
        at_least=True,
    ),
    "background_late": Bound(
        0.05,
        "share",
        "background flows that began more than 5 ms late, or not at all",
        "40 frame times at 100 Mbit/s: a flow that late no longer meets the same traffic",
    ),
    "backlog_late": Bound(
        0.05,
        "share",
        "samples of the backlog that were taken more than half an interval late",
        "a plot over time with more holes hides what it should show",
    ),
}


def wake_ups(waits_s: Iterable[Sequence[float]]) -> dict[str, float]:
    """How late agents woke: sched_late_s and host_late_s. waits_s: of each agent, how late its waits ended, seconds."""
    found = list(waits_s)
    return {
        "sched_late_s": lateness([one for waits in found for one in waits]),
        "host_late_s": max((lateness(waits, 0.9) for waits in found), default=0.0),
    }


def late_computing(shares: Iterable[float | None]) -> dict[str, float]:
    """Return compute_late: the largest of Pace.late over workers; nothing for a job without a declared compute."""
    declared = [share for share in shares if share is not None]
    return {"compute_late": max(declared)} if declared else {}


def core_waits(waits: Mapping[str, Mapping[str, Mapping[str, float]] | None], duration_s: float) -> dict[str, float]:
    """Return how long hosts' threads waited for a core: core_wait, host_core_wait and, with engines, engine_wait.

    waits: host → WaitMeter.read(). Nothing is returned where a kernel does not count; see `unwatched_waits`.
    """
    counted = [one for one in waits.values() if one is not None]
    if len(counted) < len(waits) or not counted:
        return {}
    shares = [sum(kind["wait_s"] for kind in one.values()) / duration_s for one in counted]
    values = {"core_wait": sum(shares) / len(shares), "host_core_wait": max(shares)}
    engines = [one["engine"]["wait_s"] / duration_s for one in counted if one["engine"]["turns"]]
    return values | ({"engine_wait": sum(engines) / len(engines)} if engines else {})


def judge(values: Mapping[str, float], time_dilation: float = 1.0) -> dict[str, dict[str, Any]]:
    """Monitor → {value, bound, unit, ok, meaning, source}, for result.json. KeyError for an unknown monitor.

    values: as measured; those in seconds are judged, and given back, in lab time: divided by time_dilation.
    """
    judged = {}
    for name, measured in values.items():
        bound = BOUNDS[name]
        value = measured / time_dilation if bound.unit == "s" else measured
        judged[name] = {
            "value": value,
            "bound": bound.limit,
            "unit": bound.unit,
            "ok": bound.holds(value),
            "meaning": bound.meaning,
            "source": bound.source,
        }
    return judged


def reasons(judged: dict[str, dict[str, Any]]) -> str:
    """One sentence for all monitors out of bounds; empty when there is none."""
    return "; ".join(
        f"{name} = {found['value']:.4g} {found['unit']} (bound {found['bound']:.4g}: {found['meaning']})"
        for name, found in judged.items()
        if not found["ok"]
    )

"""Can this machine carry the load honestly? Packets cost CPU, and a starved CPU looks like a slow network."""

from __future__ import annotations

from dataclasses import dataclass

from dlcp.errors import MachineCannot
from dlcp.model.experiment import Experiment
from dlcp.model.regime import FRAME_BYTES, PACKET_BYTES
from dlcp.model.topology import Graph
from dlcp.model.units import show_rate
from dlcp.model.workload import Job

HOST_CPU_S = 5.4e-6
"""CPU of one packet at its two ends: 2.9 µs to send over a bare veth pair, 2.5 µs to receive (measured, 1400 B)."""
SWITCH_CPU_S = 1.87e-6
"""CPU of one packet for each switch that it passes: (8.5 − 2.9) µs over three switches with HTB (measured).

With the ends, 11 µs a packet over a leaf-spine fabric, 7.3 µs over a star.
"""
USABLE_SHARE = 0.5
"""Share of the cores that packets may take: the rest is for agents, training and a margin against bursts."""


@dataclass(frozen=True)
class Load:
    """The most that one job with its background can ask of the machine.

    packets_per_s: packets from end to end. cpu: cores that they take. usable: cores that they may take.
    carried_rate_bps: the link rate at which they would just fit.
    """

    job: str
    packets_per_s: float
    cpu: float
    usable: float
    carried_rate_bps: float

    @property
    def fits(self) -> bool:
        """Whether the machine carries it."""
        return self.cpu <= self.usable


def load_of(experiment: Experiment, job_name: str, cores: int) -> Load:
    """An upper bound: every server link (or, if they are slower together, every worker link) full both ways; in a ring
    every worker link.

    Background is on top as planned; it does not grow with the link rate.
    """
    graph, job = experiment.topology.graph, experiment.jobs[job_name]
    training_pps = _exchanged_bps(graph, job) / (FRAME_BYTES * 8)
    training_cpu = training_pps * _packet_cpu_s(graph, job.exchanges)
    background_pps = background_cpu = 0.0
    for incast in experiment.background:
        offered = len(incast.sources) * incast.burst_bytes / PACKET_BYTES / incast.interval_s
        background_pps += offered
        background_cpu += offered * _packet_cpu_s(graph, [(a, b) for a in incast.sources for b in incast.sinks])
    usable = cores * USABLE_SHARE
    carried = experiment.topology.graph.slowest_host_bps * max(0.0, usable - background_cpu) / training_cpu
    return Load(job_name, training_pps + background_pps, training_cpu + background_cpu, usable, carried)


def admit(experiment: Experiment, cores: int) -> list[Load]:
    """The load of every job. Raises MachineCannot with the rate that this machine can carry when one is too heavy."""
    loads = [load_of(experiment, name, cores) for name in experiment.jobs]
    heaviest = max(loads, key=lambda load: load.cpu)
    if heaviest.fits:
        return loads
    what = (
        f"job {heaviest.job!r} offers up to {heaviest.packets_per_s / 1e3:,.0f} thousand packets a second, which take "
        f"{heaviest.cpu:.2g} cores; of {cores} cores packets may take {heaviest.usable:g}"
    )
    carried = heaviest.carried_rate_bps
    hint = "the background alone is too much: longer intervals or smaller bursts"
    if carried > 0:
        slower = experiment.topology.graph.slowest_host_bps / carried
        hint = (
            f"links of {show_rate(carried)} or less fit: lower the topology's rate and multiply byte_scale or "
            f"time_dilation by {slower:.2g} or more"
        )
    raise MachineCannot(f"topology.rate {show_rate(experiment.topology.graph.slowest_host_bps)}", what, hint)


def _exchanged_bps(graph: Graph, job: Job) -> float:
    """The rate at which a job's hosts together can move data: both ways between workers and servers, or round."""

    def side(hosts: tuple[str, ...]) -> float:
        return sum(graph.host_link(host).rate_bps for host in hosts)

    return side(job.workers) if job.pattern == "ring" else 2 * min(side(job.servers), side(job.workers))


def _packet_cpu_s(graph: Graph, exchanges: list[tuple[str, str]]) -> float:
    """CPU of one packet, in the mean over all pairs of a source and a sink."""
    distances = {sink: graph.distances_to(sink) for sink in {sink for _, sink in exchanges}}
    passed = [distances[sink][source] - 1 for source, sink in exchanges]
    return HOST_CPU_S + SWITCH_CPU_S * sum(passed) / len(passed)

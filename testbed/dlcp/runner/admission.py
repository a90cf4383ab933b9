"""Can this machine carry the load honestly? Packets cost CPU, and a starved CPU looks like a slow network."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

from dlcp.agents.traffic_plan import offered, require_few
from dlcp.errors import MachineCannot
from dlcp.model.experiment import Experiment
from dlcp.model.regime import FRAME_BYTES
from dlcp.model.topology import Graph
from dlcp.model.units import show_rate
from dlcp.model.workload import Job, Profile, Workload
from dlcp.runner.calibration import Costs
from dlcp.runner.check import Ready
from dlcp.substrates.ideal import Transfer, ideal_communication_s

ACKS_A_PACKET = 0.66
"""Acknowledgements and control packets for each data packet (measured: DLCP 0.66, TCP 0.5)."""
OF_PLAIN = {"dlcp": 0.87, "tcp": 0.45}
"""What a packet of a job takes, its processes included, against a packet of the calibration's plain flows, each of
which wakes its receiver. Measured with `smoke` and the quickstart on two quiet cores: 56 µs of CPU a data packet over
DLCP in all, 25 over TCP, where the calibration says 39 for a packet on the same ways."""
TRAINING_BUSY = 0.75
"""Share of the time in which a training job's links are full; its compute is not known before it runs (the quickstart's
was measured to have them full for 0.62)."""
USABLE_SHARE = 0.85
"""Share of the cores that a run may take: above it the run would be suspect (substrates.fidelity)."""
FLOAT_BYTES = 4
READABLE = (1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8, 10)
"""Factors that a person can multiply with in the head; and their tenfolds."""
SLOWEST_BPS = 1e6
"""Links are scaled down no further: a packet then takes 12 ms."""


@dataclass(frozen=True)
class Machine:
    """cores: that may be used. costs: of a packet."""

    cores: int
    costs: Costs


@dataclass(frozen=True)
class Load:
    """What one job with its background asks of the machine.

    packets_per_s: data packets from end to end while the job's links are full, which is the most that it can offer.
    peak_cpu: cores that they take then, acknowledgements and the job's processes included. cpu: the same in the mean
    over an iteration with its compute. usable: cores that it may take in the mean. carried_rate_bps: the link rate at
    which it would just fit, with messages as much smaller. fixed_cpu: of the background's cores those that stay however
    much the experiment is scaled down.
    """

    job: str
    packets_per_s: float
    peak_cpu: float
    cpu: float
    usable: float
    carried_rate_bps: float
    fixed_cpu: float = 0.0

    @property
    def fits(self) -> bool:
        """Whether the machine carries it."""
        return self.cpu <= self.usable


def load_of(ready: Ready, job_name: str, machine: Machine, *, beside: bool = True) -> Load:
    """The most that a job offers under the dearest of its experiment's schemes: all its hosts send at once, as fast as
    the fabric's links let them, there and back. Background is on top as planned; it does not grow with the link rate.
    beside: with the jobs that run at the same time.
    """
    experiment = ready.experiment.of_job(job_name)
    graph, job = experiment.topology.graph, experiment.jobs[job_name]
    moved = [Transfer(source, sink, 1.0) for source, sink in job.journeys]
    full_s = ideal_communication_s(graph, moved)
    packets_per_s = len(moved) / full_s / FRAME_BYTES
    cpu = packets_per_s * _data_packet_s(ready, graph, job.exchanges, machine.costs)
    background_pps, background_cpu, fixed_cpu = _background(experiment, graph, machine.costs)
    mean_cpu = cpu * _busy_share(job, ready.workloads[job.workload], experiment, full_s)
    usable = machine.cores * USABLE_SHARE
    for name in job.beside if beside else ():
        other = load_of(_calm(ready), name, machine, beside=False)
        packets_per_s, cpu, mean_cpu = packets_per_s + other.packets_per_s, cpu + other.peak_cpu, mean_cpu + other.cpu
    return Load(
        job=job_name, packets_per_s=packets_per_s + background_pps, peak_cpu=cpu + background_cpu,
        cpu=mean_cpu + background_cpu, usable=usable,
        carried_rate_bps=graph.slowest_host_bps * max(0.0, usable - background_cpu) / mean_cpu, fixed_cpu=fixed_cpu,
    )  # fmt: skip


def loads_of(ready: Ready, machine: Machine) -> list[Load]:
    """Of every job that is measured, with those beside it."""
    return [load_of(ready, name, machine) for name, job in ready.experiment.jobs.items() if job.measured]


def _calm(ready: Ready) -> Ready:
    """Without background, which counts once."""
    experiment = ready.experiment
    jobs = {name: job.model_copy(update={"background": None}) for name, job in experiment.jobs.items()}
    return replace(ready, experiment=experiment.model_copy(update={"background": (), "jobs": jobs}))


def admit(ready: Ready, machine: Machine) -> list[Load]:
    """The load of every job. Raises MachineCannot with the rate that this machine can carry when one is too heavy."""
    loads = loads_of(ready, machine)
    heaviest = max(loads, key=lambda load: load.cpu)
    if heaviest.fits:
        return loads
    what = (
        f"job {heaviest.job!r} offers up to {heaviest.packets_per_s / 1e3:,.0f} thousand packets a second, and takes "
        f"{heaviest.cpu:.2g} cores in the mean; of {machine.cores} cores a run may take {heaviest.usable:.2g} "
        f"(a packet's cost: {machine.costs.source})"
    )
    rate_bps = ready.experiment.topology.graph.slowest_host_bps
    fits = f"links of {show_rate(heaviest.carried_rate_bps)} or less fit, with messages as much smaller"
    if heaviest.carried_rate_bps <= 0:
        fits = "the background alone is too much: longer intervals or smaller bursts"
    factor = factor_that_fits(loads, rate_bps)
    leave = "no scale of it fits: fewer hosts, or a larger machine"
    if factor is not None:
        leave = (
            f"with --scale-down links run at {show_rate(rate_bps / factor)} and byte_scale is {factor:g} times larger"
        )
    raise MachineCannot(f"topology.rate {show_rate(rate_bps)}", what, f"{fits}; {leave}")


def factor_that_fits(loads: list[Load], rate_bps: float) -> float | None:
    """By how much everything must be slower, at least, so that every job fits: a readable number. 1 when all fit as
    they are; None when links would be slower than SLOWEST_BPS, or the background takes too much at any scale.
    rate_bps: of the links."""
    if any(load.fixed_cpu >= load.usable for load in loads):
        return None
    needed = max((load.cpu - load.fixed_cpu) / (load.usable - load.fixed_cpu) for load in loads)
    if needed <= 1:
        return 1.0
    steps = (step * 10.0**decade for decade in range(math.ceil(math.log10(needed)) + 1) for step in READABLE)
    factor = next(step for step in steps if step >= needed)
    return factor if rate_bps / factor >= SLOWEST_BPS else None


def _background(experiment: Experiment, graph: Graph, costs: Costs) -> tuple[float, float, float]:
    """Packets a second of all background together, the cores that it takes, and those that it takes at any scale."""
    packets_per_s = cpu = fixed_cpu = 0.0
    for i, entry in enumerate(experiment.background):
        one = offered(entry, graph, experiment.scaling.byte_scale)
        require_few(i, one.flows_per_s, experiment.time_limit_s)
        packet_s = _packet_s(graph, list(one.pairs), costs)
        packets_per_s += one.packets_per_s
        cpu += one.cpu + one.packets_per_s * packet_s
        fixed_cpu += one.cpu + one.least_packets_per_s * packet_s
    return packets_per_s, cpu, fixed_cpu


def _data_packet_s(ready: Ready, graph: Graph, exchanges: list[tuple[str, str]], costs: Costs) -> float:
    """CPU of one data packet of a job, with all that comes of it."""
    of_plain = max(OF_PLAIN[scheme.kind] for scheme in ready.schemes.values())
    return (1 + ACKS_A_PACKET) * of_plain * _packet_s(graph, exchanges, costs)


def _packet_s(graph: Graph, exchanges: list[tuple[str, str]], costs: Costs) -> float:
    """CPU of one packet on its way, in the mean over all pairs of a source and a sink.

    A link with a delay counts as a switch more: without the delay itself it was measured to take 1.1 µs, a switch 2 µs.
    """
    distances = {sink: graph.distances_to(sink) for sink in {sink for _, sink in exchanges}}
    pairs = [(source, sink) for source, sink in exchanges if source != sink]
    passed = sum(distances[sink][source] - 1 for source, sink in pairs)
    if any(link.delay_s for link in graph.links):
        passed += sum(_delays(graph, distances[sink], source) for source, sink in pairs)
    return costs.ends_s + costs.hop_s * passed / len(pairs)


def _delays(graph: Graph, distances: Mapping[str, int], node: str) -> int:
    """Links with a delay on a shortest path from a node to where the distances lead."""
    count = 0
    while distances[node]:
        nearer = next(other for other in graph.neighbours[node] if distances.get(other) == distances[node] - 1)
        count += graph.link(node, nearer).delay_s > 0
        node = nearer
    return count


def _busy_share(job: Job, workload: Workload, experiment: Experiment, full_s: float) -> float:
    """Share of an iteration in which links are full: pushes run beside the backward pass, the forward pass waits for
    parameters. full_s: what it takes to move one byte between every two hosts that exchange.
    """
    if not isinstance(workload, Profile):
        return TRAINING_BUSY
    scaling = experiment.scaling
    forward_s = sum(layer.forward_s for layer in workload.layers) * scaling.time_dilation
    backward_s = sum(layer.backward_s for layer in workload.layers) * scaling.time_dilation
    size_bytes = workload.parameters * FLOAT_BYTES / job.scale(scaling.byte_scale)
    communication_s = size_bytes * job.share_of_journey * full_s
    return communication_s / (forward_s + max(backward_s, communication_s))

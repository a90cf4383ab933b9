"""Load of a job on this machine: packets cost CPU, and a starved CPU looks like a slow network."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from dlcp.agents.job_spec import plan_job
from dlcp.model.experiment import Experiment
from dlcp.model.frames import FRAME_BYTES
from dlcp.model.topology import Graph
from dlcp.model.workload import Job, Workload
from dlcp.patterns import pattern_of
from dlcp.runner.machine.calibration import Costs
from dlcp.runner.planning.check import Ready
from dlcp.substrates.ideal import Transfer, ideal_communication_s
from dlcp.traffic.plan import offered, require_few

ACKS_A_PACKET = 0.66
"""Acknowledgements and control packets for each data packet (measured: DLCP 0.66, TCP 0.5)."""
OF_PLAIN = {"dlcp": 1.8, "tcp": 0.8}
"""Cost of a packet of a job, its processes included, against a packet of the calibration's plain flows, each of
which wakes its receiver. Measured at the load that is admitted: ResNet-50, 8 workers, 2 servers on two cores with links
of 32 Mbit/s took 0.51 of the cores over DLCP (of 20 Mbit/s 0.38, of 10 Mbit/s 0.23: a packet takes more where nearly
every one wakes somebody, which does no harm), and 0.14 over tuned TCP at 20 Mbit/s."""
TRAINING_BUSY = 0.75
"""Share of the time in which a training job's links are full where nothing says how long it computes (the quickstart's
was measured to have them full for 0.62)."""
USABLE_SHARE = 0.6
"""Share of the cores that a run may take in the mean. The same ResNet-50 at time dilation 2.5, 3.2, 4, 5 and 8 took
0.51, 0.48, 0.38, 0.28 and 0.23 of them over DLCP and 0.56 to 0.23 over ByteScheduler, with the same completion times in
lab time: 2.151 to 2.161 s and 2.226 to 2.286 s. An older engine was 42 % late at 0.83, and no monitor reported it."""
FITTED_SHARE = 0.4
"""The same where an experiment is fitted to the machine: nobody has tried it there, so a third is left for others."""
FLOAT_BYTES = 4


@dataclass(frozen=True)
class Machine:
    """cores: that there are, a fraction under a quota. costs: of a packet. share: of the cores, that a run may take."""

    cores: float
    costs: Costs
    share: float = USABLE_SHARE


@dataclass(frozen=True)
class Load:
    """Load of one job with its background on the machine.

    packets_per_s: data packets from end to end while the job's links are full, which is the most that it can offer.
    peak_cpu: cores that they take then, acknowledgements and the job's processes included. cpu: the same in the mean
    over an iteration with its compute. usable: cores that it may take in the mean. carried_rate_bps: the link rate at
    which it would just fit, dilated as far as that.
    """

    job: str
    packets_per_s: float
    peak_cpu: float
    cpu: float
    usable: float
    carried_rate_bps: float

    @property
    def fits(self) -> bool:
        """True if the machine carries it."""
        return self.cpu <= self.usable


def load_of(ready: Ready, job_name: str, machine: Machine, *, beside: bool = True) -> Load:
    """The most that a job offers under the dearest of its experiment's schemes: all its hosts send at once, as fast as
    the fabric's links let them, there and back. Background is on top as planned; it does not grow with the link rate.
    beside: with the jobs that run at the same time.
    """
    experiment = ready.experiment.of_job(job_name)
    graph, job = experiment.topology.graph, experiment.jobs[job_name]
    pattern = pattern_of(job.pattern)
    moved = [Transfer(source, sink, 1.0) for source, sink in pattern.journeys(job)]
    full_s = ideal_communication_s(graph, moved)
    packets_per_s = len(moved) / full_s / FRAME_BYTES
    cpu = packets_per_s * _data_packet_s(ready, graph, pattern.exchanges(job), machine.costs)
    background_pps, background_cpu = _background(experiment, graph, machine.costs)
    mean_cpu = cpu * _busy_share(job, ready.workloads[job.workload], experiment, full_s)
    usable = machine.cores * machine.share
    for name in job.beside if beside else ():
        other = load_of(_calm(ready), name, machine, beside=False)
        packets_per_s, cpu, mean_cpu = packets_per_s + other.packets_per_s, cpu + other.peak_cpu, mean_cpu + other.cpu
    return Load(
        job=job_name,
        packets_per_s=packets_per_s + background_pps,
        peak_cpu=cpu + background_cpu,
        cpu=mean_cpu + background_cpu,
        usable=usable,
        carried_rate_bps=graph.slowest_host_bps * usable / (mean_cpu + background_cpu),
    )


def loads_of(ready: Ready, machine: Machine) -> list[Load]:
    """Loads of every job that is measured, with the jobs that run at the same time."""
    return [load_of(ready, name, machine) for name, job in ready.experiment.jobs.items() if job.measured]


def _calm(ready: Ready) -> Ready:
    """Without background, which counts once."""
    experiment = ready.experiment
    jobs = {name: job.model_copy(update={"background": None}) for name, job in experiment.jobs.items()}
    return replace(ready, experiment=experiment.model_copy(update={"background": (), "jobs": jobs}))


def _background(experiment: Experiment, graph: Graph, costs: Costs) -> tuple[float, float]:
    """Packets a second of all background together, and the cores that it takes."""
    packets_per_s = cpu = 0.0
    for i, entry in enumerate(experiment.background):
        offer = offered(entry, graph, experiment.scaling.byte_scale, experiment.scaling.time_dilation)
        require_few(i, offer.flows_per_s, experiment.time_limit_s)
        packets_per_s += offer.packets_per_s
        cpu += offer.cpu + offer.packets_per_s * _packet_s(graph, list(offer.pairs), costs)
    return packets_per_s, cpu


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
    """Share of an iteration in which links are full: pushes run during the backward pass, the forward pass waits for
    parameters. full_s: what it takes to move one byte between every two hosts that exchange.
    """
    scaling = experiment.scaling
    spec = plan_job("", job, workload, scaling, seed=0)
    if not spec.compute_s:
        return TRAINING_BUSY
    forward_s = sum(layer.forward_s for layer in spec.layers)
    communication_s = spec.elements * FLOAT_BYTES * pattern_of(job.pattern).share_of_journey(job) * full_s
    return communication_s / (forward_s + max(spec.compute_s - forward_s, communication_s))

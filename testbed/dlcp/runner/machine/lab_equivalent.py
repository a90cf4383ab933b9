"""Lab equivalent of the emulated fabric, for the person who reads a plan: in packets, and in lab units."""

from __future__ import annotations

from typing import Any

from dlcp.model.buffering import shared_bytes
from dlcp.model.experiment import Experiment, QueueRule
from dlcp.model.faults import FaultKind
from dlcp.model.frames import FRAME_BYTES
from dlcp.model.scaling import regime
from dlcp.model.topology import Graph, Link
from dlcp.model.units import show_duration, show_fraction, show_rate, show_size
from dlcp.model.workload import Constant, Incast, Job, Poisson
from dlcp.runner.planning.check import Ready
from dlcp.schemes.base import hosts_for
from dlcp.traffic.plan import offered
from dlcp.transport.contract.tensors import PACKET_ELEMENTS

ACK_BYTES = 64
"""The smallest Ethernet frame, as an acknowledgement that comes back."""


def stands_for(ready: Ready) -> dict[str, dict[str, Any]]:
    """Job → regime, with the idle fabric's round trip and bandwidth-delay product added (see `idle_rtt_s`)."""
    experiment = ready.experiment
    hosts = {label: hosts_for([scheme], experiment.scaling) for label, scheme in ready.schemes.items()}
    graph = experiment.topology.graph
    rtt_s = idle_rtt_s(graph)
    more = {
        "idle_rtt_s": rtt_s,
        "idle_rtt_lab_s": rtt_s / experiment.scaling.time_dilation,
        "bdp_packets": graph.slowest_host_bps * rtt_s / 8 / FRAME_BYTES,
    }
    return {name: regime(experiment.of_job(name), job, hosts) | more for name, job in experiment.jobs.items()}


def without_network(ready: Ready) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The same two for runs in one process: by job, and in words."""
    lines = [
        "network    none: a job's workers train in one process; of topology, buffer and scaling only the hosts' names "
        "count",
        "time       none: steps are the measure, and no result has a job completion time",
    ]
    facts: dict[str, dict[str, Any]] = {}
    for name, job in ready.experiment.jobs.items():
        facts[name] = {"workers": len(job.workers), "packet_values": PACKET_ELEMENTS}
        lines.append(
            f"job {name}: {job.iterations} iterations of {len(job.workers)} workers, whose gradients are cut into "
            f"messages of about {show_size(job.bucket_bytes)} and packets of {PACKET_ELEMENTS} values"
        )
    return facts, lines


def idle_rtt_s(graph: Graph) -> float:
    """One full packet there and one acknowledgement back over the slowest of the shortest paths of any two hosts.

    Stored and forwarded, with the links' delays, no queue. What the hosts' processing adds is unknown before a run.
    """
    distinct = {(graph.neighbours[host][0], link.rate_bps, link.delay_s): host for host, link in _host_links(graph)}
    return max(_slowest_s(graph, host) for host in distinct.values())


def _host_links(graph: Graph) -> list[tuple[str, Link]]:
    return [(host, graph.host_link(host)) for host in graph.hosts]


def _slowest_s(graph: Graph, sink: str) -> float:
    """The longest round trip between any host and `sink`."""
    longest_s = {sink: 0.0}
    distances = graph.distances_to(sink)
    for node, distance in distances.items():  # nearest first
        nearer = [other for other in graph.neighbours[node] if distances.get(other) == distance - 1]
        links = {other: graph.link(node, other) for other in nearer}
        if links:
            longest_s[node] = max(longest_s[other] + _cross_s(link) for other, link in links.items())
    return max(longest_s[host] for host in graph.hosts)


def _cross_s(link: Link) -> float:
    """A packet and its acknowledgement over one link."""
    return (FRAME_BYTES + ACK_BYTES) * 8 / link.rate_bps + 2 * link.delay_s


def sentences(ready: Ready) -> list[str]:
    """The regime in words, one fact a line."""
    equivalents = stands_for(ready)
    first = next(iter(equivalents.values()))
    scaling = ready.experiment.scaling
    graph = ready.experiment.topology.graph
    lines = [
        f"links      {_rates(graph)} stand for {show_rate(scaling.lab_rate_bps)} "
        f"(byte scale {scaling.byte_scale:g}, time dilation {scaling.time_dilation:g})",
        *_buffers(ready.experiment),
        *_switches(ready.experiment),
        f"round trip {show_duration(first['idle_rtt_lab_s'])} in lab time when idle, by store and forward"
        f"{_delays(graph)} (what hosts add is unknown before a run); {first['bdp_packets']:.1f} packets fill it",
    ]
    keys = {label: f"{label}_rto_floor_lab_s" for label in ready.schemes}
    floors = {label: first[key] for label, key in keys.items() if key in first}
    tcp = {label: s for label, s in floors.items() if ready.schemes[label].kind == "tcp"}
    if tcp:
        shown = ", ".join(f"{label} {show_duration(floor_s)}" for label, floor_s in tcp.items())
        lines.append(f"RTO floor  {shown} in lab time")
    lines += [f"fault      {_fault_words(fault)}" for fault in ready.experiment.faults]
    for name, job in ready.experiment.jobs.items():
        scaled = _job_scale(job, equivalents[name], scaling.byte_scale)
        lines.append(
            f"job {name}: {job.iterations} iterations, buckets of {show_size(job.bucket_bytes)} = "
            f"{equivalents[name]['bucket_packets']:.0f} packets{scaled}"
        )
        if job.faults is not None:
            texts = [_fault_words(fault) for fault in job.faults] or ["none"]
            lines += [f"  fault of {name} alone: {words}" for words in texts]
        if job.background is not None:
            texts = [_background(entry, ready) for entry in job.background] or ["no background"]
            lines += [f"  of {name} alone: {words}" for words in texts]
    return lines + [_background(entry, ready) for entry in ready.experiment.background]


def _fault_words(fault: FaultKind) -> str:
    return f"{fault.what}, {fault.when} (emulated)"


def _job_scale(job: Job, found: dict[str, Any], of_experiment: float) -> str:
    """How a job's bytes are scaled, when it is not as the experiment says."""
    if found["byte_scale"] == of_experiment:
        return ""
    if not job.byte_scaled:
        return ", not byte-scaled"
    return f", byte scale {found['byte_scale']:g}: the links stand for {show_rate(found['lab_rate_bps'])}"


def _background(entry: Incast | Poisson | Constant, ready: Ready) -> str:
    """What an entry of the background sends, in the mean."""
    experiment = ready.experiment
    scale = experiment.scaling.byte_scale
    found = offered(entry, experiment.topology.graph, scale, experiment.scaling.time_dilation)
    if isinstance(entry, Incast):
        what = f"bursts of {show_size(entry.burst_bytes)} from each source, not byte-scaled,"
    elif isinstance(entry, Constant):
        what = f"{len(found.pairs)} streams of {show_rate(entry.rate_bps)},"
    else:
        over, share = entry.transport.upper(), show_fraction(entry.load)
        what = f"{entry.sizes} flows, sizes ÷ {scale:g}, over {over}, {share} of the sources' links,"
    flows = f"{found.flows_per_s:,.0f} flows and " if found.flows_per_s else ""
    return f"background {entry.kind} in queue {entry.queue}: {what} {flows}{found.packets_per_s:,.0f} packets a second"


def _buffers(experiment: Experiment) -> list[str]:
    """How the switches buffer, in packets, in time at line rate and in bytes of the lab; of jobs with buffers of their
    own, each job's."""
    lines: dict[str, list[str]] = {}
    for name in experiment.jobs:
        for line in _buffers_of(experiment.of_job(name)):
            lines.setdefault(line, []).append(name)
    everywhere = len(experiment.jobs)
    return [line if len(jobs) == everywhere else f"{line} (job {', '.join(jobs)})" for line, jobs in lines.items()]


def _buffers_of(experiment: Experiment) -> list[str]:
    buffering, shared, scaling = experiment.buffering, experiment.shared_buffer, experiment.scaling
    size_bytes = experiment.port_buffer_bytes
    drained_s = size_bytes * 8 / experiment.topology.graph.slowest_host_bps / scaling.time_dilation
    amount = (
        f"{size_bytes // FRAME_BYTES} packets, {show_duration(drained_s)} of line rate in lab time; "
        f"stands for {show_size(size_bytes * scaling.byte_scale)}"
    )
    if not buffering.dynamic:
        lines = [f"buffer     {show_size(size_bytes)} a port, one pool of all its queues: {amount}"]
        if shared is not None:
            lines.append(f"shared     {_memory(shared.size_bytes, shared.alpha, scaling.byte_scale)}")
        return lines
    alpha = buffering.alpha if shared is None else shared.alpha
    memory_bytes = shared_bytes(size_bytes, alpha) if shared is None else shared.size_bytes
    minimum = (
        f"{show_size(buffering.minimum_bytes)} of its own ({show_size(buffering.minimum_bytes * scaling.byte_scale)})"
    )
    whole = [] if shared is not None else [f"buffer     {show_size(size_bytes)} for a queue that is alone: {amount}"]
    return [
        *whole,
        f"shared     {_memory(memory_bytes, alpha, scaling.byte_scale)}",
        f"minimum    each queue has {minimum}",
    ]


def _memory(size_bytes: int, alpha: float, byte_scale: float) -> str:
    return (
        f"{show_size(size_bytes)} a switch: {size_bytes // FRAME_BYTES} packets; a queue may hold {alpha:g} times what "
        f"is free of it; stands for {show_size(size_bytes * byte_scale)}"
    )


def _switches(experiment: Experiment) -> list[str]:
    """What the experiment says of its switches under every scheme alike, beside their buffers."""
    found = [f"queue {rule.queue}    {', '.join(_rule_words(rule))}" for rule in experiment.queues]
    found += [f"balancing  {switch}: {how}" for switch, how in experiment.load_balancing.items()]
    if experiment.pfc is not None:
        pfc = experiment.pfc
        numbers = ", ".join(map(str, pfc.queues))
        sizes = f"from {show_size(pfc.xoff_bytes)} on, until {show_size(pfc.xon_bytes)} are left"
        found.append(f"PFC        queue {numbers}: a switch's neighbours pause {sizes} (experimental)")
    if experiment.backlog_every_s is not None:
        found.append(f"sampled    every queue's backlog, each {show_duration(experiment.backlog_every_s)}")
    return found


def _rule_words(rule: QueueRule) -> list[str]:
    words = [] if rule.limit_bytes is None else [f"at most {show_size(rule.limit_bytes)}"]
    words += [] if rule.weight is None else [f"weight {rule.weight}"]
    words += [] if rule.alpha is None else [f"{rule.alpha:g} times what is free of the shared buffer"]
    if rule.averaging is not None:
        words.append(f"drops by the backlog averaged over about {2**rule.averaging} packets")
    return words or ["as the scheme says"]


def _rates(graph: Graph) -> str:
    """ "100 Mbit/s," or, when links differ, the rate that counts and the span of all."""
    rates = [link.rate_bps for link in graph.links]
    slowest = show_rate(graph.slowest_host_bps)
    if min(rates) == max(rates):
        return f"{slowest},"
    return f"of {show_rate(min(rates))} to {show_rate(max(rates))}; the slowest of a host, {slowest},"


def _delays(graph: Graph) -> str:
    longest_s = max(link.delay_s for link in graph.links)
    return (
        f" and link delays of up to {show_duration(longest_s)} (emulated)"
        if longest_s
        else " alone: no link has a delay"
    )

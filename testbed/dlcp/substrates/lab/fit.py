"""Whether an experiment can be run on a lab as it is cabled: all that stands against it, before anything is reached."""

from __future__ import annotations

from collections.abc import Iterator

from dlcp.errors import MachineCannot, Problem, Problems
from dlcp.model.experiment import Experiment
from dlcp.model.lab.inventory import Lab
from dlcp.model.topology import Graph
from dlcp.model.units import show_duration, show_rate


def require_fit(experiment: Experiment, lab: Lab) -> None:
    """Raises Problems: what the experiment's fabric has that the lab has not, or has otherwise; and what only an
    emulated fabric can do."""
    problems = [*_unsupported(experiment), *_misfits(experiment.topology.graph, lab)]
    if problems:
        raise Problems(problems)


def _unsupported(experiment: Experiment) -> Iterator[Problem]:
    """Words of an experiment that say what happens to links, or what is seen, in a way that no rack can."""
    faults = [fault for name in experiment.jobs for fault in experiment.of_job(name).faults]
    if faults:
        why = "faults are made by the emulated switch; in a lab nobody pulls a cable on a timeline"
        yield _cannot("faults", f"{len(faults)} of them: {why}", "leave them out, or run it --on emulate")
    if experiment.backlog_every_s is not None:
        why = "a lab's switches are not asked for their backlogs every few milliseconds"
        yield _cannot("backlog_every", why, "leave it out; peaks are in the table ports where switches tell them")
    scaling = experiment.scaling
    if scaling.scaled_down != 1:
        yield _cannot("--scale-down", "a lab's links have the rates that they have", "leave it out")


def _misfits(graph: Graph, lab: Lab) -> Iterator[Problem]:
    """Nodes, links and paths: those of the lab, or some of them such that packets go the same ways."""
    theirs = lab.graph
    fits = True
    for kind, names, there in (("host", graph.hosts, theirs.hosts), ("switch", graph.switches, theirs.switches)):
        missing = [name for name in names if name not in there]
        if missing:
            fits = False
            what = f"lab {lab.name} has no {kind} {', '.join(missing)}; it has {', '.join(there)}"
            yield _cannot("topology", what, "an experiment's nodes must be the lab's, or some of them, by name")
    for link in graph.links:
        if link.a in theirs.neighbours and link.b in theirs.neighbours[link.a]:
            other = theirs.link(link.a, link.b)
            where, rates = f"topology, {link.a} – {link.b}", (link.rate_bps, other.rate_bps)
            if rates[0] != rates[1]:
                what = f"{show_rate(rates[0])}, but lab {lab.name} has {show_rate(rates[1])} there"
                yield _cannot(where, what, "write the lab's rate; scaling says what it stands for")
            if link.delay_s != other.delay_s:
                delays = show_duration(link.delay_s), show_duration(other.delay_s)
                what = f"a delay of {delays[0]}, but lab {lab.name} has {delays[1]} there"
                yield _cannot(where, what, "a cable's delay cannot be set: write the lab's")
        elif link.a in theirs.neighbours and link.b in theirs.neighbours:
            fits = False
            yield _cannot(f"topology, {link.a} – {link.b}", f"lab {lab.name} has no cable between them", "")
    if fits:
        yield from _other_ways(graph, lab)


def _other_ways(graph: Graph, lab: Lab) -> Iterator[Problem]:
    """Where the lab's switches would take paths that the experiment has not."""
    for host in graph.hosts:
        ours, theirs = graph.next_hops_to(host), lab.graph.next_hops_to(host)
        for switch, hops in ours.items():
            if set(hops) != set(theirs[switch]):
                what = (
                    f"{switch} reaches {host} by {', '.join(hops)}, in lab {lab.name} by {', '.join(theirs[switch])}: "
                    "packets would take ways that the experiment does not have"
                )
                yield _cannot("topology", what, "add the nodes and links between, as the lab has them")
                return


def _cannot(where: str, what: str, hint: str) -> MachineCannot:
    return MachineCannot(where, f"unsupported: {what}", hint)

"""`dlcp bench allreduce`: a ring all-reduce over DLCP and gloo's, in turn in the same processes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dlcp.bench.allreduce.bridge import BridgeStar, LoopbackStar
from dlcp.bench.channel import Channel
from dlcp.bench.in_namespaces import Say, in_private_world, to_stderr
from dlcp.bench.machine_noise import Watch
from dlcp.bench.statistics import Figure, Report, pooled_percentile, ratio_figure
from dlcp.bench.transport.driver import EndFailed, payload_share
from dlcp.errors import ExitCode, MachineCannot, Problem, Problems
from dlcp.model import units

BACKENDS = ("dlcp", "gloo")
_SETUP_WITHIN_S = 90.0
_RUN_WITHIN_S = 900.0
_ELEMENT_BYTES = 4
_MOST_RANKS = 16
_MEMORY_BYTES = 4_000_000_000
_BUFFERS = 4
"""Of the data's size, in each rank."""


@dataclass(frozen=True)
class AllReduceOptions:
    """One all-reduce bench.

    size_bytes: of the float32 data at every rank. count: all-reduces in a repeat. loss: share of the packets that rank
    0's link drops, in each direction. bound: what a whole all-reduce may lose. rate_bps: what each
    rank paces itself to.
    """

    ranks: int = 4
    size_bytes: int = 25 * 1024 * 1024
    count: int = 10
    repeats: int = 5
    loss: float = 0.0
    bound: float = 0.0
    rate_bps: float = 40e9
    congestion_control: str = "timely"
    namespaces: bool = False
    seed: int = 1

    def check(self) -> None:
        """Raises Problems with everything that is wrong; MachineCannot for loss without namespaces."""
        found = [
            Problem(where, what, hint)
            for wrong, where, what, hint in (
                (not 2 <= self.ranks <= _MOST_RANKS, "--ranks", f"{self.ranks} ranks", f"2 to {_MOST_RANKS}"),
                (
                    self.size_bytes < _ELEMENT_BYTES or self.size_bytes % _ELEMENT_BYTES,
                    "--size",
                    "data are a whole number of float32, 4 bytes each",
                    "such as --size 25MiB",
                ),
                (
                    self.size_bytes * self.ranks * _BUFFERS > _MEMORY_BYTES,
                    "--size",
                    "all ranks together would take more than 4 GB",
                    "make --size or --ranks smaller",
                ),
                (self.count < 1, "--count", f"{self.count} all-reduces", "1 or more"),
                (self.repeats < 1, "--repeats", f"{self.repeats} repeats", "1 or more; 5 for a figure to quote"),
                (self.loss >= 1, "--loss", "all packets lost: nothing would end", "below 100 %"),
            )
            if wrong
        ]
        if found:
            raise Problems(found)
        if self.loss and not self.namespaces:
            what = "unsupported on loopback: nothing there drops packets at random"
            raise MachineCannot("--loss", what, "add --namespaces (needs root)")


def bench(options: AllReduceOptions, say: Say) -> dict[str, Any]:
    """Returns Report.data(). Raises Problem: exit code 2 for wrong options, 3 when this machine cannot, 1 when a rank
    fails or the bytes did not go over DLCP."""
    options.check()
    if not options.namespaces:
        return _run(LoopbackStar(), options, say)
    return in_private_world(f"{__name__}:main", asdict(options))


def main(arguments: list[str]) -> int:
    """Entry point inside the private namespaces: options as JSON in, the report as JSON out."""
    options = AllReduceOptions(**json.loads(arguments[0]))
    print(json.dumps(_run(BridgeStar(loss=options.loss), options, to_stderr)))
    return ExitCode.FINE


def _run(star: LoopbackStar, options: AllReduceOptions, say: Say) -> dict[str, Any]:
    report = Report("allreduce", star.where, asdict(options))
    try:
        with Watch() as watch:
            channels = star.start_ranks(options.ranks)
            _set_up(channels, star, options)
            report.runs = _repeats(channels, star, options, say)
        report.machine = watch.found()
    finally:
        star.close()
    report.figures = _figures(report.runs, options)
    report.notes = _notes(report.runs, options, star)
    return report.data()


def _set_up(channels: Sequence[Channel], star: LoopbackStar, options: AllReduceOptions) -> None:
    """Every rank is in a group of gloo and in one of dlcp."""
    common = {"size": options.ranks, "elements": options.size_bytes // _ELEMENT_BYTES, "seed": options.seed}
    own = [{"rank": rank, "address": star.rank_address(rank)} for rank in range(options.ranks)]
    _all(channels, "open", [one | common for one in own])
    (store,) = _all(channels[:1], "store", [{}])
    chosen = {
        "loss_bound": options.bound,
        "link_rate_bps": options.rate_bps,
        "congestion_control": options.congestion_control,
    }
    place = {"host": star.rank_address(0), "port": store["port"], "interface": star.interface, "options": chosen}
    _all(channels, "join", [place] * options.ranks)


def _repeats(
    channels: Sequence[Channel], star: LoopbackStar, options: AllReduceOptions, say: Say
) -> list[dict[str, Any]]:
    runs = []
    for backend in BACKENDS:
        say(f"warm-up: {backend}, the sum is compared")
        ranks = _all(channels, "run", [{"backend": backend, "count": 1, "check": True}] * options.ranks, _RUN_WITHIN_S)
        _require_right(backend, ranks)
    for repeat in range(options.repeats):
        for backend in BACKENDS if repeat % 2 == 0 else BACKENDS[::-1]:
            say(f"repeat {repeat + 1} of {options.repeats}: {backend}")
            before = star.drops()
            asked = {"backend": backend, "count": options.count, "check": False}
            ranks = _all(channels, "run", [asked] * options.ranks, _RUN_WITHIN_S)
            _require_its_own_way(backend, ranks, options)
            drops = {name: count - before[name] for name, count in star.drops().items()}
            runs.append({"variant": backend, "repeat": repeat, "network_drops": drops, "ranks": ranks})
    return runs


def _require_right(backend: str, ranks: Sequence[dict[str, Any]]) -> None:
    """A sum may be wrong where a hop has lost something, and nowhere else."""
    lost = sum(found["counters"]["lost_bytes"] for found in ranks)
    for rank, found in enumerate(ranks):
        if found["wrong_bytes"] > lost:
            what = f"{found['wrong_bytes']} bytes of {backend}'s sum are wrong, {lost} were told as lost by all ranks"
            raise EndFailed(f"rank {rank}", what)


def _require_its_own_way(backend: str, ranks: Sequence[dict[str, Any]], options: AllReduceOptions) -> None:
    """What is called DLCP must have gone over DLCP, at every rank, and gloo must not."""
    per_rank = 2 * (options.ranks - 1) / options.ranks * options.size_bytes * options.count * (1 - options.bound)
    for rank, found in enumerate(ranks):
        counters = found["counters"]
        sent, elsewhere = counters["data_bytes_sent"], counters["gloo_calls"]
        if backend == "dlcp" and (sent < 0.99 * per_rank or elsewhere):
            what = f"only {sent} of about {per_rank:.0f} bytes went over DLCP, {elsewhere} all-reduces went over gloo"
            raise EndFailed(f"rank {rank}", what)
        if backend != "dlcp" and sent:
            raise EndFailed(f"rank {rank}", f"{sent} bytes went over DLCP while {backend} was measured")


def _figures(runs: Sequence[dict[str, Any]], options: AllReduceOptions) -> list[Figure]:
    times = {backend: [_times_s(run) for run in runs if run["variant"] == backend] for backend in BACKENDS}
    figures, walls, cpus, tails, pooled = [], {}, {}, {}, {}
    names = {"dlcp": "DLCP", "gloo": "gloo"}
    for backend in BACKENDS:
        means = tuple(sum(one) / len(one) * 1e3 for one in times[backend])
        of = [run for run in runs if run["variant"] == backend]
        cpu = tuple(sum(rank["cpu_s"] for rank in run["ranks"]) / options.ranks / options.count * 1e3 for run in of)
        walls[backend] = Figure(f"wall, {names[backend]}", "ms", "lower", means, _wall_limit(options))
        cpus[backend] = Figure(f"CPU a rank, {names[backend]}", "ms", "lower", cpu)
        tails[backend] = pooled_percentile(f"p90 of all repeats, {names[backend]}", 0.9, times[backend], 1e3, "ms")
        pooled[backend] = pooled_percentile(f"p99 of all repeats, {names[backend]}", 0.99, times[backend], 1e3, "ms")
    for kind in (walls, cpus, tails, pooled):
        figures += [*kind.values()]
        figures.append(ratio_figure(f"{kind['dlcp'].name} ÷ gloo", kind["dlcp"], kind["gloo"], better="lower"))
    return figures


def _times_s(run: dict[str, Any]) -> list[float]:
    """Of each all-reduce: from the last rank's begin to the last rank's end. Ranks of one machine share the clock."""
    begins = zip(*(rank["begins_s"] for rank in run["ranks"]), strict=True)
    ends = zip(*(rank["ends_s"] for rank in run["ranks"]), strict=True)
    return [max(last) - max(first) for first, last in zip(begins, ends, strict=True)]


def _wall_limit(options: AllReduceOptions) -> str:
    bits = 2 * (options.ranks - 1) / options.ranks * options.size_bytes * 8
    return f"{bits / (options.rate_bps * payload_share()) * 1e3:.3g}: 2(N−1)/N of the data at {_rate(options)}"


def _rate(options: AllReduceOptions) -> str:
    return units.show_rate(options.rate_bps)


def _notes(runs: Sequence[dict[str, Any]], options: AllReduceOptions, star: LoopbackStar) -> list[str]:
    ours = [run for run in runs if run["variant"] == "dlcp"]
    counters = [rank["counters"] for run in ours for rank in run["ranks"]]
    total = {
        name: sum(one[name] for one in counters)
        for name in ("data_bytes_sent", "data_packets_sent", "packets_resent", "socket_overflow")
    }
    lost = sum(rank["counters"]["lost_bytes"] for run in ours for rank in run["ranks"])
    notes = [
        f"{units.show_size(total['data_bytes_sent'])} went over DLCP, none of them during gloo's turns; of "
        f"{total['data_packets_sent']} packets {total['packets_resent']} were sent again, "
        f"{total['socket_overflow']} found a full socket; {lost} bytes were left out within the bound"
    ]
    if options.loss:
        drops = {
            backend: sum(sum(run["network_drops"].values()) for run in runs if run["variant"] == backend)
            for backend in BACKENDS
        }
        notes.append(f"rank 0's link dropped {drops['dlcp']} packets of DLCP and {drops['gloo']} of gloo")
    if isinstance(star, BridgeStar):
        notes.append("a Linux bridge, offloads off at the hosts: every packet crosses alone; gloo's TCP is cubic")
    return notes


def _all(
    channels: Sequence[Channel], command: str, arguments: Sequence[dict[str, Any]], within_s: float = _SETUP_WITHIN_S
) -> list[dict[str, Any]]:
    """Every rank does it at the same time; their answers in order. EndFailed names the rank that could not."""
    for channel, one in zip(channels, arguments, strict=True):
        channel.send({"do": command, **one})
    answers = []
    for channel in channels:
        answer = channel.receive(within_s)
        if "error" in answer:
            raise EndFailed(channel.name, str(answer["error"]))
        answers.append(answer)
    return answers

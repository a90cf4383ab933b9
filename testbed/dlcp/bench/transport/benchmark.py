"""`dlcp bench transport`: goodput, completion times and CPU of DLCP between two ends, beside a reference in turn."""

from __future__ import annotations

import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from typing import Any

from dlcp.bench.channel import Channel
from dlcp.bench.in_namespaces import Say, in_private_world, to_stderr
from dlcp.bench.machine_noise import Watch, copy_s
from dlcp.bench.statistics import Figure, Report, percentile_figure, ratio_figure
from dlcp.bench.transport.driver import Batch, Pair, payload_share
from dlcp.bench.transport.endpoint_placement import SIDES, NamespaceWorld, World
from dlcp.bench.transport.options import TransportOptions
from dlcp.errors import ExitCode, MachineCannot
from dlcp.model import units
from dlcp.model.frames import FRAME_BYTES
from dlcp.transport._native import lib
from dlcp.transport.contract.endpoint import RELIABLE, Bound

LEAST_BUFFER_BYTES = 2 * FRAME_BYTES
"""A port that cannot hold the packet that it sends and one more is no port."""
_OPEN_BUFFER_BYTES = 1_000_000
_ROUND_TRIPS = 50
_PLACES = {
    "socket_overflow": "full socket",
    "abandoned": "not taken by the socket",
    "packets_stash_full": "before their receive was registered, and the stash full,",
}
"""Counter → where a packet was lost, outside the network."""


def bench(options: TransportOptions, say: Say) -> dict[str, Any]:
    """Both ends on this machine: on loopback, or in namespaces (root). Returns Report.data().

    say is told one line of progress a step. Raises Problem or Problems: exit code 2 for wrong options, 3 when this
    machine cannot, 1 when an end fails.
    """
    options.check()
    if options.namespaces:
        return in_private_world(f"{__name__}:main", asdict(options))
    if options.loss or options.loss_back:
        raise MachineCannot(
            "--loss", "unsupported on loopback: nothing there drops packets at random", "add --namespaces (needs root)"
        )
    if options.shaped or options.senders > 1:
        raise MachineCannot(
            "--senders",
            "unsupported on loopback: there is no shared port to be the bottleneck",
            "add --namespaces (needs root)",
        )
    return _run(World(), options, say)


def between_hosts(
    local: Channel, remote: Channel, addresses: dict[str, str], options: TransportOptions, say: Say
) -> dict[str, Any]:
    """This host sends, the other end of an authenticated channel receives. Returns Report.data()."""
    with Watch() as watch:
        report = _measure(Pair(local, remote, addresses, options), options, say, "hosts", dict)
    report.machine = watch.found()
    report.notes.append("machine: of the sending host; completion times by the sending host's clock")
    return report.data()


def main(arguments: list[str]) -> int:
    """Entry point inside the private namespaces: options as JSON in, the report as JSON out."""
    data = json.loads(arguments[0])
    options = TransportOptions(**data | {"sizes_bytes": tuple(data["sizes_bytes"])})
    switched = options.shaped or options.senders > 1
    world = NamespaceWorld(switched=switched, loss={"receiver": options.loss, "sender": options.loss_back})
    print(json.dumps(_run(world, options, to_stderr)))
    return ExitCode.FINE


def _run(world: World, options: TransportOptions, say: Say) -> dict[str, Any]:
    try:
        with Watch() as watch:
            channels = [world.start(side) for side in SIDES]
            pair = Pair(channels[0], channels[1], {side: world.address(side) for side in SIDES}, options)
            notes = _shape(world, channels, options)
            report = _measure(pair, options, say, world.where, world.drops)
        report.notes += notes
        report.machine = watch.found()
        return report.data()
    finally:
        world.close()


def _shape(world: World, channels: Sequence[Channel], options: TransportOptions) -> list[str]:
    """Give the shared port its rate and buffer; says what they are."""
    if not (options.shaped or options.senders > 1):
        return []
    size, origin = options.buffer_bytes, "as asked"
    if not size:
        world.set_port(options.rate_bps, _OPEN_BUFFER_BYTES)
        round_trip_s = _round_trip_s(world, channels, options)
        size = max(LEAST_BUFFER_BYTES, round(options.rate_bps / 8 * round_trip_s))
        origin = (
            f"one bandwidth-delay product: {units.show_duration(round_trip_s)} for a message of one packet and back"
        )
    world.set_port(options.rate_bps, size)
    port = f"shared port: {units.show_rate(options.rate_bps)}, buffer {units.show_size(size)} ({origin})"
    return [f"{port}; what the switch does counts as the senders' CPU time"]


def _round_trip_s(world: World, channels: Sequence[Channel], options: TransportOptions) -> float:
    """The shortest time from handing one packet over until its STOP is back, on the idle path."""
    one = replace(options, sizes_bytes=(lib.DLCP_PAYLOAD_BYTES,), senders=1, in_flight=1)
    pair = Pair(channels[0], channels[1], {side: world.address(side) for side in SIDES}, one)
    pair.open(RELIABLE)
    try:
        return float(min(pair.move(_ROUND_TRIPS).sender["durations_s"]))
    finally:
        pair.close()


def _measure(
    pair: Pair, options: TransportOptions, say: Say, where: str, drops: Callable[[], dict[str, int]]
) -> Report:
    """All repeats, variants in turn within each."""
    variants = {"none": ["dlcp"], "python": ["dlcp", "python"], "reliable": ["dlcp", "reliable"]}[options.against]
    report = Report("transport", where, asdict(options))
    batches: dict[str, list[Batch]] = {variant: [] for variant in variants}
    for repeat in range(options.repeats):
        # Whoever is first finds the machine as the other left it.
        for variant in variants if repeat % 2 == 0 else variants[::-1]:
            say(f"repeat {repeat + 1} of {options.repeats}: {variant}")
            pair.open(RELIABLE if variant == "reliable" else Bound(options.bound, options.energy_bound))
            if variant != "python":
                pair.move(len(options.sizes_bytes), check=True)
            before = drops()
            batch = pair.move_in_python() if variant == "python" else pair.move(options.count)
            lost = {name: count - before.get(name, 0) for name, count in drops().items()}
            pair.close()
            batches[variant].append(batch)
            report.runs.append({"variant": variant, "repeat": repeat, "network_drops": lost} | vars(batch))
    report.figures = _figures(batches, options)
    report.notes += _notes(report.runs)
    return report


def _figures(batches: dict[str, list[Batch]], options: TransportOptions) -> list[Figure]:
    dlcp = batches["dlcp"]
    link_bps = options.rate_bps * payload_share()
    goodput = Figure(
        "goodput",
        "Gbit/s",
        "higher",
        tuple(_goodput_bps(batch) / 1e9 for batch in dlcp),
        f"{link_bps / 1e9:.4g}: line rate × payload share {payload_share():.3f}",
    )
    of_link = tuple(_goodput_bps(batch) / link_bps * 100 for batch in dlcp)
    figures = [goodput, Figure("goodput of that limit", "%", "higher", of_link, "100")]
    durations = [batch.sender["durations_s"] for batch in dlcp]
    p50 = percentile_figure("message completion, p50", 0.5, durations, scale=1e3, unit="ms")
    p99 = percentile_figure("message completion, p99", 0.99, durations, scale=1e3, unit="ms")
    cpu = Figure("CPU a packet, send + receive", "µs", "lower", tuple(map(_cpu_us, dlcp)), _copy_words())
    figures += [
        p50,
        p99,
        cpu,
        Figure(
            "of that, sender", "µs", "lower", tuple(batch.sender["cpu_s"] / _packets(batch) * 1e6 for batch in dlcp)
        ),
        Figure(
            "of that, receiver", "µs", "lower", tuple(batch.receiver["cpu_s"] / _packets(batch) * 1e6 for batch in dlcp)
        ),
        _share("delivered", dlcp, lambda batch: batch.receiver["delivered_bytes"] / batch.receiver["bytes"], "higher"),
        _share("energy lost", dlcp, lambda batch: batch.receiver["lost_energy_share"], "lower"),
        _share("sent again", dlcp, lambda batch: batch.sender["resent_bytes"] / batch.receiver["bytes"], "lower"),
    ]
    if "python" in batches:
        python = Figure("CPU a packet, pure Python", "µs", "lower", tuple(map(_cpu_us, batches["python"])))
        figures += [python, ratio_figure("CPU a packet: pure Python ÷ DLCP", python, cpu, better="higher")]
    if "reliable" in batches:
        slower = [batch.sender["durations_s"] for batch in batches["reliable"]]
        for q in (0.5, 0.99):
            name = f"message completion, p{100 * q:g}"
            theirs = percentile_figure(f"{name}, bound 0", q, slower, scale=1e3, unit="ms")
            figures += [
                theirs,
                ratio_figure(f"{name}: bound ÷ bound 0", p50 if q == 0.5 else p99, theirs, better="lower"),
            ]
    return figures


def _copy_words() -> str:
    each_us = copy_s(lib.DLCP_PAYLOAD_BYTES) * 1e6
    return f"{2 * each_us:.2g}: one memory copy a side, {each_us:.2g} µs each here"


def _share(name: str, batches: Sequence[Batch], of: Callable[[Batch], float], better: Any) -> Figure:
    return Figure(name, "%", better, tuple(of(batch) * 100 for batch in batches))


def _goodput_bps(batch: Batch) -> float:
    """Delivered bits over the time from the first message's start to the last one's end, by the sender's clock."""
    seconds: float = batch.sender["end_s"] - batch.sender["start_s"]
    return float(batch.receiver["delivered_bytes"]) * 8 / seconds


def _packets(batch: Batch) -> int:
    """Data packets that were sent."""
    return int(batch.sender["packets"] if "packets" in batch.sender else batch.sender["counters"]["data_packets_sent"])


def _cpu_us(batch: Batch) -> float:
    return float((batch.sender["cpu_s"] + batch.receiver["cpu_s"]) / _packets(batch) * 1e6)


def _notes(runs: Sequence[dict[str, Any]]) -> list[str]:
    """Where packets were lost, over all repeats of DLCP."""
    ours = [run for run in runs if run["variant"] != "python"]
    places: Counter[str] = Counter()
    total: Counter[str] = Counter()
    for run in ours:
        places.update({f"network ({name})": count for name, count in run["network_drops"].items()})
        for side in SIDES:
            for counter, place in _PLACES.items():
                places[f"{place} at the {side}"] += run[side]["counters"][counter]
        total.update({name: run["sender"]["counters"][name] for name in ("data_packets_sent", "packets_resent")})
        total.update({name: run["receiver"]["counters"][name] for name in ("packets_duplicate", "packets_late")})
    where = ", ".join(f"{name} {count}" for name, count in places.items() if count) or "nowhere"
    vain = total["packets_duplicate"] + total["packets_late"]
    notes = [
        f"packets lost: {where}; of {total['data_packets_sent']} data packets {total['packets_resent']} were sent "
        f"again, {vain} arrived in vain"
    ]
    if refused := next((run["sender"]["segmentation_errno"] for run in ours if run["sender"]["segmentation_errno"]), 0):
        notes.append(f"the kernel refused UDP_SEGMENT ({os.strerror(refused)}): every packet was handed over alone")
    return notes

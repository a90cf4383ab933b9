"""`dlcp bench`: parse, call, print. As in main.py, the command that needs a slow import is where it stands."""

from __future__ import annotations

import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from cyclopts import App, Parameter

from dlcp.errors import ExitCode, MachineCannot, Problem, needs_extra

Json = Annotated[bool, Parameter(name="--json", negative="", help="Print JSON for a program instead of text.")]
Repeats = Annotated[int, Parameter(name="--repeats", help="Runs of each variant, in turn; a figure to quote has 5.")]
Namespaces = Annotated[
    bool,
    Parameter(name="--namespaces", negative="", help="In network namespaces made for it, offloads off (needs root)."),
]
_OPTIONS = Parameter(name="*")
"""Each field of a group of options is an option of the command."""
_PICTURES = (".png", ".svg", ".pdf")

bench = App(
    name="bench",
    help="Measure what this machine reaches: goodput, completion times, CPU, as ratios of one interleaved run.",
    help_epilogue="Figures are the best and the median of the repeats. A line on the machine says who else was busy.",
)


@dataclass(frozen=True)
class _Hosts:
    """Options for a bench between two hosts.

    Parameters
    ----------
    listen
        ADDRESS[:PORT] of this host to receive at.
    connect
        ADDRESS:PORT of a listener; its key in DLCP_BENCH_KEY or --key-file.
    key_file
        File that holds the key, instead of DLCP_BENCH_KEY.
    once
        With --listen: end after one bench.
    """

    listen: str | None = None
    connect: str | None = None
    key_file: Path | None = None
    once: Annotated[bool, Parameter(negative="")] = False


@dataclass(frozen=True)
class _Messages:
    """Options for the messages and their loss.

    Parameters
    ----------
    size
        Tensor size, such as "1 MB"; several are sent in turn.
    count
        Messages that each sender sends in a repeat; p99 needs 1000.
    in_flight
        Messages that each sender has under way at once.
    bound
        Share of a message's bytes that need not arrive.
    energy_bound
        Share of its energy (the sum of all squares) that need not arrive; both bounds must hold.
    dtype
        Of the tensors.
    stop
        lazy: a message ends after the sender's first pass; eager: as soon as its bound is met.
    selective_drop
        How droppable packets are tagged.
    queue
        Switch queue of the tensors, 0 to 6.
    """

    size: Annotated[list[str] | None, Parameter(negative="")] = None
    count: int = 200
    in_flight: int = 2
    bound: str = "0 %"
    energy_bound: str = "100 %"
    dtype: Literal["float32", "float16", "bfloat16"] = "float32"
    stop: Literal["lazy", "eager"] = "lazy"
    selective_drop: Literal["off", "wred", "ect"] = "off"
    queue: int = 3


@dataclass(frozen=True)
class _Path:
    """Options for the network between the ends.

    Parameters
    ----------
    loss
        Share of the packets dropped at random on the way to the receiver (--namespaces).
    loss_back
        The same on the way back: acknowledgements and control.
    senders
        N: so many senders share a port to one receiver (--namespaces).
    buffer
        Buffer of the shared port, such as "40 kB"; one bandwidth-delay product, measured, if not given with --senders.
    """

    namespaces: Namespaces = False
    loss: str = "0 %"
    loss_back: str = "0 %"
    senders: int = 1
    buffer: str | None = None


@bench.command
def transport(
    *,
    hosts: Annotated[_Hosts, _OPTIONS] = _Hosts(),
    messages: Annotated[_Messages, _OPTIONS] = _Messages(),
    path: Annotated[_Path, _OPTIONS] = _Path(),
    rate: str = "40 Gbit/s",
    congestion_control: str = "timely",
    segmentation: bool = True,
    against: Literal["none", "python", "reliable"] = "none",
    repeats: Repeats = 5,
    json: Json = False,
) -> int:
    """Like iperf3 for DLCP: goodput, completion times, CPU a packet, losses, between two ends.

    The ends are on loopback, or with --namespaces on a veth pair that every packet crosses alone, or on two hosts:
    one with --listen (it receives), the other with --connect and the key that the listener shows.

    * CPU a packet, and against pure Python: `dlcp bench transport --namespaces --size 28.8MB --count 10
      --against python`
    * a bound against bound 0 under loss: `dlcp bench transport --namespaces --rate 1Gbit/s --loss 1% --bound 10%
      --stop eager --size 72kB --in-flight 1 --count 1000 --against reliable`
    * an incast of 32: `dlcp bench transport --namespaces --rate 1Gbit/s --senders 32 --count 10`

    Parameters
    ----------
    rate
        What each sender paces itself to; of the shared port, where there is one.
    congestion_control
        Name of the algorithm.
    segmentation
        Hand the kernel bursts (UDP_SEGMENT).
    against
        What runs in turn with it: the same packets moved by pure Python, or the same messages with bound 0.
    """
    from dlcp.bench.transport.options import TransportOptions, quantity
    from dlcp.model import units

    if hosts.listen is not None and hosts.connect is not None:
        raise Problem("--listen, --connect", "a host is one end", "give --listen on one host, --connect on the other")
    if hosts.listen is not None:
        from dlcp.bench.transport.two_hosts import listen as serve

        return serve(hosts.listen, hosts.key_file, _say, once=hosts.once)
    options = TransportOptions(
        sizes_bytes=tuple(quantity("--size", units.parse_size_bytes, text) for text in messages.size or ["1 MB"]),
        count=messages.count,
        in_flight=messages.in_flight,
        rate_bps=quantity("--rate", units.parse_rate_bps, rate),
        loss=quantity("--loss", units.parse_fraction, path.loss),
        loss_back=quantity("--loss-back", units.parse_fraction, path.loss_back),
        bound=quantity("--bound", units.parse_fraction, messages.bound),
        energy_bound=quantity("--energy-bound", units.parse_fraction, messages.energy_bound),
        dtype=messages.dtype,
        stop=messages.stop,
        congestion_control=congestion_control,
        selective_drop=messages.selective_drop,
        queue=messages.queue,
        senders=path.senders,
        buffer_bytes=quantity("--buffer", units.parse_size_bytes, path.buffer) if path.buffer is not None else 0,
        shaped=path.buffer is not None,
        segmentation=segmentation,
        repeats=repeats,
        against=against,
        namespaces=path.namespaces,
    )
    if hosts.connect is not None:
        from dlcp.bench.transport.two_hosts import connect as run_against

        results = run_against(hosts.connect, hosts.key_file, options, _say)
    else:
        from dlcp.bench.transport.benchmark import bench as run_here

        results = run_here(options, _say)
    return _show_bench(results, json=json)


@bench.command
def allreduce(
    *,
    ranks: int = 4,
    size: str = "25 MiB",
    count: int = 10,
    namespaces: Namespaces = False,
    loss: str = "0 %",
    bound: str = "0 %",
    rate: str = "40 Gbit/s",
    congestion_control: str = "timely",
    repeats: Repeats = 5,
    json: Json = False,
) -> int:
    """All-reduce of float32 over DLCP and over gloo, in turn in the same processes: wall time, CPU, tail.

    * on loopback: `dlcp bench allreduce`
    * around a bridge, every packet alone: `dlcp bench allreduce --namespaces`
    * with a lossy link: `dlcp bench allreduce --namespaces --loss 0.1% --bound 1% --count 100 --repeats 10`

    Parameters
    ----------
    ranks
        Processes, each one rank.
    size
        Data of each rank.
    count
        All-reduces in a repeat; p99 is of all repeats together and needs 1000.
    loss
        Share of the packets that rank 0's link drops at random, in each direction (--namespaces).
    bound
        Share of the bytes that a whole all-reduce may lose.
    rate
        What each rank paces itself to over DLCP.
    congestion_control
        DLCP's algorithm.
    """
    from dlcp.bench.allreduce.benchmark import AllReduceOptions
    from dlcp.bench.allreduce.benchmark import bench as run_here
    from dlcp.bench.transport.options import quantity
    from dlcp.model import units

    options = AllReduceOptions(
        ranks=ranks,
        size_bytes=quantity("--size", units.parse_size_bytes, size),
        count=count,
        repeats=repeats,
        loss=quantity("--loss", units.parse_fraction, loss),
        bound=quantity("--bound", units.parse_fraction, bound),
        rate_bps=quantity("--rate", units.parse_rate_bps, rate),
        congestion_control=congestion_control,
        namespaces=namespaces,
    )
    return _show_bench(run_here(options, _say), json=json)


@bench.command
def tagging(
    *,
    size: str = "100 MB",
    metric: Literal["mean", "l2", "max"] = "mean",
    rounds: int = 5,
    repeats: Repeats = 5,
    json: Json = False,
) -> int:
    """Measure, classify and sort the packets of float32 gradients: the C core, numpy and torch in turn.

    Their floor is one read pass over the same bytes; a memcpy is timed for comparison. One thread each.

    Parameters
    ----------
    size
        Of the gradients, one tensor.
    metric
        What makes a packet small or large: mean |g|, L2 norm, or largest |g|.
    rounds
        Timed in each repeat; the quickest counts.
    """
    from dlcp.bench.transport.options import quantity
    from dlcp.bench.transport.tagging import TaggingOptions
    from dlcp.bench.transport.tagging import bench as run_here
    from dlcp.model import units

    size_bytes = quantity("--size", units.parse_size_bytes, size)
    return _show_bench(run_here(TaggingOptions(size_bytes, metric, rounds, repeats), _say), json=json)


@bench.command
def switch(
    *,
    only: Annotated[list[Literal["cost", "rate", "delay", "size", "box"]] | None, Parameter(negative="")] = None,
    packets: int = 5_000,
    rounds: int = 8,
    seconds: float = 3.0,
    rate: str = "100 Mbit/s",
    hosts: Annotated[list[int] | None, Parameter(negative="")] = None,
    repeats: Repeats = 5,
    json: Json = False,
) -> int:
    """Measure the emulated switch: CPU cost, packet rate, added delay, bring-up time of fabrics (needs root).

    * cost: CPU a packet on the sender's side, through 3 switches and through 3 IP routers with the same queues
    * rate: packets a second of two flows through the same
    * delay: of a light high-priority flow, alone and during a low-priority flood
    * size: bring-up and tear-down of 10, 64 and 128 hosts

    Parameters
    ----------
    only
        Run this part alone; may be given several times.
    packets
        That a flow sends in a round.
    rounds
        Of each path in a repeat, in turn; the quickest counts (cost). The rate is that of as many packets at once.
    seconds
        Of the light flow, with and without the flood (delay).
    rate
        Of the port that is flooded (delay).
    hosts
        Build only the fabric of so many hosts (size): 10, 64 or 128.
    """
    from dlcp.bench.transport.options import quantity
    from dlcp.model import units

    with needs_extra("emulate", "dlcp bench switch"):
        from dlcp.bench.switch.benchmark import FABRICS, SwitchOptions
        from dlcp.bench.switch.benchmark import bench as run_here
    options = SwitchOptions(
        only=tuple(only or ()),
        packets=packets,
        rounds=rounds,
        seconds=seconds,
        rate_bps=quantity("--rate", units.parse_rate_bps, rate),
        hosts=tuple(hosts or (count for _, _, count in FABRICS)),
        repeats=repeats,
    )
    return _show_bench(run_here(options, _say), json=json)


@bench.command
def capacity(
    *,
    hosts: Annotated[list[int] | None, Parameter(negative="")] = None,
    scheme: Annotated[list[Literal["dlcp", "tcp", "tcp-tuned"]] | None, Parameter(negative="")] = None,
    minutes: float = 6.0,
    plot: Path | None = None,
    json: Json = False,
) -> int:
    """The frontier of hosts and link rate at which a run is believed: short real runs, searched by halves (needs root).

    A parameter-server job on a leaf-spine fabric, for each number of hosts at the fastest links with which none of the
    run's monitors objects. Others' work on the machine moves the frontier down: measure on a quiet one.

    * the default grid, under 6 minutes: `dlcp bench capacity --plot capacity.png`
    * one size over one scheme: `dlcp bench capacity --hosts 10 --scheme dlcp`

    Parameters
    ----------
    hosts
        How many hosts; may be given several times. 4, 10, 20, 32 and 64, if not given.
    scheme
        How gradients move; may be given several times. dlcp and tcp, if not given.
    minutes
        No further run begins after so long; what was not measured by then is said.
    plot
        Draw the frontier into this file, such as capacity.png or capacity.svg.
    """
    from dlcp.bench.capacity import CapacityOptions, draw, rows
    from dlcp.bench.capacity import bench as run_here
    from dlcp.cli.show import common
    from dlcp.cli.show.progress import measuring_on

    defaults = CapacityOptions()
    options = CapacityOptions(tuple(hosts or defaults.hosts), tuple(scheme or defaults.schemes), minutes)
    require_picture(plot)
    with measuring_on(common.console(error=True)) as on_progress:
        results = run_here(options, on_progress)
    if plot is not None:
        draw(results, plot)
    if json:
        common.print_json(results)
    else:
        common.print_capacity(rows(results), results["machine"]["words"])
    return ExitCode.FINE


def require_picture(plot: Path | None) -> None:
    """Refuse, before the work starts, a --plot file that could not be drawn after it. None is fine."""
    from importlib.util import find_spec

    from dlcp.paths import install_command

    if plot is None:
        return
    if plot.suffix not in _PICTURES:
        raise Problem(
            "--plot",
            f"{plot.name} is not a picture's name",
            f"end it in {', '.join(_PICTURES[:-1])} or {_PICTURES[-1]}",
        )
    if not plot.parent.is_dir():
        raise Problem("--plot", f"{plot.parent} is not a folder", "name a file in one that is there")
    absent = [name for name in ("matplotlib", "seaborn") if find_spec(name) is None]
    if absent:
        raise MachineCannot("--plot", f"needs {absent[0]}", install_command("report"))


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def _show_bench(found: dict[str, object], *, json: bool) -> int:
    from dlcp.cli.show import common

    (common.print_json if json else common.print_bench)(found)
    return ExitCode.FINE

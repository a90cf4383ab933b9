"""Priority flow control by the pausing loop: what dropped without it does not drop with it, from end to end."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

from traffic import Sink, pace, plain, together, tos, udp

from dlcp.model.host_settings import HostSettings
from dlcp.model.qos import Pfc
from dlcp.model.topology import Graph, Link
from dlcp.substrates.emulate.fabric import Fabric
from dlcp.substrates.emulate.pfc import PauseLoop

LOSSLESS, OTHER = 3, 1
LINKS = (
    Link(a="h1", b="s1", rate=50e6),
    Link(a="h2", b="s1", rate=50e6),
    Link(a="h5", b="s1", rate=50e6),
    Link(a="s1", b="s2", rate=100e6),
    Link(a="s2", b="h3", rate=20e6),
    Link(a="s2", b="h4", rate=50e6),
)
GRAPH = Graph(hosts=("h1", "h2", "h3", "h4", "h5"), switches=("s1", "s2"), links=LINKS)


def overload(*, pause: bool) -> dict[str, Any]:
    """h1 and h2 send 60 Mbit/s of a lossless queue to h3's 20 Mbit/s, h5 5 Mbit/s of another queue to h4.

    The headroom is large, for the loop shares one interpreter with the senders here.
    """
    pfc = Pfc(queues=(LOSSLESS,), xoff=60_000, xon=30_000)
    with Fabric(GRAPH, plain(500_000), seed=1, host_settings=HostSettings()) as fabric:
        sinks = [Sink(udp(fabric, host, port=5000)) for host in ("h3", "h4")]
        to = [(fabric.address(host), 5000) for host in ("h3", "h4")]
        first, second = (udp(fabric, host, tos_byte=tos(LOSSLESS), send_buffer=100_000) for host in ("h1", "h2"))
        third = udp(fabric, "h5", tos_byte=tos(OTHER))
        fabric.reset_counters()
        loop = PauseLoop(fabric, GRAPH, pfc)
        with loop if pause else nullcontext():
            sent = together(
                lambda: pace(first, to[0], rate_mbit=30, seconds=1.0),
                lambda: pace(second, to[0], rate_mbit=30, seconds=1.0),
                lambda: pace(third, to[1], rate_mbit=5, seconds=1.0),
            )
        unaccounted = fabric.conservation(5.0)
        for sink in sinks:
            sink.stop()
        fabric.verify()
        rows = fabric.counters()
        return {
            "sent": sent,
            "arrived": [sum(sink.packets.values()) for sink in sinks],
            "unaccounted": unaccounted,
            "dropped": {
                (row["port"]): row["dropped_tail_packets"]
                for row in rows
                if row["queue"] == LOSSLESS and row["precedence"] == 0 and row["dropped_tail_packets"]
            },
            "peak_bytes": max(row["peak_backlog_bytes"] for row in rows if row["port"] == "s2-h3"),
            "pfc": loop.data(),
        }


def test_without_pfc_the_hot_port_drops(inside: Callable[..., Any]) -> None:
    seen = inside(overload, pause=False)
    assert seen["dropped"]["s2-h3"] > 1000, "60 Mbit/s into 20 for a second: about 3470 packets too many"
    assert seen["pfc"]["pauses"] == 0


def test_with_pfc_nothing_drops_and_other_queues_pass(inside: Callable[..., Any]) -> None:
    """A pause is chained to the hosts, whose sockets wait; what they have sent arrives, all of it."""
    seen = inside(overload, pause=True)
    assert seen["unaccounted"] == []
    assert seen["dropped"] == {}
    assert seen["arrived"] == [seen["sent"][0] + seen["sent"][1], seen["sent"][2]]
    assert seen["pfc"]["pauses"] > 5
    assert 60_000 < seen["peak_bytes"] < 500_000


def read_back_meanwhile(times: int) -> int:
    """A link is read back while one of its queues pauses and resumes; how often it has paused."""
    pauses, over = [0], threading.Event()
    with Fabric(GRAPH, plain(500_000), seed=1, host_settings=HostSettings()) as fabric:

        def pause_and_resume() -> None:
            while not over.wait(0.001):
                fabric.pause("s1", "s2", LOSSLESS)
                fabric.resume("s1", "s2", LOSSLESS)
                pauses[0] += 1

        thread = threading.Thread(target=pause_and_resume)
        thread.start()
        try:
            for _ in range(times):
                fabric.verify_link("s1", "s2")
        finally:
            over.set()
            thread.join()
    return pauses[0]


def test_a_link_can_be_read_back_while_queues_pause(inside: Callable[..., Any]) -> None:
    """As a rate drop is, once it has taken effect."""
    assert inside(read_back_meanwhile, times=20) > 0

"""Links with delays: two pairs of devices and a queue between them, and an account that stays exact.

Where the kernel has no netem, a plain queue stands in its place: all but the delay itself is then as it would be.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from typing import Any

import pytest
from traffic import Sink, at, name_of, pace, plain, together, tos, udp

from dlcp.errors import MachineCannot
from dlcp.model.host_settings import HostSettings
from dlcp.model.topology import Graph, Link
from dlcp.substrates.emulate import delayed_links
from dlcp.substrates.emulate.capabilities import probe_delays
from dlcp.substrates.emulate.fabric import Fabric

DELAY_S = 0.005


@pytest.fixture(scope="module")
def netem() -> bool:
    """Whether this kernel has it."""
    return probe_delays().ok


def delayed(*, stand_in: bool) -> Fabric:
    """h1, h2 – s1 ~ s2 – h3: the link between the switches has a delay, and h1's too."""
    if stand_in:
        delayed_links.discipline = lambda _: "bfifo limit 100000000"
    links = (
        Link(a="h1", b="s1", rate=100e6, delay=DELAY_S),
        Link(a="h2", b="s1", rate=100e6),
        Link(a="s1", b="s2", rate=50e6, delay=DELAY_S),
        Link(a="s2", b="h3", rate=100e6),
    )
    graph = Graph(hosts=("h1", "h2", "h3"), switches=("s1", "s2"), links=links)
    return Fabric(graph, plain(30_000), seed=1, host_settings=HostSettings())


def overload(*, stand_in: bool) -> dict[str, Any]:
    with delayed(stand_in=stand_in) as fabric:
        first, second = udp(fabric, "h1", tos_byte=tos(3)), udp(fabric, "h2", tos_byte=tos(3, 1))
        receiver = udp(fabric, "h3", port=5000)
        sink = Sink(receiver)
        fabric.reset_counters()
        to = (fabric.address("h3"), 5000)
        sent = together(
            lambda: pace(first, to, rate_mbit=40, seconds=1.0), lambda: pace(second, to, rate_mbit=40, seconds=1.0)
        )
        unaccounted = fabric.conservation(2.0)
        sink.stop()
        fabric.verify()
        rows = {port: at(fabric, port) for port in ("s1-h1", "s1-h2", "s1-s2", "s2-s1", "s2-h3")}
        total = {
            port: {
                name: sum(row[f"{name}_packets"] for row in found.values())
                for name in ("received", "enqueued", "sent", "dropped_tail")
            }
            for port, found in rows.items()
        }
        return {
            "sent": sent,
            "arrived": [sink.packets[name_of(first)], sink.packets[name_of(second)]],
            "unaccounted": unaccounted,
            "ports": total,
        }


def test_the_account_is_exact_across_delays(inside: Callable[..., Any], netem: bool) -> None:
    found = inside(overload, stand_in=not netem)
    ports = found["ports"]
    assert found["unaccounted"] == []
    assert [ports["s1-h1"]["received"], ports["s1-h2"]["received"]] == found["sent"]
    narrow = ports["s1-s2"]
    assert narrow["dropped_tail"] > 1000, "80 Mbit/s into 50 for a second: about 2580 packets too many"
    assert narrow["enqueued"] + narrow["dropped_tail"] == sum(found["sent"])
    assert narrow["sent"] == narrow["enqueued"] == ports["s2-s1"]["received"]
    assert ports["s2-h3"]["enqueued"] == narrow["sent"] == sum(found["arrived"])


def mishaps(*, stand_in: bool) -> dict[str, Any]:
    """The link between the switches is cut for 0.1 s under overload, and what h1 sends loses a tenth."""
    with delayed(stand_in=stand_in) as fabric:
        first, second = udp(fabric, "h1"), udp(fabric, "h2")
        sink = Sink(udp(fabric, "h3", port=5000))
        to = (fabric.address("h3"), 5000)

        def play() -> None:
            fabric.set_loss("h1", "s1", 0.1)
            time.sleep(0.2)
            fabric.set_link("s1", "s2", False)
            fabric.verify()
            time.sleep(0.1)
            fabric.set_link("s1", "s2", True)

        *sent, _ = together(
            lambda: pace(first, to, rate_mbit=40, seconds=0.5),
            lambda: pace(second, to, rate_mbit=40, seconds=0.5),
            play,
        )
        unaccounted = fabric.conservation(2.0)
        sink.stop()
        rows = fabric.counters()
        return {
            "sent": sum(sent),
            "arrived": sum(sink.packets.values()),
            "unaccounted": unaccounted,
            "dropped": {
                cause: sum(row[f"dropped_{cause}_packets"] for row in rows) for cause in ("tail", "loss", "down")
            },
            "into_s1": sum(row["received_packets"] for row in rows if row["switch"] == "s1"),
            "under_way": sum(row["dropped_down_packets"] for row in rows if row["port"] == "s2-s1"),
        }


def test_mishaps_of_links_with_delays_are_accounted_for(inside: Callable[..., Any], netem: bool) -> None:
    found = inside(mishaps, stand_in=not netem)
    assert found["unaccounted"] == []
    assert found["into_s1"] == found["sent"]
    assert found["sent"] == found["arrived"] + sum(found["dropped"].values())
    assert found["dropped"]["loss"] == pytest.approx(0.1 * found["sent"] / 2, rel=0.4)
    assert found["under_way"] > 0, "the cut takes what waits: how much is chance, for senders pause on a busy machine"


def not_felt(*, stand_in: bool) -> dict[str, Any]:
    """A socket with a small buffer sends across a delay into a narrow link."""
    with delayed(stand_in=stand_in) as fabric:
        sender = udp(fabric, "h1", send_buffer=20_000)
        fabric.reset_counters()
        sent = pace(sender, (fabric.address("h3"), 5000), rate_mbit=90, seconds=0.5)
        fabric.conservation(2.0)
        return {"sent": sent, "dropped": sum(row["dropped_tail_packets"] for row in at(fabric, "s1-s2").values())}


def test_a_sender_does_not_feel_the_delay_as_its_own_buffer(inside: Callable[..., Any], netem: bool) -> None:
    found = inside(not_felt, stand_in=not netem)
    assert found["dropped"] > 0.2 * found["sent"], "the switch must drop, not the socket wait"


def cut(*, stand_in: bool) -> dict[str, Any]:
    with delayed(stand_in=stand_in) as fabric:
        sender, receiver = udp(fabric, "h2"), udp(fabric, "h3", port=5000)
        sink = Sink(receiver)
        fabric.reset_counters()
        to = (fabric.address("h3"), 5000)

        def cut_for_a_while() -> None:
            time.sleep(0.2)
            fabric.set_link("s1", "s2", up=False)
            time.sleep(0.2)
            fabric.set_link("s1", "s2", up=True)

        (sent, _) = together(lambda: pace(sender, to, rate_mbit=60, seconds=0.6), cut_for_a_while)
        unaccounted = fabric.conservation(2.0)
        sink.stop()
        down = {
            port: sum(row["dropped_down_packets"] for row in at(fabric, port).values()) for port in ("s1-s2", "s2-s1")
        }
        tail = sum(row["dropped_tail_packets"] for row in at(fabric, "s1-s2").values())
        came, went = (
            sum(row[f"{name}_packets"] for row in at(fabric, port).values())
            for name, port in (("sent", "s1-s2"), ("received", "s2-s1"))
        )
        return {
            "sent": sent,
            "arrived": sum(sink.packets.values()),
            "unaccounted": unaccounted,
            "down": down,
            "tail": tail,
            "came": came,
            "went": went,
        }


def test_a_cut_takes_what_waits_and_what_is_under_way(inside: Callable[..., Any], netem: bool) -> None:
    found = inside(cut, stand_in=not netem)
    assert found["unaccounted"] == []
    assert found["down"]["s1-s2"] > 500, "60 Mbit/s for 0.2 s are about 1030 packets"
    assert found["came"] == found["went"]
    assert found["sent"] == found["arrived"] + found["tail"] + sum(found["down"].values())


def lossy(*, stand_in: bool) -> dict[str, Any]:
    with delayed(stand_in=stand_in) as fabric:
        sender = udp(fabric, "h1")
        fabric.reset_counters()
        fabric.set_loss("h1", "s1", 0.3)
        sent = pace(sender, (fabric.address("h3"), 5000), rate_mbit=20, seconds=0.5)
        unaccounted = fabric.conservation(2.0)
        fabric.set_loss("h1", "s1", 0.0)
        fabric.verify()
        lost = {row["port"]: row["dropped_loss_packets"] for row in fabric.counters() if row["dropped_loss_packets"]}
        return {"sent": sent, "lost": lost, "unaccounted": unaccounted}


def test_a_host_may_lose_across_a_delay(inside: Callable[..., Any], netem: bool) -> None:
    found = inside(lossy, stand_in=not netem)
    assert found["unaccounted"] == []
    assert list(found["lost"]) == ["s1-h1"]
    assert found["lost"]["s1-h1"] == pytest.approx(0.3 * found["sent"], rel=0.25), "five standard deviations"


def refused() -> str:
    try:
        with delayed(stand_in=False):
            return "built"
    except MachineCannot as problem:
        return f"{problem.what} / {problem.hint}"


def test_without_netem_a_delay_is_refused_before_anything_is_built(inside: Callable[..., Any], netem: bool) -> None:
    if netem:
        pytest.skip("this kernel has netem, so a delay is not refused; run on a kernel without sch_netem")
    said = inside(refused)
    assert said.startswith("unsupported: links with delays need the kernel's netem")
    assert said.endswith("modprobe sch_netem; or leave delays out")


def round_trip() -> list[float]:
    with delayed(stand_in=False) as fabric:
        sender, receiver = udp(fabric, "h1"), udp(fabric, "h3", port=5000)
        found = []
        for _ in range(20):
            start_s = time.monotonic()
            sender.sendto(b"there", (fabric.address("h3"), 5000))
            _, back = receiver.recvfrom(100)
            receiver.sendto(b"back", back)
            sender.recv(100, socket.MSG_WAITALL)
            found.append(time.monotonic() - start_s)
        return found


def test_a_round_trip_takes_each_delay_twice(inside: Callable[..., Any], netem: bool) -> None:
    """Two links of 5 ms, there and back; frames and hosts add less than 2 ms when no other work is in their way."""
    if not netem:
        pytest.skip("needs the kernel's netem; modprobe sch_netem")
    shortest_s = min(inside(round_trip))
    assert 4 * DELAY_S <= shortest_s <= 4 * DELAY_S + 0.002

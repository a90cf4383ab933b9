"""Equal-cost paths, the sizes of packets, sockets that do not feel the switch, and the account of every packet."""

from __future__ import annotations

import math
import socket
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from traffic import Sink, at, leaf_spine, name_of, pace, plain, profiled, star, together, tos, udp

from dlcp.model.frames import FRAME_BYTES
from dlcp.model.qos import DropProfile

PACED_BYTES = 20_000
"""What a late timer may pile up between two ports of one rate; a single super-packet is 40 to 65 kB."""


def one_flow_sprayed(packets: int) -> list[int]:
    """Packets of one flow by spine."""
    with leaf_spine(plain(load_balancing="per-packet")) as fabric:
        sender = udp(fabric, "h1")
        for i in range(packets):
            sender.sendto(b"x", (fabric.address("h3"), 9))
            if i % 100 == 99:
                fabric.conservation()
        fabric.conservation()
        return [at(fabric, f"s{i}-l2")[0, 0]["enqueued_packets"] for i in (1, 2)]


def test_per_packet_balancing_uses_both_spines_alike(inside: Callable[..., Any]) -> None:
    packets = 2000
    first, second = inside(one_flow_sprayed, packets=packets)
    assert first + second == packets
    assert abs(first - packets / 2) < 4 * math.sqrt(packets) / 2


def in_turn(packets: int) -> list[int]:
    """Packets of two destinations, mixed, by (spine, destination)."""
    with leaf_spine(plain(load_balancing="round-robin")) as fabric:
        sender = udp(fabric, "h1")
        for i in range(packets):
            sender.sendto(b"x", (fabric.address(("h3", "h4", "h3")[i % 3]), 9))
            if i % 100 == 99:
                fabric.conservation()
        fabric.conservation()
        hosts = [at(fabric, f"l2-{host}")[0, 0]["received_packets"] for host in ("h3", "h4")]
        assert hosts == [0, 0], "hosts sent nothing"
        return [at(fabric, f"s{i}-l2")[0, 0]["enqueued_packets"] for i in (1, 2)]


def test_round_robin_splits_exactly(inside: Callable[..., Any]) -> None:
    assert inside(in_turn, packets=600) == [300, 300]
    assert sorted(inside(in_turn, packets=303)) in ([151, 152], [150, 153]), "each destination has its own turn"


def flowlets(gap_s: float, pause_s: float, bursts: int) -> list[list[int]]:
    """One flow's packets by spine, for each of some bursts of ten with pauses between."""
    intent = plain(load_balancing="flowlet", flowlet_gap=gap_s)
    found, seen = [], [0, 0]
    with leaf_spine(intent) as fabric:
        sender, to = udp(fabric, "h1"), (fabric.address("h3"), 9)
        for _ in range(bursts):
            for _ in range(10):
                sender.sendto(b"x", to)
            time.sleep(pause_s)
            now = [at(fabric, f"s{i}-l2")[0, 0]["enqueued_packets"] for i in (1, 2)]
            found.append([after - before for before, after in zip(seen, now, strict=True)])
            seen = now
    return found


def test_a_flowlet_keeps_its_path_and_the_next_may_take_another(inside: Callable[..., Any]) -> None:
    parted = inside(flowlets, gap_s=0.02, pause_s=0.04, bursts=24)
    # a burst that other work on this machine interrupts for 20 ms is two flowlets
    assert sum(sorted(counts) == [0, 10] for counts in parted) >= 22, parted
    assert 3 <= sum(counts[0] > counts[1] for counts in parted) <= 21, "each flowlet chooses at random"


def test_a_flow_without_pauses_stays_on_its_path(inside: Callable[..., Any]) -> None:
    kept = inside(flowlets, gap_s=5, pause_s=0.01, bursts=24)
    assert {tuple(counts) for counts in kept} in ({(10, 0)}, {(0, 10)})


def mixed_switches() -> dict[str, Any]:
    """l1 balances in turn, l2 by flow hash."""
    intent = plain(load_balancing="flow-hash", switch_load_balancing={"l1": "round-robin"})
    with leaf_spine(intent) as fabric:
        there, back = udp(fabric, "h1", port=9), udp(fabric, "h3", port=9)
        for _ in range(20):
            there.sendto(b"x", (fabric.address("h3"), 9))
            back.sendto(b"x", (fabric.address("h1"), 9))
        fabric.conservation()
        split = {leaf: [at(fabric, f"{leaf}-s{i}")[0, 0]["enqueued_packets"] for i in (1, 2)] for leaf in ("l1", "l2")}
        return split | {"said": fabric.effective()["load_balancing"], "same": fabric.effective() == fabric.intended()}


def test_each_switch_may_balance_in_its_own_way(inside: Callable[..., Any]) -> None:
    seen = inside(mixed_switches)
    assert seen["l1"] == [10, 10]
    assert sorted(seen["l2"]) == [0, 20]
    assert seen["said"] == {"l1": "round-robin", "l2": "flow-hash", "s1": "flow-hash", "s2": "flow-hash"}
    assert seen["same"]


def flows_hashed(seed: int) -> list[list[int]]:
    """For each of 24 flows, ten packets: [packets by spine 1, by spine 2]."""
    found = []
    with leaf_spine(plain(load_balancing="flow-hash"), seed=seed) as fabric:
        for flow in range(24):
            sender = udp(fabric, "h1", port=20_000 + flow)
            fabric.reset_counters()
            for _ in range(10):
                sender.sendto(b"x", (fabric.address("h3"), 9))
            fabric.conservation()
            found.append([at(fabric, f"s{i}-l2")[0, 0]["enqueued_packets"] for i in (1, 2)])
            sender.close()
    return found


def test_a_flow_keeps_its_path_and_flows_use_both(inside: Callable[..., Any]) -> None:
    found = inside(flows_hashed, seed=1)
    assert {tuple(counts) for counts in found} == {(10, 0), (0, 10)}
    assert 3 <= sum(counts[0] == 10 for counts in found) <= 21
    assert inside(flows_hashed, seed=1) == found, "the same seed chooses the same paths"
    assert inside(flows_hashed, seed=2) != found, "another seed chooses others"


def tcp_transfer(rate_mbit: float, buffer_bytes: int, seconds: float) -> dict[str, Any]:
    """One TCP connection h1 → h2 as fast as it can, then a UDP burst by segmentation offload."""
    with star([100, rate_mbit], plain(buffer_bytes)) as fabric:
        with fabric.namespace("h2").entered():
            listener = socket.create_server((fabric.address("h2"), 5000))
        with fabric.namespace("h1").entered():
            client = socket.create_connection((fabric.address("h2"), 5000))
        server, _ = listener.accept()
        algorithms = [s.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, 16) for s in (client, server)]

        def drain() -> None:
            while server.recv(1 << 20):
                pass

        reader = threading.Thread(target=drain)
        reader.start()
        stop = time.monotonic() + seconds
        while time.monotonic() < stop:
            client.send(bytes(100_000))
        client.close()
        reader.join()
        violations = fabric.conservation()
        row = at(fabric, "s1-h2")[0, 0]
        return {
            "mean_bytes": row["enqueued_bytes"] / row["enqueued_packets"],
            "packets": row["enqueued_packets"],
            "dropped": row["dropped_tail_packets"],
            "peak": row["peak_backlog_bytes"],
            "algorithms": [name.rstrip(b"\0").decode() for name in algorithms],
            "violations": violations,
        }


def test_a_switch_sees_packets_not_super_packets(inside: Callable[..., Any]) -> None:
    seen = inside(tcp_transfer, rate_mbit=100, buffer_bytes=400_000, seconds=0.5)
    assert seen["packets"] > 1000
    assert FRAME_BYTES - 100 < seen["mean_bytes"] <= FRAME_BYTES
    assert seen["peak"] <= PACED_BYTES, "a host's link paces packets: equal rates in and out leave no queue"
    assert seen["algorithms"] == ["cubic", "cubic"]
    assert seen["violations"] == []


def test_tcp_overflows_a_switch_queue_and_loses(inside: Callable[..., Any]) -> None:
    seen = inside(tcp_transfer, rate_mbit=20, buffer_bytes=30_000, seconds=1.0)
    assert seen["dropped"] > 0, "the sender's socket must not feel the switch's queue as its own"
    assert 30_000 - FRAME_BYTES < seen["peak"] <= 30_000
    assert seen["violations"] == []


def super_packets() -> dict[str, Any]:
    """UDP bursts of 40 packets that the host's port must cut up and pace."""
    with star([50, 50], plain(400_000)) as fabric:
        sender = udp(fabric, "h1", tos_byte=tos(2))
        sender.setsockopt(socket.IPPROTO_UDP, 103, 1000)  # UDP_SEGMENT
        for _ in range(10):
            sender.sendto(bytes(40_000), (fabric.address("h2"), 9))
        violations = fabric.conservation()
        row = at(fabric, "s1-h2")[2, 0]
        return {"packets": row["enqueued_packets"], "peak": row["peak_backlog_bytes"], "violations": violations}


def test_a_udp_super_packet_crosses_as_paced_packets(inside: Callable[..., Any]) -> None:
    seen = inside(super_packets)
    assert seen["packets"] == 400
    assert seen["peak"] <= PACED_BYTES
    assert seen["violations"] == []


def small_send_buffer() -> dict[str, int]:
    """A UDP sender with a 50 kB socket buffer offers 150 % of the port behind the switch."""
    with star([100, 20], plain(100_000)) as fabric:
        sender = udp(fabric, "h1", send_buffer=25_000)
        sent = pace(sender, (fabric.address("h2"), 9), rate_mbit=30, seconds=1.0)
        fabric.conservation()
        row = at(fabric, "s1-h2")[0, 0]
        return {"sent": sent, "dropped": row["dropped_tail_packets"]}


def test_a_udp_sender_does_not_feel_the_switch(inside: Callable[..., Any]) -> None:
    seen = inside(small_send_buffer)
    assert seen["dropped"] > 0.25 * seen["sent"], "a sender that is held back to the port's rate loses nothing"


def everything_at_once() -> dict[str, Any]:
    """Overload across a leaf-spine with every kind of drop; what balances before the queues ran dry, and then."""
    step = DropProfile(minimum=20_000, maximum=60_000, probability=0.5)
    with leaf_spine(profiled(2, [None, step, None], 80_000), rate_mbit=20) as fabric:
        fabric.set_loss("l2", "h3", 0.1)
        sink = Sink(udp(fabric, "h3", port=9000))
        to = (fabric.address("h3"), 9000)
        senders = [udp(fabric, host, tos_byte=tos(2, p)) for host, p in (("h1", 0), ("h2", 0), ("h4", 1))]
        sent = together(*(partial(pace, sender, to, rate_mbit=15, seconds=0.7) for sender in senders))
        early = fabric.conservation(drain_s=0)
        stray = udp(fabric, "h1")
        with fabric.namespace("h1").entered():
            fabric.namespace("h1").run(
                ["ip", "neighbour", "add", "198.18.9.9", "lladdr", "02:00:00:00:00:99", "dev", "h1-eth0"]
            )
        stray.sendto(b"x", ("198.18.9.9", 9))  # no such host
        stray.sendto(b"x", ("198.18.9.10", 9))  # nobody answers its ARP
        violations = fabric.conservation()
        sink.stop()
        rows = fabric.counters()
        return {
            "sent": sum(sent),
            "received": sum(sink.packets[name_of(sender)] for sender in senders),
            "dropped": {kind: sum(row[f"dropped_{kind}_packets"] for row in rows) for kind in ("wred", "tail", "loss")},
            "strays": {row["port"]: row for row in fabric.strays()}["l1-h1"],
            "early": early,
            "violations": violations,
        }


def test_every_packet_is_accounted_for(inside: Callable[..., Any]) -> None:
    seen = inside(everything_at_once)
    assert seen["violations"] == []
    assert all(count > 0 for count in seen["dropped"].values()), seen["dropped"]
    assert seen["sent"] == seen["received"] + sum(seen["dropped"].values())
    assert seen["strays"]["unrouted_packets"] == 1
    assert seen["strays"]["not_ipv4_packets"] >= 1
    assert seen["early"], "an account that is read with packets under way must not balance"

"""A Linux box as a switch, with real packets: queues, decisions, the account; and what must not be touched by them."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from boxes import BEHIND, World, account, at, box, settled, total, udp
from traffic import Sink, tos

from dlcp.isolation.netns import Namespace
from dlcp.model.frames import UDP_OVERHEAD_BYTES
from dlcp.model.qos import DropProfile, QosIntent, QueueIntent

H1, H2 = "198.18.1.2", "198.18.2.2"
PAYLOAD = bytes(1000)
FRAME_BYTES = len(PAYLOAD) + UDP_OVERHEAD_BYTES


def up(intent: QosIntent, links: int = 1, rate_mbit: float = 100) -> World:
    world = World(links)
    assert box("apply", world.configuration(intent, rate_mbit))["changed"]
    return world


def send(world: World, tos_byte: int, packets: int, to: str = H2) -> None:
    with udp(world.hosts["h1"], H1, tos_byte) as sender:
        for _ in range(packets):
            sender.sendto(PAYLOAD, (to, 9))


def every_codepoint() -> dict[str, Any]:
    world = up(QosIntent(name="plain", port_buffer="500 kB"))
    for dscp in range(64):
        send(world, dscp << 2, 1 + dscp % 5)
    told = settled()
    rows = {key: row for key, row in at("eth2", told).items() if row["enqueued_packets"]}
    return {
        "queues": [[*key, row["enqueued_packets"], row["sent_packets"]] for key, row in sorted(rows.items())],
        "received": [
            [*key, row["received_packets"]] for key, row in sorted(at("eth1", told).items()) if row["received_packets"]
        ],
        "account": account(told),
        "behind": told["behind"],
    }


def test_a_codepoint_leads_to_its_queue_and_every_packet_is_accounted_for(inside: Callable[..., Any]) -> None:
    found = inside(every_codepoint)
    expected: dict[tuple[int, int], int] = {}
    for dscp in range(64):
        queue, precedence, odd = dscp >> 3, dscp >> 1 & 3, dscp & 1
        key = (0, 0) if odd or precedence == 3 else (queue, precedence)
        expected[key] = expected.get(key, 0) + 1 + dscp % 5
    assert found["queues"] == [[*key, count, count] for key, count in sorted(expected.items())]
    assert found["received"] == [[*key, count] for key, count in sorted(expected.items())]
    for came_in, went_out in found["account"].values():
        assert came_in == went_out > 0
    assert not any(count for counted in found["behind"].values() for count in counted.values())


def overload() -> dict[str, Any]:
    """More than a slow port takes, all at once: thresholds decide, whatever the machine's speed."""
    drop, mark = (DropProfile(minimum="20 kB", maximum="20 kB", mark=mark) for mark in (False, True))
    intent = QosIntent(
        name="all",
        port_buffer="200 kB",
        queues={
            1: QueueIntent(profiles=(None, None, drop)),
            2: QueueIntent(profiles=(mark, mark, None)),
            3: QueueIntent(limit="30 kB"),
            4: QueueIntent(reserved="25 kB"),
        },
    )
    world = up(intent, rate_mbit=2)
    receiver = udp(world.hosts["h2"], H2, port=9)
    sink = Sink(receiver)
    send(world, tos(1, 2), 60)
    send(world, tos(1, 1), 10)
    send(world, tos(2, 0, ecn=2), 40)
    send(world, tos(2, 1), 10)
    send(world, tos(3), 60)
    send(world, tos(6), 200)
    send(world, tos(4), 20)
    told = settled()
    sink.stop()
    words = ("enqueued", "sent", "dropped_wred", "dropped_tail", "marked_ce")
    rows = at("eth2", told)
    return {
        "rows": {
            f"{q} {p}": {w: rows[q, p][f"{w}_packets"] for w in words}
            for q, p in ((1, 2), (1, 1), (2, 0), (2, 1), (3, 0), (6, 0), (4, 0))
        },
        "peaks": {str(queue): rows[queue, 0]["peak_backlog_bytes"] for queue in range(8)},
        "account": account(told),
        "arrived": sum(sink.packets.values()),
        "ce": sum(sink.ce.values()),
        "bytes": [size for _, _, size in sink.arrivals][:3],
    }


def test_thresholds_limits_marks_and_reserves_decide_as_on_the_emulated_switch(inside: Callable[..., Any]) -> None:
    found = inside(overload)
    rows = found["rows"]
    assert all(row["enqueued"] == row["sent"] for row in rows.values())
    # the packet that finds 20 kB or less is taken; a few leave meanwhile, at 2 Mbit/s
    least = 20_000 // FRAME_BYTES + 1
    assert least <= rows["1 2"]["enqueued"] <= least + 6
    assert rows["1 2"]["enqueued"] + rows["1 2"]["dropped_wred"] == 60
    assert rows["1 1"]["enqueued"] == 10, "its precedence has no profile"
    assert rows["2 0"]["dropped_wred"] == 0
    assert (rows["2 1"]["dropped_wred"], rows["2 1"]["enqueued"]) == (10, 0), "marked where it can be, else dropped"
    assert 40 - least - 6 <= rows["2 0"]["marked_ce"] <= 40 - least
    assert found["ce"] == rows["2 0"]["marked_ce"], "what counts as marked arrives marked"
    limit = 30_000 // FRAME_BYTES
    assert limit <= rows["3 0"]["enqueued"] <= limit + 6
    assert rows["3 0"]["enqueued"] + rows["3 0"]["dropped_tail"] == 60
    assert rows["6 0"]["dropped_tail"] > 100
    assert rows["4 0"]["enqueued"] == 20, "what is reserved is free in a full port"
    assert found["peaks"]["3"] <= 30_000
    assert found["arrived"] == sum(row["sent"] for row in rows.values())
    for came_in, went_out in found["account"].values():
        assert came_in == went_out


def shared() -> dict[str, Any]:
    """A shared buffer, averages and weights: one configuration after the other."""
    world = World()
    found: dict[str, Any] = {}

    def told(intent: QosIntent) -> None:
        box("reset") if found else None
        assert box("apply", world.configuration(intent, 2))["changed"]

    told(QosIntent(name="alpha", port_buffer="500 kB", shared_buffer="40 kB", queues={1: QueueIntent(alpha=1.0)}))
    send(world, tos(1), 60)
    row = at("eth2", settled())[1, 0]
    found["alpha"] = [row["enqueued_packets"], row["dropped_shared_packets"]]
    step = DropProfile(minimum="5 kB", maximum="5 kB")
    for averaging in (0, 9):
        queues = {1: QueueIntent(profiles=(step, None, None), averaging=averaging)}
        told(QosIntent(name=f"averaging {averaging}", port_buffer="500 kB", queues=queues))
        send(world, tos(1), 60)
        found[f"averaging {averaging}"] = at("eth2", settled())[1, 0]["dropped_wred_packets"]
    weighted = {0: QueueIntent(weight=1), 1: QueueIntent(weight=3)}
    told(QosIntent(name="weights", port_buffer="500 kB", queues=weighted))
    sink = Sink(udp(world.hosts["h2"], H2, port=9))
    send(world, tos(7), 8)  # the others wait behind it until both have much
    with udp(world.hosts["h1"], H1, tos(0)) as low, udp(world.hosts["h1"], H1, tos(1)) as high:
        names = [f"{H1}:{one.getsockname()[1]}" for one in (low, high)]
        for _ in range(48):
            low.sendto(PAYLOAD, (H2, 9))
            high.sendto(PAYLOAD, (H2, 9))
    settled()
    order = [names.index(sender) for _, sender, _ in sink.stop().arrivals if sender in names]
    found["weights"] = [len(order), sum(order[8:56])]
    return found


def test_shared_buffers_averages_and_weights_are_those_of_the_emulated_switch(inside: Callable[..., Any]) -> None:
    found = inside(shared)
    taken, dropped = found["alpha"]
    # alone with alpha 1 a queue ends at half of the buffer; a few leave meanwhile
    assert 20_000 // FRAME_BYTES <= taken <= 20_000 // FRAME_BYTES + 8
    assert taken + dropped == 60
    assert found["averaging 0"] >= 60 - 5_000 // FRAME_BYTES - 8
    assert found["averaging 9"] == 0, "the average of 60 packets is still far below"
    packets, of_the_heavier = found["weights"]
    assert packets == 96
    assert 33 <= of_the_heavier <= 39, "three of four, while both wait"


def overtaking() -> dict[str, Any]:
    world = up(QosIntent(name="plain", port_buffer="500 kB"), rate_mbit=1)
    sink = Sink(udp(world.hosts["h2"], H2, port=9))
    with udp(world.hosts["h1"], H1, tos(0)) as low, udp(world.hosts["h1"], H1, tos(7)) as high:
        names = [f"{H1}:{one.getsockname()[1]}" for one in (low, high)]
        for sender in (low, high):
            for _ in range(40):
                sender.sendto(PAYLOAD, (H2, 9))
    settled()
    order = [names.index(sender) for _, sender, _ in sink.stop().arrivals]
    return {"order": order}


def test_a_higher_queue_overtakes_a_lower_one(inside: Callable[..., Any]) -> None:
    order = inside(overtaking)["order"]
    assert len(order) == 80
    first, last = order.index(1), len(order) - 1 - order[::-1].index(1)
    assert first <= 8, "what had left before the higher queue had anything"
    assert last - first + 1 == 40, "then nothing of the lower one until the higher is empty"


BALANCING = ("flow-hash", "per-packet", "round-robin", "flowlet")


def paths() -> dict[str, Any]:
    """Every way to choose, one after the other on one box: changed in place."""
    world = World(links=2)
    found: dict[str, Any] = {}
    sink = Sink(udp(world.hosts["h2"], BEHIND, port=9))
    for mode in BALANCING:
        words: dict[str, Any] = {"name": mode, "port_buffer": "500 kB", "load_balancing": mode, "flowlet_gap": "30 ms"}
        assert box("apply", world.configuration(QosIntent.model_validate(words)))["changed"]
        world.keep_paths(2)
        found[mode] = shared_paths(world.hosts["h1"], mode)
        world.keep_paths(1)
        with udp(world.hosts["h1"], H1) as sender:
            found[mode]["one path"] = burst(sender, 50)
    told = settled()
    return {
        "modes": found,
        "account": account(told),
        "arrived": sum(sink.stop().packets.values()),
        "received": total(told, "eth1", "received_packets"),
    }


def burst(sender: socket.socket, packets: int) -> list[int]:
    """How many of them each of the two ports sends."""
    before = settled()
    for _ in range(packets):
        sender.sendto(PAYLOAD[:200], (BEHIND, 9))
    after = settled()
    return [total(after, port, "sent_packets") - total(before, port, "sent_packets") for port in ("eth2", "eth3")]


def shared_paths(h1: Namespace, mode: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    with udp(h1, H1) as one:
        for _ in range(20):  # both neighbours are resolved, both next hops met
            one.sendto(b"", (BEHIND, 9))
        time.sleep(0.1)
        found["one flow"] = burst(one, 100)
        found["bursts"] = [burst(one, 5) for _ in range(24 if mode == "flowlet" else 2) if time.sleep(0.04) is None]
    before = settled()
    for _ in range(64):
        with udp(h1, H1) as flow:
            flow.sendto(b"", (BEHIND, 9))
    after = settled()
    found["flows"] = [total(after, p, "sent_packets") - total(before, p, "sent_packets") for p in ("eth2", "eth3")]
    return found


def test_equal_paths_are_shared_as_the_intent_says(inside: Callable[..., Any]) -> None:
    found = inside(paths)
    for mode, seen in found["modes"].items():
        one, flows = seen["one flow"], seen["flows"]
        assert (sum(one), sum(flows)) == (100, 64)
        assert seen["one path"] == [50, 0], "the kernel's routes are asked, not remembered"
        if mode in ("flow-hash", "flowlet"):
            assert 0 in one, "without a pause a flow keeps its path"
            assert min(flows) >= 12, "flows spread: binomial(64, 1/2), below 12 once in 10 million times"
            assert all(0 in burst for burst in seen["bursts"])
            moved = len({tuple(burst) for burst in seen["bursts"]}) > 1
            assert moved == (mode == "flowlet"), "a pause frees a flow, by flowlets alone"
        elif mode == "per-packet":
            assert min(one) >= 25, "binomial(100, 1/2): below 25 once in 10 million times"
        else:
            assert abs(one[0] - one[1]) <= 1, "in turn"
    for came_in, went_out in found["account"].values():
        assert came_in == went_out
    assert found["arrived"] == found["received"]


def own_traffic() -> dict[str, Any]:
    """What the box itself says and hears: TCP in super-packets, ARP, a session from a host."""
    world = up(QosIntent(name="plain", port_buffer="4 MB"))
    found: dict[str, Any] = {}
    with world.hosts["h2"].entered():
        listener = socket.create_server((H2, 5001))
    received = bytearray()

    def take() -> None:
        connection, _ = listener.accept()
        while piece := connection.recv(1 << 16):
            received.extend(piece)

    taker = threading.Thread(target=take)
    taker.start()
    with socket.create_connection((H2, 5001)) as sender:
        sender.sendall(bytes(1_000_000))
    taker.join()
    found["tcp"] = len(received)
    told = settled()
    found["tcp account"] = [
        [total(told, "eth2", f"{w}_{u}") for w in ("enqueued", "sent")] for u in ("packets", "bytes")
    ]
    own = socket.create_server(("198.18.1.1", 22022))
    world.hosts["h1"].run(["ip", "neighbour", "flush", "dev", "eth0"])
    with world.hosts["h1"].entered():
        session = socket.create_connection(("198.18.1.1", 22022), timeout=5)
    connection, _ = own.accept()
    connection.sendall(b"here")
    found["session"] = session.recv(10).decode()
    found["ping"] = world.hosts["manager"].run(["ping", "-c1", "-W1", "10.9.9.1"]).count("1 received")
    return found


def test_the_boxs_own_traffic_and_arp_go_on(inside: Callable[..., Any]) -> None:
    found = inside(own_traffic)
    assert found["tcp"] == 1_000_000
    for enqueued, sent in found["tcp account"]:
        assert enqueued == sent > 0, "super-packets count as the packets they become"
    assert found["tcp account"][0][0] >= 1_000_000 // 1448
    assert found["session"] == "here"
    assert found["ping"] == 1

"""The monitors of a run on a real fabric: quiet when all is well, and each can be made to speak."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable
from typing import Any

import numpy as np
from traffic import plain, star, together, tos, udp

from dlcp.model.result import DROP_CAUSES, TABLES
from dlcp.substrates.emulate.fabric import Fabric
from dlcp.substrates.emulate.host_counters import HostLinks, vanished_packets
from dlcp.substrates.emulate.monitors import Watch
from dlcp.substrates.fidelity import BOUNDS

QUEUE = 3
FLOOD_S = 2.0


def flood(fabric: Fabric, seconds: float = FLOOD_S) -> None:
    """h1 and h2 keep the port to h3 full."""
    end_s = time.monotonic() + seconds

    def send(host: str) -> None:
        sender = udp(fabric, host, tos_byte=tos(QUEUE), send_buffer=60_000)
        while time.monotonic() < end_s:
            sender.sendto(bytes(1400), (fabric.address("h3"), 9))

    together(lambda: send("h1"), lambda: send("h2"))


def watched(tampered: str = "", rate: str = "", every_s: float | None = None) -> dict[str, Any]:
    """What the monitors say of a flood into a port of 20 Mbit/s. tampered: a device whose shaper is set to `rate`."""
    with star([20, 20, 20], plain(60_000)) as fabric:
        if tampered:
            tree = f"htb rate {rate} ceil {rate} burst 6056 cburst 6056 quantum 1514"
            leaf = f"htb rate 8bit ceil {rate} prio {7 - QUEUE} burst 1514 cburst 6056 quantum 1514"
            for line in (f"parent 1: classid 1:1 {tree}", f"parent 1:1 classid 1:1{QUEUE} {leaf}"):
                subprocess.run(f"tc class change dev {tampered} {line}", shell=True, check=True)
        graph = fabric._wiring.graph
        before, _ = HostLinks.read_with(fabric, fabric.reset_counters)
        watch = Watch(fabric, graph, every_s)
        begun_s = time.monotonic()
        with watch:
            flood(fabric)
        seconds = time.monotonic() - begun_s
        unaccounted = fabric.conservation(5.0)
        after, ports = HostLinks.read_with(fabric, fabric.counters)
        assert before is not None
        assert after is not None
        sent = sum(row["enqueued_bytes"] for row in ports if row["port"] == "s1-h3")
        table = watch.table()
        return {
            "vanished": vanished_packets(after - before, ports, DROP_CAUSES, 0),
            "unaccounted": unaccounted,
            "dropped": sum(row["dropped_tail_packets"] for row in ports),
            "saturated": watch.saturation.share,
            "utilisation": (sent - 60_000) * 8 / seconds / 20e6,
            "rows": {name: np.asarray(values).tolist() for name, values in table.items()},
            "seconds": seconds,
            "samples": len(watch.samples.times_s),
        }


def test_a_full_port_sends_at_its_rate_and_no_packet_vanishes(inside: Callable[..., Any]) -> None:
    seen = inside(watched)
    assert seen["vanished"] == 0
    assert seen["unaccounted"] == []
    assert seen["dropped"] > 100, "or the port was not full"
    assert BOUNDS["saturated_rate"].holds(seen["saturated"]), seen["saturated"]
    assert BOUNDS["link_utilisation"].holds(seen["utilisation"])
    assert seen["rows"]["time_s"] == [], "nobody asked for samples"


def test_a_shaper_that_is_too_slow_is_seen(inside: Callable[..., Any]) -> None:
    seen = inside(watched, tampered="s1-h3", rate="17mbit")
    assert not BOUNDS["saturated_rate"].holds(seen["saturated"])
    assert 0.8 < seen["saturated"] < 0.9, "17 of 20 Mbit/s"


def test_a_shaper_that_is_too_fast_is_seen(inside: Callable[..., Any]) -> None:
    """Two hosts of 20 Mbit/s send into a port that should carry 20 and lets 30 through."""
    seen = inside(watched, tampered="s1-h3", rate="30mbit")
    assert not BOUNDS["link_utilisation"].holds(seen["utilisation"])


def test_samples_of_the_backlog_are_rows_of_its_table(inside: Callable[..., Any]) -> None:
    seen = inside(watched, every_s=0.01)
    rows = seen["rows"]
    assert list(rows) == list(TABLES["backlog"])
    assert set(rows["port"]) >= {"s1-h3"}
    assert set(rows["switch"]) == {"s1"}
    assert rows["time_s"] == sorted(rows["time_s"])
    full = [
        size
        for port, queue, size in zip(rows["port"], rows["queue"], rows["backlog_bytes"], strict=True)
        if (port, queue) == ("s1-h3", QUEUE)
    ]
    assert max(full) <= 60_000
    assert sorted(full)[len(full) // 2] > 30_000, "the port was kept full"
    assert len(full) > 0.5 * seen["seconds"] / 0.01


def lossy_below() -> int:
    """The kernel drops behind the switch's back: a queue of tc's own holds two frames."""
    with star([20, 20, 20], plain(60_000)) as fabric:
        line = f"tc qdisc change dev s1-h3 parent 1:1{QUEUE} handle 1{QUEUE}: bfifo limit 3028"
        subprocess.run(line, shell=True, check=True)
        before, _ = HostLinks.read_with(fabric, fabric.reset_counters)
        flood(fabric, 0.3)
        fabric.conservation(0.5)
        after, ports = HostLinks.read_with(fabric, fabric.counters)
        assert before is not None
        assert after is not None
        return vanished_packets(after - before, ports, DROP_CAUSES, 0)


def test_a_packet_that_no_switch_knows_of_any_more_has_vanished(inside: Callable[..., Any]) -> None:
    assert not BOUNDS["vanished_packets"].holds(inside(lossy_below))

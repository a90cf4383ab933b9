"""A fabric changes nothing outside of itself, and says nothing on its links that nobody sent."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from footprint import changes, footprint
from traffic import at, leaf_spine, plain, star, udp
from waits import in_time

from dlcp.isolation.private_namespaces import start_private

ETH_P_ALL = 3
UP_WITHIN_S = 20.0


def busy_fabric(arguments: list[str]) -> int:
    """Inside: traffic, injected loss and changed settings, until killed; writes a file when all of it is there."""
    with leaf_spine(plain(load_balancing="per-packet")) as fabric:
        fabric.set_loss("l1", "s1", 0.1)
        sender = udp(fabric, "h1")
        Path(arguments[0]).touch()
        while True:
            sender.sendto(b"x", (fabric.address("h3"), 9))
            time.sleep(0.001)


def test_a_fabric_leaves_the_machine_as_it_was(tmp_path: Path) -> None:
    before = footprint()
    told = tmp_path / "up"
    process = start_private(
        "test_footprint:busy_fabric",
        [str(told)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))},
    )
    try:
        in_time(lambda: told.exists() or process.poll() is not None, UP_WITHIN_S)
        assert told.exists(), "the fabric did not come up"
        assert changes(before, footprint()) == {}, "while it runs"
    finally:
        process.stop()
    assert changes(before, footprint()) == {}, "after it"


def test_the_footprint_sees_what_it_is_to_see() -> None:
    """In a namespace of its own, so that nothing outside changes: a link, a sysctl and a qdisc each show."""
    code = (
        "import subprocess; from footprint import *; before = footprint();"
        "subprocess.run('ip link set lo up; tc qdisc add dev lo root bfifo limit 9000;"
        " echo 1 > /proc/sys/net/ipv4/ip_forward; mount -t tmpfs none /mnt', shell=True, check=True);"
        "print(sorted(changes(before, footprint())))"
    )
    command = ["unshare", "--net", "--mount", sys.executable, "-c", code]
    paths = os.pathsep.join(filter(None, sys.path))
    done = subprocess.run(
        command, env={**os.environ, "PYTHONPATH": paths}, capture_output=True, text=True, timeout=30, check=True
    )
    seen = done.stdout
    for name in ("ip -json link", "ip -json address", "tc -json qdisc", "mounts", "/proc/sys/net/ipv4/ip_forward"):
        assert name in seen


def idle(seconds: float) -> dict[str, Any]:
    """A fabric that nobody uses: frames by what a packet socket hears on every link, and what its switches counted.

    Every link has an end in the switches' namespace, and the socket hears what passes there in both directions. One
    frame at the end shows that it does hear.
    """
    with leaf_spine(plain()) as fabric:
        strays = fabric.strays()
        with socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL)) as listener:
            listener.settimeout(seconds)
            heard = []
            deadline_s = time.monotonic() + seconds
            while (left_s := deadline_s - time.monotonic()) > 0:
                listener.settimeout(left_s)
                try:
                    frame, address = listener.recvfrom(2048)
                    heard.append(f"{address[0]}: {frame[:60].hex()}")
                except TimeoutError:
                    break
            counted = fabric.counters()
            udp(fabric, "h1").sendto(b"x", (fabric.address("h3"), 9))
            listener.settimeout(1.0)
            hears = listener.recvfrom(2048)[1][0]
        return {
            "heard": heard,
            "hears": hears,
            "strays": [row for row in strays + fabric.strays() if row["not_ipv4_packets"] or row["unrouted_packets"]],
            "counted": sum(row["received_packets"] for row in counted),
        }


def test_an_idle_fabric_is_silent(inside: Callable[..., Any]) -> None:
    seen = inside(idle, seconds=1.5)
    assert seen["heard"] == []
    assert seen["strays"] == []
    assert seen["counted"] == 0
    assert seen["hears"], "the listener would have heard"


def quiet_hosts() -> list[list[str | None]]:
    """IPv6 of every host's interface and of the switches', by sysctl and by address."""
    with star([100, 100], plain()) as fabric:
        name = "net.ipv6.conf.all.disable_ipv6"
        spaces = [fabric.namespace("h1"), fabric.namespace("h2")]
        told = [[space.read_sysctl(name), space.run(["ip", "-6", "address", "show"])] for space in spaces]
        at(fabric, "s1-h1")
        shown = subprocess.run(["ip", "-6", "address", "show"], capture_output=True, text=True, check=True).stdout
        return [*told, [Path("/proc/sys/net/ipv6/conf/all/disable_ipv6").read_text().strip(), shown]]


def test_nobody_speaks_ipv6(inside: Callable[..., Any]) -> None:
    for sysctl, addresses in inside(quiet_hosts):
        assert sysctl in ("1", None)
        assert addresses == ""

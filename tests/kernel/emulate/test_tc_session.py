"""A tc that stays: its answers line by line, its complaints as errors, its end and another beginning."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any

from dlcp.errors import Problem
from dlcp.isolation.netns import Namespace
from dlcp.substrates.emulate.device_names import Devices
from dlcp.substrates.emulate.tc_session import TcSession

LOOKS = 500
"""At a device that comes up, 10 ms apart."""


def conversation() -> dict[str, Any]:
    """With two devices of this private world."""
    here = Namespace("here", os.getpid())
    here.run(["ip", "link", "add", "one", "type", "veth", "peer", "two"])
    session = TcSession(here)
    complaints = []

    def complaint(*lines: str) -> None:
        try:
            session.run(lines)
        except Problem as problem:
            complaints.append(str(problem))

    rate = "htb rate 1mbit quantum 1514"
    session.run(["qdisc add dev one root handle 1: htb default 10", f"class add dev one parent 1: classid 1:1 {rate}"])
    complaint("class change dev one classid 1:9 htb", "qdisc add dev two root bfifo")
    complaint("no such thing")
    many = session.ask(["class show dev one", "class show dev two"] * 2000)
    session.close()
    return {
        "complaints": complaints,
        "classes": sorted({words.split(" root")[0] for words in many}),
        "answers": len(many),
        "again": session.ask(["qdisc show dev two"])[0].split(" root")[0],
    }


def test_every_line_has_its_own_answer(inside: Callable[..., Any]) -> None:
    seen = inside(conversation)
    assert seen["classes"] == ["", "class htb 1:1"]
    assert seen["answers"] == 4000
    assert seen["again"].startswith("qdisc bfifo"), "what follows a line that fails is carried out"
    first, second = seen["complaints"]
    assert first.startswith("here: `tc class change dev one classid 1:9 htb` failed: ")
    assert 'Object "no" is unknown' in second


def comes_up(devices: Devices, device: str) -> bool:
    """The kernel says that a link is up a moment after both its ends were set up."""
    return any(devices.is_up(device) or time.sleep(0.01) for _ in range(LOOKS))


def offloads() -> dict[str, Any]:
    """By ioctl and by ethtool."""
    here = Namespace("here", os.getpid())
    here.run(["ip", "link", "add", "one", "type", "veth", "peer", "two"])
    with Devices(here) as devices:
        before = devices.offloads("one")
        up = [devices.is_up("one")]
        devices.disable_offloads("one")
        here.run(["ip", "-batch", "-"], ["link set one up", "link set two up"])
        up.append(comes_up(devices, "one"))
        after, other = devices.offloads("one"), devices.offloads("two")
    return {"before": before, "after": after, "other": other, "up": up, "said": here.run(["ethtool", "-k", "one"])}


def test_offloads_are_switched_off_as_ethtool_sees_it(inside: Callable[..., Any]) -> None:
    seen = inside(offloads)
    assert seen["before"] == seen["other"]
    assert {"tx-tcp-segmentation", "tx-generic-segmentation", "tx-udp-segmentation"} <= set(seen["before"])
    assert seen["after"] == []
    for name in ("tcp-segmentation-offload", "generic-segmentation-offload", "generic-receive-offload"):
        assert f"{name}: off" in seen["said"]
    assert seen["up"] == [False, True]

"""Whatever is configured is compared with what the kernel says: a change behind the fabric's back is found."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import pytest
from traffic import plain, star

from dlcp.errors import MachineCannot, Problem
from dlcp.isolation.netns import Namespace
from dlcp.model.host_settings import HostSettings
from dlcp.model.qos import DropProfile, QosIntent, QueueIntent
from dlcp.switches.bpf.map_structs import PortConfig

ROUTE = "198.18.0.0/15 dev h1-eth0 proto kernel scope link src 198.18.0.1"
CHANGE = "tc class change dev s1-h1 parent 1:1 classid 1:13 htb"

TAMPERINGS = {
    "class rate": (
        None,
        "tc class change dev s1-h1 parent 1:1 classid 1:13 htb rate 1mbit ceil 5mbit prio 4 quantum 1514",
    ),
    "class priority": (
        None,
        "tc class change dev s1-h1 parent 1:1 classid 1:13 htb rate 8bit ceil 20mbit prio 1 quantum 1514",
    ),
    "class missing": (None, "tc class del dev s1-h2 classid 1:14"),
    "leaf limit": (None, "tc qdisc change dev s1-h1 parent 1:12 handle 12: bfifo limit 9000"),
    "foreign qdisc": ("h1", "tc qdisc replace dev h1-eth0 root handle 3: bfifo limit 9000"),
    "bucket rate": ("h1", "tc qdisc change dev h1-eth0 root handle 2: tbf rate 21mbit burst 3028 limit 268435456"),
    "program missing": (None, "tc filter del dev s1-h1 ingress"),
    "host's program missing": ("h2", "tc filter del dev h2-eth0 egress"),
    "offload on": ("h1", "ethtool -K h1-eth0 gso on"),
    "timer floor": (
        "h1",
        f"ip route change {ROUTE} congctl cubic",
    ),
    "foreign route": ("h1", "ip route add default dev h1-eth0"),
    "neighbour missing": ("h1", "ip neighbour del 198.18.0.2 dev h1-eth0"),
}


def tampered(host: str | None, command: str) -> str:
    """What verify() says after a command; "" when it finds nothing."""
    with star([20, 20], plain(), HostSettings(rto_min_s=0.005)) as fabric:
        fabric.verify()
        namespace = fabric.namespace(host) if host else Namespace("switches", 1)
        namespace.run(["sh", "-c", command])
        try:
            fabric.verify()
        except Problem as problem:
            return str(problem)
        return ""


@pytest.mark.parametrize("name", TAMPERINGS)
def test_a_change_is_found(inside: Callable[..., Any], name: str) -> None:
    host, command = TAMPERINGS[name]
    said = inside(tampered, host=host, command=command)
    assert said.startswith(host or "switches"), f"{command!r} went unnoticed: {said!r}"


def map_changed() -> str:
    """A switch port's map value is overwritten."""
    with star([20, 20], plain()) as fabric:
        fabric.verify()
        switches = fabric._live
        switches.program.ports[ctypes.c_uint32(switches.ports[0].ifindex)] = PortConfig()
        try:
            fabric.verify()
        except Problem as problem:
            return str(problem)
        return ""


def test_a_changed_map_is_found(inside: Callable[..., Any]) -> None:
    assert inside(map_changed).startswith("s1-h1: ")


INTENT = QosIntent(
    name="mixed",
    port_buffer=60_000,
    queues={
        3: QueueIntent(
            reserved=9_000,
            profiles=(None, DropProfile(minimum=1_000, maximum=2_000, probability=0.25, mark=True), None),
        )
    },
    load_balancing="per-packet",
)


def described() -> dict[str, Any]:
    """Fabric.effective() of INTENT with knobs on the hosts."""
    settings = HostSettings(
        sysctls={"net.ipv4.tcp_congestion_control": "reno", "net.ipv4.tcp_ecn": "1"}, rto_min_s=0.005
    )
    with star([20, 30], INTENT, settings) as fabric:
        assert fabric.intended() == fabric.effective()
        return fabric.effective()


def test_effective_is_what_was_intended(inside: Callable[..., Any]) -> None:
    effective = inside(described)
    assert effective["load_balancing"] == {"s1": "per-packet"}
    profile = {"minimum_bytes": 1_000, "maximum_bytes": 2_000, "probability": 0.25, "mark": True}
    assert effective["ports"] == {
        "all": {
            "port_buffer_bytes": 60_000,
            "loss": 0.0,
            "up": True,
            "queues": {"3": {"reserved_bytes": 9_000, "profiles": [None, profile, None]}},
        }
    }
    assert effective["hosts"] == {
        "all": {
            "congestion_control": "reno",
            "rto_min_s": 0.005,
            "sysctls": {"net.ipv4.tcp_ecn": "1"},
        }
    }


def refused(sysctls: dict[str, str]) -> list[Any]:
    """How a fabric refuses host settings that this kernel has not: [text, exit code]."""
    try:
        with star([20, 20], plain(), HostSettings(sysctls=sysctls)):
            return ["", 0]
    except MachineCannot as problem:
        return [str(problem), int(problem.exit_code)]


@pytest.mark.parametrize(
    "sysctls", [{"net.ipv4.no_such_knob": "1"}, {"net.ipv4.tcp_congestion_control": "nosuch"}], ids=["sysctl", "tcp"]
)
def test_a_setting_that_the_kernel_lacks_is_an_error(inside: Callable[..., Any], sysctls: dict[str, str]) -> None:
    text, code = inside(refused, sysctls=sysctls)
    assert text.startswith("h1: ")
    assert code == 3

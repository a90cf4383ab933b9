"""A Linux box that is a switch, hosts around it, and a management interface; in the private namespaces of a scenario.

The box is the scenario's own network namespace; hosts have one each.
"""

from __future__ import annotations

import io
import json
import os
import socket
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from waits import in_time, wait_until

from dlcp.isolation.netns import Namespace
from dlcp.model.lab.device import Device
from dlcp.model.qos import QosIntent
from dlcp.switches.devices import Devices
from dlcp.switches.linux.__main__ import answer
from dlcp.switches.vendor.render import render

STATE = Path("/run/dlcp/state")
MANAGEMENT = "mgmt0"
SETTLED_WITHIN_S = 10.0
_SO_RCVBUFFORCE = 33
BEHIND = "198.18.9.9"
"""Of h2, which the box reaches by two equal next hops where the world has two links to it."""


def run(*command: str, check: bool = True) -> str:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert not check or done.returncode == 0, f"{' '.join(command)}: {done.stderr}"
    return done.stdout


class World:
    """Hosts h1, h2 and a manager. ports: port of the box → (host, its device); port N is 198.18.N.1/24 here, .2 there.

    Host h1 is at eth1; all others are the links of h2, with 198.18.9.9 behind them.
    """

    def __init__(self, links: int = 1) -> None:
        for name in ("all", "default"):
            Path(f"/proc/sys/net/ipv6/conf/{name}/disable_ipv6").write_text("1")
        self._sleepers = [subprocess.Popen(["unshare", "--net", "sleep", "120"]) for _ in range(3)]
        ours = os.readlink("/proc/self/ns/net")
        for sleeper in self._sleepers:
            link = f"/proc/{sleeper.pid}/ns/net"
            wait_until(lambda link=link: os.readlink(link) != ours, "unshare has made a namespace", every_s=0.002)
        names = ("h1", "h2", "manager")
        self.hosts = {n: Namespace(n, s.pid) for n, s in zip(names, self._sleepers, strict=True)}
        self.ports = ["eth1", *(f"eth{2 + i}" for i in range(links))]
        for number, port in enumerate(self.ports, 1):
            host, device = ("h1", "eth0") if number == 1 else ("h2", f"eth{number}")
            self._link(port, f"198.18.{number}.1/24", host, device, f"198.18.{number}.2/24")
        self._link(MANAGEMENT, "10.9.9.1/24", "manager", "eth0", "10.9.9.2/24")
        self.hosts["h1"].run(["ip", "route", "add", "default", "via", "198.18.1.1"])
        self.hosts["h2"].run(
            ["ip", "-batch", "-"], [f"address add {BEHIND}/32 dev lo", "route add default via 198.18.2.1"]
        )
        self.keep_paths(links)
        with Devices("the box") as devices:
            ports = (*self.ports, MANAGEMENT)
            wait_until(lambda: all(devices.is_up(port) for port in ports), "all ports are up", every_s=0.005)
        for host in ("h1", "h2"):
            self.hosts[host].write_sysctl("net.ipv4.conf.all.rp_filter", "0")
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")

    def _link(self, port: str, address: str, host: str, device: str, far_address: str) -> None:
        far = self.hosts[host]
        run("ip", "link", "add", port, "type", "veth", "peer", "name", device, "netns", str(far.pid))
        run("ip", "address", "add", address, "dev", port)
        run("ip", "link", "set", "dev", port, "up")
        far.run(
            ["ip", "-batch", "-"],
            [f"address add {far_address} dev {device}", *(f"link set dev {one} up" for one in ("lo", device))],
        )
        far.run(["ethtool", "-K", device, *["gso", "off", "tso", "off", "gro", "off", "tx-udp-segmentation", "off"]])

    def keep_paths(self, count: int) -> None:
        """Have so many next hops to BEHIND, as a routing daemon does when a link dies or comes back."""
        hops = " ".join(f"nexthop via 198.18.{number}.2" for number in range(2, 2 + count))
        run("ip", "route", "replace", BEHIND, *hops.split())

    def configuration(
        self, intent: QosIntent, rate_mbit: float = 100, ports: Sequence[str] | None = None, chip: str = "veth"
    ) -> dict[str, Any]:
        """What is sent to the box: rendered, with its digest."""
        device = Device(
            name="box",
            system="linux",
            chip=chip,
            ports=dict.fromkeys(ports or self.ports, rate_mbit * 1e6),
            management=(MANAGEMENT,),
            buffer=64_000_000,
            port_buffer=64_000_000,
            queue=64_000_000,
        )
        made = render(intent, device)
        return {"configuration": made.configuration, "digest": made.digest, "management": [MANAGEMENT]}


def box(verb: str, request: Any = None) -> dict[str, Any]:
    """Ask the box, in this process; {"problem": …, "code": …} where it refuses."""
    said, sys.stdin = sys.stdin, io.StringIO("" if request is None else json.dumps(request))
    try:
        code, found = answer(verb, str(STATE))
    finally:
        sys.stdin = said
    return json.loads(json.dumps(found)) | ({"code": int(code)} if code else {})


def command(verb: str, request: Any = None, *before: str, environment: dict[str, str] | None = None) -> dict[str, Any]:
    """Ask it as a controller does; before: what the command runs under."""
    done = subprocess.run(
        [*before, sys.executable, "-m", "dlcp.switches.linux", verb, "--state", str(STATE)],
        input="" if request is None else json.dumps(request),
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | (environment or {}),
    )
    assert done.stdout, done.stderr
    found: dict[str, Any] = json.loads(done.stdout)
    assert ("problem" in found) == (done.returncode != 0), done.stdout + done.stderr
    return found | ({"code": done.returncode} if done.returncode else {})


def at(port: str, told: dict[str, Any]) -> dict[tuple[int, int], dict[str, Any]]:
    """(queue, precedence) → row, of one port, of what `counters` tells."""
    return {(row["queue"], row["precedence"]): row for row in told["rows"] if row["port"] == port}


def total(told: dict[str, Any], port: str, column: str) -> int:
    """Of all queues and precedences."""
    return sum(int(row[column]) for row in at(port, told).values())


def account(told: dict[str, Any]) -> dict[str, list[int]]:
    """Packets and bytes: [received at all ports, sent or dropped or waiting at all]; equal where all that came in was
    for others, and nothing came from the box itself."""
    drops = ("dropped_wred", "dropped_tail", "dropped_shared", "dropped_loss")
    found = {}
    for unit in ("packets", "bytes"):
        enqueued = sum(row[f"enqueued_{unit}"] + sum(row[f"{drop}_{unit}"] for drop in drops) for row in told["rows"])
        found[unit] = [sum(row[f"received_{unit}"] for row in told["rows"]), enqueued]
    sent = sum(row["sent_bytes"] for row in told["rows"]) + sum(told["waiting_bytes"].values())
    found["through"] = [sum(row["enqueued_bytes"] for row in told["rows"]), sent]
    return found


def settled() -> dict[str, Any]:
    """The counters once nothing waits."""
    in_time(lambda: not sum(box("counters")["waiting_bytes"].values()), SETTLED_WITHIN_S, every_s=0.02)
    return box("counters")


def udp(host: Namespace, address: str, tos_byte: int = 0, port: int = 0) -> socket.socket:
    """A UDP socket of a host."""
    with host.entered():
        made = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    made.setsockopt(socket.SOL_SOCKET, _SO_RCVBUFFORCE, 64 << 20)
    made.setsockopt(socket.IPPROTO_IP, socket.IP_TOS, tos_byte)
    made.bind((address, port))
    return made


def picture(ports: Sequence[str]) -> dict[str, str]:
    """All that a box could have touched, as text: links, addresses, routes, queues, filters, offloads, sysctls."""
    found = {
        "links": run("ip", "-details", "link", "show"),
        "addresses": run("ip", "address", "show"),
        "routes": run("ip", "route", "show", "table", "all"),
        "queues": run("tc", "qdisc", "show"),
    }
    for port in (*ports, MANAGEMENT):
        found[f"offloads of {port}"] = run("ethtool", "-k", port)
        for hook in ("ingress", "egress"):
            found[f"{hook} of {port}"] = run("tc", "filter", "show", "dev", port, hook, check=False)
    values = subprocess.run(["sysctl", "-a"], capture_output=True, text=True, check=False).stdout.splitlines()
    moving = ("random", ".dentry", ".file-nr", ".inode", "ns_last_pid", "net.netfilter", "nr_free", "sched_domain")
    found["sysctls"] = "\n".join(
        line for line in values if line.startswith("net.") and not any(m in line for m in moving)
    )
    return found


def changed(before: dict[str, str], after: dict[str, str]) -> dict[str, list[str]]:
    """Which parts of two pictures differ, and both."""
    return {name: [before[name], after[name]] for name in before if before[name] != after[name]}

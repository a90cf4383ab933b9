"""Where the ranks of an all-reduce are: all on loopback, or each in a namespace around a Linux bridge."""

from __future__ import annotations

import os
from dataclasses import dataclass, field

from dlcp.bench.channel import Channel
from dlcp.bench.transport.endpoint_placement import World, drop_at_random, drops_of, offloads_off, own_namespace
from dlcp.errors import MachineCannot, Problem
from dlcp.isolation.netns import Namespace
from dlcp.substrates.emulate import interfaces

RANK_MODULE = "dlcp.bench.allreduce.rank"
_TCP_CONGESTION_CONTROL = "cubic"
"""Linux's own default; some machines are set to another."""


class LoopbackStar(World):
    """Ranks on loopback: rank r has 127.0.0.(r + 1) for DLCP."""

    interface = "lo"

    def start_ranks(self, count: int) -> list[Channel]:
        """Start them; their control channels in order."""
        return [self.spawn(RANK_MODULE, f"rank {rank}") for rank in range(count)]

    def rank_address(self, rank: int) -> str:
        """Where its endpoint is."""
        return f"127.0.0.{rank + 1}"


@dataclass
class BridgeStar(LoopbackStar):
    """Ranks in namespaces, each with one link to a bridge. loss: share of the packets that rank 0's link drops at
    random, in each direction. Host veths have their offloads off."""

    loss: float = 0.0
    where: str = "namespaces"
    interface = "eth0"
    _spaces: list[Namespace] = field(default_factory=list)

    def start_ranks(self, count: int) -> list[Channel]:
        """As on loopback. MachineCannot when this kernel has no bridge or no cubic."""
        channels = [self.spawn(RANK_MODULE, f"rank {rank}", "unshare", "--net") for rank in range(count)]
        bridge = Namespace("bridge", os.getpid())
        try:
            interfaces.disable_ipv6(bridge)
            try:
                bridge.run(["ip", "link", "add", "bridge0", "type", "bridge"])
            except Problem as problem:
                raise MachineCannot("bridge", problem.what, "modprobe bridge") from problem
            bridge.run(["ip", "link", "set", "bridge0", "up"])
            for rank, channel in enumerate(channels):
                self._attach(bridge, rank, channel)
            if self.loss:
                drop_at_random(bridge, "port0", self.loss)
                drop_at_random(self._spaces[0], "eth0", self.loss)
        finally:
            bridge.close()
        return channels

    def rank_address(self, rank: int) -> str:
        """198.18.0.(r + 1)."""
        return f"198.18.0.{rank + 1}"

    def drops(self) -> dict[str, int]:
        """Packets that rank 0's link has dropped at random."""
        if not self.loss:
            return {}
        bridge = Namespace("bridge", os.getpid())
        try:
            return {
                "random, from rank 0": drops_of(bridge, "port0", "clsact"),
                "random, to rank 0": drops_of(self._spaces[0], "eth0", "clsact"),
            }
        finally:
            bridge.close()

    def close(self) -> None:
        """As World.close."""
        super().close()
        for space in self._spaces:
            space.close()

    def _attach(self, bridge: Namespace, rank: int, channel: Channel) -> None:
        pid = self.processes[rank].pid
        space = own_namespace(channel, f"rank {rank}", pid)
        self._spaces.append(space)
        bridge.run(["ip", "-batch", "-"], [f"link add port{rank} type veth peer name eth0 netns {pid}"])
        offloads_off(bridge, f"port{rank}")
        bridge.run(["ip", "-batch", "-"], [f"link set port{rank} master bridge0", f"link set port{rank} up"])
        offloads_off(space, "eth0")
        address = self.rank_address(rank)
        route = f"198.18.0.0/24 dev eth0 proto kernel scope link src {address} congctl {_TCP_CONGESTION_CONTROL}"
        lines = ["link set lo up", f"address add {address}/24 dev eth0", "link set eth0 up", f"route change {route}"]
        space.run(["ip", "-batch", "-"], lines)

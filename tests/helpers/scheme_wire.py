"""A scheme's messages in virtual time: what its settings make of the packets that leave."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from virtual_time import MS, US, Floats, Key, Node, Packet, World

from dlcp import schemes
from dlcp.model.experiment import Scaling
from dlcp.model.transport.settings import TransportSettings
from dlcp.model.workload import Job, Profile
from dlcp.patterns import pattern_of
from dlcp.patterns.base import Traffic
from dlcp.transport._native import lib
from dlcp.transport.contract.tensors import Tensor, plan_tensors
from dlcp.transport.dlcp_endpoint import _native_bound

LAB = Scaling(lab_rate="10 Gbit/s", byte_scale=100)
BUFFER_BYTES = 40_000
BUCKET_BYTES = 40_000
JOB = Job(workload="model", workers=("h1", "h2"), servers=("h3",), iterations=10, bucket=str(BUCKET_BYTES) + " B")
MODEL = Profile(
    kind="profile",
    name="model",
    source="made up",
    source_quality="derived",
    device="none",
    batch=1,
    parameters=1,
    layers=({"name": "only", "parameters": 1, "forward": 0.0, "backward": 0.0},),
)
LAYERS = [(f"layer{i}", 10_000) for i in range(10)]
"""Ten buckets of 40 kB, 28 packets each."""


def settings_of(name: str, **knobs: object) -> TransportSettings:
    """What the agents of a scheme are told."""
    return schemes.scheme_class(name).model_validate(knobs).for_job(JOB, MODEL).transport(LAB)


@dataclass
class Pushed:
    """All tensors of one iteration, pushed by rank 0 to rank 1.

    packets: that left, in order. sent, got: by tensor. lost_bytes: by tensor.
    """

    world: World
    tensors: list[Tensor]
    sent: list[Floats]
    got: list[Floats]
    packets: list[Packet] = field(default_factory=list)

    def data(self, tensor: int | None = None) -> list[Packet]:
        """DATA packets in the order in which they left, of one tensor or of all."""
        return [p for p in self.packets if p.type == lib.DLCP_DATA and tensor in (None, tensor_of(p))]

    @property
    def lost_bytes(self) -> list[int]:
        found = {done.key.tensor: done.lost_bytes for done in self.world.nodes[1].done if done.received}
        return [found[tensor] for tensor in range(len(self.tensors))]


def tensor_of(packet: Packet) -> int:
    return int.from_bytes(packet.data[12:14], "big")


def resent(packet: Packet) -> bool:
    return bool(packet.data[1] & lib.DLCP_FLAG_RETRANSMISSION)


def gradients(tensors: list[Tensor]) -> list[Floats]:
    """Of uneven magnitude: every other packet is ten times as large."""
    found = []
    for number, tensor in enumerate(tensors):
        scale = np.where(np.arange(tensor.elements) // 360 % 2, 1.0, 10.0)
        found.append((scale * np.random.default_rng(number).normal(size=tensor.elements)).astype(np.float32))
    return found


def push_all(
    settings: TransportSettings,
    network: Callable[[World, Packet], None] | None = None,
    layers: list[tuple[str, int]] | None = None,
) -> Pushed:
    """Push every tensor at once, the last one first as a backward pass does; returns when all is over."""
    tensors = plan_tensors(layers or LAYERS, BUCKET_BYTES, 1, settings)
    nodes = {rank: Node(rank, [1 - rank], settings) for rank in (0, 1)}
    pushed = Pushed(World(nodes, lambda w, p: None), tensors, gradients(tensors), [])
    passes = network or (lambda world, packet: world.deliver(packet, world.now_ns + 300 * US))

    def tap(world: World, packet: Packet) -> None:
        if packet.source == 0:
            pushed.packets.append(packet)
        passes(world, packet)

    pushed.world.network = tap
    declarations = pattern_of(JOB.pattern).declarations(Traffic(1, 1, tensors, settings, JOB.iterations))
    for node in nodes.values():
        for each in declarations:
            (ppm, energy_ppm) = _native_bound(each.push_bound)
            node.declare(
                each.number,
                each.elements,
                (ppm, 0),
                each.queue,
                (energy_ppm, lib.DLCP_PPM),
                droppable=int(each.droppable),
                must_arrive=each.must_arrive,
                must_arrive_ppm=round(settings.must_arrive_largest * lib.DLCP_PPM),
            )
    pushed.got = [np.full(tensor.elements, np.nan, np.float32) for tensor in tensors]
    for number in reversed(range(len(tensors))):
        nodes[1].receive(0, Key(0, number), pushed.got[number], 0)
        nodes[0].send(1, Key(0, number), pushed.sent[number], 0)
    pushed.world.run(60_000 * MS, lambda: not any(node.under_way() for node in nodes.values()))
    for node in nodes.values():
        pushed.world.run_node(node)
        assert not node.under_way(), node.describe(pushed.world.now_ns)
    return pushed

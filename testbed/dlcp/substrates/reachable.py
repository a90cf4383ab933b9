"""The reachable bound: the least completion time that any transport could have for a job on a fabric.

The ideal line (substrates/ideal.py) moves payload alone and lets every byte travel at any time. Here packets have
headers, no gradient travels before it is computed, and no layer computes before its parameters are there. Everything
else is left to the transport: any order, no control packets, no queues, no loss, no propagation. The whole gradient
travels; a scheme that is allowed to lose a share of it can be faster by as much.

Of any pattern, with I iterations, forward time F, and A the backward time until the first bucket is ready:

    JCT ≥ F + A + I · (time that the busiest direction of a link needs for all frames of an iteration)
    JCT ≥ I · (forward + backward)

since a link carries nothing of an iteration before the iteration's first bucket is ready anywhere. Where servers sum
whole buckets, more is known of each server. N workers push bucket b in wire time w(b); its layers from the first on
take f(b) forward, and g(b) backward until it is ready.

    JCT ≥ F + A + I · N · Σ w + (I - 1) · gap + last,   A, Σ, gap and last over the server's own buckets
    gap  = min over b of  w(b) + f(b) + A:  after the last push of an iteration came, of bucket b, its sum has to reach
           a worker, which computes forward from b's first layer on, and backward until a bucket of the server is ready
    last = min over b of  N · w(b):  the sum of the last bucket has to reach all workers
    JCT ≥ (forward before b's first layer) + I · (f(b) + g(b) + N · w(b)) + (I - 1) · w(b) + N · w(b)   for every b

The last line is the chain of one bucket: let s be the instant when the first worker begins b's first layer in an
iteration. No push of b begins before s + f(b) + g(b), N of them need the server's link for N · w(b), and the sum needs
w(b) to reach the first worker.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from dlcp.agents.job_spec import JobSpec
from dlcp.model.frames import TCP_OVERHEAD_BYTES, TCP_PAYLOAD_BYTES
from dlcp.model.topology import Graph
from dlcp.model.transport.settings import TransportSettings
from dlcp.patterns import pattern_of
from dlcp.substrates.ideal import Transfer, ideal_communication_s


@dataclass(frozen=True)
class Framing:
    """Payload bytes of a full packet, and header bytes of each packet from Ethernet's on."""

    payload_bytes: int
    header_bytes: int

    def frames_bytes(self, size_bytes: float) -> float:
        """Return a message's bytes on a link."""
        return size_bytes + self.header_bytes * -(-size_bytes // self.payload_bytes)


LEAST_FRAMING = Framing(TCP_PAYLOAD_BYTES, TCP_OVERHEAD_BYTES)
"""The framing of TCP with timestamps: of all transports here the one with the fewest headers a byte."""


@dataclass(frozen=True)
class Bucket:
    """A bucket at its server. before_s: forward compute of the layers before its first. forward_s: of its first layer
    and all after it. ready_s: backward compute until it is ready. wire_s: how long one message of it takes on the
    server's link."""

    before_s: float
    forward_s: float
    ready_s: float
    wire_s: float


def reachable_jct_s(
    graph: Graph, spec: JobSpec, settings: TransportSettings, compute_s: float, framing: Framing = LEAST_FRAMING
) -> float | None:
    """Return the bound, in seconds of the host as all times of the spec are. compute_s: of an iteration, where the
    spec's layers declare none. None where the bytes of codes are not known before."""
    pattern, traffic = pattern_of(spec.pattern), spec.traffic(settings)
    messages = list(pattern.messages(traffic))
    if any(message.variable for message in messages):
        return None
    transfers = [
        Transfer(spec.hosts[message.source], spec.hosts[message.destination], framing.frames_bytes(message.size_bytes))
        for message in messages
    ]
    buckets = [
        _bucket(spec, tensor.first_layer, framing.frames_bytes(tensor.size_bytes) * 8) for tensor in traffic.tensors
    ]
    busiest_s = ideal_communication_s(graph, transfers)
    forward_s = sum(layer.forward_s for layer in spec.layers)
    first_s = forward_s + min(bucket.ready_s for bucket in buckets)
    bounds = [first_s + spec.iterations * busiest_s, spec.iterations * max(compute_s, spec.compute_s)]
    if pattern.sums_at_servers and settings.compression is None:
        for index, server in enumerate(spec.servers):
            leaf = graph.neighbours[server][0]
            rate_bps = max(graph.link_rate_bps(leaf, server), graph.link_rate_bps(server, leaf))
            at_server = [
                Bucket(bucket.before_s, bucket.forward_s, bucket.ready_s, bucket.wire_s / rate_bps)
                for bucket, tensor in zip(buckets, traffic.tensors, strict=True)
                if tensor.server == index
            ]
            if at_server:
                bounds.append(least_at_server_s(at_server, len(spec.workers), spec.iterations))
    return max(bounds)


def least_at_server_s(buckets: Sequence[Bucket], workers: int, iterations: int) -> float:
    """Return the least time of a job by what one server has to carry. buckets: its own."""
    first_ready_s = min(bucket.ready_s for bucket in buckets)
    pushes_s = workers * sum(bucket.wire_s for bucket in buckets)
    gap_s = min(bucket.wire_s + bucket.forward_s + first_ready_s for bucket in buckets)
    last_s = workers * min(bucket.wire_s for bucket in buckets)
    forward_s = buckets[0].before_s + buckets[0].forward_s
    by_load_s = forward_s + first_ready_s + iterations * pushes_s + (iterations - 1) * gap_s + last_s
    return max(by_load_s, *(_chain_s(bucket, workers, iterations) for bucket in buckets))


def _chain_s(bucket: Bucket, workers: int, iterations: int) -> float:
    """Return the least time by what one bucket has to go through."""
    round_s = bucket.forward_s + bucket.ready_s + workers * bucket.wire_s
    return bucket.before_s + iterations * round_s + (iterations - 1 + workers) * bucket.wire_s


def _bucket(spec: JobSpec, first_layer: int, frames_bits: float) -> Bucket:
    """Return a bucket whose wire_s is yet in bits."""
    layers = spec.layers
    return Bucket(
        sum(layer.forward_s for layer in layers[:first_layer]),
        sum(layer.forward_s for layer in layers[first_layer:]),
        sum(layer.backward_s for layer in layers[first_layer:]),
        frames_bits,
    )

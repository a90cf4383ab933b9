"""The reachable bound: cases worked by hand, and schedulers that know everything and never beat it."""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcp.agents.job_spec import JobSpec, LayerWork
from dlcp.model.frames import FRAME_BYTES, PAYLOAD_BYTES
from dlcp.model.topology import Star
from dlcp.model.transport.settings import TransportSettings
from dlcp.substrates.reachable import LEAST_FRAMING, Bucket, Framing, least_at_server_s, reachable_jct_s

DLCP_FRAMING = Framing(PAYLOAD_BYTES, FRAME_BYTES - PAYLOAD_BYTES)
SETTINGS = TransportSettings(kind="dlcp")
PACKET = 360


def spec_of(
    pattern: str, workers: int, layers: list[tuple[int, float, float]], iterations: int = 2, packets: int = 1
) -> JobSpec:
    """A job on a star. layers: elements, forward and backward seconds. packets: of a bucket."""
    servers = () if pattern != "parameter-server" else (f"h{workers + 1}",)
    return JobSpec(
        name="job",
        kind="profile",
        workers=tuple(f"h{number + 1}" for number in range(workers)),
        servers=servers,
        pattern=pattern,
        iterations=iterations,
        warmup_iterations=1,
        bucket_bytes=PACKET * 4 * packets,
        seed=1,
        layers=tuple(
            LayerWork(name=str(number), elements=elements, forward_s=forward_s, backward_s=backward_s)
            for number, (elements, forward_s, backward_s) in enumerate(layers)
        ),
    )


def test_one_bucket_and_no_compute__takes_its_pushes_and_pulls() -> None:
    """Two workers, one full packet, 1 Mbit/s: N pushes, one pull, N pushes, N pulls."""
    graph = Star(kind="star", hosts=3, rate="1 Mbit/s").graph
    frame_s = FRAME_BYTES * 8 / 1e6
    spec = spec_of("parameter-server", 2, [(PACKET, 0.0, 0.0)])
    assert reachable_jct_s(graph, spec, SETTINGS, 0.0, DLCP_FRAMING) == pytest.approx((2 + 1 + 2 + 2) * frame_s)


def test_two_layers__compute_and_links_take_turns() -> None:
    """The front layer is pushed last and needed first: its chain is the bound where links are fast."""
    graph = Star(kind="star", hosts=2, rate="1 Gbit/s").graph
    frame_s = FRAME_BYTES * 8 / 1e9
    spec = spec_of("parameter-server", 1, [(PACKET, 0.1, 0.2), (PACKET, 0.1, 0.2)], iterations=3)
    assert reachable_jct_s(graph, spec, SETTINGS, 0.0, DLCP_FRAMING) == pytest.approx(3 * 0.6 + 6 * frame_s)


@pytest.mark.parametrize("pattern", ["ring", "transpose"])
def test_patterns_without_servers__have_headers_and_the_first_bucket(pattern: str) -> None:
    """Of three workers each sends 2 · 2 / 3 of 12 packets an iteration, after forward and the back layer's backward."""
    graph = Star(kind="star", hosts=3, rate="1 Mbit/s").graph
    spec = spec_of(pattern, 3, [(6 * PACKET, 0.01, 0.02), (6 * PACKET, 0.03, 0.04)], packets=6)
    first_s, frames_s = 0.01 + 0.03 + 0.04, 2 * 16 * FRAME_BYTES * 8 / 1e6
    assert reachable_jct_s(graph, spec, SETTINGS, 0.0, DLCP_FRAMING) == pytest.approx(first_s + frames_s)


def test_compute_that_no_layer_declares__is_a_bound_too() -> None:
    graph = Star(kind="star", hosts=2, rate="1 Gbit/s").graph
    spec = spec_of("parameter-server", 1, [(PACKET, 0.0, 0.0)])
    assert reachable_jct_s(graph, spec, SETTINGS, 7.0) == 14.0


def test_codes_of_unknown_length__have_no_bound() -> None:
    graph = Star(kind="star", hosts=2, rate="1 Gbit/s").graph
    topk = TransportSettings.model_validate({"kind": "tcp", "compression": {"method": "dgc"}})
    assert reachable_jct_s(graph, spec_of("parameter-server", 1, [(PACKET * 9, 0.0, 0.0)]), topk, 1.0) is None


def test_least_framing__is_the_least() -> None:
    """Of a message of any size that fills packets."""
    assert LEAST_FRAMING.frames_bytes(1e6) < DLCP_FRAMING.frames_bytes(1e6)


@dataclass
class Schedule:
    """A server with links into it and out of it, of which each carries one message at a time, in a drawn order; the
    workers' own links take no time. A message is begun at any instant when something changes."""

    layers: list[tuple[float, float]]
    wires: list[float]
    workers: int
    iterations: int
    picks: list[int]
    now: float = 0.0
    events: list[tuple[float, int, tuple[str, int, int]]] = field(default_factory=list)

    def run(self) -> float:
        """Return when every worker has all parameters. Each layer is one bucket."""
        count = len(self.layers)
        self.order = 0
        self.pushes: list[tuple[int, int]] = []  # ready: worker, bucket
        self.pulls: list[tuple[int, int]] = []
        self.busy = {"push": False, "pull": False}
        self.came = [0] * count
        self.version = [[0] * count for _ in range(self.workers)]  # pulls that a worker has of a bucket
        self.iteration = [0] * self.workers
        self.layer = [0] * self.workers  # the next of 2 · count steps: forward, then backward from the last
        self.computing = [False] * self.workers
        self.begin()
        while self.events:
            self.now, _, (kind, worker, bucket) = heapq.heappop(self.events)
            getattr(self, f"after_{kind}")(worker, bucket)
            self.begin()
        assert all(version == [self.iterations] * count for version in self.version), "it stands still"
        return self.now

    def pick(self, ready: list[tuple[int, int]]) -> tuple[int, int]:
        self.picks = self.picks[1:] + self.picks[:1]
        return ready.pop(self.picks[0] % len(ready))

    def later(self, seconds: float, kind: str, worker: int, bucket: int) -> None:
        self.order += 1
        heapq.heappush(self.events, (self.now + seconds, self.order, (kind, worker, bucket)))

    def begin(self) -> None:
        for kind, ready in (("push", self.pushes), ("pull", self.pulls)):
            if ready and not self.busy[kind]:
                worker, bucket = self.pick(ready)
                self.busy[kind] = True
                self.later(self.wires[bucket], kind, worker, bucket)
        count = len(self.layers)
        for worker in range(self.workers):
            step, iteration = self.layer[worker], self.iteration[worker]
            waits = step < count and self.version[worker][step] < iteration
            if iteration < self.iterations and not self.computing[worker] and not waits:
                self.computing[worker] = True
                forward = step < count
                layer = step if forward else 2 * count - 1 - step
                self.later(self.layers[layer][0 if forward else 1], "step", worker, layer)

    def after_step(self, worker: int, layer: int) -> None:
        self.computing[worker] = False
        if self.layer[worker] >= len(self.layers):
            self.pushes.append((worker, layer))
        self.layer[worker] += 1
        if self.layer[worker] == 2 * len(self.layers):
            self.layer[worker], self.iteration[worker] = 0, self.iteration[worker] + 1

    def after_push(self, worker: int, bucket: int) -> None:
        self.busy["push"] = False
        self.came[bucket] += 1
        if self.came[bucket] % self.workers == 0:
            self.pulls += [(each, bucket) for each in range(self.workers)]

    def after_pull(self, worker: int, bucket: int) -> None:
        self.busy["pull"] = False
        self.version[worker][bucket] += 1


times = st.floats(0, 3).map(lambda value: round(value, 2))


@given(
    layers=st.lists(st.tuples(times, times), min_size=1, max_size=4),
    wires=st.lists(st.floats(0.1, 2).map(lambda value: round(value, 2)), min_size=4, max_size=4),
    workers=st.integers(1, 4),
    iterations=st.integers(1, 4),
    picks=st.lists(st.integers(0, 11), min_size=1, max_size=40),
)
def test_no_schedule__beats_the_bound(
    layers: list[tuple[float, float]], wires: list[float], workers: int, iterations: int, picks: list[int]
) -> None:
    buckets = [
        Bucket(
            sum(forward for forward, _ in layers[:at]),
            sum(forward for forward, _ in layers[at:]),
            sum(backward for _, backward in layers[at:]),
            wires[at],
        )
        for at in range(len(layers))
    ]
    took_s = Schedule(layers, wires, workers, iterations, picks).run()
    assert took_s >= least_at_server_s(buckets, workers, iterations) - 1e-9


def test_a_schedule_of_one_bucket__reaches_the_bound() -> None:
    bucket = Bucket(0.0, 0.5, 1.0, 0.25)
    assert Schedule([(0.5, 1.0)], [0.25], 3, 4, [0]).run() == pytest.approx(least_at_server_s([bucket], 3, 4))

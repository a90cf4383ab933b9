"""The transport's promises under arbitrary loss, reordering, duplication and delay, in virtual time."""

from __future__ import annotations

import random
from dataclasses import dataclass

import numpy as np
import pytest
from dtypes import DTYPES, added, energies, floats, full_packet, held, metrics, split
from hypothesis import given, settings
from hypothesis import strategies as st
from virtual_time import MS, NO_LIMIT, US, Bound, Counts, Deadline, Key, Node, Packet, Values, World

from dlcp.transport._native import lib

STARVED_QUEUE = 3
LIMIT_NS = 600_000 * MS
"""By then all is over. The longest, 170 s: 900 packets of a starved queue that loses 40 %, at the slowest pace."""
STASH_BYTES = 60_000
"""About 40 packets: too little for what comes early, so both what is kept and what is not is seen."""
ENERGY_STEP = 2 ** (1 / 256) - 1
"""What the header's code may tell too much of a message's energy."""


@dataclass(frozen=True)
class Adversary:
    """A network that loses, doubles, delays and so reorders, by its own random numbers."""

    seed: int
    data_loss: float
    control_loss: float
    duplication: float
    jitter_us: int
    starved_ms: int
    """Queues up to STARVED_QUEUE pass only once in so long, as behind a busy strict priority; 0: always."""
    fates: list[int]
    """Of the first DATA packets, one by one: how often each arrives."""

    def network(self) -> object:
        numbers = random.Random(self.seed)
        fates = iter(self.fates)

        def network(world: World, packet: Packet) -> None:
            loss = self.data_loss if packet.type == lib.DLCP_DATA else self.control_loss
            copies = (numbers.random() >= loss) + (numbers.random() < self.duplication)
            if packet.type == lib.DLCP_DATA:
                copies = next(fates, copies)
            for _ in range(copies):
                at_ns = world.now_ns + 200 * US + numbers.randrange(1 + self.jitter_us * US)
                if self.starved_ms and packet.queue <= STARVED_QUEUE:
                    at_ns += -at_ns % (self.starved_ms * MS)
                world.deliver(packet, at_ns)

        return network


adversaries = st.builds(
    Adversary,
    seed=st.integers(0, 2**32),
    data_loss=st.sampled_from([0.0, 0.01, 0.1, 0.4]),
    control_loss=st.sampled_from([0.0, 0.05, 0.4]),
    duplication=st.sampled_from([0.0, 0.1, 0.5]),
    jitter_us=st.sampled_from([0, 300, 5000]),
    starved_ms=st.sampled_from([0, 0, 5]),
    fates=st.lists(st.integers(0, 2), max_size=40),
)
bounds = st.tuples(
    st.sampled_from([0, 10_000, 100_000, 500_000, NO_LIMIT]), st.sampled_from([0, 1_000, 50_000, 300_000, NO_LIMIT])
)


@dataclass(frozen=True)
class Tensor:
    packets: int
    rest: int
    """Elements beyond full packets, or fewer."""
    dtype: int
    bounds: tuple[Bound, Bound]
    """By leg."""
    must_arrive: bool
    largest_ppm: int
    """Share of a push's packets, of the largest gradients, that must arrive."""
    queue: int
    droppable: int
    length_ppm: int | None = None
    """Of a variable tensor: share of its elements that a message has, or half or a quarter of that; one at least."""

    @property
    def elements(self) -> int:
        return max(1, self.packets * full_packet(self.dtype) + self.rest)

    def length(self, number: int) -> int:
        """Elements of a message."""
        if self.length_ppm is None:
            return self.elements
        return max(1, self.elements * (self.length_ppm >> number % 3) // NO_LIMIT)

    @property
    def whole(self) -> bool:
        """Nothing of it may be missing, whatever a bound says."""
        return self.must_arrive or self.length_ppm is not None


tensors = st.builds(
    Tensor,
    packets=st.sampled_from([0, 1, 11, 30, 150]),
    rest=st.sampled_from([-1, 0, 1, 7]),
    dtype=st.sampled_from(DTYPES),
    bounds=st.tuples(bounds, bounds),
    must_arrive=st.booleans(),
    largest_ppm=st.sampled_from([0, 0, 100_000, NO_LIMIT]),
    queue=st.integers(0, 6),
    droppable=st.integers(0, 3),
    length_ppm=st.sampled_from([None, None, 20_000, 600_000, NO_LIMIT]),
)


@dataclass(frozen=True)
class Case:
    """schedule: by iteration, a bound instead of the tensors' own, or None. late_us: after so long, times its number
    in the order of iterations and steps, a message is expected; all are sent at once."""

    adversary: Adversary
    tensors: list[Tensor]
    ranks: int
    schedule: list[Bound | None]
    steps: int
    placement: int
    options: dict[str, int]
    late_us: int
    deadline: Deadline | None


cases = st.builds(
    Case,
    adversary=adversaries,
    tensors=st.lists(tensors, min_size=1, max_size=3),
    ranks=st.integers(2, 4),
    schedule=st.lists(st.none() | bounds, min_size=1, max_size=3),
    steps=st.integers(1, 2),
    placement=st.integers(lib.DLCP_PLACE_ZERO, lib.DLCP_PLACE_ADD),
    options=st.fixed_dictionaries(
        {
            "selective_drop": st.integers(0, 2),
            "eager_stop": st.integers(0, 1),
            "magnitude_metric": st.integers(0, 2),
            "tag_all": st.integers(0, 1),
            "resend_last": st.integers(0, 1),
        }
    ),
    late_us=st.sampled_from([0, 0, 3_000, 30_000, 100_000]),
    deadline=st.sampled_from([None, None, (5 * MS, 0, 800_000), (0, 3 * MS, 300_000), (40 * MS, 2 * MS, 0)]),
)


@dataclass
class Message:
    """One message and what its receiver was given. number: no other has it."""

    number: int
    source: int
    target: int
    key: Key
    tensor: Tensor
    own_bound: Bound | None
    placement: int
    metric: int = lib.DLCP_METRIC_MEAN
    deadline: Deadline | None = None
    tag_all: int = 0

    def __post_init__(self) -> None:
        length, dtype = self.tensor.length(self.number), self.tensor.dtype
        packet = np.arange(length) // full_packet(dtype)
        scale = 2.0 ** (packet * 7 % 5)
        fraction = np.arange(length) / 2**20
        self.sent: Values = held((scale * (self.number + fraction)).astype(np.float32), dtype)
        self.room: Values = held(np.full(self.tensor.elements, 0.5, np.float32), dtype)
        self.behind: Values = self.room[length:]
        self.before: Values = self.room[:length].copy()
        self.buffer: Values = self.room[:length]
        packets = int(packet[-1]) + 1
        self.sent_counts: Counts = (1 + np.arange(packets) % 5).astype(np.uint16)
        self.all_counts: Counts = np.full(-(-self.tensor.elements // full_packet(dtype)), 10, np.uint16)
        self.counts: Counts = self.all_counts[:packets]

    @property
    def bound(self) -> Bound:
        """What holds: nothing may be missing if either share is 0."""
        bound = self.own_bound or self.tensor.bounds[self.key.leg]
        return (0, 0) if self.tensor.whole or not all(bound) else bound

    @property
    def late_ppm(self) -> int:
        """Of the bytes, what may be missing of a message that its deadline closed."""
        return 0 if self.deadline is None or self.tensor.whole else NO_LIMIT - self.deadline[2]

    def check(self, lost_bytes: int, lost_energy_share: float) -> None:
        """What came is what was sent, once; what is missing is within the bound and told as it is."""
        dtype = self.tensor.dtype
        adds = self.placement == lib.DLCP_PLACE_ADD
        there = added(self.before, self.sent, dtype) if adds else self.sent
        hole = np.zeros_like(self.sent) if self.placement == lib.DLCP_PLACE_ZERO else self.before
        missing, missing_energy, energy = 0, 0.0, energies(self.sent, dtype)
        parts = zip(split(self.buffer, dtype), split(there, dtype), split(hole, dtype), strict=True)
        for packet, (found, arrived, absent) in enumerate(parts):
            came = found.tobytes() == arrived.tobytes()
            assert came or found.tobytes() == absent.tobytes(), "bytes that were not sent in this message, or twice"
            count = (self.sent_counts[packet] if came else 0) + (10 if adds else 0)
            assert self.counts[packet] == count
            missing += 0 if came else found.nbytes
            missing_energy += 0 if came else energy[packet]
        assert (self.behind == held(np.full(1, 0.5, np.float32), dtype)).all(), "bytes behind the end of the message"
        assert (self.all_counts[self.counts.size :] == (10 if adds else 0)).all()
        total = sum(energy)
        assert lost_bytes == missing
        within = missing <= self.sent.nbytes * self.bound[0] // NO_LIMIT
        within = within and missing_energy <= total * (self.bound[1] / NO_LIMIT + 1e-6)
        assert within or missing <= self.sent.nbytes * self.late_ppm // NO_LIMIT
        if self.bound[0] or (self.tag_all and missing < self.sent.nbytes):
            assert -1e-6 <= lost_energy_share - missing_energy / total <= ENERGY_STEP + 1e-6
        else:
            assert abs(lost_energy_share - missing / self.sent.nbytes) < 1e-6
        self.check_largest()

    def check_largest(self) -> None:
        """Of a push's packets, as many as must arrive are there, and no missing one is larger, by its metric, than the
        least of them."""
        must = self.counts.size * self.tensor.largest_ppm // NO_LIMIT
        unmeasured = self.late_ppm and not (self.bound[0] or self.tag_all)
        there = self.counts > (10 if self.placement == lib.DLCP_PLACE_ADD else 0)
        nothing_told = self.late_ppm and not there.any()
        if self.key.leg or not must or unmeasured or nothing_told:
            return
        sizes = metrics(self.sent, self.tensor.dtype, self.metric)
        least = np.sort(sizes)[-must]
        assert np.all(there[sizes > least])
        assert np.sum(sizes[there] >= least) >= must


def messages_of(case: Case) -> list[Message]:
    """Every rank pushes every tensor to rank 0, which pulls one back to each; all iterations and steps."""
    found: list[Message] = []
    for iteration, own_bound in enumerate(case.schedule):
        for step in range(case.steps):
            for number, tensor in enumerate(case.tensors):
                for rank in range(1, case.ranks):
                    for leg, (source, target) in enumerate(((rank, 0), (0, rank))):
                        key = Key(iteration, number, leg, step)
                        placement = (case.placement + leg) % 3
                        metric = case.options["magnitude_metric"]
                        found.append(
                            Message(
                                len(found) + 1,
                                source,
                                target,
                                key,
                                tensor,
                                own_bound,
                                placement,
                                metric,
                                case.deadline,
                                case.options["tag_all"],
                            )
                        )
    return found


def play(case: Case) -> tuple[World, list[Message]]:
    ranks = range(case.ranks)
    nodes = {r: Node(r, [p for p in ranks if p != r], stash_bytes=STASH_BYTES, **case.options) for r in ranks}
    world = World(nodes, case.adversary.network())  # type: ignore[arg-type]
    messages = messages_of(case)

    def declare(node: Node) -> None:
        for number, tensor in enumerate(case.tensors):
            node.declare(
                number,
                tensor.elements,
                (tensor.bounds[0][0], tensor.bounds[1][0]),
                tensor.queue,
                (tensor.bounds[0][1], tensor.bounds[1][1]),
                dtype=tensor.dtype,
                droppable=tensor.droppable,
                must_arrive=tensor.whole,
                must_arrive_ppm=tensor.largest_ppm,
                variable=tensor.length_ppm is not None,
            )

    def register(message: Message) -> None:
        node = nodes[message.target]
        node.receive(
            message.source,
            message.key,
            message.room,
            world.now_ns,
            placement=message.placement,
            bound=message.own_bound,
            deadline=case.deadline,
            contributors=message.all_counts,
        )
        world.run_node(node)

    for node in nodes.values():
        declare(node)
    waits = 0
    for message in messages:
        waits = (1 + message.key.iteration * case.steps + message.key.step) * case.late_us * US
        world.at(waits, lambda message=message: register(message))  # type: ignore[misc]
        nodes[message.source].send(
            message.target, message.key, message.sent, 0, bound=message.own_bound, contributors=message.sent_counts
        )
    world.run(LIMIT_NS, lambda: world.now_ns > waits and not under_way(world))
    return world, messages


def under_way(world: World) -> int:
    return sum(node.under_way() for node in world.nodes.values())


def check(world: World, messages: list[Message]) -> None:
    for node in world.nodes.values():
        world.run_node(node)
        assert not node.under_way(), node.describe(world.now_ns)
        assert node.statistics()["stash_bytes"] <= STASH_BYTES
    done = {(node.rank, d.peer, d.key): d for node in world.nodes.values() for d in node.done if d.received}
    assert len(done) == len(messages)
    for message in messages:
        one = done[message.target, message.source, message.key]
        assert one.bytes == message.sent.nbytes
        message.check(one.lost_bytes, one.lost_energy_share)


# R46, R47, R69, R70, R115
@settings(max_examples=100)
@given(cases)
def test_every_promise_holds_whatever_the_network_does(case: Case) -> None:
    check(*play(case))


@pytest.mark.long
@settings(max_examples=1000)
@given(cases)
def test_every_promise_holds_in_a_long_search(case: Case) -> None:
    check(*play(case))


# R112
@settings(max_examples=10)
@given(cases)
def test_the_same_seed_gives_the_same_packets(case: Case) -> None:
    first, _ = play(case)
    second, _ = play(case)
    assert (first.trace, first.now_ns) == (second.trace, second.now_ns)


def test_the_contents_of_two_messages_differ_in_every_packet() -> None:
    """So that the promises' check would see a packet of another message."""
    for dtype in DTYPES:
        tensor = Tensor(11, 7, dtype, ((0, 0), (0, 0)), False, 0, 0, 0)
        sent = [Message(n, 0, 1, Key(n, 0), tensor, None, 0).sent for n in (1, 2, 99, 144)]
        for packet in range(12):
            assert len({split(values, dtype)[packet].tobytes() for values in sent}) == 4
        assert all(floats(values, dtype).min() > 0 for values in sent)

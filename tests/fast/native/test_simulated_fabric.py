"""The simulated fabric as a whole: packets are accounted for; nothing depends on the event loop or on chance."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from simulated_fabric import COLUMNS, DROPS, GBIT, NEVER, PLANNED, Fabric, Link, sink_port, star

from dlcp.model.qos import DropProfile, QosIntent, QueueIntent
from dlcp.model.result import TABLES
from dlcp.switches.bpf.aqm_words import render
from dlcp.transport._native import ffi, lib

CERTAIN = 2**32
FLOW_HASH, PER_PACKET, ROUND_ROBIN = range(3)


def leaf_spine(leaves: int, each: int, spines: int, *, balancing: int = PER_PACKET, **options: Any) -> Fabric:
    """Hosts, then leaves, then spines."""
    shared_bytes = options.pop("shared_bytes", 0)
    hosts = leaves * each
    links = [Link(host, hosts + host // each) for host in range(hosts)]
    links += [Link(hosts + leaf, hosts + leaves + spine) for leaf in range(leaves) for spine in range(spines)]
    fabric = Fabric(hosts, hosts + leaves + spines, links, **options)
    for leaf in range(leaves):
        up = [2 * (hosts + leaf * spines + spine) for spine in range(spines)]
        ways = {host: [2 * host + 1] if host // each == leaf else up for host in range(hosts)}
        fabric.routes(hosts + leaf, ways, balancing, shared_bytes)
    for spine in range(spines):
        down = {host: [2 * (hosts + host // each * spines + spine) + 1] for host in range(hosts)}
        fabric.routes(hosts + leaves + spine, down, balancing, shared_bytes)
    return fabric


def all_to_all(hosts: int, count: int, seed: int) -> npt.NDArray[Any]:
    """Random packets of all classes."""
    random = np.random.default_rng(seed)
    packets = np.zeros(count, PLANNED)
    packets["at_ps"] = random.integers(0, 20_000_000, count)
    packets["host"] = random.integers(0, hosts, count)
    packets["destination"] = (packets["host"] + random.integers(1, hosts, count)) % hosts
    packets["flow"] = random.integers(0, 4, count)
    packets["bytes"] = random.integers(64, 1515, count)
    tos = [lib.dlcp_tos(queue, precedence, ecn) for queue in (0, 3, 7) for precedence in range(3) for ecn in (0, 2)]
    packets["tos"] = random.choice(tos, count)
    return packets


def switch_ports(fabric: Fabric) -> list[int]:
    ends = ((2 * k, link.first, 2 * k + 1, link.second) for k, link in enumerate(fabric.links))
    return [port for a, first, b, second in ends for port, node in ((a, first), (b, second)) if node >= fabric.hosts]


def intent(buffer_bytes: int, *, averaging: int = 0, reserved: int = 0, shared_bytes: int | None = None) -> QosIntent:
    """Marks for precedences 0 and 1 and WRED for precedence 2, in all queues."""
    mark = DropProfile(minimum=buffer_bytes // 8, maximum=buffer_bytes // 8, mark=True)
    drop = DropProfile(minimum=buffer_bytes // 16, maximum=buffer_bytes // 2, probability=0.5)
    queue = QueueIntent(profiles=(mark, mark, drop), averaging=averaging, reserved=reserved, limit=buffer_bytes // 3)
    return QosIntent(
        name="test", port_buffer=buffer_bytes, shared_buffer=shared_bytes, queues=dict.fromkeys(range(8), queue)
    )


def test_counters__have_the_columns_of_table_ports() -> None:
    fields = [name for name, _ in ffi.typeof("struct dlcp_port_class").fields]
    columns = [name for name in TABLES["ports"] if name.endswith(("_packets", "_bytes"))]
    assert [f"{name}_{unit}" for name in fields for unit in ("packets", "bytes")] == [
        name for name in columns if name != "peak_backlog_bytes"
    ]
    assert tuple(fields) == COLUMNS


def test_plan__is_laid_out_as_the_core_reads_it() -> None:
    fields = ffi.typeof("struct dlcp_planned_packet").fields
    assert {name: field.offset for name, field in fields} == {
        name: PLANNED.fields[name][1] for name in PLANNED.names or () if PLANNED.fields
    }


def run_random(
    seed: int, balancing: int, fault: str, averaging: int, shared_bytes: int, flags: int = 0, shift: int = 10
) -> Fabric:
    """A leaf-spine with all kinds of drops, and a fault that comes and goes."""
    fabric = leaf_spine(2, 4, 2, balancing=balancing, shared_bytes=shared_bytes, seed=seed, flags=flags, shift=shift)
    rules = render(intent(6_000, averaging=averaging, reserved=100, shared_bytes=shared_bytes or None))
    for port in switch_ports(fabric):
        fabric.rules(port, rules)
    lib.dlcp_fabric_set_route(fabric.native, 8, 7, [], 0)  # one host that one leaf does not know
    fabric.plan(all_to_all(8, 600, seed))
    faulty: Callable[[int, bool], int] = {
        "none": lambda port, on: 0,
        "loss": lambda port, on: int(lib.dlcp_fabric_set_loss(fabric.native, port, CERTAIN // 5 if on else 0)),
        "down": lambda port, on: int(lib.dlcp_fabric_set_down(fabric.native, port, on)),
        "rate": lambda port, on: int(lib.dlcp_fabric_set_rate(fabric.native, port, GBIT if on else 10 * GBIT)),
    }[fault]
    for until_ps, on in ((5_000_000, True), (25_000_000, False)):
        fabric.run(until_ps)
        for port in (0, 3, 2 * 8, 2 * 8 + 1):  # a host's, a leaf's to a host, both of a leaf and a spine
            assert faulty(port, on) == 0
    fabric.run()
    return fabric


def bytes_of(fabric: Fabric) -> bytes:
    """All that can be seen of a run."""
    ports = b"".join(fabric.counters(port) for port in range(2 * len(fabric.links)))
    return ports + fabric.left_ps.tobytes() + fabric.arrived_ps.tobytes()


settings_of_a_run = (
    st.integers(0, 2**32),
    st.sampled_from([FLOW_HASH, PER_PACKET, ROUND_ROBIN]),
    st.sampled_from(["none", "loss", "down", "rate"]),
    st.sampled_from([0, 3]),
    st.sampled_from([0, 5_000]),
)


@settings(max_examples=40)
@given(*settings_of_a_run)
def test_packets__in_are_out_or_dropped_at_every_port(
    seed: int, balancing: int, fault: str, averaging: int, shared_bytes: int
) -> None:
    fabric = run_random(seed, balancing, fault, averaging, shared_bytes)
    assert lib.dlcp_fabric_under_way(fabric.native) == 0
    assert lib.dlcp_fabric_next(fabric.native) == NEVER
    ports = range(2 * len(fabric.links))
    totals = {name: [fabric.tally(port, name) for port in ports] for name in COLUMNS}
    for port in ports:
        assert totals["enqueued"][port].tolist() == totals["sent"][port].tolist()
        assert totals["received"][port].tolist() == totals["sent"][port ^ 1].tolist()
    for node in range(fabric.hosts, fabric.nodes):
        here = [2 * k + end for k, x in enumerate(fabric.links) for end in (0, 1) if (x.first, x.second)[end] == node]
        came = sum(totals["received"][port] for port in here)
        gone = sum(totals[name][port] for port in here for name in ("enqueued", *DROPS))
        assert came.tolist() == gone.tolist()
    arrived = fabric.arrived_ps != NEVER
    lost = sum(totals[name][port] for port in ports for name in DROPS)
    assert [(~arrived).sum(), fabric.packets["bytes"][~arrived].sum()] == lost.tolist()
    assert sum(int(count[0]) for count in totals["dropped_unrouted"]) > 0


@settings(max_examples=15)
@given(*settings_of_a_run)
def test_results__are_the_same_bytes_again_and_by_the_heap_and_by_any_bucket(
    seed: int, balancing: int, fault: str, averaging: int, shared_bytes: int
) -> None:
    run = (seed, balancing, fault, averaging, shared_bytes)
    expected = bytes_of(run_random(*run))
    assert bytes_of(run_random(*run)) == expected
    assert bytes_of(run_random(*run, flags=lib.DLCP_EVENTS_IN_HEAP)) == expected
    assert bytes_of(run_random(*run, shift=3)) == expected
    assert bytes_of(run_random(*run, shift=18)) == expected


def test_a_random_run__sees_every_kind_of_drop() -> None:
    """So the tests above have something to count."""
    runs = [run_random(1, PER_PACKET, fault, 0, 5_000) for fault in ("loss", "down")]
    for name in COLUMNS:
        assert sum(int(fabric.tally(port, name)[0]) for fabric in runs for port in switch_ports(fabric)) > 0, name


def test_results__depend_on_the_seed() -> None:
    def arrived(seed: int) -> list[int]:
        fabric = leaf_spine(2, 4, 2, seed=seed)
        fabric.plan(all_to_all(8, 200, seed=1))
        fabric.run()
        return [int(at) for at in fabric.arrived_ps]

    assert arrived(1) != arrived(2)


def test_random_loss__has_the_share_that_was_asked_for() -> None:
    fabric = star(1)
    assert lib.dlcp_fabric_set_loss(fabric.native, sink_port(fabric), CERTAIN // 10) == 0
    packets = np.zeros(50_000, PLANNED)
    packets["destination"], packets["bytes"] = 1, 100
    fabric.plan(packets)
    fabric.run()
    assert (fabric.arrived_ps == NEVER).mean() == pytest.approx(0.1, abs=0.006)
    assert fabric.tally(sink_port(fabric), "dropped_loss")[0] == (fabric.arrived_ps == NEVER).sum()


def test_flow_hash__keeps_a_flow_on_one_path_and_others_spread() -> None:
    def ports_used(flows: int, balancing: int) -> int:
        fabric = leaf_spine(2, 1, 8, balancing=balancing)
        packets = np.zeros(200, PLANNED)
        packets["destination"], packets["bytes"], packets["flow"] = 1, 100, np.arange(200) % flows
        fabric.plan(packets)
        fabric.run()
        return sum(int(fabric.tally(2 * (2 + spine), "sent")[0]) > 0 for spine in range(8))

    assert ports_used(1, FLOW_HASH) == 1
    assert ports_used(100, FLOW_HASH) == ports_used(1, PER_PACKET) == ports_used(1, ROUND_ROBIN) == 8


def test_nic__sends_what_is_due_one_packet_at_a_time() -> None:
    """A NIC's line is never shared: the second packet of an instant leaves as the first one has left."""
    fabric = star(1, fast_bps=8 * GBIT)
    packets = np.zeros(3, PLANNED)
    packets["at_ps"], packets["destination"], packets["bytes"] = [0, 0, 5_000_000], 1, 1000
    fabric.plan(packets)
    fabric.run()
    assert fabric.left_ps.tolist() == [0, 1_000_000, 5_000_000]


def test_cut__loses_what_waits_and_what_is_on_the_line_and_spares_what_comes_later() -> None:
    """At 1 us each of 10 packets of 8 us stands before the slow line; it is cut from 20 us to 30 us."""
    fabric = star(1, fast_bps=8 * GBIT)
    packets = np.zeros(11, PLANNED)
    packets["at_ps"], packets["destination"], packets["bytes"] = [0] * 10 + [200_000_000], 1, 1000
    fabric.plan(packets)
    for until_ps, down in ((20_000_000, True), (30_000_000, False)):
        fabric.run(until_ps)
        assert lib.dlcp_fabric_set_down(fabric.native, sink_port(fabric), down) == 0
    fabric.run()
    # two were through at 17 us; the line, and its port, lose the other eight; the eleventh comes later
    assert (fabric.arrived_ps != NEVER).tolist() == [True] * 2 + [False] * 8 + [True]
    assert fabric.tally(sink_port(fabric) ^ 1, "dropped_down")[0] == 8


def test_run__ends_at_the_time_it_was_given() -> None:
    """Also where nothing is due; without an end it is the time of the last event."""
    fabric = star(1)
    packets = np.zeros(1, PLANNED)
    packets["destination"], packets["bytes"] = 1, 1000
    fabric.plan(packets)
    for until_ps in (3, 5_000_000):
        fabric.run(until_ps)
        assert lib.dlcp_fabric_now(fabric.native) == until_ps
    fabric.run()
    assert lib.dlcp_fabric_now(fabric.native) == fabric.arrived_ps[0] == 8_008_000
    assert lib.dlcp_fabric_hops(fabric.native) == 2


def test_set_up__refuses_what_cannot_be() -> None:
    def made(hosts: int, nodes: int, links: list[tuple[int, int, int, int]]) -> bool:
        config = ffi.new("struct dlcp_fabric_config *", {"hosts": hosts, "nodes": nodes, "links": len(links)})
        fabric = ffi.gc(lib.dlcp_fabric_new(config, ffi.new("struct dlcp_link[]", links)), lib.dlcp_fabric_free)
        return bool(fabric != ffi.NULL)

    assert made(1, 2, [(0, 1, GBIT, 0)])
    assert not made(1, 2, [(0, 1, 0, 0)])  # no rate
    assert not made(1, 2, [(0, 0, GBIT, 0)])
    assert not made(1, 2, [(0, 2, GBIT, 0)])
    assert not made(1, 3, [(0, 1, GBIT, 0), (0, 2, GBIT, 0)])  # a host has one link
    fabric = star(1).native
    rules = ffi.new("struct dlcp_aqm_port *")
    assert lib.dlcp_fabric_set_rules(fabric, 0, rules) < 0  # a host's
    assert lib.dlcp_fabric_set_rules(fabric, 4, rules) < 0
    assert lib.dlcp_fabric_set_route(fabric, 2, 0, [0], 1) < 0  # a port of another node
    assert lib.dlcp_fabric_set_rate(fabric, 0, 0) < 0
    assert lib.dlcp_fabric_set_loss(fabric, 0, CERTAIN + 1) < 0

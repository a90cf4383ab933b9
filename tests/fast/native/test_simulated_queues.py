"""The simulated switch against queueing theory and the closed forms of its drop rules."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from queueing import cobham, served
from simulated_fabric import GBIT, NEVER, PLANNED, Fabric, Link, sink_port, star

from dlcp.transport._native import ffi, lib

BYTES = 1000
SERVICE_PS = 8_000_000
"""A packet at 1 Gbit/s."""
ACTIVE = 1


def arrivals(count: int, load: float, seed: int, queues: dict[int, float] | None = None) -> npt.NDArray[Any]:
    """Poisson traffic to a star's sink, each packet from the source of its queue (source 0 alone without queues)."""
    random = np.random.default_rng(seed)
    packets = np.zeros(count, PLANNED)
    packets["at_ps"] = np.cumsum(random.exponential(SERVICE_PS / load, count)).astype(np.uint64)
    packets["bytes"] = BYTES
    packets["destination"] = len(queues) if queues else 1
    if queues:
        shares = np.array(list(queues.values()))
        packets["host"] = random.choice(len(queues), count, p=shares / shares.sum())
        packets["tos"] = np.array([lib.dlcp_tos(queue, 0, 0) for queue in queues])[packets["host"]]
    return packets


def waits_ps(fabric: Fabric) -> npt.NDArray[np.float64]:
    """What each packet waited for others, in its NIC and in the switch."""
    transit = SERVICE_PS + BYTES * 8 * 10**12 // fabric.links[0].rate_bps
    return (fabric.arrived_ps - fabric.packets["at_ps"]).astype(np.float64) - transit


def port_rules(buffer_bytes: int = 2**31, **of_queue: int) -> Any:
    """Queue 0's rules; other queues have none."""
    rules = ffi.new("struct dlcp_aqm_port *", {"buffer_bytes": buffer_bytes, "common_bytes": buffer_bytes})
    for queue in rules.queues:
        queue.limit_bytes, queue.alpha_q8 = 2**32 - 1, 256
    for name, value in of_queue.items():
        setattr(rules.queues[0], name, value)
    return rules


def test_fifo__is_lindleys_recursion_to_the_picosecond() -> None:
    """W(n + 1) = max(0, W(n) + S - A(n)) (Lindley 1952), on the same arrivals."""
    fabric = star(1)
    fabric.plan(arrivals(20_000, 0.9, seed=1))
    fabric.run()
    at_switch = fabric.left_ps.astype(np.int64) + 8_000
    leaves = 0
    for arrived, delivered in zip(at_switch.tolist(), fabric.arrived_ps.tolist(), strict=True):
        leaves = max(arrived, leaves) + SERVICE_PS
        assert delivered == leaves


@pytest.mark.parametrize("load", [0.3, 0.6, 0.8])
def test_md1__mean_wait_is_half_the_load_over_the_rest(load: float) -> None:
    """Pollaczek and Khinchine: rho / (2 (1 - rho)) service times."""
    fabric = star(1)
    fabric.plan(arrivals(300_000, load, seed=2))
    fabric.run()
    assert waits_ps(fabric).mean() / SERVICE_PS == pytest.approx(load / (2 * (1 - load)), rel=0.03)


def test_priorities__wait_as_cobham_says() -> None:
    loads = {0: 0.2, 1: 0.2, 3: 0.2, 6: 0.2}
    fabric = star(4)
    fabric.plan(arrivals(300_000, 0.8, seed=3, queues=loads))
    fabric.run()
    waits = waits_ps(fabric) / SERVICE_PS
    expected = cobham(loads, 1.0)
    for source, queue in enumerate(loads):
        assert waits[fabric.packets["host"] == source].mean() == pytest.approx(expected[queue], rel=0.05)


def test_priorities__are_served_as_the_sample_path_says() -> None:
    """Packet by packet, against an independent reckoning in seconds."""
    loads = {0: 0.3, 2: 0.3, 5: 0.3}
    fabric = star(3)
    fabric.plan(arrivals(5_000, 0.9, seed=4, queues=loads))
    fabric.run()
    queue = np.array(list(loads))[fabric.packets["host"]]
    at_switch = fabric.left_ps.astype(np.float64) + 8_000
    order = np.argsort(at_switch, kind="stable")
    expected = served(at_switch[order], queue[order], float(SERVICE_PS))
    waited = (fabric.arrived_ps.astype(np.float64) - at_switch - SERVICE_PS)[order]
    np.testing.assert_allclose(waited, expected, atol=1)


@pytest.mark.parametrize("load", [1.1, 1.2, 1.4])
def test_wred__settles_where_it_drops_the_overload(load: float) -> None:
    """drop = 1 - 1/rho; the queue stands at minimum + drop / p_max (maximum - minimum)."""
    minimum, maximum, most = 50_000, 300_000, 0.5
    rules = port_rules()
    profile = rules.queues[0].profiles[0]
    profile.minimum_bytes, profile.maximum_bytes, profile.flags = minimum, maximum, ACTIVE
    profile.probability_q32 = int(most * 2**32)
    fabric = star(1)
    fabric.rules(sink_port(fabric), rules)
    fabric.plan(arrivals(120_000, load, seed=5))
    fabric.run()
    late = slice(40_000, None)
    lost = fabric.arrived_ps[late] == NEVER
    assert lost.mean() == pytest.approx(1 - 1 / load, rel=0.04)
    backlog = waits_ps(fabric)[late][~lost].mean() / SERVICE_PS * BYTES
    assert backlog == pytest.approx(minimum + (1 - 1 / load) / most * (maximum - minimum), rel=0.04)


@pytest.mark.parametrize(("ports", "alpha"), [(1, 1.0), (2, 1.0), (4, 0.5), (8, 2.0)])
def test_shared_buffer__k_queues_end_at_alpha_of_one_plus_k_alpha(ports: int, alpha: float) -> None:
    """Choudhury and Hahne 1998: each of k overloaded queues holds alpha / (1 + k alpha) of the shared bytes."""
    shared, count = 1_000_000, 6_000
    links = [(host, 2 * ports, 2 * GBIT, 0) for host in range(ports)]
    links += [(ports + host, 2 * ports, GBIT, 0) for host in range(ports)]
    fabric = Fabric(2 * ports, 2 * ports + 1, [Link(*link) for link in links])
    fabric.routes(2 * ports, {host: [2 * host + 1] for host in range(2 * ports)}, shared_bytes=shared)
    for host in range(ports):
        fabric.rules(2 * (ports + host) + 1, port_rules(alpha_q8=int(alpha * 256)))
    packets = np.zeros(ports * count, PLANNED)
    packets["host"] = np.tile(np.arange(ports), count)
    packets["destination"], packets["bytes"] = packets["host"] + ports, BYTES
    fabric.plan(packets)
    fabric.run(count * SERVICE_PS // 2 - SERVICE_PS)
    for host in range(ports):
        backlog = lib.dlcp_fabric_backlog(fabric.native, 2 * (ports + host) + 1, 0)
        assert backlog == pytest.approx(alpha / (1 + ports * alpha) * shared, abs=2 * BYTES)


@pytest.mark.parametrize("senders", [8, 32, 128])
def test_incast__takes_its_bytes_over_the_rate(senders: int) -> None:
    """n S / B, and the first packet's way to the switch."""
    each = 20
    fabric = star(senders, fast_bps=GBIT)
    packets = np.zeros(senders * each, PLANNED)
    packets["host"] = np.tile(np.arange(senders), each)
    packets["destination"], packets["bytes"] = senders, BYTES
    fabric.plan(packets)
    fabric.run()
    assert int(fabric.arrived_ps.max()) == (senders * each + 1) * SERVICE_PS

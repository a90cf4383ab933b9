"""Clocks of hosts: measured within their bounds, translated both ways, and tables as if there were one clock."""

from __future__ import annotations

import time
from pathlib import Path

import numpy as np
import pytest
from far_agents import far_agents, time_namespaces
from loopback import COOKIE, LINK_RATE_BPS, address

from dlcp.agents.clock_offset import FarClock, Reading
from dlcp.agents.control.background_session import BackgroundSession
from dlcp.agents.control.session import JobSession
from dlcp.agents.job_spec import JobSpec, LayerWork
from dlcp.model.transport.settings import TransportSettings
from dlcp.model.workload import Constant
from dlcp.traffic.plan import TrafficSpec

AHEAD_S = {"h1": 1000, "h2": 0, "h3": 86_400}
needs_time_namespaces = pytest.mark.skipif(bool(time_namespaces()), reason=time_namespaces() or "they are there")


def clock(*readings: tuple[float, float, float]) -> FarClock:
    """Readings: (at, ahead, error)."""
    made = FarClock(dict)
    made.readings = [Reading(at, ahead, ahead + 1e9, error) for at, ahead, error in readings]
    return made


def test_the_callers_own_clock_is_not_translated() -> None:
    own = FarClock()
    own.read()
    assert own.readings == []
    assert own.there(17.25) == own.here(17.25) == 17.25
    assert (own.error_s, own.drift_ppm, own.sure_drift_ppm) == (0, 0, 0)


def test_a_reading_is_within_its_error_whatever_the_way_takes() -> None:
    """The way there takes ten times the way back: the middle is wrong, and the bound says by how much at most."""

    def ask() -> dict[str, float]:
        time.sleep(0.002)
        said = {"monotonic_s": time.monotonic() + 500.0, "real_s": time.time()}
        time.sleep(0.0002)
        return said

    far = FarClock(ask)
    far.read()
    reading = far.readings[0]
    assert abs(reading.ahead_s - 500.0) <= reading.error_s
    assert reading.error_s >= 0.0011
    assert abs(far.there(reading.at_s) - reading.at_s - 500.0) <= reading.error_s


def test_between_two_readings_a_clock_runs_evenly_and_both_ways_agree() -> None:
    far = clock((100.0, 50.0, 0.001), (200.0, 50.01, 0.002))
    assert far.there(150.0) == pytest.approx(200.005)
    assert far.here(200.005) == pytest.approx(150.0)
    assert far.there(90.0) == pytest.approx(140.0)
    assert far.here(260.0) == pytest.approx(209.99)
    instants = np.array([140.0, np.nan, 200.005])
    np.testing.assert_allclose(far.here(instants), [90.0, np.nan, 150.0])
    np.testing.assert_allclose(far.real_here(np.array([1e9 + 200.005])), [150.0])
    assert far.error_s == 0.002


def test_drift_is_told_and_what_of_it_is_sure() -> None:
    far = clock((0.0, 0.0, 0.001), (100.0, 0.013, 0.002))
    assert far.drift_ppm == pytest.approx(130)
    assert far.sure_drift_ppm == pytest.approx(100)
    assert clock((0.0, 0.0, 0.01), (100.0, -0.013, 0.01)).sure_drift_ppm == 0


@needs_time_namespaces
def test_clocks_that_really_differ_are_found() -> None:
    with far_agents(AHEAD_S) as agents:
        for agent in agents.values():
            agent.clock.read()
            agent.clock.read()
        for name, ahead_s in AHEAD_S.items():
            found = agents[name].clock
            assert abs(found.readings[0].ahead_s - ahead_s) <= found.readings[0].error_s, name
            assert abs(found.readings[1].ahead_s - ahead_s) <= found.readings[1].error_s, name


@needs_time_namespaces
@pytest.mark.parametrize("kind", ["tcp", "dlcp"])
def test_a_job_over_clocks_that_differ_gives_tables_of_one_clock(kind: str, tmp_path: Path) -> None:
    spec = JobSpec(
        name="j",
        kind="profile",
        workers=("h1", "h2"),
        servers=("h3",),
        iterations=3,
        warmup_iterations=1,
        bucket_bytes=8_000,
        seed=1,
        layers=tuple(LayerWork(name=f"l{i}", elements=6_000, forward_s=0.004, backward_s=0.008) for i in range(3)),
    )
    with far_agents(AHEAD_S) as agents:
        session = JobSession(
            dict(agents),
            spec,
            TransportSettings(kind=kind),
            {host: address(rank) for rank, host in enumerate(spec.hosts)},
            cookie=COOKIE,
            link_rates_bps=dict.fromkeys(spec.hosts, LINK_RATE_BPS),
            directory=tmp_path,
            time_limit_s=30,
        )
        begun_s = time.monotonic()
        session.open()
        start_s = session.start()
        end_s = session.wait()
        job = session.collect()
        session.close()
        over_s = time.monotonic()
        error_s = 2 * max(agent.clock.error_s for agent in agents.values())
    assert begun_s < start_s < end_s < over_s
    first = [start for start, i in zip(job.iterations["start_s"], job.iterations["iteration"], strict=True) if i == 0]
    assert all(abs(found_s - start_s) < 0.1 + error_s for found_s in first), "all ranks begin at one instant"
    starts, ends = np.array(job.messages["start_s"]), np.array(job.messages["end_s"])
    assert (starts > start_s - error_s).all()
    assert (ends < end_s + error_s).all()
    assert (ends > starts - error_s).all(), "no message arrives before it leaves, whichever clocks its ends have"
    assert {host: len(list(tmp_path.glob(f"{host}*"))) for host in spec.hosts} == dict.fromkeys(spec.hosts, 0)


@needs_time_namespaces
def test_background_over_clocks_that_differ(tmp_path: Path) -> None:
    entry = Constant(kind="constant", sources=("h1",), sinks=("h2", "h3"), rate_bps=2e6)
    hosts = list(AHEAD_S)
    spec = TrafficSpec(entries=(entry,), rates_bps=dict.fromkeys(hosts, 1e8), seed=3, horizon_s=20.0)
    with far_agents(AHEAD_S) as agents:
        session = BackgroundSession(
            dict(agents),
            spec,
            {host: address(rank) for rank, host in enumerate(hosts)},
            tos=[0],
            cookie=7,
            directory=tmp_path,
        )
        session.prepare()
        start_s = time.monotonic() + 0.2
        session.start(start_s)
        time.sleep(0.7)
        found = session.stop()
        error_s = 2 * max(agent.clock.error_s for agent in agents.values())
        over_s = time.monotonic()
    assert found.totals["received_packets"] > 10
    assert len(found.flows["start_s"]) == 2
    instants = (found.flows["planned_s"], found.flows["start_s"], found.flows["end_s"])
    for planned, started, ended in zip(*instants, strict=True):
        assert start_s <= planned <= started + error_s
        assert started <= ended + error_s
        assert ended <= over_s + error_s

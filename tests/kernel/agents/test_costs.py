"""What a job costs, and what of its pushes never came: measured by real agents over loopback."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from local_agents import agents, session
from loopback import TCP

from dlcp.agents.control.handles import Zygote
from dlcp.agents.control.session import JobResult
from dlcp.agents.costs import costs_of
from dlcp.agents.job_spec import JobSpec, LayerWork
from dlcp.model.transport.settings import TransportSettings
from dlcp.transport.contract.tensors import PACKET_ELEMENTS

SPEC = JobSpec(
    name="job",
    kind="profile",
    workers=("h1", "h2"),
    servers=("h3",),
    iterations=4,
    warmup_iterations=1,
    bucket_bytes=60_000,
    seed=5,
    record_holes=True,
    layers=tuple(LayerWork(name=f"layer{i}", elements=14_000 + 900 * i, forward_s=0.002) for i in range(3)),
)


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with Zygote.spawn() as found:
        yield found


def done(zygote: Zygote, settings: TransportSettings, directory: Path) -> JobResult:
    with agents(zygote, SPEC.hosts) as started:
        job = session(started, SPEC, settings, directory)
        job.open()
        job.start()
        job.wait()
        found = job.collect()
        job.close()
    return found


@pytest.mark.parametrize("settings", [TCP, TransportSettings(kind="dlcp")], ids=["tcp", "dlcp"])
def test_costs__bytes_are_frames_and_the_machine_is_counted_once(
    zygote: Zygote, settings: TransportSettings, tmp_path: Path
) -> None:
    job = done(zygote, settings, tmp_path)
    costs = costs_of(job.statistics)
    payload = dict.fromkeys(SPEC.hosts, 0)
    for source, size in zip(job.messages["src"], job.messages["bytes"], strict=True):
        payload[source] += size
    for host, found in costs.hosts.items():
        assert found.sent_bytes > payload[host] + 54 * found.sent_packets, "headers come with every frame"
        assert found.cpu_user_s + found.cpu_system_s > 0
    sent, received = (
        sum(getattr(one, name) for one in costs.hosts.values()) for name in ("sent_bytes", "received_bytes")
    )
    assert received == pytest.approx(sent, rel=0.2), "but for what is under way or came twice"
    assert [machine.hosts for machine in costs.machines] == [list(SPEC.hosts)]
    agents_s = sum(one.cpu_user_s + one.cpu_system_s for one in costs.hosts.values())
    assert costs.machines[0].cpu_s > agents_s / 2, "the agents' work is in the machine's, but for the clock's grain"
    assert job.holes["packets"] == []


def test_holes__are_the_packets_that_the_messages_say_were_lost(zygote: Zygote, tmp_path: Path) -> None:
    """An eager stop leaves holes on a clean network, too."""
    settings = TransportSettings(kind="dlcp", loss_bound=0.3, stop="eager")
    job = done(zygote, settings, tmp_path)
    sizes = [tensor.elements for tensor in SPEC.tensors(settings)]
    told = {}
    for iteration, tensor, source, sink, packets in zip(
        *(job.holes[name] for name in list(job.holes)[1:]), strict=True
    ):
        assert packets == sorted(set(packets))
        elements = sum(min(PACKET_ELEMENTS, sizes[tensor] - packet * PACKET_ELEMENTS) for packet in packets)
        told[iteration, tensor, source, sink] = 4 * elements
    names = ("iteration", "tensor", "src", "dst", "lost_bytes")
    rows = [row for row in zip(*(job.messages[name] for name in names), strict=True) if row[-1]]
    assert told == {row[:4]: row[4] for row in rows}
    assert rows

"""Every topology that ships, as a fabric: all reach all, over links that read back as they were asked for."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from traffic import Sink, plain, udp

from dlcp.model.host_settings import HostSettings
from dlcp.model.loading.experiment_files import load_topology, topology_names
from dlcp.substrates.emulate.fabric import Fabric


def all_to_all(name: str) -> dict[str, Any]:
    topology, _ = load_topology(name)
    assert topology is not None
    with Fabric(topology.graph, plain(), seed=1, host_settings=HostSettings()) as fabric:
        hosts = topology.graph.hosts
        sockets = {host: udp(fabric, host, port=7) for host in hosts}
        sinks = {host: Sink(socket) for host, socket in sockets.items()}
        for source in hosts:
            for sink in hosts:
                if sink != source:
                    sockets[source].sendto(b"here", (fabric.address(sink), 7))
        unaccounted = fabric.conservation()
        came = {host: dict(sink.stop().packets) for host, sink in sinks.items()}
        fabric.verify()
        return {"came": came, "addresses": {host: fabric.address(host) for host in hosts}, "unaccounted": unaccounted}


@pytest.mark.parametrize("name", topology_names())
def test_all_reach_all(inside: Callable[..., Any], name: str) -> None:
    seen = inside(all_to_all, name=name)
    assert seen["unaccounted"] == []
    for host, came in seen["came"].items():
        others = [address for other, address in seen["addresses"].items() if other != host]
        assert came == {f"{address}:7": 1 for address in others}

"""`dlcp bench switch`, small. Nothing is timed but what the bench itself times."""

from __future__ import annotations

import os

import pytest
from bench_command import bench, figure, report

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces; run as root"),
]


@pytest.mark.long
def test_every_path_carries_every_packet_that_is_costed() -> None:
    found = report("switch", "--only", "cost", "--only", "rate", "--packets", "500", "--rounds", "2", "--repeats", "1")
    assert [run["variant"] for run in found["runs"] if run["part"] == "cost"] == [
        *("veth", "1 switch", "3 switches", "3 routers"),
        *("3 routers", "3 switches", "1 switch", "veth"),
    ]
    for run in found["runs"]:
        assert run["sent"] == run["arrived"] == (500 if run["part"] == "cost" else 2000)
        assert run["cpu_s"] > 0
        assert run["unaccounted"] == []
        if run["part"] == "rate":
            assert run["read"] == 2000
    cost = {name: figure(found, f"cost a packet, {name}")["values"] for name in ("3 switches", "3 routers")}
    costs = {way: [run["cpu_s"] / run["sent"] * 1e6 for run in found["runs"] if run["variant"] == way] for way in cost}
    assert cost == {way: [pytest.approx(min(values[:2]))] for way, values in costs.items()}, "the quicker round counts"
    ratio = [a / b for a, b in zip(cost["3 switches"], cost["3 routers"], strict=True)]
    assert figure(found, "3 switches ÷ 3 routers")["values"] == pytest.approx(ratio)


@pytest.mark.long
def test_a_boxs_hop_is_costed_beside_the_emulated_switchs_and_plain_routing() -> None:
    found = report("switch", "--only", "box", "--packets", "300", "--rounds", "2", "--repeats", "1")
    ways = ["1 switch", "3 switches", "1 plain router", "3 plain routers", "1 box", "3 boxes"]
    assert [run["variant"] for run in found["runs"]] == [*ways, *ways[::-1]]
    for run in found["runs"]:
        assert run["sent"] == run["arrived"] == 300
        assert run["unaccounted"] == []
    hop = {name: figure(found, f"cost a packet and further hop, {name}")["values"] for name in ("box", "plain router")}
    ratio = [ours / theirs for ours, theirs in zip(hop["box"], hop["plain router"], strict=True)]
    assert figure(found, "hop of a box ÷ of a plain router")["values"] == pytest.approx(ratio)


def test_the_flood_overloads_the_port_and_the_light_flow_arrives_whole() -> None:
    found = report("switch", "--only", "delay", "--seconds", "0.3", "--repeats", "1")
    by_variant = {run["variant"]: run for run in found["runs"]}
    assert by_variant["flood"]["flooded"] > 1.1
    assert by_variant["alone"]["flooded"] == 0
    for run in by_variant.values():
        assert len(run["delays_s"]) == 52  # 2 % of 100 Mbit/s in frames of 1442 B, for 0.3 s
        assert min(run["delays_s"]) > 0
        assert run["high_dropped"] == 0


def test_a_fabric_comes_and_goes() -> None:
    found = report("switch", "--only", "size", "--hosts", "10", "--repeats", "1")
    assert [one["name"] for one in found["figures"]] == ["bring-up of 10 hosts", "tear-down of 10 hosts"]
    assert all(one["best"] > 0 for one in found["figures"])
    assert any("36 link ends" in note for note in found["notes"])


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("--only", "speed"), "--only"),
        (("--packets", "0"), "--packets"),
        (("--rounds", "0"), "--rounds"),
        (("--rate", "10 Gbit/s"), "--rate"),
        (("--hosts", "11"), "--hosts"),
        (("--repeats", "0"), "--repeats"),
    ],
)
def test_wrong_arguments_end_with_2(arguments: tuple[str, ...], words: str) -> None:
    done = bench("switch", *arguments)
    assert done.returncode == 2
    assert words in done.stderr + done.stdout
    assert "Traceback" not in done.stderr

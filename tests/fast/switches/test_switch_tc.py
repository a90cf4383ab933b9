"""The lines that make a port's queues, change them in place, and what is read back of them."""

from __future__ import annotations

import re

import pytest

from dlcp.model.frames import FRAME_BYTES
from dlcp.switches.tc import (
    Ceiling,
    Port,
    class_id,
    frozen,
    live_shares,
    port_lines,
    quantum_bytes,
    queue_line,
    rate_lines,
    shares,
)

WEIGHTS = {0: 2, 1: 3, 2: 8}


def port(**more: object) -> Port:
    return Port("s1-h1", 100e6, cuts=False, filters=(), **more)  # type: ignore[arg-type]


def said(line: str, word: str) -> str:
    """What follows a word of a line."""
    match = re.search(rf"\b{word} (\S+)", line)
    assert match, f"{line!r} says no {word}"
    return match[1]


def test_weighted_queues_share_the_lowest_priority_by_their_weights() -> None:
    weighted = port(weights=WEIGHTS)
    lines = [queue_line(weighted, queue) for queue in range(8)]
    assert [said(line, "prio") for line in lines] == ["7", "7", "7", "4", "3", "2", "1", "0"]
    assert [int(said(line, "quantum")) for line in lines[:3]] == [FRAME_BYTES, FRAME_BYTES * 3 // 2, FRAME_BYTES * 4]
    assert {int(said(line, "quantum")) for line in lines[3:]} == {FRAME_BYTES}


@pytest.mark.parametrize("weights", [{0: 1}, {0: 64, 1: 64}, {0: 1, 1: 64}, {0: 5, 1: 7, 2: 64}])
def test_no_turn_is_shorter_than_a_frame(weights: dict[int, int]) -> None:
    quanta = [quantum_bytes(port(weights=weights), queue) for queue in weights]
    assert min(quanta) == FRAME_BYTES
    assert max(quanta) <= 64 * FRAME_BYTES


def test_live_shares_are_the_intended_ones() -> None:
    shown = "\n".join(
        f"class htb 1:1{queue} parent 1:1 leaf 1{queue}: prio {7 if queue in WEIGHTS else 7 - queue} "
        f"quantum {quantum_bytes(port(weights=WEIGHTS), queue)} rate 8bit ceil 100Mbit"
        for queue in range(8)
    )
    assert live_shares(shown) == shares(WEIGHTS) == {"0": 1.0, "1": 1.5, "2": 4.0}
    assert live_shares(re.sub(r"prio 7 (?=quantum \d+ rate)", "prio 6 ", shown)) == {}


@pytest.mark.parametrize("stop_s", [0.001, 0.25, 1.0])
def test_each_frame_of_a_frozen_queue_costs_its_stop(stop_s: float) -> None:
    ceiling = frozen(stop_s)
    assert ceiling.charged_bytes * 8 / round(ceiling.rate_bps) == pytest.approx(stop_s, rel=1e-3)
    line = queue_line(port(ceilings={3: ceiling}), 3)
    assert int(said(line, "mpu")) == ceiling.charged_bytes == int(said(line, "overhead")) + FRAME_BYTES < 2**16
    assert said(line, "ceil") == f"{ceiling.rate_bps:.0f}bit"


def test_a_paused_queue_keeps_its_place() -> None:
    usual, paused = (queue_line(port(ceilings=ceilings), 4) for ceilings in ({}, {4: Ceiling(1e6)}))
    assert said(paused, "ceil") == "1000000bit"
    assert usual.replace("ceil 100000000bit", "") == paused.replace("ceil 1000000bit", "")


@pytest.mark.parametrize(("device", "cuts"), [("s1-h1", False), ("h1-eth0", True)])
def test_a_rate_is_changed_in_place(device: str, cuts: bool) -> None:
    slow, fast = (Port(device, rate_bps, cuts=cuts, filters=()) for rate_bps in (10e6, 100e6))
    lines = rate_lines(slow)
    assert len(lines) == 9
    assert all(line.startswith(f"class change dev {device} ") for line in lines)
    assert [said(line, "ceil") for line in lines] == ["10000000bit"] * 9
    assert [line.replace(" change ", " add ") for line in lines] == [
        line for line in port_lines(slow) if line.startswith("class ")
    ]
    assert not set(lines) & set(rate_lines(fast))


def test_a_socket_names_a_queue_as_tc_does() -> None:
    assert f"{class_id(5) >> 16:x}:{class_id(5) & 0xFFFF:x}" == "1:15"

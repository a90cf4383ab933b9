"""The work of the protocol for each data packet hardly grows with the number of peers."""

from __future__ import annotations

from pathlib import Path

import pytest
from protocol_work import DIRECTIONS, PEERS, Work, build, count, missing

FEW, MANY, MOST = PEERS[1:]
MOST_GROWTH = 2.0
"""Between 16 and 144 peers. Heaps grow by a few levels, and so does the number of acknowledgements: with many senders
each has less than one packet in flight, so each packet has its own."""
MOST_INSTRUCTIONS = 9000
"""A data packet at 144 peers: 54 018 and 117 573 when every packet looped over all peers, 7 202 and 6 643 since."""


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if reason := missing():
        pytest.skip(reason)
    return build(tmp_path_factory.mktemp("protocol"))


@pytest.mark.parametrize("direction", DIRECTIONS)
def test_the_work_of_a_packet_hardly_grows_with_the_peers(program: Path, direction: str) -> None:
    few, many = (count(program, peers, direction) for peers in (FEW, MANY))
    assert few.data_packets >= FEW * 3 * 32
    assert many.data_packets >= MANY * 3 * 32
    assert many.per_packet <= MOST_GROWTH * few.per_packet, (few, many)
    assert many.per_packet <= MOST_INSTRUCTIONS, many


@pytest.mark.long
@pytest.mark.parametrize("direction", DIRECTIONS)
def test_a_thousand_peers_cost_a_packet_no_more_than_a_hundred(program: Path, direction: str) -> None:
    many, most = (count(program, peers, direction) for peers in (MANY, MOST))
    assert most.per_packet <= 1.25 * many.per_packet, (many, most)


def test_a_count_is_exact(program: Path) -> None:
    first, again = (count(program, PEERS[0], "push") for _ in range(2))
    assert first == again
    assert isinstance(first, Work)
    assert 1000 < first.per_packet < MOST_INSTRUCTIONS

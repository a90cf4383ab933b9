"""codepoint.h: DSCP ⇄ (queue, drop precedence), through cffi."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlcp.transport._native import lib

CLASSES = [(queue, precedence) for queue in range(8) for precedence in range(3)]


# R35
@pytest.mark.parametrize(("queue", "precedence"), CLASSES)
def test_a_class_survives_its_codepoint(queue: int, precedence: int) -> None:
    dscp = lib.dlcp_dscp(queue, precedence)
    assert dscp == queue << 3 | precedence << 1
    assert lib.dlcp_dscp_is_defined(dscp)
    assert (lib.dlcp_dscp_queue(dscp), lib.dlcp_dscp_precedence(dscp)) == (queue, precedence)


def test_class_selectors_are_precedence_0_of_their_queue() -> None:
    assert [lib.dlcp_dscp(queue, 0) for queue in range(8)] == [0, 8, 16, 24, 32, 40, 48, 56]


# R35
def test_40_codepoints_are_undefined_and_best_effort() -> None:
    undefined = [dscp for dscp in range(64) if not lib.dlcp_dscp_is_defined(dscp)]
    assert len(undefined) == 64 - len(CLASSES)
    assert {(lib.dlcp_dscp_queue(dscp), lib.dlcp_dscp_precedence(dscp)) for dscp in undefined} == {(0, 0)}


@given(st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1))
def test_a_class_that_does_not_exist_is_best_effort(queue: int, precedence: int) -> None:
    expected = queue << 3 | precedence << 1 if queue < 8 and precedence < 3 else 0
    assert lib.dlcp_dscp(queue, precedence) == expected


@given(st.integers(64, 2**32 - 1))
def test_a_number_beyond_six_bits_is_no_codepoint(dscp: int) -> None:
    assert not lib.dlcp_dscp_is_defined(dscp)
    assert (lib.dlcp_dscp_queue(dscp), lib.dlcp_dscp_precedence(dscp)) == (0, 0)


@given(st.sampled_from(CLASSES), st.integers(0, 3))
def test_the_tos_byte_holds_codepoint_and_ecn(where: tuple[int, int], ecn: int) -> None:
    tos = lib.dlcp_tos(*where, ecn)
    assert 0 <= tos < 256
    assert (lib.dlcp_tos_dscp(tos), lib.dlcp_tos_ecn(tos)) == (lib.dlcp_dscp(*where), ecn)

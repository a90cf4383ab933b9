"""Numbers that Python names for itself, because it must know them without the C core, are the C core's own."""

import pytest

from dlcp.model.qos import CODEPOINTS, CONTROL_QUEUE, MOST_AVERAGING, PRECEDENCES, QUEUES, codepoint_of
from dlcp.model.regime import PACKET_BYTES
from dlcp.model.workload import MOST_DEMOTIONS, MOST_SOURCE_PORTS
from dlcp.transport import values
from dlcp.transport._native import lib
from dlcp.transport.codepoint import tos_of_queue
from dlcp.transport.tagging import ELEMENT_BYTES, PACKET_ELEMENTS
from dlcp.transport.traffic import DATAGRAM_BYTES


def test_packets_are_of_the_size_that_wire_h_says() -> None:
    assert PACKET_ELEMENTS * ELEMENT_BYTES == PACKET_BYTES == DATAGRAM_BYTES == lib.DLCP_PAYLOAD_BYTES
    assert values.PAYLOAD_BYTES == lib.DLCP_PAYLOAD_BYTES


def test_source_ports_are_as_many_as_engine_h_allows() -> None:
    assert lib.DLCP_SOURCE_PORTS_MOST == MOST_SOURCE_PORTS


def test_messages_sink_as_often_as_protocol_h_allows() -> None:
    assert lib.DLCP_DEMOTIONS == MOST_DEMOTIONS


def test_queues_and_precedences_are_those_of_codepoint_h() -> None:
    assert (lib.DLCP_QUEUES, lib.DLCP_PRECEDENCES) == (QUEUES, PRECEDENCES)
    assert lib.DLCP_AQM_LARGEST_AVERAGING == MOST_AVERAGING
    assert lib.DLCP_CONTROL_QUEUE == CONTROL_QUEUE


@pytest.mark.parametrize("dscp", range(CODEPOINTS))
def test_a_codepoint_leads_where_codepoint_h_says(dscp: int) -> None:
    found = codepoint_of(dscp)
    assert (found.queue, found.precedence) == (lib.dlcp_dscp_queue(dscp), lib.dlcp_dscp_precedence(dscp))


@pytest.mark.parametrize("queue", range(QUEUES))
def test_a_tos_byte_names_its_queue_to_the_switch(queue: int) -> None:
    dscp = lib.dlcp_tos_dscp(tos_of_queue(queue))
    assert (lib.dlcp_dscp_queue(dscp), lib.dlcp_dscp_precedence(dscp)) == (queue, 0)


@pytest.mark.parametrize("queue", [-1, 8])
def test_a_queue_that_is_not_there_has_no_tos_byte(queue: int) -> None:
    with pytest.raises(ValueError, match="does not exist"):
        tos_of_queue(queue)

"""Numbers that Python must know without the C core agree with its headers; packet sizes and types have one home."""

from __future__ import annotations

import ast
import json
from pathlib import Path

import pytest

import dlcp
from dlcp.errors import ExitCode, Problem, decode_problem, encode_problem
from dlcp.model import frames
from dlcp.model.qos import CODEPOINTS, CONTROL_QUEUE, MOST_AVERAGING, PRECEDENCES, QUEUES, codepoint_of
from dlcp.model.transport.queues import MOST_DEMOTIONS
from dlcp.model.transport.sending import MOST_SOURCE_PORTS
from dlcp.traffic import native
from dlcp.transport._native import lib
from dlcp.transport.contract.codepoint import tos_of_queue
from dlcp.transport.contract.tensors import ELEMENT_BYTES, PACKET_ELEMENTS

PACKAGE = Path(dlcp.__file__).parent
PLAYBOOKS = Path(__file__).parents[2] / "playbooks"
ONLY_FRAMES_PY = {
    frames.FRAME_BYTES,
    frames.MTU_BYTES,
    frames.DATAGRAM_BYTES,
    frames.TCP_PAYLOAD_BYTES,
    frames.PAYLOAD_BYTES,
}
"""Numbers that no other module of the package writes out, be it in a text such as a tc command."""


def test_packets_are_of_the_size_that_wire_h_says() -> None:
    assert lib.DLCP_PAYLOAD_BYTES == frames.PAYLOAD_BYTES == PACKET_ELEMENTS * ELEMENT_BYTES
    assert lib.DLCP_HEADER_BYTES == frames.HEADER_BYTES
    assert lib.DLCP_DATAGRAM_BYTES == frames.DATAGRAM_BYTES
    assert lib.DLCP_DATAGRAM_BYTES == lib.DLCP_CONTROL_BYTES
    assert lib.DLCP_FRAME_OVERHEAD_BYTES == frames.FRAME_BYTES - frames.PAYLOAD_BYTES


def test_background_packets_are_of_the_size_that_traffic_h_says() -> None:
    assert lib.DLCP_TRAFFIC_DATAGRAM_BYTES == native.DATAGRAM_BYTES == frames.PAYLOAD_BYTES
    assert lib.DLCP_TRAFFIC_DATAGRAM_MOST == frames.DATAGRAM_BYTES
    assert lib.DLCP_TRAFFIC_FRAME_OVERHEAD == frames.UDP_OVERHEAD_BYTES


def second_definitions(source: str) -> list[str]:
    """Return the packet sizes that a module writes out itself, as its source has them."""
    sizes = []
    for node in ast.walk(ast.parse(source)):
        literal = node.value if isinstance(node, ast.Constant) and isinstance(node.value, int | str) else None
        if literal in ONLY_FRAMES_PY or literal in {str(size) for size in ONLY_FRAMES_PY}:
            sizes.append(ast.unparse(node))
        if isinstance(node, ast.BinOp) and ast.unparse(node).startswith("14 + "):  # Ethernet's header and others
            sizes.append(ast.unparse(node))
    return sizes


def test_no_other_module_defines_a_packet_size() -> None:
    found = {
        path.relative_to(PACKAGE).as_posix(): sizes
        for path in sorted(PACKAGE.rglob("*.py"))
        if path != Path(frames.__file__) and (sizes := second_definitions(path.read_text(encoding="utf-8")))
    }
    assert not found, f"import them of model.frames: {found}"


@pytest.mark.parametrize(
    "source", ["FRAME_BYTES = 1514", "x = 2 * 1440", "X = 14 + 20 + 8", "tc('quantum', '1514')", "def f(mtu=1500): ..."]
)
def test_a_second_definition_would_be_found(source: str) -> None:
    assert second_definitions(source)
    assert not second_definitions("x = '1500 bytes', 15140, 14.5, FRAME_BYTES - 14")


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


def test_the_listener_to_progress_has_one_type() -> None:
    places = [path for path in PACKAGE.rglob("*.py") if "Callable[[float, str], None]" in path.read_text("utf-8")]
    assert places == [PACKAGE / "model/base.py"], "annotate with model.base.OnProgress"


PROBLEM_WORDS = {"where", "what", "hint"}


def takes_problems_apart(source: str) -> list[str]:
    """Return the expressions of a source that make JSON of a problem, or a problem of JSON, by hand."""
    found = []
    for node in ast.walk(ast.parse(source)):
        keys: set[object] = set()
        if isinstance(node, ast.Dict):
            keys = {key.value for key in node.keys if isinstance(key, ast.Constant)}
        elif isinstance(node, ast.Call):  # Problem(said["where"], ...)
            parts = [part for argument in node.args for part in ast.walk(argument) if isinstance(part, ast.Subscript)]
            keys = {part.slice.value for part in parts if isinstance(part.slice, ast.Constant)}
        if keys >= PROBLEM_WORDS:
            found.append(ast.unparse(node))
    return found


def test_problems_go_over_pipes_by_one_pair_of_functions() -> None:
    files = [*PACKAGE.rglob("*.py"), *PLAYBOOKS.rglob("*.py")]
    found = {path: words for path in files if (words := takes_problems_apart(path.read_text("utf-8")))}
    assert set(found) == {PACKAGE / "errors.py"}, "errors.encode_problem and decode_problem do that"


@pytest.mark.parametrize(
    "source",
    [
        'say({"where": problem.where, "what": problem.what, "hint": problem.hint})',
        'raise Problem(f"{name}: {said[\'where\']}", said["what"], said["hint"])',
    ],
)
def test_a_second_pair_would_be_found(source: str) -> None:
    assert takes_problems_apart(source)


@pytest.mark.parametrize("code", list(ExitCode))
def test_a_problem_comes_out_of_a_pipe_as_it_went_in(code: ExitCode) -> None:
    data = encode_problem(Problem("h1", "has no route", "ip route", exit_code=code))
    assert data == {"where": "h1", "what": "has no route", "hint": "ip route", "exit_code": int(code)}
    assert vars(decode_problem(json.loads(json.dumps(data)))) == data | {"exit_code": code}


def test_a_switch_s_problem_names_the_switch() -> None:
    said = encode_problem(Problem("queue 3", "is gone"), exit_code=False)
    assert said == {"where": "queue 3", "what": "is gone", "hint": ""}
    problem = decode_problem(said, at="s1", exit_code=ExitCode.MACHINE_CANNOT)
    assert (str(problem), problem.exit_code) == ("s1: queue 3: is gone", ExitCode.MACHINE_CANNOT)
    assert decode_problem(said).exit_code is ExitCode.BAD_INPUT

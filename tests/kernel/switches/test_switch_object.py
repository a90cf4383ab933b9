"""The switch program's object and its maps: as compiled, as Python lays them out, as an intent fills them."""

from __future__ import annotations

import ctypes
import re
from pathlib import Path

import pytest
from cffi import FFI

from dlcp.errors import Problem
from dlcp.model.qos import DropProfile, QosIntent, QueueIntent
from dlcp.paths import REPOSITORY
from dlcp.switches.bpf import build, map_structs
from dlcp.switches.bpf.aqm_words import averages, effective, render
from dlcp.switches.tc import Port, burst_bytes, port_lines

NATIVE = REPOSITORY / "testbed" / "native"

STRUCTS = {
    "dlcp_aqm_profile": map_structs.AqmProfile,
    "dlcp_aqm_queue": map_structs.AqmQueue,
    "dlcp_aqm_port": map_structs.AqmPort,
    "dlcp_aqm_average": map_structs.AqmAverage,
    "dlcp_switch_config": map_structs.SwitchConfig,
    "dlcp_port_config": map_structs.PortConfig,
    "dlcp_route_key": map_structs.RouteKey,
    "dlcp_route": map_structs.Route,
    "dlcp_flowlet": map_structs.Flowlet,
    "dlcp_tally": map_structs.Tally,
    "dlcp_precedence_counters": map_structs.PrecedenceCounters,
    "dlcp_queue_state": map_structs.QueueState,
    "dlcp_port_state": map_structs.PortState,
    "dlcp_backlogs": map_structs.Backlogs,
    "dlcp_box_hop": map_structs.BoxHop,
    "dlcp_box_turns": map_structs.BoxTurns,
}


@pytest.fixture(scope="module")
def headers() -> FFI:
    """The structs of aqm.h, switch_maps.h and box_maps.h as C lays them out."""
    text = "".join(
        (NATIVE / name).read_text()
        for name in ("codepoint.h", "switch/aqm.h", "switch/switch_maps.h", "switch/box_maps.h")
    )
    text = re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)
    constants = dict(re.findall(r"#define (DLCP_\w+) (\d+)u?\b", text))
    structs = "\n".join(re.findall(r"^struct \w+ \{.*?^\};", text, flags=re.DOTALL | re.MULTILINE))
    for name, value in constants.items():
        structs = re.sub(rf"\b{name}\b", value, structs)
    ffi = FFI()
    ffi.cdef("struct bpf_spin_lock { uint32_t value; };\n" + structs)
    return ffi


@pytest.mark.parametrize("name", STRUCTS)
def test_python_lays_a_struct_out_as_c_does(headers: FFI, name: str) -> None:
    ours = STRUCTS[name]
    theirs = headers.typeof(f"struct {name}")
    assert ctypes.sizeof(ours) == headers.sizeof(theirs)
    assert {field: getattr(ours, field).offset for field, *_ in ours._fields_} == {
        field: description.offset for field, description in theirs.fields
    }


def test_constants_are_the_headers_own() -> None:
    text = "".join(
        (NATIVE / name).read_text()
        for name in ("codepoint.h", "switch/aqm.h", "switch/switch_maps.h", "switch/box_maps.h")
    )
    said = dict(re.findall(r"#define DLCP_(\w+) (\d+)u\b", text))
    flags = ("PORT_HOST_FACING", "PORT_DOWN", "PORT_AVERAGES", "PORT_SHARES")
    balancing = ("FLOW_HASH", "PER_PACKET", "ROUND_ROBIN", "FLOWLET")
    for name in ("HISTOGRAM_BUCKETS", "MAX_NEXT_HOPS", "FLOWLETS", *flags, *balancing):
        assert getattr(map_structs, name) == int(said[name])
    assert int(said["AQM_LARGEST_AVERAGING"]) == max(
        limit.le for limit in QueueIntent.model_fields["averaging"].metadata if hasattr(limit, "le")
    )
    assert "DLCP_AQM_UNLIMITED UINT32_MAX" in text
    assert map_structs.UNLIMITED_BYTES == 2**32 - 1
    assert (int(said["AQM_ACTIVE"]), int(said["AQM_MARK"])) == (map_structs.PROFILE_ACTIVE, map_structs.PROFILE_MARK)
    assert "DLCP_AQM_CERTAIN (UINT64_C(1) << 32)" in text
    assert map_structs.CERTAIN_Q32 == 1 << 32


@pytest.mark.parametrize("shipped", build.SOURCES, ids=lambda path: path.name)
def test_a_rebuild_gives_the_shipped_bytes(shipped: Path, tmp_path: Path) -> None:
    made_by, here = build.compiler_of(shipped), build.compiler_here()
    if here is None:
        pytest.skip(f"no {build.CLANG}; apt-get install clang-14 llvm-14 libbpf-dev")
    if here != made_by:
        pytest.skip(f"the object was made by {made_by}, here is {here}; only the same compiler gives the same bytes")
    rebuilt = tmp_path / shipped.name
    build.compile_switch(rebuilt, build.SOURCES[shipped])
    assert rebuilt.read_bytes() == shipped.read_bytes(), "run: python -m dlcp.switches.bpf.build, and commit the object"


@pytest.mark.parametrize("shipped", build.SOURCES, ids=lambda path: path.name)
def test_the_object_says_nothing_of_where_it_was_made(shipped: Path) -> None:
    assert str(REPOSITORY).encode() not in shipped.read_bytes()


MARKING = DropProfile(minimum="1 kB", maximum="9 kB", probability="25 %", mark=True)
INTENT = QosIntent(
    name="mixed",
    port_buffer="60 kB",
    queues={
        1: QueueIntent(reserved="5 kB"),
        5: QueueIntent(profiles=(None, None, MARKING)),
    },
)


def test_render__says_the_intent_and_nothing_else() -> None:
    port = render(INTENT)
    marked = {"minimum_bytes": 1_000, "maximum_bytes": 9_000, "probability": 0.25, "mark": True}
    assert effective(port) == {
        "port_buffer_bytes": 60_000,
        "queues": {
            "1": {"reserved_bytes": 5_000, "profiles": [None, None, None]},
            "5": {"reserved_bytes": 0, "profiles": [None, None, marked]},
        },
    }


def test_render__refuses_to_promise_more_than_the_port_has() -> None:
    queues = {number: QueueIntent(reserved=40_000) for number in (1, 2)}
    with pytest.raises(Problem, match=r"reserve 80000 B, the port's buffer is 60000 B"):
        render(QosIntent(name="greedy", port_buffer=60_000, queues=queues))


def test_render__says_limits_averages_and_alphas() -> None:
    queues = {2: QueueIntent(limit="20 kB", averaging=9), 4: QueueIntent(alpha=0.5), 6: QueueIntent(alpha=1.0)}
    port = render(QosIntent(name="more", port_buffer="60 kB", queues=queues))
    bare = {"reserved_bytes": 0, "profiles": [None, None, None]}
    said = {"2": bare | {"limit_bytes": 20_000, "averaging": 9}, "4": bare | {"alpha": 0.5}}
    assert effective(port)["queues"] == said
    assert averages(port)
    assert not averages(render(INTENT))


def test_render__what_queues_have_in_common_is_the_buffer_less_all_reserved_bytes() -> None:
    queues = {number: QueueIntent(reserved=10_000) for number in (1, 7)}
    port = render(QosIntent(name="two", port_buffer=60_000, queues=queues))
    assert (port.buffer_bytes, port.common_bytes) == (60_000, 40_000)


def test_render__refuses_a_limit_below_the_reserved_bytes() -> None:
    queues = {3: QueueIntent(reserved="20 kB", limit="10 kB")}
    with pytest.raises(Problem, match=r"queue 3 reserves 20000 B, its limit is 10000 B"):
        render(QosIntent(name="wrong", port_buffer="60 kB", queues=queues))


@pytest.mark.parametrize("buffer", ["port_buffer", "shared_buffer"])
def test_render__refuses_a_buffer_beyond_32_bits(buffer: str) -> None:
    with pytest.raises(Problem, match=r"4294967296 B is more than a switch port counts"):
        render(QosIntent.model_validate({"name": "vast", "port_buffer": "60 kB", buffer: 2**32}))


def test_render__refuses_an_alpha_that_rounds_to_nothing() -> None:
    with pytest.raises(Problem, match=r"alpha 0.001 of queue 0"):
        render(QosIntent(name="small", port_buffer="60 kB", queues={0: QueueIntent(alpha=0.001)}))


def test_render__refuses_what_32_bits_do_not_hold() -> None:
    with pytest.raises(Problem, match="more than a switch port counts"):
        render(QosIntent(name="huge", port_buffer=2**32))


def test_port_lines__serve_queue_7_first() -> None:
    lines = port_lines(Port("s1-h1", 100e6, cuts=False, filters=()))
    leaves = [line for line in lines if " parent 1:1 " in line]
    priorities = {re.search(r"classid 1:1(\d)", line)[1]: re.search(r"prio (\d)", line)[1] for line in leaves}  # type: ignore[index]
    assert priorities == {str(queue): str(7 - queue) for queue in range(8)}


@pytest.mark.parametrize(
    ("rate_bps", "expected_bytes"),
    [(1e6, 6), (10e6, 62), (50e6, 1514), (100e6, 4 * 1514), (250e6, 10 * 1514), (1e9, 10 * 1514), (10e9, 62_500)],
)
def test_bursts_are_short_against_queueing_and_long_against_late_timers(rate_bps: float, expected_bytes: int) -> None:
    assert burst_bytes(rate_bps) == expected_bytes

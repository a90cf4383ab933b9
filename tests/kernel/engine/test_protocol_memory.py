"""A protocol takes memory for what it exchanges, not for whom it knows; packets cannot make it take more than a cap."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).parent
NATIVE = HERE.parents[2] / "testbed" / "native"
WITH_SOCKETS = {
    "engine.c",
    "datagrams.c",
    "sockets.c",
    "traffic_lanes.c",
    "traffic_source.c",
    "traffic_sink.c",
    "blast.c",
}
WRAPPED = ("malloc", "calloc", "realloc", "free")
STASH_BYTES = 1 << 20
"""As protocol_memory.c configures it."""
CONTROL_BYTES = 4096 * 32
"""The longest ring of control packets (protocol.h)."""
ROUNDED_UP_BYTES = 8192
"""By the allocator, which gives large blocks whole pages."""
IDLE_BYTES = 1024
"""A peer with which nothing was exchanged (protocol.h)."""
USED_BYTES = 16_384
"""One with which short messages were exchanged; it reserved 163 kB before records grew on use."""


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> dict[str, int]:
    """What protocol_memory.c counts, in bytes."""
    if shutil.which("gcc") is None:
        pytest.skip("gcc is not installed; apt-get install gcc")
    program = tmp_path_factory.mktemp("memory") / "protocol_memory"
    sources = [path for path in NATIVE.rglob("*.c") if path.name not in WITH_SOCKETS and ".bpf." not in path.name]
    includes = [f"-I{header}" for header in sorted({path.parent for path in NATIVE.rglob("*.h")})]
    wraps = [f"-Wl,--wrap={name}" for name in WRAPPED]
    command = ["gcc", "-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror", *includes, HERE / "protocol_memory.c"]
    subprocess.run([*command, *sources, *wraps, "-lm", "-o", program], check=True)
    done = subprocess.run([program], capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    counted: dict[str, int] = json.loads(done.stdout)
    print(counted)
    return counted


# R109
def test_an_idle_peer_takes_little(held: dict[str, int]) -> None:
    assert 0 < held["idle_pair"] <= IDLE_BYTES, held


def test_a_peer_with_which_short_messages_were_exchanged_takes_little_more(held: dict[str, int]) -> None:
    """Records of 256 transmissions, two lanes, and which message of each of 100 tensors is over."""
    assert held["idle_pair"] < held["idle_pair"] + held["used_pair"] <= USED_BYTES, held


def test_a_protocol_without_peers_takes_little(held: dict[str, int]) -> None:
    assert held["endpoint"] <= 256 << 10, held


# R109
def test_no_packet_makes_memory_grow_beyond_the_stash_and_the_control_ring(held: dict[str, int]) -> None:
    assert held["stashed"] > 100, "the attack reached the stash"
    assert held["acknowledged"] > 1_000
    assert held["control_dropped"] > 0, "it filled the ring"
    assert held["attack"] <= STASH_BYTES + CONTROL_BYTES + ROUNDED_UP_BYTES, held


def test_everything_is_given_back(held: dict[str, int]) -> None:
    assert held["left"] == 0, held

"""Mininet's commands on the fabric, and what the machine is told that it lacks."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

HERE = Path(__file__).parent

SHELL = """
import json, sys
from dlcp.model.qos import QosIntent
from dlcp.model.topology import LeafSpine
from dlcp.model.host_settings import HostSettings
from dlcp.substrates.emulate.shell import shell
graph = LeafSpine(kind="leaf-spine", leaves=2, spines=2, hosts=4, rate="100 Mbit/s").graph
intent = QosIntent(name="plain", port_buffer="100 kB", load_balancing="per-packet")
sys.exit(shell(graph, intent, seed=1, host_settings=HostSettings(), command=json.loads(sys.argv[1])))
"""

PROBE = """
import json
from dataclasses import asdict
from dlcp.substrates.emulate.capabilities import probe
print(json.dumps([asdict(check) for check in probe()]))
"""


def run_shell(command: str | None, typed: str = "") -> subprocess.CompletedProcess[str]:
    """The shell in a process of its own, with something typed at its prompt."""
    arguments = [sys.executable, "-c", SHELL, json.dumps(command)]
    return subprocess.run(arguments, input=typed, capture_output=True, text=True, timeout=30, check=False)


def test_ping_by_name() -> None:
    done = run_shell("h1 ping -c 3 -i 0.05 h3")
    assert done.returncode == 0, done.stderr
    assert "PING 198.18.0.3" in done.stdout
    assert "3 received, 0% packet loss" in done.stdout


@pytest.mark.parametrize(
    ("command", "status"),
    [
        ("h1 sh -c 'exit 7'", 7),
        ("h1 ping -c 1 -W 1 198.18.0.200", 1),
        ("pingall", 0),
        ("net", 0),
        ("nosuch", 2),
        ("h1", 2),
    ],
)
def test_the_status_is_the_commands_own(command: str, status: int) -> None:
    done = run_shell(command)
    assert done.returncode == status, done.stderr


def test_the_prompt_takes_mininets_commands() -> None:
    done = run_shell(None, "h1 ping -c 1 h2\npingall\nexit\n")
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("mininet> ") == 3
    assert "1 packets transmitted, 1 received" in done.stdout + done.stderr
    assert "0% dropped (12/12 received)" in done.stdout + done.stderr


def run_probe(prefix: list[str], **environment: str) -> tuple[dict[str, dict[str, str]], float]:
    """Checks by name as another process sees them, and the seconds that it took."""
    start = time.monotonic()
    done = subprocess.run(
        [*prefix, sys.executable, "-c", PROBE],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    return {check["name"]: check for check in json.loads(done.stdout)}, time.monotonic() - start


def test_probe__finds_everything_where_the_other_tests_run() -> None:
    checks, took_s = run_probe([])
    assert [check for check in checks.values() if not check["ok"]] == []
    assert {"root", "mnexec", "tc", "ethtool", "libbpf", "veth", "htb", "tbf", "clsact", "cls_bpf"} <= set(checks)
    assert took_s < 3


def test_probe__says_that_root_is_missing_and_tries_nothing() -> None:
    checks, _ = run_probe(["unshare", "--user"])
    assert not checks["root"]["ok"]
    assert "sudo" in checks["root"]["remedy"]
    told = {"name": "htb", "ok": False, "detail": "not tried: mend the above first", "remedy": "", "tried": False}
    assert checks["htb"] == told


def test_probe__names_the_package_of_a_missing_program(tmp_path: Path) -> None:
    checks, _ = run_probe([], PATH=str(tmp_path))
    assert checks["mnexec"]["remedy"] == "apt-get install --no-install-recommends mininet"
    assert checks["tc"]["remedy"] == "apt-get install iproute2"
    assert checks["libbpf"]["ok"], "a library is not looked for on the PATH"

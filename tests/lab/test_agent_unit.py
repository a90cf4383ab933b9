"""Runs over the agent's unit: an SSH user of no rights connects to an agent that has them, and gets tables from a
folder that it cannot look into; who is not of the group cannot connect; who connects and dies leaves no agent."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from running_lab import RunningLab
from test_lab_run import HOSTS, TOPOLOGY, agents, await_agents, made, results, write
from unit_listener import CALLER, STRANGER, deafen, furnish, lacking, listen
from waits import wait_until

from dlcp.agents.control.session import JobSession
from dlcp.agents.job_spec import JobSpec, LayerWork
from dlcp.model.lab.inventory import AGENT_SOCKET
from dlcp.model.lab.load_inventory import load_inventory
from dlcp.model.transport.settings import TransportSettings
from dlcp.substrates.lab.agents import LabAgent, LabHosts

CONNECT = f"{sys.executable} -m dlcp.agents.process.systemd_bridge {AGENT_SOCKET}"
HELLO = json.dumps({"id": 1, "command": "hello"}) + "\n"


@pytest.fixture(scope="module")
def star(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    if reason := lacking():
        pytest.skip(reason)
    lab = RunningLab(TOPOLOGY, tmp_path_factory.mktemp("lab"))
    try:
        for host in HOSTS:
            if reason := furnish(lab, host):
                pytest.skip(
                    f"other users than root cannot run this dlcp ({reason}); put the clone where they may read it"
                )
            listen(lab, host)
        yield lab
    finally:
        lab.stop()


@contextmanager
def use_of_unit(lab: RunningLab) -> Iterator[None]:
    """Have the inventory say so, and another user than root log in on hosts."""
    text = lab.path.read_text()
    inventory = yaml.safe_load(text)
    inventory["all"]["children"]["dlcp_hosts"]["vars"] = {"dlcp_agent": "unit", "ansible_user": CALLER}
    lab.path.write_text(yaml.safe_dump(inventory))
    try:
        yield
    finally:
        lab.path.write_text(text)


@contextmanager
def connected(lab: RunningLab, host: str) -> Iterator[tuple[subprocess.Popen[str], dict[str, Any]]]:
    """An agent of the unit over SSH, and what it says of itself."""
    words = ["env", "-C", str(lab.folder), "ssh", "-F", "ssh_config", "-l", CALLER, host, CONNECT]
    ssh = subprocess.Popen(
        lab.process.inside(words), stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert ssh.stdin is not None
    assert ssh.stdout is not None
    try:
        ssh.stdin.write(HELLO)
        ssh.stdin.flush()
        yield ssh, json.loads(ssh.stdout.readline())["result"]
    finally:
        kill(ssh)
        ssh.communicate(timeout=20)
    await_agents(lab, there=False, within_s=20)


def kill(process: subprocess.Popen[str]) -> None:
    """Outright, with what it started in the lab's namespaces."""
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)


def as_user(lab: RunningLab, host: str, user: str, command: str) -> str:
    """Both outputs of a command of a user."""
    return lab.on(host, f"runuser -u {user} -- {command} </dev/null 2>&1 || true").strip()


def test_only_the_group_connects_and_nobody_else_looks_into_an_agents_folder(star: RunningLab) -> None:
    with connected(star, "h1") as (_, said):
        [pid] = agents(star)["h1"]
        folder = f"/proc/{pid}/root{said['folder']}"
        assert star.on("h1", f"stat -c '%U %a' {folder}") == "dlcp 700\n"
        assert not star.on("h1", f"ls -d {said['folder']} 2>/dev/null || true"), "it is in a /tmp of its own"
        assert star.on("h1", f"ps -o user= -p {pid}").strip() == "dlcp"
        for user in (CALLER, STRANGER):
            assert "Permission denied" in as_user(star, "h1", user, f"ls {folder}")
        assert said["user"] == "dlcp"
        assert said["capabilities"] == {"net_admin": True, "net_raw": False, "sys_nice": True}
        assert said["realtime"] == ""
        assert min(said["send_buffer_bytes"], said["receive_buffer_bytes"]) >= 64 << 20
    assert as_user(star, "h1", STRANGER, CONNECT) == f"no agent at {AGENT_SOCKET}: Permission denied"
    assert as_user(star, "h1", CALLER, CONNECT) == ""


@pytest.mark.parametrize("who", ["caller", "bridge"])
def test_an_agent_ends_with_who_asked_for_it(star: RunningLab, who: str) -> None:
    with connected(star, "h1") as (ssh, said):
        assert said["folder"]
        if who == "caller":
            kill(ssh)
        else:
            star.on("h1", "kill -9 $(pgrep -f '[d]lcp.agents.process.systemd_bridge')")
        left = "pgrep -f '[d]lcp.agents' || true"
        wait_until(lambda: star.on("h1", left) == "", "h1's agents have ended", every_s=0.1)


def job_over_units(path: str, folder: str) -> dict[str, Any]:
    """On the controller: two workers and a server, through the agents of the units, over kernel routes."""
    lab = load_inventory(Path(path))
    spec = JobSpec(
        name="j",
        kind="profile",
        workers=("h1", "h2"),
        servers=("h3",),
        iterations=3,
        warmup_iterations=1,
        bucket_bytes=8_000,
        seed=1,
        layers=tuple(LayerWork(name=f"l{i}", elements=6_000, forward_s=0.004, backward_s=0.008) for i in range(3)),
    )
    with LabHosts(lab, HOSTS) as hosts, hosts.agents({host: host for host in HOSTS}, Path(folder)) as started:
        session = JobSession(
            started,
            spec,
            TransportSettings(kind="dlcp"),
            hosts.addresses(),
            cookie=7,
            link_rates_bps=dict.fromkeys(HOSTS, 1e8),
            directory=Path(folder),
            time_limit_s=30,
        )
        session.open()
        session.start()
        session.wait()
        job = session.collect()
        session.close()
        said = {name: agent.said for name, agent in started.items() if isinstance(agent, LabAgent)}
    return {"said": said, "iterations": len(job.iterations["start_s"]), "messages": len(job.messages["start_s"])}


def test_a_job_runs_over_the_units_and_its_tables_come(star: RunningLab) -> None:
    with use_of_unit(star):
        found = star.call(job_over_units, path=str(star.path), folder=str(star.folder))
    assert found["iterations"] == 2 * 3
    assert found["messages"] > 0
    assert {(one["way"], one["user"]) for one in found["said"].values()} == {("unit", "dlcp")}
    assert not any(agents(star).values())


@pytest.mark.long
def test_a_job_of_an_ssh_user_without_rights_has_all_tables(star: RunningLab) -> None:
    """First as root over SSH, which deploys, then over the units."""
    found = made(star, write(star, "over-ssh", "DLCP"), deploy=True)
    assert "failed" not in found.get("statuses", {"failed": found}), results(star, "over-ssh")
    with use_of_unit(star):
        found = made(star, write(star, "over-unit", "DLCP"))
    assert "failed" not in found.get("statuses", {"failed": found}), results(star, "over-unit")
    [(ssh, ssh_folder)], [(unit, unit_folder)] = results(star, "over-ssh").values(), results(star, "over-unit").values()
    assert {file.name for file in unit_folder.glob("*.parquet")} == {file.name for file in ssh_folder.glob("*.parquet")}
    rows = {folder: pq.read_table(folder / "messages.parquet").num_rows for folder in (ssh_folder, unit_folder)}
    assert rows[unit_folder] == rows[ssh_folder] > 0
    for result, way, user in ((ssh, "ssh", "root"), (unit, "unit", "dlcp")):
        said = result["statistics"]["agents"]
        assert {(one["way"], one["user"]) for one in said.values()} == {(way, user)}
        assert set(said) == set(HOSTS)
        assert all(one["realtime"] == "" and one["capabilities"]["net_admin"] for one in said.values())
    assert not any(agents(star).values())


@pytest.mark.long
def test_a_unit_that_is_not_there_is_named_with_what_installs_it(star: RunningLab) -> None:
    """Last: no fallback to the SSH user's own process, though that would work."""
    deafen(star, "h2")
    with use_of_unit(star):
        found = made(star, write(star, "deaf", "DLCP"))
    told = json.dumps([found, [result["reason"] for result, _ in results(star, "deaf").values()]])
    assert f"h2 ({CALLER}@" in told, told
    assert f"no agent at {AGENT_SOCKET}: No such file or directory" in told
    assert "playbooks/hosts.yml" in told
    assert not any(agents(star).values())

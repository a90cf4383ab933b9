"""Experiments on a lab over real SSH: refused where the lab is not what a run needs, run where it is, failed in words
where something dies; and nothing stays on any host, however its caller ends.

One switch, three hosts, so that a deployment takes little; the demo runs on leaves and spines. In the order of this
file: a test takes the switch as the one before left it.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
import yaml
from running_lab import RunningLab
from waits import in_time, wait_until

HOSTS = ("h1", "h2", "h3")
TOPOLOGY = {"kind": "star", "hosts": 3, "rate": "100 Mbit/s"}
SCHEMES = {"DLCP": {"scheme": "dlcp", "label": "DLCP"}, "TCP": {"scheme": "tcp", "label": "TCP"}}
LONG = 2_000
"""Iterations of a job that is still running whatever happens to it."""
PACKETS = 100
"""More than a job's opening takes, fewer than an iteration's."""
AGENT = "[d]lcp.agents.process.stdio"
"""A pattern that does not find whoever looks for it."""
CONTROLLER = "[i]mport test_lab_run as t"


@pytest.fixture(scope="module")
def star(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningLab]:
    lab = RunningLab(TOPOLOGY, tmp_path_factory.mktemp("lab"))
    yield lab
    lab.stop()


def write(lab: RunningLab, name: str, *labels: str, **changes: Any) -> Path:
    """An experiment's file: two workers and a server, four iterations of 25 ms and 0.5 MB."""
    job = {"workload": "small", "workers": ["h1", "h2"], "servers": ["h3"], "iterations": 4, "bucket": "60 kB"}
    workload = {
        "kind": "profile",
        "name": "small",
        "source": "made up for tests",
        "source_quality": "derived",
        "device": "none",
        "batch": 1,
        "parameters": 2_000_000,
        "layers": [{"name": f"l{i}", "parameters": 500_000, "forward": "4 ms", "backward": "8 ms"} for i in range(4)],
    }
    content = {
        "format": 1,
        "name": name,
        "description": "for tests",
        "seed": 7,
        "repeats": 1,
        "time_limit": "8 s",
        "topology": TOPOLOGY,
        "port_buffer": "120 kB",
        "scaling": {"lab_rate": "4 Gbit/s", "byte_scale": 40},
        "jobs": {"one": job | changes.pop("job", {})},
        "schemes": [SCHEMES[label] for label in labels],
    } | changes
    (lab.folder / "workloads").mkdir(exist_ok=True)
    (lab.folder / "workloads" / "small.yaml").write_text(yaml.safe_dump(workload))
    path = lab.folder / f"{name}.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def run(experiment: str, workloads: str, *, deploy: bool) -> dict[str, Any]:
    """On the controller: make the missing runs once, whatever the monitors of a busy machine say."""
    from contextlib import nullcontext

    from dlcp.errors import Problem, Problems
    from dlcp.runner.lab.find_lab import find_lab
    from dlcp.runner.lab.lab_runs import LabChoice, opened_lab
    from dlcp.runner.planning.check import ready
    from dlcp.runner.preview.outline import outline
    from dlcp.runner.running import execute

    class Quiet:
        def again(self, count: int) -> None: ...

        def begins(self, number: int, total: int, run: Any) -> Any:
            return lambda share, text: None

        def ends(self, number: int, total: int, run: Any, result: Any, took_s: float) -> None: ...

    execute.MORE_CHANCES = 0
    choice = LabChoice(find_lab(), deploy=deploy)
    try:
        found = outline(ready(Path(experiment), Path(workloads)), "lab", Path("results"), lab=choice)
        opened = opened_lab(choice, Path(experiment), found.todo) if found.todo else nullcontext()
        done = execute.execute(found.plan, Path("results"), Quiet(), substrate=opened)  # type: ignore[arg-type]
    except (Problem, Problems) as error:
        problems = error.problems if isinstance(error, Problems) else [error]
        return {"refused": [f"{one.where}: {one.what}" for one in problems], "hint": problems[0].hint}
    return {"made": done.made, "kept": done.kept, "statuses": done.statuses}


def made(lab: RunningLab, path: Path, *, deploy: bool = False, within_s: float = 240) -> dict[str, Any]:
    found: dict[str, Any] = lab.call(
        run, within_s, experiment=str(path), workloads=str(lab.folder / "workloads"), deploy=deploy
    )
    return found


def results(lab: RunningLab, name: str) -> dict[str, tuple[dict[str, Any], Path]]:
    """Label → result.json and its folder."""
    found = {}
    for file in (lab.folder / "results" / name).glob("*/result.json"):
        result = json.loads(file.read_text())
        found[result["label"]] = (result, file.parent)
    return found


def agents(lab: RunningLab) -> dict[str, list[str]]:
    """Host → the process ids of its agents."""
    return {host: lab.on(host, f"pgrep -f {AGENT} || true").split() for host in HOSTS}


def await_agents(lab: RunningLab, *, there: bool, within_s: float = 60) -> dict[str, list[str]]:
    """Wait until every host has an agent, or none has."""
    seen: dict[str, list[str]] = {}

    def as_wanted() -> bool:
        seen.update(agents(lab))
        return all(seen.values()) if there else not any(seen.values())

    assert in_time(as_wanted, within_s, every_s=0.2), f"agents after {within_s} s: {seen}"
    return seen


def await_job(lab: RunningLab, within_s: float = 60) -> dict[str, list[str]]:
    """Wait until a job's packets leave h1: host → its agents."""
    sent = "awk '$1 == \"eth1:\" {print $11}' /proc/self/net/dev"
    before = int(lab.on("h1", sent))
    wait_until(lambda: int(lab.on("h1", sent)) > before + PACKETS, "h1 sends a job's packets", within_s, every_s=0.1)
    return agents(lab)


def folders(lab: RunningLab) -> dict[str, str]:
    """Host → what agents work in there; one that was killed outright cannot take its own away."""
    return {host: lab.on(host, "ls -d /tmp/dlcp-agent-* 2>/dev/null || true") for host in HOSTS}


def begin(lab: RunningLab, path: Path) -> subprocess.Popen[bytes]:
    """`dlcp run` in a process of its own on the controller; it ends with its standard streams at nobody."""
    workloads = ["env", "-C", str(lab.folder), "DLCP_LAB=" + str(lab.path)]
    source = f"import test_lab_run as t; print(t.run({str(path)!r}, {str(lab.folder / 'workloads')!r}, deploy=False))"
    words = lab.process.inside([*workloads, sys.executable, "-c", source])
    paths = os.pathsep.join(filter(None, sys.path))
    return subprocess.Popen(words, env={**os.environ, "PYTHONPATH": paths}, stdout=subprocess.PIPE)


def kill_controllers(lab: RunningLab) -> list[str]:
    """What `begin` began, and has not ended."""
    found = lab.run(["pgrep", "-f", CONTROLLER]).stdout.split()
    for pid in found:
        lab.run(["kill", f"-{signal.SIGKILL.value}", pid])
    return found


def test_a_lab_that_holds_nothing_is_refused_with_what_is_needed_and_the_command(star: RunningLab) -> None:
    path = write(star, "bare", "DLCP")
    found = made(star, path)
    assert found["refused"] == ["s1: for DLCP: no QoS of ours is deployed; the run needs the intent dlcp"], found
    assert "--on lab" in found["hint"]
    assert "--deploy" in found["hint"]
    assert results(star, "bare") == {}
    assert not any(agents(star).values())


@pytest.mark.long
def test_tcp_and_dlcp_with_deployment_and_again_is_a_resume(star: RunningLab) -> None:
    path = write(star, "both", "TCP", "DLCP")
    found = made(star, path, deploy=True)
    assert found.get("made") == 2, found
    assert "failed" not in found["statuses"], [one["reason"] for one, _ in results(star, "both").values()]
    stored = results(star, "both")
    assert set(stored) == {"TCP", "DLCP"}
    for label, (result, folder) in stored.items():
        assert result["traffic"][SCHEMES[label]["scheme"]] > 0
        assert set(result["statistics"]["clocks"]) == set(HOSTS)
        assert result["fidelity"]["clock_error"]["value"] > 0
        assert result["fidelity"]["unaccounted_packets"]["value"] == 0, result["warnings"]
        assert result["fidelity"]["device_lost_packets"]["value"] == 0, result["warnings"]
        assert "saturated_rate" in result["unwatched"]
        assert "saturated_rate" not in result["fidelity"]
        shared_bytes = 2 * 120_000  # at alpha 1 a queue that is alone ends at half of it
        held_bytes = result["effective"]["switches"]["s1"]["port_buffer_bytes"]
        assert shared_bytes <= held_bytes <= shared_bytes + 8 * 1514, "and a minimum a queue"
        assert result["provenance"]["lab"]["switches"]["s1"]["system"] == "linux"
        ports = pq.read_table(folder / "ports.parquet").to_pandas()
        assert set(ports["port"]) == {"s1-h1", "s1-h2", "s1-h3"}
        payload = sum(pq.read_table(folder / "messages.parquet").to_pandas()["delivered_bytes"])
        assert ports["sent_bytes"].sum() > payload
        hosts = pq.read_table(folder / "hosts.parquet").to_pandas()
        assert set(hosts["host"]) == set(HOSTS)
    dlcp, tcp = (pq.read_table(stored[label][1] / "ports.parquet").to_pandas() for label in ("DLCP", "TCP"))
    assert dlcp[dlcp["queue"] > 0]["sent_packets"].sum() > 0.9 * dlcp["sent_packets"].sum()
    assert tcp[tcp["queue"] > 0]["sent_packets"].sum() == 0
    assert not any(agents(star).values()), "agents end with their run"
    assert made(star, path, deploy=True) == {"made": 0, "kept": 2, "statuses": found["statuses"]}


def deployed(lab: RunningLab) -> None:
    """Have DLCP's intent there, if it is not."""
    path = write(lab, "deployed", "DLCP")
    found = made(lab, path)
    if "refused" in found:
        found = made(lab, path, deploy=True)
    assert "failed" not in found.get("statuses", {"failed": 1}), found


@pytest.mark.long
def test_another_intent_is_refused_by_both_names(star: RunningLab) -> None:
    deployed(star)
    found = made(star, write(star, "other", "TCP"))
    assert "s1: for TCP: the intent dlcp is deployed; the run needs tcp" in found["refused"], found


@pytest.mark.long
def test_an_agent_that_is_killed_fails_the_run_with_its_hosts_name(star: RunningLab) -> None:
    deployed(star)
    path = write(star, "killed", "DLCP", job={"iterations": LONG}, time_limit="60 s")
    process = begin(star, path)
    try:
        found = await_job(star)
        star.on("h2", f"kill -9 {' '.join(found['h2'])}")
        output, _ = process.communicate(timeout=60)
    finally:
        kill_controllers(star)
        process.wait(30)
    assert b"'failed': 1" in output
    [(result, _)] = results(star, "killed").values()
    assert result["reason"].startswith("h2: "), result["reason"]
    assert "agent" in result["reason"]
    assert "10.200.0." in result["reason"], "where to look"
    await_agents(star, there=False)


@pytest.mark.long
def test_a_link_that_goes_down_fails_the_run_in_time(star: RunningLab) -> None:
    deployed(star)
    path = write(star, "cut", "DLCP", job={"iterations": LONG}, time_limit="3 s")
    process = begin(star, path)
    try:
        await_job(star)
        star.on("h1", "ip link set eth1 down")
        output, _ = process.communicate(timeout=90)
    finally:
        kill_controllers(star)
        process.wait(30)
        star.on("h1", "ip link set eth1 up && ip route replace 198.18.0.0/15 via 198.18.1.1")
    assert b"'failed': 1" in output
    [(result, _)] = results(star, "cut").values()
    assert any(host in result["reason"] for host in HOSTS), result["reason"]
    await_agents(star, there=False)


@pytest.mark.long
def test_a_controller_that_is_killed_leaves_no_agent_on_any_host(star: RunningLab) -> None:
    deployed(star)
    path = write(star, "orphans", "DLCP", job={"iterations": LONG}, time_limit="60 s")
    before = folders(star)
    process = begin(star, path)
    try:
        await_job(star)
        assert kill_controllers(star)
        process.wait(30)
        await_agents(star, there=False, within_s=20)
        # The next agent sweeps up what one that was killed left, so there may be less than before.
        new = {host: set(found.split()) - set(before[host].split()) for host, found in folders(star).items()}
        assert not any(new.values()), new
    finally:
        kill_controllers(star)
        process.wait(30)


@pytest.mark.long
def test_what_is_not_deployed_is_not_verified(star: RunningLab) -> None:
    deployed(star)
    done = star.run([sys.executable, "-m", "dlcp.cli.main", "switch", "verify", "droptail", "--on", "lab"])
    assert done.returncode == 3, done.stderr
    assert "s1: the intent dlcp is deployed; the run needs droptail" in done.stderr
    assert "dlcp switch apply droptail" in done.stderr


@pytest.mark.long
def test_probes_of_a_labs_hosts_say_that_its_switch_does_what_was_deployed(star: RunningLab) -> None:
    """Every codepoint by counters, order of service, curves and limits: over SSH, as in the emulator."""
    deployed(star)
    scaling = {"lab_rate": "10 Gbit/s", "byte_scale": 100}
    path = write(star, "probed", "DLCP", job={"workload": "resnet50"}, scaling=scaling)
    words = [sys.executable, "-m", "dlcp.cli.main", "switch", "verify", path, "--on", "lab", "--json"]
    done = star.run(words, within_s=400)
    assert done.returncode in (0, 4), done.stderr
    [found] = json.loads(done.stdout)["verified"]
    assert found["counts"]["deviates"] == 0, [row for row in found["rows"] if row["verdict"] == "deviates"]
    assert found["counts"]["ok"] > 20
    checks = {row["check"] for row in found["rows"] if row["verdict"] == "ok"}
    assert {"reachability", "DSCP by counters", "drop curve"} <= checks
    assert not any(agents(star).values())


@pytest.mark.long
def test_drift_during_a_run_fails_it_and_refuses_the_next_with_what_drifted(star: RunningLab) -> None:
    """Last: it leaves the switch as no other test wants it."""
    deployed(star)
    path = write(star, "drifted", "DLCP")
    process = begin(star, path)
    try:
        await_agents(star, there=True)  # the switch has been read
        star.on("s1", "tc filter del dev eth1 egress")
        output, _ = process.communicate(timeout=90)
    finally:
        kill_controllers(star)
        process.wait(30)
    assert b"'failed': 1" in output
    [(result, _)] = results(star, "drifted").values()
    assert "s1: drifted from what was deployed (dlcp): " in result["reason"], result["reason"]
    assert "eth1" in result["reason"]
    found = made(star, path)
    [line] = found["refused"]
    assert line.startswith("s1: for DLCP: drifted from what was deployed (dlcp): "), line
    assert "eth1" in line

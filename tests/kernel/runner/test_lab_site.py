"""A lab as the site of a run, with agents as on its hosts: what is kept of switches that cannot count exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from far_agents import far_agents

from dlcp.agents.control.handles import AgentHandle
from dlcp.model.lab.inventory import Lab
from dlcp.runner.lab.deployment_record import lab_secret
from dlcp.runner.planning.check import ready
from dlcp.runner.planning.plan import plan
from dlcp.substrates.lab.agents import LabHosts
from dlcp.substrates.lab.site import LabFacts, LabSite, lacking
from dlcp.substrates.lab.state import Boxes
from dlcp.substrates.run_plan import RunPlan, plan_run
from experiments import document, write


def plans(folder: Path) -> list[RunPlan]:
    found = plan(ready(write(folder, document()), folder / "workloads"), "lab", where="rack")
    return [plan_run(cell.run) for cell in found.cells]


def empty_lab(folder: Path) -> Lab:
    return Lab("rack", folder / "lab.yaml", None, (), {}, {})  # type: ignore[arg-type]


def test_switches_without_exact_counters_are_heard_before_and_after_with_the_reason(tmp_path: Path) -> None:
    run, lab = plans(tmp_path)[0], empty_lab(tmp_path)
    switch, heard = run.graph.switches[0], list[Path]()

    def collect(folder: Path) -> dict[str, str]:
        heard.append(folder)
        return {switch: "it was busy"} if folder.name == "before" else {}

    site = LabSite(run, LabFacts(lab, {}, {}), 1, LabHosts(lab, ()), Boxes({}, {}), collect, tmp_path)
    with far_agents({"h1": 0}) as agents:
        watched: dict[str, AgentHandle] = dict(agents)
        with site.watching(watched):
            assert heard == [tmp_path / "switches" / "before"]
        found = site.seen(0.0, 1.0)
    assert heard[1:] == [tmp_path / "switches" / "after"]
    assert found.ports is None
    for monitor in ("unaccounted_packets", "device_lost_packets", "link_utilisation"):
        assert monitor not in found.values
        assert found.unwatched[monitor].endswith("do not count by queue and precedence exactly")
    assert any(f"{switch} (before the run) said nothing of its counters: it was busy" in one for one in found.warnings)


def test_an_agent_without_privileges_is_told_with_every_dlcp_run() -> None:
    """As an agent of an ordinary user introduces itself."""
    able = {"realtime": "", "capabilities": {"net_admin": True}}
    unable = {"realtime": "Operation not permitted", "capabilities": {"net_admin": False}}
    assert lacking("dlcp", {"h1": able}) == []
    assert lacking("tcp", {"h1": unable}) == []
    told = lacking("dlcp", {"h1": able, "h2": unable})
    assert [line.split(":")[0] for line in told] == ["h2", "h2"]
    assert "no real-time priority there (Operation not permitted)" in told[0]


def test_schemes_of_a_repeat_meet_the_same_paths_and_strangers_do_not_know_them(tmp_path: Path) -> None:
    secret = lab_secret(empty_lab(tmp_path))
    cookies: dict[Any, set[int]] = {}
    for one in plans(tmp_path):
        cookies.setdefault((one.run.job_name, one.run.repeat), set()).add(one.cookie(secret))
        assert one.cookie(secret) != one.cookie()
    assert all(len(found) == 1 for found in cookies.values())
    assert len(set.union(*cookies.values())) == len(cookies)


def test_a_labs_secret_stays_and_is_its_owners_alone(tmp_path: Path) -> None:
    lab = empty_lab(tmp_path)
    first = lab_secret(lab)
    [file] = tmp_path.rglob("secret")
    assert file.stat().st_mode & 0o777 == 0o600
    assert (len(first), lab_secret(lab)) == (32, first)
    file.unlink()
    assert lab_secret(lab) != first

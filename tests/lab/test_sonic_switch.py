"""A SONiC switch's side of a deployment, upon a real redis: apply, confirm, restore, timers, drift, refusals.

Both ways of writing: through `config` (the stub of an image's updater), and redis' own transaction.
"""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from config_db import ConfigDb, config_db
from device_modules import dlcp_sonic, dlcp_timer
from test_sonic_tables import PATCHES, PORTS
from timers import run_out
from waits import wait_until

LONG_S = 300.0


@pytest.fixture
def shipped(tmp_path: Path) -> Iterator[ConfigDb]:
    with config_db(tmp_path / "redis") as switch:
        yield switch
        if (tmp_path / "state").exists():
            dlcp_timer.stop(str(tmp_path / "state"))


def switch_on(shipped: ConfigDb, writer: str, *options: str) -> dlcp_sonic.Switch:
    folder = shipped.folder.parent / "state"
    words = {
        "ports": PORTS,
        "folder": str(folder),
        "socket": shipped.socket,
        "database": 4,
        "config_command": shipped.config(*options),
        "writer": writer,
    }
    return dlcp_sonic.Switch(words)


@pytest.fixture(params=["gcu", "direct"])
def writer(request: pytest.FixtureRequest) -> str:
    found: str = request.param
    return found


def deploy(switch: dlcp_sonic.Switch, name: str, deployment: str, restore_after_s: float = LONG_S) -> bool:
    found: bool = switch.apply(PATCHES[name], f"digest-of-{name}", deployment, restore_after_s)
    return found


def test_apply_confirm_and_a_second_time_nothing(shipped: ConfigDb, writer: str) -> None:
    switch = switch_on(shipped, writer)
    before = shipped.dump()
    switch.check(PATCHES["dlcp-ect"])
    assert "+QUEUE|Ethernet0|3 wred_profile: DLCP_3" in switch.diff(PATCHES["dlcp-ect"], "digest-of-dlcp-ect")
    assert shipped.dump() == before
    assert deploy(switch, "dlcp-ect", "first")
    assert shipped.database.hget("QUEUE|Ethernet0|3", "wred_profile") == "DLCP_3"
    pending = switch.pending()
    assert pending is not None
    assert pending["deployment"] == "first"
    assert switch.confirm("first")
    assert not switch.confirm("first")
    assert switch.pending() is None
    after = shipped.dump()
    assert switch.diff(PATCHES["dlcp-ect"], "digest-of-dlcp-ect") == ""
    assert not deploy(switch, "dlcp-ect", "second")
    assert not switch.confirm("second")
    assert shipped.dump() == after
    assert switch.kept()["digest"] == "digest-of-dlcp-ect"
    assert switch.differences() == []


def test_restore_before_and_after_confirming_is_exact(shipped: ConfigDb, writer: str) -> None:
    switch = switch_on(shipped, writer)
    before = shipped.dump()
    deploy(switch, "roce-pfc", "first")
    assert switch.restore("first", original=False)
    assert shipped.dump() == before
    assert switch.kept() is None
    assert switch.pending() is None
    assert not switch.restore("first", original=False)
    assert not switch.restore("never-came-here", original=False)
    deploy(switch, "roce-pfc", "second")
    switch.confirm("second")
    made = shipped.dump()
    deploy(switch, "dlcp-ect", "third")
    switch.confirm("third")
    assert switch.restore("third", original=False)
    assert shipped.dump() == made
    assert switch.kept()["digest"] == "digest-of-roce-pfc"
    assert switch.differences() == []
    assert switch.restore("third", original=True)
    assert shipped.dump() == before


def test_what_others_change_meanwhile_is_left_as_it_is(shipped: ConfigDb, writer: str) -> None:
    switch = switch_on(shipped, writer)
    deploy(switch, "dlcp-ect", "first")
    switch.confirm("first")
    shipped.set("VLAN|Vlan200", {"vlanid": "200"})
    shipped.set("QUEUE|Ethernet8|3", {"wred_profile": "AZURE_LOSSLESS"})
    assert switch.differences() == []
    switch.restore("first", original=False)
    assert shipped.database.hget("VLAN|Vlan200", "vlanid") == "200"
    assert shipped.database.hget("QUEUE|Ethernet8|3", "wred_profile") == "AZURE_LOSSLESS"


def test_drift_is_named_and_mended(shipped: ConfigDb, writer: str) -> None:
    switch = switch_on(shipped, writer)
    deploy(switch, "dlcp-ect", "first")
    switch.confirm("first")
    after = shipped.dump()
    shipped.database.hset("WRED_PROFILE|DLCP_3", "green_max_threshold", "999999")
    shipped.database.delete("QUEUE|Ethernet4|5")
    assert switch.differences() == [
        "-QUEUE|Ethernet4|5 scheduler: DLCP_STRICT",
        "-QUEUE|Ethernet4|5 wred_profile: DLCP_5",
        "-WRED_PROFILE|DLCP_3 green_max_threshold: 150000",
        "+WRED_PROFILE|DLCP_3 green_max_threshold: 999999",
    ]
    assert deploy(switch, "dlcp-ect", "second")
    assert shipped.dump() == after


def test_the_timer_takes_back_by_itself(shipped: ConfigDb, writer: str) -> None:
    switch = switch_on(shipped, writer)
    deploy(switch, "dlcp-ect", "first")
    switch.confirm("first")
    made, kept = shipped.dump(), switch.kept()
    deploy(switch, "roce-pfc", "second")
    assert shipped.dump() != made
    run_out(Path(switch.folder))
    wait_until(lambda: (shipped.dump(), switch.kept()) == (made, kept), "the timer takes the deployment back", 30)
    with pytest.raises(dlcp_sonic.RefusedError, match="its time ran out"):
        switch.confirm("second")
    assert switch.pending() is None
    assert not switch.restore("second", original=False)


def finished(run: subprocess.Popen[str]) -> str:
    """What a run of restore.sh says at its end."""
    assert run.stderr
    said = run.stderr.read()
    run.stderr.close()
    return f"{run.wait()} {said}"


def by_timer(switch: dlcp_sonic.Switch, *words: str) -> subprocess.Popen[str]:
    """The command of a timer that runs out at this moment, whatever it still is to do."""
    script = Path(switch.folder) / "restore.sh"
    return subprocess.Popen(["/bin/sh", str(script), *words], stderr=subprocess.PIPE, text=True)


def test_a_timer_that_runs_out_as_somebody_decides_waits_and_then_has_nothing_to_do(
    shipped: ConfigDb, writer: str
) -> None:
    switch = switch_on(shipped, writer)
    deploy(switch, "dlcp-ect", "first")
    made = shipped.dump()
    with switch._alone("first"):
        waiting = by_timer(switch, "timer")
        with pytest.raises(subprocess.TimeoutExpired):
            waiting.wait(0.2)
        dlcp_timer.stop(switch.folder)
    assert finished(waiting).startswith("0 ")
    assert shipped.dump() == made
    assert switch.kept()["deployment"] == "first"
    assert finished(by_timer(switch)) == "0 ", "by hand it takes back what is confirmed too"
    assert switch.kept() is None


def test_a_way_back_that_redis_refuses_does_not_say_that_it_went(shipped: ConfigDb) -> None:
    switch = switch_on(shipped, "direct")
    before = shipped.dump()
    deploy(switch, "dlcp-ect", "first")
    shipped.database.config_set("min-replicas-to-write", 1)
    assert "NOREPLICAS" in finished(by_timer(switch, "timer"))
    assert switch.kept()["deployment"] == "first"
    shipped.database.config_set("min-replicas-to-write", 0)
    with pytest.raises(dlcp_sonic.RefusedError, match="deployment first is not confirmed"):
        deploy(switch, "roce-pfc", "second")
    assert finished(by_timer(switch, "timer")) == "0 "
    assert shipped.dump() == before


def test_an_id_of_a_deployment_leads_nowhere_else(shipped: ConfigDb) -> None:
    switch = switch_on(shipped, "direct")
    for strange in ("../first", "a; reboot", "-a", "a" * 65):
        with pytest.raises(dlcp_sonic.RefusedError, match="is no id of a deployment"):
            deploy(switch, "dlcp-ect", strange)
    assert sorted(path.name for path in Path(switch.folder).iterdir()) == []


def test_an_unconfirmed_deployment_keeps_the_next_one_away(shipped: ConfigDb, writer: str) -> None:
    switch = switch_on(shipped, writer)
    deploy(switch, "dlcp-ect", "first")
    with pytest.raises(dlcp_sonic.RefusedError, match="deployment first is not confirmed"):
        deploy(switch, "roce-pfc", "second")
    assert not deploy(switch, "dlcp-ect", "first")


def test_a_bad_patch_leaves_everything(shipped: ConfigDb) -> None:
    switch = switch_on(shipped, "gcu")
    before = shipped.dump()
    bad = json.loads(json.dumps(PATCHES["dlcp-ect"]))
    bad["WRED_PROFILE"]["DLCP_3"]["green_min_threshold"] = "999999999"
    with pytest.raises(dlcp_sonic.RefusedError, match="green_min_threshold 999999999 is above green_max_threshold"):
        switch.diff(bad, "other")
    with pytest.raises(dlcp_sonic.RefusedError, match="green_min_threshold 999999999 is above green_max_threshold"):
        switch.apply(bad, "other", "first", LONG_S)
    assert shipped.dump() == before
    assert switch.kept() is None
    assert switch.pending() is None


def test_an_updater_that_dies_on_the_way_is_undone(shipped: ConfigDb) -> None:
    """It stops after 5 rows; what is undone at once fails the same way; the timer, by `config rollback`, does not."""
    before = shipped.dump()
    switch = switch_on(shipped, "gcu", "--fail-after", "5")
    with pytest.raises(dlcp_sonic.RefusedError, match="after 5 rows: the database went away"):
        deploy(switch, "dlcp-ect", "first")
    assert shipped.dump() != before
    run_out(Path(switch.folder))
    wait_until(lambda: (shipped.dump(), switch.kept()) == (before, None), "the timer takes the deployment back", 30)


def test_an_updater_with_a_list_of_changeable_fields_is_told_of_beforehand(shipped: ConfigDb) -> None:
    """As sonic-utilities has it: rows of WRED_PROFILE may not be added."""
    switch = switch_on(shipped, "gcu", "--strict-fields")
    with pytest.raises(dlcp_sonic.RefusedError, match="dlcp_sonic_writer: direct"):
        switch.diff(PATCHES["dlcp-ect"], "digest")
    assert switch.diff(PATCHES["droptail"], "digest")
    assert switch_on(shipped, "direct").diff(PATCHES["dlcp-ect"], "digest")


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"ports": ["Ethernet0", "Ethernet12"]}, "PORT has no Ethernet12"),
        ({"socket": "/nowhere/redis.sock"}, "CONFIG_DB does not answer"),
        ({"config_command": "/nowhere/config"}, "`config` does not run"),
    ],
)
def test_what_a_switch_lacks_is_found_before_anything(shipped: ConfigDb, change: dict[str, Any], words: str) -> None:
    switch = switch_on(shipped, "gcu")
    switch.ports = change.get("ports", switch.ports)
    switch.socket = change.get("socket", switch.socket)
    switch.command = [change["config_command"]] if "config_command" in change else switch.command
    with pytest.raises(dlcp_sonic.RefusedError, match=words):
        switch.check(PATCHES["droptail"])


def test_a_pool_that_the_platform_has_not_loaded(shipped: ConfigDb) -> None:
    shipped.database.delete("BUFFER_POOL|ingress_lossless_pool")
    with pytest.raises(dlcp_sonic.RefusedError, match="BUFFER_POOL has no ingress_lossless_pool"):
        switch_on(shipped, "direct").check(PATCHES["roce-pfc"])


def test_timer_is_armed_and_disarmed(tmp_path: Path) -> None:
    folder, mark = str(tmp_path), tmp_path / "it ran"
    dlcp_timer.start(folder, LONG_S, ["touch", str(mark)], "test")
    left = dlcp_timer.left_s(folder)
    assert left is not None
    assert 0 < left <= LONG_S
    assert dlcp_timer.stop(folder)
    assert not dlcp_timer.stop(folder)
    dlcp_timer.start(folder, 0.05, ["touch", str(mark)], "test")
    wait_until(mark.exists, "the timer's command has run")
    assert dlcp_timer.ran_out(folder)

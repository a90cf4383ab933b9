"""What a deployment makes of CONFIG_DB's tables: exact operations, other people's rows and ranges of queues kept."""

from __future__ import annotations

import copy
import json
import random
from typing import Any

import jsonpatch
import pytest
from config_db import AS_SHIPPED
from device_modules import dlcp_redis, dlcp_tables

from dlcp.errors import Problem, Problems
from dlcp.switches.vendor.files import example_device, find_intent, intent_names, load_intent
from dlcp.switches.vendor.render import render
from dlcp.switches.vendor.schema import violations
from dlcp.switches.vendor.systems import load_system

SONIC = load_system("sonic")
PORTS = list(example_device(SONIC).ports)


def patch_of(name: str) -> dict[str, Any]:
    intent = load_intent(find_intent(name)).model_copy(update={"on_unsupported": "degrade"})
    if intent.pfc:
        intent = intent.model_copy(update={"pfc": intent.pfc.model_copy(update={"headroom_bytes": 60_000})})
    found: dict[str, Any] = json.loads(render(intent, example_device(SONIC), system=SONIC).configuration)
    return found


def rendered() -> dict[str, dict[str, Any]]:
    found = {}
    for name in intent_names():
        try:
            found[name] = patch_of(name)
        except (Problem, Problems):
            continue
    return found


PATCHES = rendered()


def deployed(tables: dlcp_tables.Tables, patch: dict[str, Any], original: dlcp_tables.Tables) -> dlcp_tables.Tables:
    return dlcp_tables.with_scope(tables, dlcp_tables.intended(patch, original, PORTS), PORTS)


def test_most_intents_can_be_deployed() -> None:
    assert {"dlcp-ect", "dctcp", "droptail", "roce-pfc"} <= set(PATCHES)


@pytest.mark.parametrize("name", PATCHES)
def test_operations_lead_there_and_back_exactly(name: str) -> None:
    original = dlcp_tables.scope_of(AS_SHIPPED, PORTS)
    wanted = deployed(AS_SHIPPED, PATCHES[name], original)
    there = dlcp_tables.operations(AS_SHIPPED, wanted)
    assert jsonpatch.apply_patch(AS_SHIPPED, there) == wanted
    back = dlcp_tables.with_scope(wanted, original, PORTS)
    assert back == AS_SHIPPED
    assert jsonpatch.apply_patch(wanted, dlcp_tables.operations(wanted, back)) == AS_SHIPPED
    assert dlcp_tables.operations(wanted, deployed(wanted, PATCHES[name], original)) == []


@pytest.mark.parametrize("name", PATCHES)
def test_the_result_says_what_was_rendered_and_nothing_else_has_changed(name: str) -> None:
    patch = PATCHES[name]
    wanted = deployed(AS_SHIPPED, patch, dlcp_tables.scope_of(AS_SHIPPED, PORTS))
    assert SONIC.schema is not None
    assert violations(SONIC.schema, {t: rows for t, rows in wanted.items() if t in SONIC.schema.tables}) == []
    for table, rows in patch.items():
        for key, row in rows.items():
            assert row.items() <= wanted[table][key].items()
    assert wanted["QUEUE"]["Ethernet8|3"] == AS_SHIPPED["QUEUE"]["Ethernet8|3"]
    assert wanted["PORT_QOS_MAP"]["Ethernet8"] == AS_SHIPPED["PORT_QOS_MAP"]["Ethernet8"]
    assert wanted["PORT_QOS_MAP"]["Ethernet0"]["scheduler"] == "scheduler.0"
    for table in ("NTP_SERVER", "VLAN", "PORT", "BUFFER_POOL"):
        assert wanted[table] == AS_SHIPPED[table]
    for name, row in AS_SHIPPED["WRED_PROFILE"].items():
        assert wanted["WRED_PROFILE"][name] == row


def test_a_range_of_queues_is_split_around_ours() -> None:
    rows = {"Ethernet0|0-7": {"profile": "lossy"}, "Ethernet8|0-7": {"profile": "lossy"}}
    lossy = {"profile": "lossy"}
    assert dlcp_tables.split(rows, ["Ethernet0|3", "Ethernet0|7"]) == {
        "Ethernet0|0-2": lossy,
        "Ethernet0|4-6": lossy,
        "Ethernet8|0-7": lossy,
    }
    assert dlcp_tables.split(rows, ["Ethernet0|0-7", "Ethernet8|0"]) == {"Ethernet8|1-7": lossy}


def test_no_queue_is_said_twice() -> None:
    for patch in PATCHES.values():
        wanted = deployed(AS_SHIPPED, patch, dlcp_tables.scope_of(AS_SHIPPED, PORTS))
        for table in dlcp_tables.QUEUED:
            said = [(port, q) for key in wanted.get(table, {}) for port, queues in [queues_of(key)] for q in queues]
            assert len(said) == len(set(said))


def queues_of(key: str) -> tuple[str, range]:
    port, _, queues = key.partition("|")
    first, _, last = queues.partition("-")
    return port, range(int(first), int(last or first) + 1)


def test_an_intent_without_pfc_ends_pausing_on_its_ports_alone() -> None:
    wanted = deployed(AS_SHIPPED, PATCHES["droptail"], dlcp_tables.scope_of(AS_SHIPPED, PORTS))
    assert "pfc_enable" not in wanted["PORT_QOS_MAP"]["Ethernet0"]


def test_one_intent_after_another_leaves_nothing_of_the_first() -> None:
    original = dlcp_tables.scope_of(AS_SHIPPED, PORTS)
    first = deployed(AS_SHIPPED, PATCHES["roce-pfc"], original)
    assert deployed(first, PATCHES["droptail"], original) == deployed(AS_SHIPPED, PATCHES["droptail"], original)


def test_the_watchdogs_global_row_is_never_taken_from_others() -> None:
    """The Generic Config Updater refuses that."""
    tables = copy.deepcopy(AS_SHIPPED)
    original = dlcp_tables.scope_of(tables, PORTS)
    made = deployed(tables, PATCHES["roce-pfc"], original)
    made["PFC_WD"]["Ethernet8"] = {"action": "drop", "detection_time": "200", "restoration_time": "200"}
    back = dlcp_tables.with_scope(made, original, PORTS)
    assert set(back["PFC_WD"]) == {"GLOBAL", "Ethernet8"}


@pytest.mark.parametrize(
    ("patch", "words"),
    [
        ({"QUEUE": {"Ethernet8|3": {"scheduler": "DLCP_STRICT"}}}, "of no port of this deployment"),
        ({"SCHEDULER": {"scheduler.0": {"type": "STRICT"}}}, "no name of ours"),
        ({"VLAN": {"Vlan100": {"vlanid": "7"}}}, "no table that a deployment sets"),
    ],
)
def test_what_is_not_ours_is_refused(patch: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        dlcp_tables.intended(patch, {}, PORTS)


def test_random_tables_are_reached_exactly() -> None:
    """Operations and redis' own commands, between any two states."""
    chance = random.Random(5)

    def tables() -> dict[str, Any]:
        return {
            table: {
                key: {f: str(chance.randint(0, 2)) for f in chance.sample("abc", chance.randint(0, 3))}
                for key in chance.sample(["x", "y|1", "z/~"], chance.randint(1, 3))
            }
            for table in chance.sample(["QUEUE", "SCHEDULER", "VLAN"], chance.randint(0, 3))
        }

    for _ in range(500):
        live, wanted = tables(), tables()
        assert jsonpatch.apply_patch(live, dlcp_tables.operations(live, wanted)) == wanted
        assert (dlcp_redis.transaction(live, wanted) == []) == (live == wanted)
        assert (dlcp_tables.difference(live, wanted, ("a", "b")) == "") == (live == wanted)

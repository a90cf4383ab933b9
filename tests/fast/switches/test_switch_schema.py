"""A planted mistake in SONiC's tables is found, and named; what is rendered has none."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import pytest

from dlcp.errors import Problem
from dlcp.switches.vendor.files import example_device, find_intent, load_intent
from dlcp.switches.vendor.render import render
from dlcp.switches.vendor.schema import violations
from dlcp.switches.vendor.systems import load_system

SONIC = load_system("sonic")
assert SONIC.schema is not None
SCHEMA = SONIC.schema
RENDERED = render(load_intent(find_intent("roce-pfc")), example_device(SONIC), system=SONIC)
TABLES: dict[str, Any] = json.loads(RENDERED.configuration)


def test_what_is_rendered_has_no_mistake() -> None:
    assert violations(SCHEMA, TABLES) == []
    assert violations(SCHEMA, json.loads(RENDERED.rollback)) == []


@pytest.mark.parametrize(
    ("where", "value", "words"),
    [
        (("DSCP_TO_COLOR_MAP",), {"DLCP": {"0": "0"}}, "DSCP_TO_COLOR_MAP: no such table"),
        (("DSCP_TO_TC_MAP", "DLCP", "64"), "0", "DSCP_TO_TC_MAP|DLCP: no such field: 64"),
        (("DSCP_TO_TC_MAP", "DLCP", "8"), "16", "8 '16' is no whole number from 0 to 15"),
        (("DSCP_TO_TC_MAP", "DLCP", "8"), 1, "8 1 is not text"),
        (("SCHEDULER", "DLCP_STRICT", "type"), "FIFO", "type 'FIFO' is none of STRICT, WRR, DWRR"),
        (("SCHEDULER", "DLCP_STRICT", "prio"), "1", "no such field: prio"),
        (("WRED_PROFILE", "DLCP_3", "ecn"), "ecn_blue", "ecn 'ecn_blue' is none of"),
        (("WRED_PROFILE", "DLCP_3", "green_min_threshold"), "400001", "green_min_threshold 400001 is above"),
        (("WRED_PROFILE", "DLCP_3", "red_drop_probability"), "101", "'101' is no whole number from 0 to 100"),
        (("QUEUE", "Ethernet0|3", "wred_profile"), "DLCP_4", "'DLCP_4' refers to no row of WRED_PROFILE"),
        (("QUEUE", "Ethernet0|3", "scheduler"), None, ""),
        (("QUEUE", "eth0|3"), {"scheduler": "DLCP_STRICT"}, "QUEUE|eth0|3: no such key"),
        (("PORT_QOS_MAP", "Ethernet0", "tc_to_pg_map"), "AZURE", "refers to no row of TC_TO_PRIORITY_GROUP_MAP"),
        (("PORT_QOS_MAP", "Ethernet0", "pfc_enable"), "3-4", "'3-4' is not of the form"),
        (("BUFFER_PROFILE", "DLCP_LOSSLESS", "static_th"), "500000", "static_th and dynamic_th exclude each other"),
        (("BUFFER_POOL",), {"egress_lossy_pool": {"mode": "dynamic"}}, "'ingress_lossless_pool' refers to no row"),
        (("PFC_WD", "Ethernet0", "detection_time"), "20", "is no whole number from 100 to 5000"),
    ],
)
def test_a_mistake(where: tuple[str, ...], value: Any, words: str) -> None:
    tables = copy.deepcopy(TABLES)
    place = tables
    for step in where[:-1]:
        place = place[step]
    place[where[-1]] = value
    found = violations(SCHEMA, tables)
    assert [one for one in found if words not in one] == []
    assert len(found) == (1 if words else 0)


def test_a_template_that_makes_a_mistake_is_stopped(tmp_path: Any) -> None:
    folder = tmp_path / "sonic"
    folder.mkdir()
    for file in filter(Path.is_file, SONIC.folder.iterdir()):
        text = file.read_text(encoding="utf-8").replace("scheduler: {{", "shceduler: {{")
        (folder / file.name).write_text(text, encoding="utf-8")
    with pytest.raises(Problem, match="no such field: shceduler"):
        render(load_intent(find_intent("droptail")), example_device(SONIC), system=load_system("sonic", tmp_path))

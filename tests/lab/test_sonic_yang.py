"""CONFIG_DB against YANG: the way there by two small models of our own, and rendered intents against SONiC's own."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import Any

import pytest
from config_db import AS_SHIPPED
from device_modules import dlcp_tables
from sonic_yang import judged, load_models, to_xml
from test_sonic_tables import PATCHES, PORTS

FETCHED = Path(sys.prefix) / "share" / "sonic-yang-models"
"""Where testbed/setup.sh puts them."""
MODELS = Path(os.environ.get("SONIC_YANG_DIR") or FETCHED)
PORT_MODEL = """
module sonic-port {
  namespace "urn:test:sonic-port"; prefix port;
  container sonic-port { container PORT { list PORT_LIST { key "name"; leaf name { type string; } } } }
}
"""
QOS_MODEL = """
// Shaped as SONiC's: a map, a list of two keys that refers, a row of its own, a leaf-list.
module sonic-qos {
  namespace "urn:test:sonic-qos"; prefix q;
  import sonic-port { prefix port; }
  container sonic-qos {
    container DSCP_TO_TC_MAP {
      list DSCP_TO_TC_MAP_LIST {
        key "name"; leaf name { type string; }
        list DSCP_TO_TC_MAP { key "dscp"; leaf dscp { type uint8 { range "0..63"; } } leaf tc { type uint8; } }
      }
    }
    container QUEUE {
      list QUEUE_LIST {
        key "ifname qindex";
        leaf ifname { type leafref { path "/port:sonic-port/port:PORT/port:PORT_LIST/port:name"; } }
        leaf qindex { type string { pattern "[0-7](-[0-7])?"; } }
        leaf-list members { type string; }
        leaf min { type uint64; }
        leaf max { type uint64; must "not(../min) or . >= ../min"; }
      }
    }
    container PFC_WD { container GLOBAL { leaf POLL_INTERVAL { type uint32; } } }
  }
}
"""
GOOD: dict[str, dict[str, dict[str, Any]]] = {
    "PORT": {"Ethernet0": {}},
    "DSCP_TO_TC_MAP": {"DLCP": {"8": "1", "63": "7"}},
    "QUEUE": {"Ethernet0|0-3": {"members": ["a", "b & c"], "min": "5", "max": "9"}},
    "PFC_WD": {"GLOBAL": {"POLL_INTERVAL": "200"}},
}

needs_yanglint = pytest.mark.skipif(
    shutil.which("yanglint") is None, reason="no yanglint here; apt-get install libyang2-tools (or libyang-tools)"
)


@pytest.fixture
def own(tmp_path: Path) -> Path:
    folder = tmp_path / "own"
    folder.mkdir()
    (folder / "sonic-port.yang").write_text(PORT_MODEL)
    (folder / "sonic-qos.yang.j2").write_text("{% if yang_model_type == 'py' %}" + QOS_MODEL + "{% endif %}")
    return folder


def models_in(source: Path, tmp_path: Path) -> Any:
    (tmp_path / "models").mkdir()
    return load_models(source, tmp_path / "models")


def test_tables_become_the_models_lists_maps_and_rows(own: Path, tmp_path: Path) -> None:
    assert to_xml(models_in(own, tmp_path), GOOD).splitlines() == [
        '<sonic-port xmlns="urn:test:sonic-port"><PORT><PORT_LIST><name>Ethernet0</name></PORT_LIST></PORT>'
        "</sonic-port>",
        '<sonic-qos xmlns="urn:test:sonic-qos"><DSCP_TO_TC_MAP><DSCP_TO_TC_MAP_LIST><name>DLCP</name>'
        "<DSCP_TO_TC_MAP><dscp>8</dscp><tc>1</tc></DSCP_TO_TC_MAP>"
        "<DSCP_TO_TC_MAP><dscp>63</dscp><tc>7</tc></DSCP_TO_TC_MAP></DSCP_TO_TC_MAP_LIST></DSCP_TO_TC_MAP>"
        "<QUEUE><QUEUE_LIST><ifname>Ethernet0</ifname><qindex>0-3</qindex><members>a</members>"
        "<members>b &amp; c</members><min>5</min><max>9</max></QUEUE_LIST></QUEUE>"
        "<PFC_WD><GLOBAL><POLL_INTERVAL>200</POLL_INTERVAL></GLOBAL></PFC_WD></sonic-qos>",
    ]


@needs_yanglint
@pytest.mark.parametrize(
    ("table", "rows", "word"),
    [
        ("", {}, ""),
        ("DSCP_TO_TC_MAP", {"DLCP": {"64": "1"}}, "64"),
        ("QUEUE", {"Ethernet4|3": {}}, "Ethernet4"),
        ("QUEUE", {"Ethernet0|9": {}}, "9"),
        ("QUEUE", {"Ethernet0|3": {"min": "9", "max": "5"}}, "ust"),
        ("QUEUE", {"Ethernet0|3": {"colour": "red"}}, "colour"),
        ("DSCP_TO_COLOR_MAP", {"DLCP": {"0": "0"}}, "no model knows"),
        ("QUEUE", {"Ethernet0|3|4": {}}, "no model knows"),
    ],
)
def test_what_a_model_forbids_is_found(own: Path, tmp_path: Path, table: str, rows: Any, word: str) -> None:
    found = judged(models_in(own, tmp_path), GOOD | ({table: rows} if table else {}))
    assert (found == "") == (table == "")
    assert word in found


def test_a_folder_without_models_is_said(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    with pytest.raises(FileNotFoundError, match="holds no YANG models of SONiC"):
        models_in(tmp_path / "empty", tmp_path)


@pytest.mark.parametrize("named", ["", "yang-models"])
def test_templates_beside_the_models_are_rendered(own: Path, tmp_path: Path, named: str) -> None:
    """As sonic-buildimage has them since 2026; either folder may be named."""
    source = tmp_path / "sonic-yang-models"
    source.mkdir()
    own.rename(source / "yang-models")
    (source / "yang-templates").mkdir()
    (source / "yang-models" / "sonic-qos.yang.j2").rename(source / "yang-templates" / "sonic-qos.yang.j2")
    assert set(models_in(source / named, tmp_path).tables) == {"PORT", "DSCP_TO_TC_MAP", "QUEUE", "PFC_WD"}


METADATA_MODEL = """
module sonic-metadata {
  namespace "urn:test:sonic-metadata"; prefix meta;
  container sonic-metadata { container METADATA { leaf kind { type string; } } }
}
"""


@needs_yanglint
def test_a_condition_on_a_module_without_data_is_judged_and_not_skipped(own: Path, tmp_path: Path) -> None:
    (own / "sonic-metadata.yang").write_text(METADATA_MODEL)
    condition = 'when "not(/meta:sonic-metadata/meta:METADATA/meta:kind) or /meta:sonic-metadata/meta:METADATA";'
    model = QOS_MODEL.replace(
        "import sonic-port { prefix port; }",
        "import sonic-port { prefix port; } import sonic-metadata { prefix meta; }",
    )
    model = model.replace("leaf min { type uint64; }", f"leaf min {{ {condition} type uint64; }}")
    (own / "sonic-qos.yang.j2").write_text(model)
    models = models_in(own, tmp_path)
    assert judged(models, GOOD) == ""
    assert "ust" in judged(models, GOOD | {"QUEUE": {"Ethernet0|3": {"min": "9", "max": "5"}}})


needs_models = pytest.mark.skipif(
    not MODELS.is_dir(),
    reason=f"SONiC's own models are not here ({MODELS}); make setup-dev fetches them where github.com is reached, else "
    "git clone sonic-net/sonic-buildimage and set SONIC_YANG_DIR=…/src/sonic-yang-models",
)


@needs_yanglint
@needs_models
@pytest.mark.parametrize("name", PATCHES)
def test_what_is_deployed_is_valid_for_sonic_s_own_models(name: str, tmp_path: Path) -> None:
    assert judged(models_in(MODELS, tmp_path), deployed(name)) == ""


@needs_yanglint
@needs_models
@pytest.mark.parametrize(
    ("table", "rows"),
    [
        ("WRED_PROFILE", {"X": {"ecn": "ecn_none", "green_min_threshold": "9", "green_max_threshold": "5"}}),
        ("WRED_PROFILE", {"X": {"ecn": "ecn_none", "green_drop_probability": "101"}}),
        ("QUEUE", {"Ethernet4|3": {"wred_profile": "NONE_OF_THAT_NAME"}}),
        ("DSCP_TO_TC_MAP", {"X": {"64": "1"}}),
        ("SCHEDULER", {"X": {"type": "FASTEST"}}),
    ],
)
def test_what_sonic_s_own_models_forbid_is_found(table: str, rows: Any, tmp_path: Path) -> None:
    tables = deployed("dlcp-wred")
    assert judged(models_in(MODELS, tmp_path), tables | {table: tables.get(table, {}) | rows}) != ""


def deployed(name: str) -> Any:
    """CONFIG_DB with a shipped intent deployed upon what a switch comes with."""
    original = dlcp_tables.scope_of(AS_SHIPPED, PORTS)
    return dlcp_tables.with_scope(AS_SHIPPED, dlcp_tables.intended(PATCHES[name], original, PORTS), PORTS)

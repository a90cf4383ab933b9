"""What dlcp_host says to ethtool, dcb, mlnx_qos and chronyc, which no NIC of this machine answers: stubs that keep what
they are told, and print as the real tools do."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ansible.module_utils
import pytest

PLUGINS = Path(__file__).parents[3] / "playbooks" / "plugins"

ETHTOOL = """
rings = state.setdefault("rings", {"rx": 512, "tx": 256})
moderate = state.setdefault("moderate", {"adaptive-rx": "on", "adaptive-tx": "off", "rx-usecs": 3, "rx-frames": 0})
verb, device, words = sys.argv[1], sys.argv[2], sys.argv[3:]
pairs = dict(zip(words[::2], words[1::2]))
if verb == "-g":
    print(f"Ring parameters for {device}:\\nPre-set maximums:\\nRX:\\t\\t4096\\nRX Mini:\\tn/a\\nTX:\\t\\t2048")
    print(f"Current hardware settings:\\nRX:\\t\\t{rings['rx']}\\nRX Mini:\\tn/a\\nTX:\\t\\t{rings['tx']}")
elif verb == "-G":
    if any(int(value) > 4096 for value in pairs.values()):
        sys.exit("netlink error: requested ring size exceeds maximum")
    rings.update({name: int(value) for name, value in pairs.items()})
elif verb == "-c":
    print(f"Coalesce parameters for {device}:")
    print(f"Adaptive RX: {moderate['adaptive-rx']}  TX: {moderate['adaptive-tx']}\\nstats-block-usecs:\\tn/a")
    print(f"rx-usecs:\\t{moderate['rx-usecs']}\\nrx-frames:\\t{moderate['rx-frames']}\\n")
elif verb == "-C":
    moderate.update(pairs)
    if pairs.get("adaptive-rx") == "off":
        moderate["rx-frames"] = 32  # a driver that moves another along
"""
DCB = """
app = state.setdefault("app", [[26, 4]])
pfc = state.setdefault("pfc", [False] * 8)
ets = state.setdefault("ets", {"prio_tc": [0] * 8, "tc_tsa": ["ets"] * 8})
words = [word for word in sys.argv[1:] if word != "-j"]
what, verb, rest = words[0], words[1], words[5:] if len(words) > 4 else []
def pairs():
    return [one.split(":") for one in rest]
if verb == "show":
    print(json.dumps({"app": {"dscp_prio": app}, "pfc": {"prio_pfc": pfc}, "ets": ets}[what]))
elif what == "app":
    for dscp, priority in pairs():
        (app.append if verb == "add" else app.remove)([int(dscp), int(priority)])
elif what == "pfc":
    for name, on in pairs():
        for number in range(8) if name == "all" else [int(name)]:
            pfc[number] = on == "on"
elif what == "ets":
    table = ets[words[4].replace("-", "_")]
    for name, value in pairs():
        table[int(name)] = int(value) if value.isdigit() else value
"""
MLNX_QOS = """
if "--trust" in sys.argv:
    state["trust"] = sys.argv[-1]
print("DCBX mode: OS controlled\\nPriority trust state: " + state.setdefault("trust", "pcp"))
"""
CHRONYC = """
print("C0A80001,ntp.lab,2,1700000000.0,{offset},0.000001,0.000002,-1.5,0.0,0.02,0.0003,0.0004,64.2,{leap}")
"""

SETTINGS: dict[str, Any] = {
    "rings": {"rx": "max", "tx": 1024},
    "coalescing": {"adaptive-rx": False, "rx-usecs": 8},
    "trust": "dscp",
    "dscp_prio": {26: 3, 48: 6},
    "prio_tc": {3: 3, 6: 6},
    "tc_order": "strict",
    "pfc": [3],
}


@pytest.fixture
def module(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Module dlcp_host, as a host would load it."""
    monkeypatch.setattr(
        ansible.module_utils, "__path__", [*ansible.module_utils.__path__, str(PLUGINS / "module_utils")]
    )
    monkeypatch.syspath_prepend(str(PLUGINS / "modules"))
    return importlib.import_module("dlcp_host")


@pytest.fixture
def stub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Path]:
    """Puts a program onto a PATH of its own; gives the file of what it was told."""
    tools = tmp_path / "tools"
    tools.mkdir()
    monkeypatch.setenv("PATH", str(tools))

    def make(name: str, script: str) -> Path:
        kept = tmp_path / f"{name}.json"
        head = f"import json, pathlib, sys\nkept = pathlib.Path({str(kept)!r})\n"
        head += "state = json.loads(kept.read_text()) if kept.exists() else {}\n"
        path = tools / name
        path.write_text(f"#!{sys.executable}\n{head}{script}\nkept.write_text(json.dumps(state))\n")
        path.chmod(0o755)
        return kept

    return make


@pytest.fixture
def nic(module: Any, stub: Callable[..., Path], tmp_path: Path) -> Callable[..., list[dict[str, Any]]]:
    """Brings the stubs' NIC to a state."""
    told = [stub("ethtool", ETHTOOL), stub("dcb", DCB), stub("mlnx_qos", MLNX_QOS)]

    def call(state: str = "applied", *, check: bool = False, **settings: Any) -> list[dict[str, Any]]:
        said = {"state": state, "layer": "host", "interface": "eth9", "settings": settings}
        rows: list[dict[str, Any]] = module._done({**said, "saved": str(tmp_path / "host.json")}, check=check)
        return rows

    call.told = lambda: [json.loads(file.read_text()) for file in told if file.exists()]  # type: ignore[attr-defined]
    return call


def of(rows: list[dict[str, Any]], status: str) -> dict[str, str]:
    return {row["name"]: row["wanted"] for row in rows if row["status"] == status}


def test_a_nic_is_set_read_back_and_restored(nic: Any) -> None:
    predicted = of(nic(check=True, **SETTINGS), "changed")
    before = nic.told()
    assert predicted == {
        "ring rx": "4096",
        "ring tx": "1024",
        "coalescing adaptive-rx": "off",
        "coalescing rx-usecs": "8",
        "trust of eth9": "dscp",
        "dscp-prio of eth9": "26:3 48:6",
        "prio-tc of eth9": "0:0 1:0 2:0 3:3 4:0 5:0 6:6 7:0",
        "tc-tsa of eth9": " ".join(f"{number}:strict" for number in range(8)),
        "pfc of eth9": "3",
    }
    assert of(nic(**SETTINGS), "changed") == predicted
    ethtool, dcb, mlnx_qos = nic.told()
    assert ethtool["rings"] == {"rx": 4096, "tx": 1024}
    assert sorted(dcb["app"]) == [[26, 3], [48, 6]]
    assert dcb["pfc"] == [number == 3 for number in range(8)]
    assert mlnx_qos["trust"] == "dscp"
    assert of(nic(**SETTINGS), "changed") == {}
    nic("restored")
    after = nic.told()
    assert json.dumps(after).replace('"3"', "3").replace('"0"', "0") == json.dumps(before), "rx-frames too"


def test_what_a_nic_refuses_is_an_error_and_nothing_stays(nic: Any, module: Any) -> None:
    nic(check=True, **SETTINGS)
    before = nic.told()
    with pytest.raises(module.Failed, match="ring size exceeds maximum; the host is as before this call"):
        nic(rings={"rx": 9999}, pfc=[3])
    assert nic.told() == before


def test_a_tool_that_breaks_keeps_no_other_setting_from_going_back(nic: Any, module: Any, stub: Any) -> None:
    """dcb answers in no JSON from the first pause that it is told of; the ring is written before it."""
    nic(check=True, **SETTINGS)
    stub(
        "dcb",
        DCB.replace('elif what == "pfc":', 'elif what == "pfc":\n    state["torn"] = 1', 1).replace(
            "print(json.dumps(", 'print("{" if state.get("torn") else json.dumps('
        ),
    )
    with pytest.raises(module.Failed, match="the host is NOT as before: Expecting property name"):
        nic(rings={"rx": 1024}, pfc=[3])
    assert nic.told()[0]["rings"]["rx"] == 512


def test_a_command_without_an_end_is_refused(module: Any) -> None:
    part = importlib.import_module("ansible.module_utils.dlcp_host_part")
    with pytest.raises(part.Refused, match="did not end within 0 s"):
        part.must(["sleep", "60"], 0.05)
    with pytest.raises(part.Refused, match="does not start: No such file"):
        part.must(["/nowhere/tool"])


@pytest.mark.parametrize(
    "settings",
    [
        {"congestion_control": "cubic via 198.18.0.1"},
        {"trust": "dscp order; reboot"},
        {"rings": {"rx": "1; x"}},
        {"mtu": "large"},
        {"pfc": 3},
    ],
)
def test_words_that_are_none_are_found_before_anything(module: Any, nic: Any, settings: dict[str, Any]) -> None:
    nic(check=True, **SETTINGS)
    before = nic.told()
    with pytest.raises(module.Failed, match="nothing was changed"):
        nic(**settings)
    assert nic.told() == before


def test_without_any_tool_everything_is_skipped_with_its_reason(module: Any, stub: Any, tmp_path: Path) -> None:
    said = {"state": "applied", "layer": "host", "interface": "eth9", "saved": str(tmp_path / "host.json")}
    rows = module._done({**said, "settings": SETTINGS}, check=False)
    assert {row["status"] for row in rows} == {"skipped"}
    assert {row["reason"] for row in rows} == {f"{tool} is not installed" for tool in ("chronyc", "ethtool", "dcb")}
    assert not json.loads((tmp_path / "host.json").read_text())["first"], "there is nothing to put back"


@pytest.mark.parametrize(
    ("offset", "leap", "said"),
    [
        ("0.000020000", "Normal", None),
        ("-0.002000000", "Normal", "the clock is 0.002000 s off; at most 0.000100 s is asked for"),
        ("0.000000000", "Not synchronised", "the clock follows nothing: chrony says Not synchronised"),
    ],
)
def test_the_clock_is_asserted(
    module: Any, stub: Any, tmp_path: Path, offset: str, leap: str, said: str | None
) -> None:
    stub("chronyc", CHRONYC.format(offset=offset, leap=leap))
    words = {"state": "applied", "layer": "host", "interface": "eth9", "saved": str(tmp_path / "host.json")}
    call = {**words, "settings": {"clock_within_s": 0.0001}}
    if said is None:
        (row,) = module._done(call, check=False)
        assert row == {"name": "clock", "status": "same", "found": "0.000020000 s off, Normal"}
    else:
        with pytest.raises(module.Refused, match=said):
            module._done(call, check=False)

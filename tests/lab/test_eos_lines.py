"""The lines that a deployment sends to EOS, told to the stub of one: what they lead to, and back."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from eos_stub import EosSwitch, Shell

from dlcp.errors import Problem, Problems
from dlcp.model.lab.device import Device
from dlcp.paths import REPOSITORY
from dlcp.switches.vendor.files import example_device, find_intent, intent_names, load_intent
from dlcp.switches.vendor.render import Rendered, render
from dlcp.switches.vendor.systems import load_system

EOS = load_system("eos")
PORTS = list(example_device(EOS).ports)
AS_SHIPPED = """
hostname s1
vlan 100
alias siib show ip interface brief
qos map dscp 46 to traffic-class 3 drop-precedence 1
qos map traffic-class 3 to uc-tx-queue 5
priority-flow-control pause watchdog default timeout 5.00
qos profile OLD
   uc-tx-queue 1
      no priority
      bandwidth percent 30
interface Ethernet1/1
   description towards s2
   service-profile OLD
interface Ethernet2/1
   speed 100g
interface Ethernet9/1
   service-profile OLD
interface Management1
   ip address 192.0.2.7/24
"""


def loaded(name: str, folder: Path = REPOSITORY / "playbooks" / "plugins" / "filter") -> ModuleType:
    """A filter plugin, by its file."""
    path = folder / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    spec.loader.exec_module(module)
    return module


eos = loaded("dlcp_eos", EOS.folder / "filter_plugins")


def rendered() -> dict[str, Rendered]:
    found = {}
    for name in intent_names():
        intent = load_intent(find_intent(name)).model_copy(update={"on_unsupported": "degrade"})
        for chip in ("trident", "jericho"):
            device = Device.model_validate(example_device(EOS).model_dump(by_alias=True) | {"chip": chip})
            try:
                found[f"{name} on {chip}"] = render(intent, device, system=EOS)
            except (Problem, Problems):
                continue
    return found


RENDERED = rendered()


@pytest.fixture
def switch() -> EosSwitch:
    found = EosSwitch("s1")
    found.load(AS_SHIPPED)
    return found


def tell(switch: EosSwitch, lines: list[str]) -> str:
    """A session with these lines, committed; → its differences."""
    shell = Shell(switch)
    for line in ["configure session test", *(line.strip() for line in lines)]:
        assert shell.answer(line) == "", line
    differences = shell.answer("show session-config diffs")
    assert shell.answer("commit") == ""
    return differences


@pytest.mark.parametrize("name", RENDERED)
def test_there_and_back(name: str, switch: EosSwitch) -> None:
    before, made = switch.text(), RENDERED[name]
    assert tell(switch, eos.candidate(made.configuration, switch.text(), PORTS, made.digest))
    assert eos.digest_of(switch.text()) == made.digest
    after = switch.text()
    assert tell(switch, eos.candidate(made.configuration, switch.text(), PORTS, made.digest)) == ""
    assert switch.text() == after
    assert tell(switch, eos.restoring(before, switch.text(), PORTS))
    assert switch.text() == before
    assert tell(switch, eos.restoring(before, switch.text(), PORTS)) == ""


def test_one_intent_after_another_leaves_nothing_of_the_first(switch: EosSwitch) -> None:
    fresh = EosSwitch("s1")
    fresh.load(AS_SHIPPED)
    for name in RENDERED:
        tell(switch, eos.candidate(RENDERED[name].configuration, switch.text(), PORTS, RENDERED[name].digest))
    tell(fresh, eos.candidate(RENDERED[name].configuration, fresh.text(), PORTS, RENDERED[name].digest))
    assert switch.text() == fresh.text()


def test_what_is_not_ours_is_not_said(switch: EosSwitch) -> None:
    for made in RENDERED.values():
        for lines in (
            eos.candidate(made.configuration, switch.text(), PORTS, made.digest),
            eos.restoring(AS_SHIPPED, switch.text(), PORTS),
        ):
            said = "\n".join(lines)
            for word in (
                "Ethernet9/1",
                "Management",
                "hostname",
                "vlan",
                "alias siib",
                "qos profile OLD",
                "description",
            ):
                assert word not in said


def test_the_stub_refuses_what_the_grammar_of_eos_has_not(switch: EosSwitch) -> None:
    shell = Shell(switch)
    shell.answer("configure session test")
    for line in (
        "qos map dscp 64 to traffic-class 1",
        "priority strict",
        "random-detect drop",
        "uc-tx-queue 3",
        "reload",
    ):
        assert shell.answer(line).startswith("% "), line
    shell.answer("abort")
    assert shell.answer("qos profile DLCP").startswith("% ")


def test_a_commit_timer_that_runs_out_brings_the_old_configuration_back(switch: EosSwitch) -> None:
    before, shell = switch.text(), Shell(switch)
    for line in ("configure session test", "hostname other", "commit timer 00:05:00"):
        assert shell.answer(line) == ""
    assert switch.text() != before
    assert '"state": "pendingCommitTimer"' in shell.answer("show configuration sessions detail | json")
    switch.drop_timer()
    assert switch.text() == before
    assert shell.answer("configure session test commit").startswith("% ")


@pytest.mark.parametrize("confirmed", [True, False])
def test_a_commit_timer_is_ended_by_commit_or_abort(switch: EosSwitch, confirmed: bool) -> None:
    before, shell = switch.text(), Shell(switch)
    for line in ("configure session test", "hostname other", "commit timer 00:05:00"):
        shell.answer(line)
    assert shell.answer(f"configure session test {'commit' if confirmed else 'abort'}") == ""
    assert switch.pending is None
    assert (switch.text() != before) == confirmed


def test_what_this_controller_kept_of_a_device(tmp_path: Path) -> None:
    kept = loaded("dlcp_kept")
    deployments = tmp_path / "deployments"
    for stamp, digest in (("1", ""), ("2", "aaaa"), ("3", "bbbb")):
        own = deployments / stamp / "s1"
        own.mkdir(parents=True)
        (own / "before.json").write_text(f'{{"digest": "{digest}", "text": "text {stamp}"}}')
        (own / "rendered.json").write_text(f'{{"digest": "made {stamp}", "configuration": "lines {stamp}"}}')
    now = str(deployments / "4")
    assert kept.before(now, "s1", "2") == "text 2"
    assert kept.before(now, "s1", "never") == ""
    assert kept.before(now, "s1", None, "original") == "text 1"
    assert kept.before(now, "s2", None, "original") == ""
    assert kept.rendered_of("made 2", now, "s1")["configuration"] == "lines 2"
    assert kept.rendered_of("unknown", now, "s1") == {}

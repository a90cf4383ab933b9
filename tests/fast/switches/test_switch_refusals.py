"""What cannot be rendered, each with the exact text that a person is shown; nothing is made then.

An intent's file is named after the system that it is for, and what is wrong. After a wanted change: make golden.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from test_switch_render import GOLDEN, held, system_of

from dlcp.errors import Problem, Problems
from dlcp.model.lab.device import Device
from dlcp.model.qos import QosIntent
from dlcp.switches.vendor.features import FEATURES, Feature, needs
from dlcp.switches.vendor.files import example_device, load_device, load_intent
from dlcp.switches.vendor.render import render
from dlcp.switches.vendor.settle import PART_OF
from dlcp.switches.vendor.systems import Missing, System, load_system, system_names

FOLDER = GOLDEN / "refused"
FILES = sorted(file.stem for file in FOLDER.glob("*.yaml"))
SYSTEMS = system_names()
CONFLICTS = [(system, one.name) for system in SYSTEMS for one in system_of(system).conflicts]


def refusal(intent: QosIntent, device: Device, system: System) -> str:
    """Why an intent cannot be rendered."""
    with pytest.raises((Problem, Problems)) as caught:
        render(intent, device, system=system)
    return str(caught.value)


@pytest.mark.parametrize("name", FILES)
def test_text(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(FOLDER)
    system = system_of(name.partition("-")[0])
    with pytest.raises((Problem, Problems)) as caught:
        render(load_intent(Path(f"{name}.yaml")), example_device(system), system=system)
    held(FOLDER / f"{name}.txt", f"{caught.value}\n")


@pytest.mark.parametrize(("system", "conflict"), CONFLICTS)
def test_every_conflict_has_its_case(system: str, conflict: str) -> None:
    """What is asked for together is had one by one, or the refusal names the conflict beside what is lacking."""
    text = (FOLDER / f"{system}-{conflict}.txt").read_text(encoding="utf-8")
    found = next(one for one in system_of(system).conflicts if one.name == conflict)
    assert f"not together: {', '.join(found.features)}: {found.why} [{found.source}]" in text
    assert found.way_out in text


def test_there_are_conflicts() -> None:
    assert len(CONFLICTS) >= 4


STEP = {"minimum_bytes": 500_000, "maximum_bytes": 800_000}
MARK = STEP | {"mark": True}
PFC = {"queues": [3], "xoff": "500 kB", "xon": "400 kB"}
ASKING: dict[Feature, dict[str, Any]] = {
    "strict-queues": {},
    "weighted-queues": {"queues": {0: {"weight": 1}, 1: {"weight": 3}}},
    "dscp-to-queue": {},
    "dscp-to-precedence": {"queues": {3: {"profiles": (None, None, STEP)}}},
    "dscp-override": {"dscp": {46: {"queue": 6}}},
    "wred": {"queues": {3: {"profiles": (STEP, STEP, STEP)}}},
    "wred-by-precedence": {"queues": {3: {"profiles": (None, None, STEP)}}},
    "ecn": {"queues": {3: {"profiles": (MARK, MARK, MARK)}}},
    "ecn-by-precedence": {"queues": {3: {"profiles": (MARK, MARK, None)}}},
    "not-ect-drop": {"queues": {3: {"profiles": (MARK, MARK, MARK)}}},
    "averaging": {"queues": {3: {"profiles": (STEP, STEP, STEP), "averaging": 4}}},
    "reserved": {"queues": {3: {"reserved": "100 kB"}}},
    "queue-limit": {"queues": {3: {"limit": "900 kB"}}},
    "alpha": {"queues": {3: {"alpha": 2.0}}},
    "pfc": {"pfc": PFC},
    "pfc-thresholds": {"pfc": PFC},
    "pfc-headroom": {"pfc": PFC | {"headroom": "64 kB"}},
    "pfc-headroom-auto": {"pfc": PFC},
    "pfc-watchdog": {"pfc": PFC | {"watchdog": 0.2}},
    "pfc-watchdog-time": {"pfc": PFC | {"watchdog": 0.2}},
    "per-packet": {"load_balancing": "per-packet"},
    "round-robin": {"load_balancing": "round-robin"},
    "flowlet": {"load_balancing": "flowlet"},
}
"""Feature → an intent that asks for it, and for as little else as can be."""


def asking(feature: Feature) -> QosIntent:
    return QosIntent.model_validate({"name": "asks", "port_buffer": "1 MB"} | ASKING[feature])


@pytest.mark.parametrize("feature", FEATURES)
def test_an_intent_asks_for_the_feature(feature: Feature) -> None:
    assert feature in {need.feature for need in needs(asking(feature), "leaf1")}


@pytest.mark.parametrize(
    ("name", "chip"), [(name, chip) for name in SYSTEMS for chip in system_of(name).capabilities.chips]
)
@pytest.mark.parametrize("feature", FEATURES)
def test_what_a_chip_lacks_is_refused_and_what_it_has_is_done(name: str, chip: str, feature: Feature) -> None:
    system = system_of(name)
    device = example_device(system).model_copy(update={"chip": chip})
    intent = asking(feature)
    verdicts = {need.feature: system.verdict(need.feature, chip) for need in needs(intent, device.name)}
    lacking = {one for one, verdict in verdicts.items() if isinstance(verdict, Missing)}
    told = {one for one in lacking if PART_OF.get(one) not in lacking}
    clashing = [c for c in system.conflicts if set(c.features) <= set(verdicts) and chip in (c.chips or [chip])]
    if not lacking and not clashing:
        assert render(intent, device, system=system).degradations == ()
        return
    text = refusal(intent, device, system)
    assert text.count(f"{device.name} ({name}, {chip}): ") == len(told) + len(clashing)
    for one in told:
        verdict = verdicts[one]
        assert isinstance(verdict, Missing)
        assert f": no {one} (" in text
        assert f"{verdict.why} [{verdict.source}]\n    {verdict.way_out}" in text
    degraded = intent.model_copy(update={"on_unsupported": "degrade"})
    ways = [verdicts[one].substitute for one in told] + [one.substitute for one in clashing]  # type: ignore[union-attr]
    if None in ways:
        assert "degrade" not in refusal(degraded, device, system)
    else:
        made = render(degraded, device, system=system)
        assert {one.feature for one in made.degradations} & (told | {one.name for one in clashing})
        assert all(one.instead and one.why and one.source for one in made.degradations)


DEVICE = """\
name: leaf1
system: eos
chip: trident
ports: {Ethernet1: 100 Gbit/s}
management: [Management1]
buffer: 32 MB
port_buffer: 8 MB
queue: 2 MB
"""


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"chip": "tridnet"}, "eos has no chip 'tridnet'\n    did you mean `trident`?"),
        ({"system": "sonic"}, "runs sonic, not eos"),
        ({"ports": {"Ethernet1-4": "1 Gbit/s"}}, "'Ethernet1-4' is no port of Arista EOS"),
        ({"ports": {"Management0": "1 Gbit/s"}}, "Management0 is a management interface: it is never touched"),
        ({"ports": {"Ethernet1\nexit": "1 Gbit/s"}}, "is no port of Arista EOS"),
        ({"ports": {}}, "it is empty"),
        ({"ports": {"Management1": "1 Gbit/s"}}, "Management1 is both a port to configure and a management interface"),
        ({"ports": {"Ethernet1": "1 Gbps"}}, "is not a rate"),
        ({"management": []}, "it is empty"),
        ({"queue": "9 MB"}, "each must be within the next"),
        ({"cell": 0}, "0 is too small"),
        ({"cells": 208}, "unknown key `cells`"),
    ],
)
def test_a_wrong_device(wrong: dict[str, Any], words: str, tmp_path: Path) -> None:
    file = tmp_path / "device.yaml"
    file.write_text(yaml.safe_dump(yaml.safe_load(DEVICE) | wrong), encoding="utf-8")
    intent = QosIntent(name="plain", port_buffer="1 MB")
    with pytest.raises(Problems) as caught:
        render(intent, load_device(file), system=system_of("eos"))
    assert words in str(caught.value)


def test_a_device_that_is_right(tmp_path: Path) -> None:
    file = tmp_path / "device.yaml"
    file.write_text(DEVICE, encoding="utf-8")
    assert (
        "interface Ethernet1\n" in render(QosIntent(name="plain", port_buffer="1 MB"), load_device(file)).configuration
    )


def test_an_unknown_system() -> None:
    with pytest.raises(Problem, match="did you mean `sonic`"):
        load_system("soncic")

"""What is rendered for a Linux switch, carried out by tc and read back; and taken off again."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from typing import Any

import pytest

from dlcp.switches.lab.files import example_device, find_intent, intent_names, load_intent
from dlcp.switches.lab.render import render
from dlcp.switches.lab.systems import load_system
from dlcp.switches.tc import Port, differences, show_lines


def tc(*arguments: str, lines: list[str] | None = None) -> str:
    text = None if lines is None else "\n".join(lines) + "\n"
    return subprocess.run(["tc", *arguments], input=text, text=True, capture_output=True, check=True).stdout


def applied(name: str) -> dict[str, Any]:
    """Apply, look, roll back, look."""
    system = load_system("linux")
    rendered = render(load_intent(find_intent(name)), example_device(system), system=system)
    there, back = json.loads(rendered.configuration)["ports"], json.loads(rendered.rollback)["ports"]
    found: dict[str, Any] = {"differences": {}, "left": {}}
    for port, told in there.items():
        subprocess.run(["ip", "link", "add", port, "type", "veth", "peer", "name", f"{port}-far"], check=True)
        bare = tc("-json", "qdisc", "show", "dev", port)
        tc("-batch", "-", lines=told["tc"])
        intended = Port(port, told["rate_bps"], cuts=False, filters=())
        shown = tc("-details", "-batch", "-", lines=show_lines(intended))
        found["differences"][port] = differences(intended, json.loads(tc("-json", "qdisc", "show", "dev", port)), shown)
        tc("-batch", "-", lines=back[port]["tc"])
        found["left"][port] = [tc("-json", "qdisc", "show", "dev", port), bare]
    return found


@pytest.mark.parametrize("name", [one for one in intent_names() if one != "roce-pfc"])
def test_it_is_applied_as_rendered_and_taken_off(name: str, inside: Callable[..., Any]) -> None:
    found = inside(applied, name=name)
    assert found["differences"] == {"eth1": [], "eth2": []}
    assert all(after == before for after, before in found["left"].values())

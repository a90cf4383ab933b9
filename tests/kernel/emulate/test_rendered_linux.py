"""What is rendered for a Linux switch, carried out by the box itself and read back; and taken off again."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from boxes import World, box, changed, picture

from dlcp.switches.vendor.files import find_intent, intent_names, load_intent


def applied(names: list[str]) -> dict[str, Any]:
    """Each intent after the other, as a deployment of its own; then back to what was before all of them."""
    world = World(links=2)
    before = picture(world.ports)
    found: dict[str, Any] = {"applied": {}, "read": {}}
    for name in names:
        request = world.configuration(load_intent(find_intent(name)))
        found["applied"][name] = [box("apply", request)["changed"] for _ in range(2)]
        read = box("read")
        found["read"][name] = [read["intent"], read["digest"] == request["digest"], read["differences"]]
    found["restored"] = [box("restore", {"to": "original"})["changed"] for _ in range(2)]
    found["left"] = changed(before, picture(world.ports))
    return found


def test_it_is_applied_as_rendered_and_taken_off(inside: Callable[..., Any]) -> None:
    names = [one for one in intent_names() if one != "roce-pfc"]
    found = inside(applied, names=names)
    assert found["applied"] == {name: [True, False] for name in names}
    assert found["read"] == {name: [name, True, []] for name in names}
    assert found["restored"] == [True, False]
    assert found["left"] == {}

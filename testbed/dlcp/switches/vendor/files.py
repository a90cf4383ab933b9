"""Intents and devices from files, with every problem at its line."""

from __future__ import annotations

from pathlib import Path

from dlcp.errors import Problem
from dlcp.model.lab.device import Device
from dlcp.model.loading.explain import did_you_mean, read_as
from dlcp.model.qos import QosIntent
from dlcp.paths import INTENTS
from dlcp.switches.vendor.systems import System

EXAMPLE_DEVICE = "example.yaml"
"""In a system's folder: a device to try an intent on."""


def intent_names(folder: Path = INTENTS) -> list[str]:
    """Names of the intents that come with the toolkit."""
    return sorted(file.stem for file in folder.glob("*.yaml"))


def find_intent(name: str, folder: Path = INTENTS) -> Path:
    """A path as it is, or the name of a file in testbed/intents. Problem when there is neither."""
    path = Path(name)
    if path.is_file():
        return path
    named = folder / f"{name}.yaml"
    if path.name == name and named.is_file():
        return named
    raise Problem(name, "no such intent: neither a file nor a name", did_you_mean(name, intent_names(folder)))


def load_intent(path: Path) -> QosIntent:
    """An intent file, checked. Raises Problems: all of them, by file:line:col."""
    return read_as(path, QosIntent)


def load_device(path: Path) -> Device:
    """A device file, checked. Raises Problems: all of them, by file:line:col."""
    return read_as(path, Device)


def example_device(system: System) -> Device:
    """The device that a system's folder gives as an example."""
    return load_device(system.folder / EXAMPLE_DEVICE)

"""Intents and devices from files, with every problem at its line."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dlcp.errors import Problem, Problems
from dlcp.model.base import Frozen
from dlcp.model.device import Device
from dlcp.model.document import Document, read_document
from dlcp.model.explain import did_you_mean, validate
from dlcp.model.qos import QosIntent
from dlcp.paths import INTENTS
from dlcp.switches.lab.systems import System

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
    intent: QosIntent = _load(path, QosIntent)
    return intent


def load_device(path: Path) -> Device:
    """A device file, checked. Raises Problems: all of them, by file:line:col."""
    device: Device = _load(path, Device)
    return device


def example_device(system: System) -> Device:
    """The device that a system's folder gives as an example."""
    return load_device(system.folder / EXAMPLE_DEVICE)


def _load(path: Path, kind: type[Frozen]) -> Any:
    document: Document = read_document(path)
    if document.data is None:
        raise Problems(document.problems)
    found, problems = validate(document, kind)
    if document.problems or problems:
        raise Problems([*document.problems, *problems])
    return found

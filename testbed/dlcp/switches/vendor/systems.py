"""One folder of switch_configs = one switch system: what it can do, what cannot stand together, what it counts."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, field_validator, model_validator

from dlcp.errors import Problem
from dlcp.model.base import Frozen
from dlcp.model.loading.explain import did_you_mean, read_as
from dlcp.model.units import Duration, Fraction
from dlcp.paths import SWITCH_CONFIGS
from dlcp.switches.vendor.features import FEATURES, Feature
from dlcp.switches.vendor.schema import Schema

Substitute = Literal[
    "fold-precedences",
    "instantaneous",
    "nothing-reserved",
    "no-limit",
    "system-alpha",
    "system-thresholds",
    "system-headroom",
    "system-watchdog-time",
    "no-watchdog",
    "tail-drop-not-ect",
    "flow-hash",
    "flowlet",
]
"""What may be done instead of something that a system lacks: dlcp.switches.vendor.substitutes says and does each."""


class Native(Frozen):
    """The system has it. how: by which words. doubt: what nobody has yet seen a switch do."""

    support: Literal["native"]
    how: str
    source: str
    doubt: str = ""


class Missing(Frozen):
    """The system lacks it. why: the fact. way_out: what a person can do. substitute: what `degrade` does instead."""

    support: Literal["missing"]
    why: str
    source: str
    way_out: str
    substitute: Substitute | None = None


class Unit(Frozen):
    """What sizes are written in. least_width: so many units a curve's maximum is above its minimum, at least.

    doubt: what is not known of the unit.
    """

    write: Literal["bytes", "kbytes", "percent-of-queue", "percent-of-port"]
    least_width: int = Field(default=0, ge=0)
    doubt: str = ""


class Watchdog(Frozen):
    """Times that a PFC watchdog takes."""

    least_s: Duration = Field(alias="least")
    most_s: Duration = Field(alias="most")
    step_s: Duration = Field(alias="step", gt=0)


class Units(Frozen):
    """How a system writes sizes and shares.

    probability_step: 0 = exactly. alphas: the least and the largest that it takes, in powers of 2; None = none, or in
    steps of alpha_step. watchdog: of PFC; None where its time cannot be set. xoff_by_alpha: PFC starts at a dynamic
    threshold. weight_in_percent: weights are shares of 100.
    """

    thresholds: Unit
    reserved: Unit
    pfc: Unit
    probability_step: Fraction
    alphas: tuple[float, float] | None = None
    alpha_step: float = Field(default=0, ge=0)
    xoff_by_alpha: bool = False
    watchdog: Watchdog | None = None
    weight_in_percent: bool = False


class Line(Frozen):
    """How the queues of a switch without hardware queues are shaped: to a share of the line's rate, each frame counting
    so many bytes more than it has. why: such as "or else the queue stands in the NIC"."""

    share: Fraction = Field(default=1.0, gt=0)
    overhead_bytes: int = Field(default=0, ge=0, alias="overhead")
    why: str = ""


class Chip(Frozen):
    """A family of chips. features: what it has or lacks otherwise than the system. words: for the template."""

    title: str
    line: Line = Line()
    words: dict[str, str] = Field(default_factory=dict)
    features: dict[Feature, Native | Missing] = Field(default_factory=dict)


class Capabilities(Frozen):
    """capabilities.yaml.

    output: what the device is given; for json the templates make YAML, which is written as JSON.
    status: proven = the tests bring it to run; golden = its text is read and held by tests; experimental = that, but
    from few sources. proof: in words, by what. sources: what the short names of sources stand for.
    port: the form of a port's name. management: the form of names that are never touched.
    settable_buffer: whether what a port and the switch hold together can be set.
    """

    title: str
    output: Literal["text", "json"]
    status: Literal["proven", "golden", "experimental"]
    proof: str
    on_hardware: bool
    sources: dict[str, str] = Field(min_length=1)
    port: str
    management: str
    settable_buffer: bool = False
    units: Units
    chips: dict[str, Chip] = Field(min_length=1)
    features: dict[Feature, Native | Missing]

    @field_validator("port", "management")
    @classmethod
    def _compiles(cls, pattern: str) -> str:
        try:
            re.compile(pattern)
        except re.error as error:
            raise ValueError(f"{pattern!r} is no regular expression: {error}") from error
        return pattern

    @model_validator(mode="after")
    def _answers_all(self) -> Self:
        silent = [feature for feature in FEATURES if feature not in self.features]
        if silent:
            raise ValueError(f"says nothing of {', '.join(silent)}")
        return self


class Conflict(Frozen):
    """Features that a system has, but not together. within: one queue, or anywhere on the switch. chips: none = all."""

    name: str
    features: tuple[Feature, ...] = Field(min_length=2)
    within: Literal["queue", "switch"]
    chips: tuple[str, ...] = ()
    why: str
    source: str
    way_out: str
    substitute: Substitute | None = None


class Conflicts(Frozen):
    """conflicts.yaml"""

    conflicts: tuple[Conflict, ...]


class Counter(Frozen):
    """A command that shows what a switch counted. shows: which columns of the table `ports` it can fill."""

    command: str
    shows: tuple[str, ...]
    per: Literal["port", "queue", "precedence", "switch"]
    source: str
    needs: str = ""


class Counters(Frozen):
    """counters.yaml"""

    counters: tuple[Counter, ...]


@dataclass(frozen=True)
class System:
    """A folder of switch_configs, read and checked."""

    name: str
    folder: Path
    capabilities: Capabilities
    conflicts: tuple[Conflict, ...]

    def verdict(self, feature: Feature, chip: str) -> Native | Missing:
        """What a chip under this system says of a feature."""
        return self.capabilities.chips[chip].features.get(feature) or self.capabilities.features[feature]

    @cached_property
    def counters(self) -> tuple[Counter, ...]:
        """What it counts, and the commands that show it."""
        return read_as(self.folder / "counters.yaml", Counters).counters

    @cached_property
    def schema(self) -> Schema | None:
        """What its tables may hold; None where it is given text, or nothing is said of them."""
        file = self.folder / "schema.yaml"
        return read_as(file, Schema) if file.is_file() else None


def system_names(folder: Path = SWITCH_CONFIGS) -> list[str]:
    """Names of all systems: folders that hold capabilities.yaml."""
    return sorted(file.parent.name for file in folder.glob("*/capabilities.yaml"))


def load_system(name: str, folder: Path = SWITCH_CONFIGS) -> System:
    """A system by name. Problem when there is none; Problems, with their lines, when its files are wrong."""
    known = system_names(folder)
    if name not in known:
        raise Problem(f"--os {name}", "no such switch system", did_you_mean(name, known))
    own = folder / name
    capabilities = read_as(own / "capabilities.yaml", Capabilities)
    return System(name, own, capabilities, read_as(own / "conflicts.yaml", Conflicts).conflicts)

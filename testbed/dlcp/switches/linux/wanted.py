"""The configuration that switch_configs/linux renders, as the box takes it: an intent, and ports with their rates."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from dlcp.errors import Problem
from dlcp.model.base import Frozen
from dlcp.model.frames import FRAME_BYTES
from dlcp.model.qos import LoadBalancing, QosIntent
from dlcp.switches.bpf.aqm_words import LOAD_BALANCING, averages, render
from dlcp.switches.bpf.map_structs import PORT_AVERAGES, PORT_SHARES, AqmPort, PortConfig, SwitchConfig
from dlcp.switches.tc import Port

PROGRAM = "box.bpf.o"


class WantedSwitch(Frozen):
    """The whole box."""

    load_balancing: LoadBalancing
    flowlet_gap_s: float = Field(gt=0)
    shared_buffer_bytes: int | None


class WantedPort(Frozen):
    """rate_bps: of the line. shaped_bps: of its queues, counting overhead_bytes with every frame; below the line's rate
    where a NIC behind would else queue by itself."""

    rate_bps: float = Field(gt=0)
    shaped_bps: float = Field(gt=0)
    overhead_bytes: int = Field(ge=0, le=256)

    @model_validator(mode="after")
    def _within_the_line(self) -> Self:
        if self.shaped_bps > self.rate_bps:
            raise ValueError(f"is shaped to {self.shaped_bps:g} bit/s, above the line's {self.rate_bps:g}")
        return self


class Wanted(Frozen):
    """A rendered configuration. intent: its name. aqm: as dlcp.switches.bpf.aqm_words.effective words it."""

    program: Literal["box.bpf.o"]
    intent: str
    switch: WantedSwitch
    aqm: dict[str, Any]
    weights: dict[int, int]
    ports: dict[str, WantedPort] = Field(min_length=1)

    def aqm_port(self) -> AqmPort:
        """The value of every port's `aqm`. Raises Problem when the words do not hold together."""
        words = dict(self.aqm)
        queues = {int(number): dict(said) for number, said in dict(words.pop("queues", {})).items()}
        for number, weight in self.weights.items():
            queues.setdefault(number, {})["weight"] = weight
        try:
            intent = QosIntent.model_validate(
                {"name": self.intent, "shared_buffer_bytes": self.switch.shared_buffer_bytes, "queues": queues} | words
            )
        except ValidationError as error:
            raise _wrong(error) from error
        return render(intent)

    def switch_config(self) -> SwitchConfig:
        """The value of the map `switches`. The seed only parts flows into flowlets."""
        return SwitchConfig(
            load_balancing=LOAD_BALANCING[self.switch.load_balancing],
            seed=0,
            flowlet_gap_ns=round(self.switch.flowlet_gap_s * 1e9),
            shared_bytes=self.switch.shared_buffer_bytes or 0,
        )

    def port_config(self, port: str, aqm: AqmPort) -> PortConfig:
        """The value of the map `ports` for a port's queues."""
        flags = PORT_AVERAGES if averages(aqm) else 0
        flags |= PORT_SHARES if self.switch.shared_buffer_bytes else 0
        frame_ns = min(round(FRAME_BYTES * 8e9 / self.ports[port].shaped_bps), 2**32 - 1)
        return PortConfig(switch_index=0, flags=flags, frame_ns=frame_ns, aqm=aqm)

    def tree(self, port: str, device: str) -> Port:
        """A port's queues, on the inner device that has them."""
        said = self.ports[port]
        return Port(
            device, said.shaped_bps, cuts=False, filters=(), weights=self.weights, overhead_bytes=said.overhead_bytes
        )


def parse(configuration: Mapping[str, Any] | str | None) -> Wanted | None:
    """A configuration, as text or as what that says; None when it says that there is to be nothing of ours.

    Raises Problem that names every word that is wrong.
    """
    if isinstance(configuration, str):
        try:
            configuration = json.loads(configuration)
        except ValueError as error:
            raise Problem("configuration", f"is no JSON: {error}", "render it: dlcp switch render") from error
    if configuration is None:
        return None
    if not isinstance(configuration, Mapping):
        raise Problem("configuration", "is no mapping", "render it: dlcp switch render")
    if "program" in configuration and configuration["program"] is None:
        return None
    try:
        wanted = Wanted.model_validate(configuration)
    except ValidationError as error:
        raise _wrong(error) from error
    wanted.aqm_port()
    return wanted


def _wrong(error: ValidationError) -> Problem:
    told = "; ".join(f"{'.'.join(map(str, one['loc']))}: {one['msg']}" for one in error.errors())
    return Problem("configuration", told, "render it with the version of dlcp that this box has: dlcp switch render")

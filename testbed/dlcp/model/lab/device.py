"""A switch of a lab, as its owner describes it: system, chip, ports and memory. What it can do, its system says."""

from __future__ import annotations

from typing import Self

from pydantic import Field, model_validator

from dlcp.model.base import Frozen
from dlcp.model.units import Rate, Size


class Device(Frozen):
    """One switch. Sizes are the chip's, from its data sheet or its own counters.

    ports: port → rate; only these are ever configured. management: interfaces that must never be touched.
    buffer_bytes: the chip's whole packet memory. port_buffer_bytes: the most of it that one port can take.
    queue_bytes: the most that one queue can hold; thresholds in per cent are per cent of it.
    cell_bytes: the memory is handed out in cells of this size; 1 where it is not known.
    """

    name: str = Field(min_length=1)
    system: str
    chip: str
    ports: dict[str, Rate] = Field(min_length=1)
    management: tuple[str, ...] = Field(min_length=1)
    buffer_bytes: Size = Field(alias="buffer", gt=0)
    port_buffer_bytes: Size = Field(alias="port_buffer", gt=0)
    queue_bytes: Size = Field(alias="queue", gt=0)
    cell_bytes: int = Field(default=1, alias="cell", ge=1)

    @model_validator(mode="after")
    def _management_is_apart(self) -> Self:
        for name in self.management:
            if name in self.ports:
                raise ValueError(f"{name} is both a port to configure and a management interface")
        return self

    @model_validator(mode="after")
    def _nested(self) -> Self:
        if not self.queue_bytes <= self.port_buffer_bytes <= self.buffer_bytes:
            raise ValueError(
                f"a queue holds {self.queue_bytes} B, a port {self.port_buffer_bytes} B, "
                f"the chip {self.buffer_bytes} B: each must be within the next"
            )
        return self

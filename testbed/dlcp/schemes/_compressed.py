"""Compressed gradients over tuned TCP: a scheme for each compressor of dlcp.transport.compression."""

from __future__ import annotations

from functools import cache
from typing import Any, ClassVar, Self

from pydantic import Field

from dlcp.model.experiment import Scaling
from dlcp.model.transport.settings import Compression, TransportSettings
from dlcp.model.workload import Job, Workload
from dlcp.schemes.base import refuse_all_but_servers
from dlcp.schemes.tcp_tuned import TcpTuned
from dlcp.transport.compression import compressor_class
from dlcp.transport.compression.base import Compressor

BOTH_WAYS = (
    " The server merges the workers' codes into one that all of them pull and decode alike; each worker updates its "
    "own parameters. Coding takes the worker's CPU and is part of its iteration."
)


def step_share_of(default: float) -> Any:
    """Return the knob of that name."""
    return Field(
        default=default,
        gt=0,
        description="share of the job's learning rate, which was found without compression, that is applied to what "
        "codes stand for; it does nothing to a profile's times",
    )


class CompressedTcp(TcpTuned):
    """Gradients are coded by a compressor; the codes travel over TCP as tcp-tuned has it."""

    method: ClassVar[str]
    step_share: float = step_share_of(1.0)

    def for_job(self, job: Job, workload: Workload) -> Self:
        refuse_all_but_servers(job)
        return self

    def transport(self, scaling: Scaling) -> TransportSettings:
        names = set(compressor_class(self.method).knobs_class.model_fields)
        knobs = self.model_dump(mode="json", include=names)
        compression = Compression(method=self.method, step_share=self.step_share, knobs=knobs)
        return super().transport(scaling).model_copy(update={"compression": compression})


def scheme_of(compressor: str) -> type[CompressedTcp]:
    """Return the scheme that sends a compressor's codes: its knobs are those of tuned TCP, and the compressor's."""
    return _scheme_of(compressor, compressor_class(compressor))


@cache
def _scheme_of(compressor: str, codec: type[Compressor[Any]]) -> type[CompressedTcp]:
    class Codes(codec.knobs_class, CompressedTcp):  # type: ignore[name-defined,misc]
        title: ClassVar[str] = f"{codec.title} over TCP"
        paper: ClassVar[str] = codec.paper
        mechanism: ClassVar[str] = codec.mechanism + BOTH_WAYS
        method: ClassVar[str] = compressor
        step_share: float = step_share_of(codec.step_share)

    Codes.__name__ = Codes.__qualname__ = codec.__name__
    Codes.__doc__ = f"See {codec.__module__}."
    return Codes

"""Compressed gradients over tuned TCP: what the schemes of all methods share."""

from __future__ import annotations

from abc import abstractmethod
from typing import Any, Self

from pydantic import Field

from dlcp.model.experiment import Scaling
from dlcp.model.units import Fraction
from dlcp.model.workload import Compression, Job, TransportSettings, Workload
from dlcp.schemes.base import refuse_all_but_servers
from dlcp.schemes.tcp_tuned import TcpTuned

BOTH_WAYS = (
    " The server merges the workers' codes into one that all of them pull and decode alike; each worker updates its "
    "own parameters. Coding takes the worker's CPU and is part of its iteration."
)

BOTH_WAYS_NO_MOMENTUM = (
    " The optimizer applies no momentum: with it values that are seldom sent let training diverge." + BOTH_WAYS
)


def step_share_of(default: float) -> Any:
    """The knob of that name."""
    return Field(
        default=default,
        gt=0,
        description="share of the job's learning rate, which was found without compression, that is applied to what "
        "codes stand for; it does nothing to a profile's times",
    )


class CompressedTcp(TcpTuned):
    """Gradients are coded by a method; the codes travel over TCP as tcp-tuned has it."""

    step_share: float = step_share_of(1.0)

    def for_job(self, job: Job, workload: Workload) -> Self:
        refuse_all_but_servers(job)
        return self

    def transport(self, scaling: Scaling) -> TransportSettings:
        compression = self.compression().model_copy(update={"step_share": self.step_share})
        return super().transport(scaling).model_copy(update={"compression": compression})

    @abstractmethod
    def compression(self) -> Compression:
        """The method and its knobs."""


class SparseTcp(CompressedTcp):
    """A method that sends a share of the values."""

    ratio: Fraction = Field(default=0.01, gt=0, lt=0.5, description="share of a tensor's values that is sent")


class RememberingTcp(SparseTcp):
    """A sparse method that may remember what it has not sent."""

    error_feedback: bool = Field(
        default=True, description="add what was not sent to the next gradient; off loses it for good"
    )

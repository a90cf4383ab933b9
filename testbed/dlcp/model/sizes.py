"""How large flows are: a published cumulative distribution, as a file of workloads/cdf."""

from __future__ import annotations

from itertools import pairwise
from typing import Literal

from pydantic import Field

from dlcp.model.base import Frozen
from dlcp.model.units import Fraction, Size


class SizePoint(Frozen):
    """So large a share of all flows has at most so many bytes."""

    size_bytes: Size = Field(alias="size")
    share: Fraction


class SizeTable(Frozen):
    """A cumulative distribution of flow sizes, in bytes of the lab.

    Between two points the share grows linearly with the size. A first point with a share above 0 is that share of all
    flows, each of exactly that size. source: where the numbers are from; source_quality: `paper` as printed there,
    `simulator` as a widely used simulator has them, read off the paper's figure by its authors.
    """

    kind: Literal["sizes"]
    name: str
    source: str
    source_quality: Literal["paper", "simulator"]
    points: tuple[SizePoint, ...] = Field(min_length=2)

    @property
    def mean_bytes(self) -> float:
        """The mean flow, exact for the interpolation."""
        first = self.points[0]
        steps = pairwise(self.points)
        return first.share * first.size_bytes + sum(
            (b.share - a.share) * (a.size_bytes + b.size_bytes) / 2 for a, b in steps
        )

"""Base classes of everything that a person can write in a file, and the type of a progress callback."""

from __future__ import annotations

from collections.abc import Callable

from pydantic import BaseModel, ConfigDict

OnProgress = Callable[[float, str], None]
"""A listener to long work: takes the share done (0 to 1) and what is being done."""


class Frozen(BaseModel):
    """Immutable; an unknown key is an error, not a silence."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

"""The one pydantic base of everything that a person can write in a file."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict


class Frozen(BaseModel):
    """Immutable; an unknown key is an error, not a silence."""

    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True)

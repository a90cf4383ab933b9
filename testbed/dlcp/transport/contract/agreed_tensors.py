"""The tensors that an endpoint's ranks have agreed, and whether an array fits one: for endpoints in Python."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from dlcp.transport.contract.endpoint import Counts, Dtype, MessageKey, Values
from dlcp.transport.contract.values import held_as, packets


class AgreedTensor(NamedTuple):
    """See Endpoint.declare."""

    elements: int
    dtype: Dtype
    variable: bool


UNKNOWN = AgreedTensor(0, "float32", False)
"""Stands for a tensor that nobody has agreed."""


class AgreedTensors(dict[int, AgreedTensor]):
    """Tensor's number → what was agreed of it."""

    def fitting(
        self, key: MessageKey, array: Values, contributors: Counts | None, *, to_send: bool = False
    ) -> AgreedTensor:
        """Return the key's tensor; ValueError unless the arrays fit it. to_send: a variable one may be shorter."""
        if key.tensor not in self:
            raise ValueError(f"tensor {key.tensor} was not declared")
        agreed = self[key.tensor]
        elements, dtype, variable = agreed
        fits = array.shape == (elements,) or (to_send and variable and array.ndim == 1 and 0 < array.size < elements)
        if not fits or array.dtype != held_as(dtype) or not array.flags.c_contiguous:
            kind = f"{dtype} (as {held_as(dtype)})" if dtype == "bfloat16" else dtype
            raise ValueError(f"tensor {key.tensor} has {elements} contiguous {kind}, not {array.shape} {array.dtype}")
        wanted = packets(elements, dtype)
        if contributors is not None and (contributors.shape != (wanted,) or contributors.dtype != np.uint16):
            given = f"{contributors.dtype} {contributors.shape}"
            raise ValueError(f"tensor {key.tensor} has {wanted} packets: as many uint16, not {given}")
        return agreed

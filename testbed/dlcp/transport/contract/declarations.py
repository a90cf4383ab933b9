"""Declarations: what all ranks agree with their endpoints before any message, as it follows from the loss classes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from dlcp.transport.contract.endpoint import RELIABLE, Bound, Droppable, Dtype, Endpoint, Leg
from dlcp.transport.contract.loss_class import LossClass


@dataclass(frozen=True)
class Declaration:
    """One tensor of an endpoint. number: its name there. All else: see Endpoint.declare."""

    number: int
    elements: int
    queue: int
    droppable: Droppable
    must_arrive: bool
    push_bound: Bound
    pull_bound: Bound
    dtype: Dtype
    variable: bool


def declaration(
    number: int,
    elements: int,
    queue: int,
    droppable: Droppable,
    legs: Mapping[Leg, tuple[LossClass, Bound]],
    *,
    dtype: Dtype = "float32",
    variable: bool = False,
) -> Declaration:
    """Return how a tensor is agreed whose messages have these loss classes and bounds, by leg.

    droppable: which packets of the push leg may be tagged as droppable, if it may lose any. A bound holds where the
    ends of a message do not say another one.
    """
    push_loss, _ = legs.get(Leg.PUSH, (LossClass.MUST_ARRIVE, RELIABLE))
    bounds = {leg: bound for leg, (loss, bound) in legs.items() if loss.may_lose}
    return Declaration(
        number,
        elements,
        queue,
        droppable=droppable if push_loss.may_lose else Droppable.NONE,
        must_arrive=all(loss is LossClass.MUST_ARRIVE for loss, _ in legs.values()),
        push_bound=bounds.get(Leg.PUSH, RELIABLE),
        pull_bound=bounds.get(Leg.PULL, RELIABLE),
        dtype=dtype,
        variable=variable,
    )


def declare_all(endpoint: Endpoint, declarations: Iterable[Declaration]) -> None:
    """Agree tensors with an endpoint. Every rank does so, with the same declarations, before any sends."""
    for each in declarations:
        endpoint.declare(
            each.number,
            each.elements,
            queue=each.queue,
            droppable=each.droppable,
            must_arrive=each.must_arrive,
            push_bound=each.push_bound,
            pull_bound=each.pull_bound,
            dtype=each.dtype,
            variable=each.variable,
        )

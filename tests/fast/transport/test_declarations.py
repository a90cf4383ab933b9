"""The tensors that ranks agree with their endpoints follow from the loss classes of a plan, and from nothing else."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from dlcp.model.transport.settings import Compression, TransportSettings
from dlcp.patterns import names, pattern_of
from dlcp.patterns.base import Message, Traffic
from dlcp.patterns.parameter_server import ParameterServer
from dlcp.transport.aggregation.ring import RingAllReduce
from dlcp.transport.contract.declarations import Declaration, declaration, declare_all
from dlcp.transport.contract.endpoint import RELIABLE, Bound, Droppable, Leg
from dlcp.transport.contract.loss_class import LossClass, unless_few
from dlcp.transport.contract.mailbox import Mailbox
from dlcp.transport.contract.tensors import Tensor, plan_tensors

MUST_ARRIVE, RELIABLE_CLASS, BOUNDED, LAST = LossClass
TENTH = Bound(0.1)
SETTINGS = TransportSettings(kind="dlcp", loss_bound=0.1, energy_bound=0.5, priority_queues=5)
LAYERS = [("front", 500), ("middle", 40_001), ("back", 7)]


class Noting:
    """An endpoint that only notes what is declared."""

    def __init__(self) -> None:
        self.declared: list[tuple[int, int, dict[str, Any]]] = []

    def declare(self, tensor: int, elements: int, **more: Any) -> None:
        self.declared.append((tensor, elements, more))


def tensors_of(*sizes: int) -> list[Tensor]:
    return [Tensor(0, elements, 0, 0, 0, queue=3, droppable=Droppable.SMALL) for elements in sizes]


def noted(declarations: list[Declaration]) -> list[tuple[int, int, dict[str, Any]]]:
    endpoint = Noting()
    declare_all(endpoint, declarations)  # type: ignore[arg-type]
    return endpoint.declared


@pytest.mark.parametrize(
    ("push", "pull", "must_arrive", "push_bound", "pull_bound", "droppable"),
    [
        (BOUNDED, LAST, False, TENTH, TENTH, Droppable.SMALL),
        (BOUNDED, RELIABLE_CLASS, False, TENTH, RELIABLE, Droppable.SMALL),
        (LAST, None, False, TENTH, RELIABLE, Droppable.SMALL),
        (RELIABLE_CLASS, RELIABLE_CLASS, False, RELIABLE, RELIABLE, Droppable.NONE),
        (RELIABLE_CLASS, LAST, False, RELIABLE, TENTH, Droppable.NONE),
        (MUST_ARRIVE, MUST_ARRIVE, True, RELIABLE, RELIABLE, Droppable.NONE),
        (MUST_ARRIVE, RELIABLE_CLASS, False, RELIABLE, RELIABLE, Droppable.NONE),
        (None, MUST_ARRIVE, True, RELIABLE, RELIABLE, Droppable.NONE),
    ],
)
def test_declaration__follows_from_the_classes(
    push: LossClass | None,
    pull: LossClass | None,
    must_arrive: bool,
    push_bound: Bound,
    pull_bound: Bound,
    droppable: Droppable,
) -> None:
    legs = {leg: (loss, TENTH) for leg, loss in ((Leg.PUSH, push), (Leg.PULL, pull)) if loss is not None}
    agreed = declaration(3, 10, 5, Droppable.SMALL, legs)
    assert (agreed.must_arrive, agreed.push_bound, agreed.pull_bound) == (must_arrive, push_bound, pull_bound)
    assert agreed.droppable == droppable


def test_few_packets__are_never_lossy() -> None:
    assert [unless_few(BOUNDED, count, 8) for count in (7, 8)] == [MUST_ARRIVE, BOUNDED]
    assert unless_few(LAST, 0, 0) is LAST


@pytest.mark.parametrize("holes", ["zero", "rescale", "last"])
def test_gradients__have_the_class_that_fills_their_holes(holes: str) -> None:
    settings = SETTINGS.model_copy(update={"holes": holes})
    traffic = Traffic(2, 1, tensors_of(9_000), settings, 3)
    by_leg = {message.leg: message.loss for message in pattern_of("parameter-server").messages(traffic)}
    assert by_leg == {Leg.PUSH: LAST if holes == "last" else BOUNDED, Leg.PULL: LAST}


def test_merged_codes__are_reliable_but_may_be_tagged() -> None:
    """A scheme that tags what is reliable tags merged codes too, unless they are of few packets."""
    settings = SETTINGS.model_copy(update={"compression": Compression(method="fp16")})
    pattern, traffic = pattern_of("parameter-server"), Traffic(2, 1, tensors_of(7 * 360, 20 * 720), settings, 3)
    losses = {(message.tensor, message.leg): message.loss for message in pattern.messages(traffic)}
    assert losses == {
        (0, Leg.PUSH): MUST_ARRIVE,
        (0, Leg.PULL): MUST_ARRIVE,
        (1, Leg.PUSH): BOUNDED,
        (1, Leg.PULL): RELIABLE_CLASS,
    }
    must_arrive = {each.number: each.must_arrive for each in pattern.declarations(traffic)}
    assert must_arrive == {0: True, 1: False, 2: True, 3: False}


@pytest.mark.parametrize("size", [2, 3, 5])
def test_ring__agrees_the_same_with_and_without_a_plan(size: int) -> None:
    """PyTorch's all-reduces have no plan; their ring declares by itself."""
    tensors = plan_tensors(LAYERS, 100_000, 1, SETTINGS)
    traffic = Traffic(size, 0, tensors, SETTINGS, 1)
    planned = pattern_of("ring").declarations(traffic)
    endpoint = Noting()
    bound = Bound(SETTINGS.loss_bound, SETTINGS.energy_bound)
    ring = RingAllReduce(Mailbox(endpoint), 0, size, bound=bound)  # type: ignore[arg-type]
    for number, tensor in enumerate(tensors):
        few = {each.must_arrive for each in planned if each.number // size == number}
        loss = MUST_ARRIVE if few == {True} else BOUNDED
        ring.declare(number, tensor.elements, queue=tensor.queue, droppable=tensor.droppable, loss=loss)
    assert endpoint.declared == noted(planned)


@pytest.mark.parametrize("pattern", names())
def test_every_plan__names_each_tensor_of_the_endpoint_once(pattern: str) -> None:
    traffic = Traffic(3, 1 if pattern_of(pattern).has_servers else 0, tensors_of(500, 90_000), SETTINGS, 2)
    declarations = pattern_of(pattern).declarations(traffic)
    assert [each.number for each in declarations] == sorted({m.number for m in pattern_of(pattern).messages(traffic)})


class Contradicting(ParameterServer):
    """Plans some ranks' messages on a leg otherwise than all others of their tensor."""

    def __init__(self, leg: Leg, ranks: set[int], **other: Any) -> None:
        super().__init__("contradiction")
        self._leg, self._ranks, self._other = leg, ranks, other

    def messages(self, traffic: Traffic) -> Iterator[Message]:
        for message in super().messages(traffic):
            differs = message.leg is self._leg and self._ranks & {message.source, message.destination}
            yield replace(message, **self._other) if differs else message


@pytest.mark.parametrize("leg", Leg)
@pytest.mark.parametrize(
    ("ranks", "other"),
    [
        ({1}, {"loss": MUST_ARRIVE}),
        ({1}, {"elements": 3}),
        ({0, 1}, {"elements": 3}),
        ({0, 1}, {"dtype": "uint8"}),
        ({0, 1}, {"variable": True}),
        ({0, 1}, {"queue": 1}),
    ],
)
def test_a_plan_that_contradicts_itself__is_refused(leg: Leg, ranks: set[int], other: dict[str, Any]) -> None:
    """Ranks 0 and 1 are all workers: then one leg differs from the other one."""
    with pytest.raises(ValueError, match="a contradiction has messages of number 0 that differ: Message"):
        Contradicting(leg, ranks, **other).declarations(Traffic(2, 1, tensors_of(9_000), SETTINGS, 2))

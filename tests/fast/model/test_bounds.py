"""What messages may lose by iteration: a schedule, and full syncs between drifting pulls."""

from __future__ import annotations

import pytest

from dlcp.model.transport.settings import TransportSettings
from dlcp.transport.contract.bounds import Bounds
from dlcp.transport.contract.endpoint import RELIABLE, Bound


def bounds(iterations: int = 10, **settings: object) -> Bounds:
    return Bounds(TransportSettings.model_validate({"kind": "dlcp", **settings}), iterations)


def test_push__without_a_schedule_is_always_the_bound() -> None:
    found = bounds(loss_bound=0.1, energy_bound=0.02)
    assert {found.push(iteration) for iteration in range(10)} == {Bound(0.1, 0.02)}


def test_push__follows_the_schedule_from_the_share_of_training_on() -> None:
    found = bounds(loss_bound=0.5, loss_bound_schedule=[(0.2, 0.0), (0.55, 0.1)])
    shares = [found.push(iteration).bytes_share for iteration in range(10)]
    assert shares == [0.5, 0.5, 0, 0, 0, 0, 0.1, 0.1, 0.1, 0.1]


@pytest.mark.parametrize(("every", "lossy"), [(1, []), (3, [0, 1, 3, 4, 6, 7]), (100, list(range(9)))])
def test_pull__is_whole_at_every_full_sync_and_in_the_end(every: int, lossy: list[int]) -> None:
    found = bounds(pull_loss_bound=0.01, full_sync_every=every)
    assert [iteration for iteration in range(10) if found.pull(iteration) != RELIABLE] == lossy

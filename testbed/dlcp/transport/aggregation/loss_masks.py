"""Which packets of which worker's gradient are lost in an iteration, by rule instead of by a network."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from dlcp.model.loading.mask_file import Recording
from dlcp.model.transport.masks import RECORDED, MaskSettings
from dlcp.transport.contract.endpoint import Floats
from dlcp.transport.contract.packing import Packing
from dlcp.transport.contract.tensors import Tensor

Lost = npt.NDArray[np.bool_]
Rates = npt.NDArray[np.float64]
_STREAM = 7
"""Tells the masks' random numbers from others of the same seed."""


class Masks:
    """Masks of a job, iteration after iteration; the same seed gives the same ones, whatever else happens.

    layers: elements of each, input side first; a packet belongs to the layer of its last element. recording: for the
    orders that need one; ValueError when it is of other tensors or workers. ValueError, too, when one worker cannot
    lose what all are to lose together.
    """

    def __init__(
        self,
        settings: MaskSettings,
        tensors: list[Tensor],
        layers: list[int],
        workers: int,
        seed: int,
        recording: Recording | None = None,
    ) -> None:
        self._settings = settings
        self._packing = Packing(tensors)
        self._workers = workers
        self._random = np.random.default_rng([seed, _STREAM])
        self._unlucky = int(self._random.integers(workers))
        front_elements = sum(layers[: front_layers(len(layers), settings.front_share)])
        self._front: Lost = self._packing.last_element < front_elements
        self._recording = _fitting(recording, self._packing, workers) if settings.order in RECORDED else None
        self._offset = 0 if self._recording is None else int(self._random.integers(self._recording.iterations))
        if settings.spread in ("in-turn", "one-worker") and settings.loss * workers > 1:
            raise ValueError(f"one of {workers} workers cannot lose {workers} × {settings.loss:g} of its gradient")

    def lost(self, iteration: int, energy: Floats) -> Lost:
        """(workers, packets of all tensors): what is lost. energy: of each packet, the same shape."""
        if self._settings.order == "recorded":
            return self._recorded(iteration)
        if self._settings.order == "recorded-shuffled":
            return self._shuffled(self._recorded(iteration))
        if self._recording is not None:
            return self._anywhere(np.full(self._workers, self._recording.loss), energy)
        found = _ORDERS[self._settings.order](self, self._rates(iteration), energy)
        return np.broadcast_to(found[:1], found.shape) if self._settings.spread == "same-packets" else found

    def _rates(self, iteration: int) -> Rates:
        """What each worker loses of its packets; the mean is the same however it is spread."""
        if self._settings.spread in ("even", "same-packets"):
            return np.full(self._workers, self._settings.loss)
        found = np.zeros(self._workers)
        turn = iteration % self._workers
        found[turn if self._settings.spread == "in-turn" else self._unlucky] = self._settings.loss * self._workers
        return found

    def _whole(self, wanted: Rates) -> npt.NDArray[np.int64]:
        """Whole numbers of packets whose means are the wanted ones: rounded up or down at random."""
        return np.floor(wanted + self._random.random(wanted.shape)).astype(np.int64)

    def _anywhere(self, rates: Rates, energy: Floats) -> Lost:
        found: Lost = self._random.random(energy.shape) < rates[:, None]
        return found

    def _small_first(self, rates: Rates, energy: Floats) -> Lost:
        return self._first_of(np.argsort(energy, axis=1, kind="stable"), rates)

    def _large_first(self, rates: Rates, energy: Floats) -> Lost:
        return self._first_of(np.argsort(-energy, axis=1, kind="stable"), rates)

    def _tail_cut(self, rates: Rates, energy: Floats) -> Lost:
        backwards = np.broadcast_to(np.arange(self._packing.rows)[::-1], energy.shape)
        return self._first_of(backwards, rates)

    def _first_of(self, order: npt.NDArray[np.int64], rates: Rates) -> Lost:
        found = np.zeros(order.shape, np.bool_)
        for worker, count in enumerate(self._whole(rates * self._packing.rows)):
            found[worker, order[worker, :count]] = True
        return found

    def _message_tail_cut(self, rates: Rates, energy: Floats) -> Lost:
        found = np.zeros(energy.shape, np.bool_)
        cut = self._whole(rates[:, None] * self._packing.count)
        for tensor, (first, count) in enumerate(zip(self._packing.first_row, self._packing.count, strict=True)):
            number = np.arange(count)
            found[:, first : first + count] = number >= (count - cut[:, tensor])[:, None]
        return found

    def _in_front(self, rates: Rates, energy: Floats) -> Lost:
        return self._anywhere(rates, energy) & self._front

    def _at_back(self, rates: Rates, energy: Floats) -> Lost:
        return self._anywhere(rates, energy) & ~self._front

    def _recorded(self, iteration: int) -> Lost:
        """Each repeat begins at another iteration of the recording, which goes round."""
        assert self._recording is not None
        found: Lost = self._recording.lost[(iteration + self._offset) % self._recording.iterations]
        return found

    def _shuffled(self, lost: Lost) -> Lost:
        """As many packets of each message, but at random places in it."""
        found = np.zeros(lost.shape, np.bool_)
        for first, count in zip(self._packing.first_row, self._packing.count, strict=True):
            message = slice(first, first + count)
            many = lost[:, message].sum(axis=1)
            rank = np.argsort(np.argsort(self._random.random((self._workers, count)), axis=1), axis=1)
            found[:, message] = rank < many[:, None]
        return found


def front_layers(layers: int, share: float) -> int:
    """How many of so many layers are front: the share of their number, rounded down, at least one."""
    return max(1, int(share * layers))


def _fitting(recording: Recording | None, packing: Packing, workers: int) -> Recording:
    if recording is None:
        raise ValueError("recorded masks need a recording")
    if recording.packets != tuple(int(count) for count in packing.count) or recording.workers != workers:
        raise ValueError(
            f"it is of {recording.workers} workers of {recording.workload} with messages of "
            f"{', '.join(map(str, recording.packets))} packets, the job has {workers} workers and messages of "
            f"{', '.join(map(str, packing.count))}"
        )
    return recording


_ORDERS: dict[str, Callable[[Masks, Rates, Floats], Lost]] = {
    "random": Masks._anywhere,
    "small-first": Masks._small_first,
    "large-first": Masks._large_first,
    "front-layers": Masks._in_front,
    "back-layers": Masks._at_back,
    "tail-cut": Masks._tail_cut,
    "message-tail-cut": Masks._message_tail_cut,
}

"""A real job whose workers train in one process; what a network would lose of their gradients, masks take.

Sums, updates and parameters are those of the job's pattern, so that without loss the parameters are the same bit for
bit as over any transport. Nothing travels, so nothing has a time: instants in the tables are NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dlcp.agents.job_spec import JobSpec
from dlcp.agents.process.inprocess_exchange import Exchanges, Pushed, exchange_of
from dlcp.agents.records import Columns
from dlcp.agents.scripts import framework_of_script, warm_script
from dlcp.model.loading.mask_file import read_recording, recording_path
from dlcp.model.transport.masks import MaskSettings
from dlcp.model.transport.settings import TransportSettings
from dlcp.transport.aggregation.loss_masks import Masks
from dlcp.transport.contract.endpoint import Floats, Leg
from dlcp.transport.contract.packing import Packing
from dlcp.transport.contract.tensors import Tensor

Shares = npt.NDArray[np.float64]
UNTIMED = math.nan


@dataclass(frozen=True)
class Trained:
    """The tables of a job. lost_energy_share: of the energy of all workers' whole gradients, the mean over iterations
    (the messages' own shares do not tell it, for one message may hold most of it)."""

    iterations: Columns
    messages: Columns
    training: Columns
    lost_energy_share: float


class InProcessJob:
    """All of a job; the same spec and settings give the same bits on the same machine.

    exchanges: how gradients are exchanged, where it is not to be as fast as the job's pattern allows.
    Raises ValueError when the masks do not fit the job, Problem when script, data or masks are missing.
    """

    def __init__(self, spec: JobSpec, settings: TransportSettings, exchanges: Exchanges = exchange_of) -> None:
        assert settings.mask is not None, "settings of a masked scheme"
        self._spec = spec.model_copy(update={"learning_rate": spec.learning_rate * (1 - settings.mask.damped)})
        self._tensors = spec.tensors(settings)
        packing = Packing(self._tensors)
        self._masks = _masks(spec, self._tensors, settings.mask)
        workers = len(spec.workers)
        script = warm_script(spec.script)
        jobs = [script.job(spec.options(worker)) for worker in range(workers)]
        parameters: Floats = jobs[0].initial_parameters()
        self._together = framework_of_script(spec.script).all_workers(jobs, parameters, self._tensors)
        self._exchange = exchanges(self._spec, settings, parameters, packing)
        self._rows = packing.empty(workers)
        self._sizes = np.array([push.size_bytes for push in self._exchange.pushes])
        shape = (spec.iterations, len(self._sizes))
        self._checksums = np.zeros((spec.iterations, workers), np.uint32)
        self._lost_bytes = np.zeros(shape, np.int64)
        self._lost_energy = np.zeros(shape, np.float64)
        self._lost_of_all = np.zeros(spec.iterations, np.float64)

    def run(self, on_iteration: Callable[[int], None]) -> Trained:
        """Train; on_iteration is told how many iterations are done."""
        spec, rows = self._spec, self._rows
        evaluate_after = set().union(*(spec.snapshots_of(worker) for worker in spec.worker_ranks))
        training = []
        try:
            for iteration in range(spec.iterations):
                self._together.gradients(iteration, rows)
                lost = self._masks.lost(iteration, np.einsum("kpe,kpe->kp", rows, rows))
                self._note(iteration, self._exchange.step(iteration, rows, lost))
                if iteration in evaluate_after:
                    training.append((iteration, *self._together.score()))
                on_iteration(iteration + 1)
        finally:
            self._exchange.close()
        return Trained(self._iterations(), self._messages(), _training(spec, training), float(self._lost_of_all.mean()))

    def _note(self, iteration: int, pushed: Pushed) -> None:
        """What each message lost. Where a value is not finite, energy tells nothing: the share of the bytes stands."""
        lost, energy, lost_energy = pushed.lost_bytes, pushed.energy, pushed.lost_energy
        self._checksums[iteration] = pushed.parameters_crc32
        self._lost_bytes[iteration] = lost
        self._lost_energy[iteration] = _share(lost_energy, energy, lost / self._sizes)
        self._lost_of_all[iteration] = _share(lost_energy.sum(), energy.sum(), lost.sum() / self._sizes.sum())

    def _iterations(self) -> Columns:
        spec, count = self._spec, self._spec.iterations
        workers, untimed = len(spec.workers), [UNTIMED] * (len(spec.workers) * self._spec.iterations)
        return {
            "job": [spec.name] * len(untimed),
            "worker": [worker for worker in spec.workers for _ in range(count)],
            "iteration": list(range(count)) * workers,
            "warmup": [iteration < spec.warmup_iterations for iteration in range(count)] * workers,
            **dict.fromkeys(("start_s", "end_s", "compute_s", "exposed_comm_s", "codec_s"), untimed),
            "parameters_crc32": self._checksums.T.reshape(-1).tolist(),
        }

    def _messages(self) -> Columns:
        """A row for each push that would have been one; pulls lose nothing and are left out."""
        spec, pushes, hosts = self._spec, self._exchange.pushes, np.array(self._spec.hosts)
        iteration, push = (index.reshape(-1) for index in np.indices(self._lost_bytes.shape))
        tensor = np.array([one.tensor for one in pushes])[push]
        lost, sizes, count = self._lost_bytes.reshape(-1), self._sizes[push], self._lost_bytes.size
        return {
            "job": [spec.name] * count,
            "iteration": iteration,
            "warmup": iteration < spec.warmup_iterations,
            "tensor": tensor,
            "layer": np.array([one.first_layer for one in self._tensors])[tensor],
            "leg": [Leg.PUSH.name.lower()] * count,
            "src": hosts[[one.source for one in pushes]][push],
            "dst": hosts[[one.destination for one in pushes]][push],
            "bytes": sizes,
            "start_s": np.full(count, UNTIMED),
            "end_s": np.full(count, UNTIMED),
            "delivered_bytes": sizes - lost,
            "lost_bytes": lost,
            "resent_bytes": np.zeros(count, np.int64),
            "probes": np.zeros(count, np.int64),
            "loss_bound": np.ones(count),
            "lost_energy_share": self._lost_energy.reshape(-1),
            "energy_bound": np.ones(count),
            "tensor_bytes": np.array([one.tensor_bytes for one in pushes])[push],
        }


def _share(lost: Shares, total: Shares, otherwise: Shares) -> Shares:
    """Lost of total, where that is a number above 0."""
    known = np.isfinite(total) & (total > 0)
    return np.where(known, lost / np.where(known, total, 1.0), otherwise)


def _masks(spec: JobSpec, tensors: list[Tensor], mask: MaskSettings) -> Masks:
    recording = read_recording(recording_path(mask.recorded)) if mask.recorded else None
    return Masks(mask, tensors, [layer.elements for layer in spec.layers], len(spec.workers), spec.seed, recording)


def _training(spec: JobSpec, scores: list[tuple[int, float, float]]) -> Columns:
    steps, losses, accuracies = zip(*scores, strict=True)
    return {
        "job": [spec.name] * len(scores),
        "step": list(steps),
        "time_s": [UNTIMED] * len(scores),
        "loss": list(losses),
        "accuracy": list(accuracies),
    }

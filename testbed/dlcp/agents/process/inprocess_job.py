"""A real job whose workers train in one process; what a network would lose of their gradients, masks take.

The sum, the update and the parameters are those of a parameter server (transport/aggregation/parameter_server), so that
without loss the parameters are the same bit for bit as over any transport. Nothing travels, so nothing has a time:
instants in the tables are NaN.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dlcp.agents.job_spec import JobSpec
from dlcp.agents.process.rank_factory import optimizer
from dlcp.agents.records import Columns
from dlcp.agents.scripts import framework_of_script, warm_script
from dlcp.model.loading.mask_file import read_recording, recording_path
from dlcp.model.masks import MaskSettings
from dlcp.model.workload import TransportSettings
from dlcp.transport.aggregation.loss_masks import Lost, Masks
from dlcp.transport.aggregation.parameter_server import average, parameters_crc32
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

    Raises ValueError when the masks do not fit the job, Problem when script, data or masks are missing.
    """

    def __init__(self, spec: JobSpec, settings: TransportSettings) -> None:
        assert settings.mask is not None, "settings of a masked scheme"
        self._spec = spec.model_copy(update={"learning_rate": spec.learning_rate * (1 - settings.mask.damped)})
        self._settings = settings
        self._tensors = spec.tensors(settings)
        self._packing = Packing(self._tensors)
        self._masks = _masks(spec, self._tensors, settings.mask)
        workers = len(spec.workers)
        script = warm_script(spec.script)
        jobs = [script.job(spec.options(worker)) for worker in range(workers)]
        self._parameters: Floats = jobs[0].initial_parameters()
        self._together = framework_of_script(spec.script).all_workers(jobs, self._parameters, self._tensors)
        self._rows = self._packing.empty(workers)
        self._before = self._packing.empty(workers) if settings.holes == "last" else None
        shape = (spec.iterations, workers, len(self._tensors))
        self._lost_bytes = np.zeros(shape, np.int64)
        self._lost_energy = np.zeros(shape, np.float64)
        self._lost_of_all = np.zeros(spec.iterations, np.float64)

    def run(self, on_iteration: Callable[[int], None]) -> Trained:
        """Train; on_iteration is told how many iterations are done."""
        spec, sgd, flat = self._spec, optimizer(self._spec), np.empty_like(self._parameters)
        state = sgd.state(0, self._parameters)
        evaluate_after = set().union(*(spec.snapshots_of(worker) for worker in spec.worker_ranks))
        checksums, training = [], []
        for iteration in range(spec.iterations):
            self._together.gradients(iteration, self._rows)
            arrived = self._lose(iteration)
            rows = self._rows.reshape(len(self._rows), -1)
            self._packing.unpack(average(rows, arrived if self._settings.holes == "rescale" else None), flat)
            sgd.step(iteration, self._parameters, state, flat)
            checksums.append(parameters_crc32(self._parameters))
            if iteration in evaluate_after:
                training.append((iteration, *self._together.score()))
            on_iteration(iteration + 1)
        return Trained(
            self._iterations(checksums), self._messages(), _training(spec, training), float(self._lost_of_all.mean())
        )

    def _lose(self, iteration: int) -> npt.NDArray[np.uint16]:
        """Take this iteration's lost packets out of the rows; returns which came, (workers, packets)."""
        energy: Floats = np.einsum("kpe,kpe->kp", self._rows, self._rows)
        lost = self._masks.lost(iteration, energy)
        self._note(iteration, lost, energy)
        if self._before is None:
            self._rows[lost] = 0.0
        else:
            self._rows[lost] = self._before[lost]
            self._before[:] = self._rows
        arrived: npt.NDArray[np.uint16] = (~lost).astype(np.uint16)
        return arrived

    def _note(self, iteration: int, lost: Lost, energy: Floats) -> None:
        """What each message lost. Where a value is not finite, energy tells nothing: the share of the bytes stands."""
        packing = self._packing
        lost_bytes, size_bytes = packing.by_tensor(lost * packing.row_bytes), packing.by_tensor(packing.row_bytes)
        whole = energy.astype(np.float64)
        total, gone = packing.by_tensor(whole), packing.by_tensor(np.where(lost, whole, 0.0))
        self._lost_bytes[iteration] = lost_bytes
        self._lost_energy[iteration] = _share(gone, total, lost_bytes / size_bytes)
        self._lost_of_all[iteration] = _share(
            gone.sum(), total.sum(), lost_bytes.sum() / (len(lost) * size_bytes.sum())
        )

    def _iterations(self, checksums: list[int]) -> Columns:
        """Every worker holds the same parameters, for they are the same."""
        spec, count = self._spec, self._spec.iterations
        workers, untimed = len(spec.workers), [UNTIMED] * (len(spec.workers) * self._spec.iterations)
        return {
            "job": [spec.name] * len(untimed),
            "worker": [worker for worker in spec.workers for _ in range(count)],
            "iteration": list(range(count)) * workers,
            "warmup": [iteration < spec.warmup_iterations for iteration in range(count)] * workers,
            **dict.fromkeys(("start_s", "end_s", "compute_s", "exposed_comm_s", "codec_s"), untimed),
            "parameters_crc32": checksums * workers,
        }

    def _messages(self) -> Columns:
        """A row for each push that would have been one; pulls lose nothing and are left out."""
        spec, tensors = self._spec, self._tensors
        iteration, worker, tensor = (index.reshape(-1) for index in np.indices(self._lost_bytes.shape))
        sizes = np.array([one.size_bytes for one in tensors])[tensor]
        lost = self._lost_bytes.reshape(-1)
        servers = np.array([spec.servers[one.server] for one in tensors])
        count = len(lost)
        return {
            "job": [spec.name] * count,
            "iteration": iteration,
            "warmup": iteration < spec.warmup_iterations,
            "tensor": tensor,
            "layer": np.array([one.first_layer for one in tensors])[tensor],
            "leg": [Leg.PUSH.name.lower()] * count,
            "src": np.array(spec.workers)[worker],
            "dst": servers[tensor],
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
            "tensor_bytes": sizes,
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

"""A profile job on one worker: compute is waited for, gradients are made from a seed, all traffic is real.

Forward: a layer's compute starts when the layer before is done and its tensors' newest parameters are there.
Backward: a tensor is pushed when the backward pass of all its layers is done. Compute runs on its own timeline of
absolute instants, so that late wake-ups do not add up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from dlcp.agents.job_spec import JobSpec, LayerWork
from dlcp.agents.precise_waits import Deadlines
from dlcp.transport.aggregation.interfaces import GradientWorker
from dlcp.transport.aggregation.parameter_server import Iteration, parameters_crc32
from dlcp.transport.contract.endpoint import Floats
from dlcp.transport.contract.tensors import PACKET_ELEMENTS, Tensor

LAYER_SPREAD = 1.0
"""σ of the log-normal scale between layers: gradients of ResNet layers span about two orders of magnitude."""
BLOCK_SPREAD = 0.8
"""σ of the log-normal scale between blocks inside a layer: packet means then differ by more than 2 × (90 % : 10 % is
exp(2·1.28·0.8) ≈ 8 ×), as rows of real weight gradients do."""
LEARNING_RATE = 1e-3
"""A plain step: parameters move, stay finite, and show a difference between workers if there is one."""


@dataclass
class Phase:
    """A stretch of compute without communication in it: the tensors it needs (forward) or makes ready (backward)."""

    compute_s: float
    tensors: list[int] = field(default_factory=list)


def forward_phases(layers: tuple[LayerWork, ...], tensors: list[Tensor]) -> list[Phase]:
    """Input side first: what must be there before each stretch, and how long the stretch computes."""
    phases: list[Phase] = []
    for number, layer in enumerate(layers):
        needed = [t for t, tensor in enumerate(tensors) if tensor.first_layer == number]
        if needed or not phases:
            phases.append(Phase(0.0, needed))
        phases[-1].compute_s += layer.forward_s
    return phases


def backward_phases(layers: tuple[LayerWork, ...], tensors: list[Tensor]) -> list[Phase]:
    """Output side first: how long each stretch computes, and which tensors are ready at its end, last one first."""
    phases: list[Phase] = []
    waiting_s = 0.0
    for number in reversed(range(len(layers))):
        waiting_s += layers[number].backward_s
        ready = [t for t, tensor in enumerate(tensors) if tensor.first_layer == number]
        if ready:
            phases.append(Phase(waiting_s, ready[::-1]))
            waiting_s = 0.0
    return phases


def initial_parameters(spec: JobSpec) -> Floats:
    """The same at every rank."""
    return np.random.default_rng([spec.seed, 1]).standard_normal(spec.elements, np.float32)


def synthetic_gradient(spec: JobSpec, worker: int) -> Floats:
    """One worker's gradient for all iterations: log-normal scales per layer (shared by all workers, as they train the
    same model) and per packet-sized block, normal values inside."""
    shared = np.random.default_rng([spec.seed, 2])
    random = np.random.default_rng([spec.seed, 3, worker])
    parts = []
    for layer in spec.layers:
        scale = np.exp(LAYER_SPREAD * shared.standard_normal())
        blocks = np.exp(BLOCK_SPREAD * shared.standard_normal(-(-layer.elements // PACKET_ELEMENTS)))
        envelope = np.repeat(blocks, PACKET_ELEMENTS)[: layer.elements]
        parts.append(scale * envelope * random.standard_normal(layer.elements))
    return np.concatenate(parts).astype(np.float32)


def iteration_factor(spec: JobSpec, iteration: int) -> np.float32:
    """Factor of the synthetic gradient: it shrinks as training goes on, and its sign varies."""
    sign = 1.0 if np.random.default_rng([spec.seed, 4, iteration]).random() < 0.5 else -1.0
    return np.float32(sign / np.sqrt(1.0 + iteration))


def run_profile(
    spec: JobSpec,
    worker: GradientWorker,
    tensors: list[Tensor],
    gradient: Floats,
    deadlines: Deadlines,
    start_s: float,
    on_iteration: Callable[[int], None],
) -> list[Iteration]:
    """Train from the instant start_s on; returns one row an iteration. TransportError when the transport fails."""
    forward, backward = forward_phases(spec.layers, tensors), backward_phases(spec.layers, tensors)
    rows: list[Iteration] = []
    now_s = start_s
    deadlines.sleep_until(start_s)
    for iteration in range(spec.iterations):
        row = Iteration(iteration, 0.0, compute_s=spec.compute_s)
        for number, phase in enumerate(forward):
            now_s = max(now_s, worker.await_parameters(phase.tensors))
            if number == 0:
                row.start_s = now_s
            now_s += phase.compute_s
        _close(rows, row.start_s, worker)
        rows.append(row)
        factor = iteration_factor(spec, iteration)
        for phase in backward:
            now_s += phase.compute_s
            for tensor in phase.tensors:
                ready_tensor = tensors[tensor]
                np.multiply(gradient[ready_tensor.start : ready_tensor.stop], factor, out=worker.gradient_slot(tensor))
            deadlines.sleep_until(now_s)
            for tensor in phase.tensors:
                now_s += worker.push(iteration, tensor)  # what codes a gradient computes nothing else
        on_iteration(iteration + 1)
    _close(rows, max(now_s, worker.finish()), worker)
    return rows


def _close(rows: list[Iteration], end_s: float, worker: GradientWorker) -> None:
    """The newest iteration ended here, and all parameters that came of it are there."""
    if rows:
        rows[-1].end_s = end_s
        rows[-1].parameters_crc32 = parameters_crc32(worker.parameters)

"""Verification of an experiment's switches: whether they do what its schemes ask of them, by probes."""

from __future__ import annotations

import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlcp.errors import Problem, Problems, needs_extra
from dlcp.model.base import OnProgress
from dlcp.model.experiment import experiment_intent
from dlcp.model.loading.explain import did_you_mean
from dlcp.model.qos import QosIntent
from dlcp.model.topology import Graph
from dlcp.runner.planning.check import Ready
from dlcp.runner.preview.preflight import preflight_emulation
from dlcp.schemes.base import hosts_for
from dlcp.verification.intervals import FALSE_ALARM
from dlcp.verification.rows import Row, counts, exit_code

if TYPE_CHECKING:
    from dlcp.runner.lab.lab_runs import LabChoice


@dataclass(frozen=True)
class Verified:
    """Rows of verification under one QoS intent. labels: the schemes that ask for it."""

    labels: tuple[str, ...]
    intent: QosIntent
    rows: tuple[Row, ...]
    took_s: float

    @property
    def exit_code(self) -> int:
        """0, or 4 when something deviates or could not be concluded."""
        return exit_code(self.rows)

    def data(self) -> dict[str, Any]:
        """For JSON."""
        return {
            "schemes": list(self.labels),
            "intent": self.intent.model_dump(mode="json"),
            "counts": counts(self.rows),
            "false_alarm": FALSE_ALARM,
            "took_s": self.took_s,
            "rows": [vars(row) for row in self.rows],
        }


def intents(ready: Ready, label: str | None) -> list[tuple[tuple[str, ...], QosIntent]]:
    """The QoS intents of an experiment's schemes, each once, with the labels that ask for it; `label`: that scheme's
    alone. Problem when there is no such label."""
    experiment = ready.experiment
    if label is not None and label not in ready.schemes:
        raise Problem("--scheme", f"no scheme is labelled {label!r}", did_you_mean(label, ready.schemes))
    merged: list[tuple[list[str], QosIntent]] = []
    for choice in experiment.schemes:
        if label not in (None, choice.label):
            continue
        scheme = ready.schemes[choice.label]
        for fabric in experiment.fabrics:
            intent = experiment_intent(fabric, scheme.intent(fabric.port_buffer_bytes))
            same = [labels for labels, known in merged if known.model_copy(update={"name": intent.name}) == intent]
            if not same:
                merged.append(([choice.label], intent))
            elif choice.label not in same[0]:
                same[0].append(choice.label)
    return [(tuple(labels), intent) for labels, intent in merged]


Wanted = tuple[tuple[str, ...], QosIntent]
"""An intent, with the labels that ask for it."""


def verify_on_lab(
    choice: LabChoice,
    wanted: list[Wanted],
    graph: Graph,
    *,
    how: str,
    seed: int,
    every_port: bool,
    on_progress: OnProgress,
) -> list[Verified]:
    """Verify what a lab holds of some intents. how: the command that brings one there. Raises Problems when it holds
    none of them."""
    from dlcp.runner.lab.lab_runs import opened_for_probes

    verified: list[Verified] = []
    with opened_for_probes(choice, graph, how) as substrate, tempfile.TemporaryDirectory() as logs:
        missing = {labels: substrate.missing(intent) for labels, intent in wanted}
        if all(missing.values()):
            raise Problems([problem for problems in missing.values() for problem in problems])
        for labels, intent in wanted:
            if not missing[labels]:
                start_s = time.monotonic()
                rows = substrate.verify(
                    intent, seed=seed, every_port=every_port, logs=Path(logs), on_progress=on_progress
                )
                verified.append(Verified(labels, intent, tuple(rows), time.monotonic() - start_s))
    return verified


def verify_switches(ready: Ready, label: str | None, *, every_port: bool, on_progress: OnProgress) -> list[Verified]:
    """Verify the fabric of an experiment under each QoS intent. Raises Problem when the machine cannot."""
    todo = intents(ready, label)
    preflight_emulation()
    with needs_extra("emulate", "dlcp switch verify"):
        from dlcp.substrates.emulate.verify import verify_emulated
    experiment, verified = ready.experiment, []
    for number, (labels, intent) in enumerate(todo):
        start_s = time.monotonic()

        def on_part(share: float, text: str, number: int = number, name: str = labels[0]) -> None:
            on_progress((number + share) / len(todo), f"{name}: {text}" if len(todo) > 1 else text)

        settings = hosts_for([ready.schemes[labels[0]]], experiment.scaling)
        rows = verify_emulated(
            experiment.topology.graph,
            intent,
            seed=experiment.seed,
            host_settings=settings,
            every_port=every_port,
            on_progress=on_part,
        )
        verified.append(Verified(labels, intent, tuple(rows), time.monotonic() - start_s))
    return verified

"""What follows from a run before anything is started: scheme, transport, job, intent; and a result without outcome."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

from dlcp.agents.job_spec import JobSpec, plan_job
from dlcp.model.experiment import SchemeChoice, experiment_intent
from dlcp.model.host_settings import HostSettings
from dlcp.model.qos import QosIntent
from dlcp.model.result import RunResult
from dlcp.model.run import Run
from dlcp.model.scaling import regime
from dlcp.model.topology import Graph
from dlcp.model.transport.settings import TransportSettings
from dlcp.patterns import pattern_of
from dlcp.schemes import scheme_class
from dlcp.schemes.base import Scheme, hosts_for, settings_for
from dlcp.substrates import provenance
from dlcp.traffic.plan import TrafficSpec, host_rates_bps


@dataclass(frozen=True)
class TenantPlan:
    """A job that runs beside the measured one, with what its scheme makes of it."""

    scheme: SchemeChoice
    settings: TransportSettings
    spec: JobSpec


@dataclass(frozen=True)
class RunPlan:
    """A run with all that its scheme makes of it. settings: of the transport; hosts: of every host's network stack."""

    run: Run
    scheme: Scheme
    settings: TransportSettings
    hosts: HostSettings
    intent: QosIntent
    spec: JobSpec
    tenants: tuple[TenantPlan, ...] = ()

    @property
    def graph(self) -> Graph:
        """The fabric."""
        return self.run.experiment.topology.graph

    def cookie(self, secret: bytes = b"") -> int:
        """32 bits (wire.h), the same for all schemes of a job and repeat: TCP's source ports follow from it, so that
        flow-hash switches choose the same paths under each. secret: up to 64 bytes; without it anybody may know it."""
        text = f"{self.run.experiment.name}:{self.run.job_name}:{self.run.seed}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=4, key=secret).digest(), "big")

    @property
    def background_hosts(self) -> tuple[str, ...]:
        """Sources and sinks of the background, each once."""
        entries = self.run.experiment.background
        return tuple(dict.fromkeys(host for entry in entries for host in (*entry.sources, *entry.sinks)))

    @property
    def traffic(self) -> TrafficSpec:
        """The background."""
        experiment = self.run.experiment
        return TrafficSpec(
            entries=experiment.background,
            rates_bps=host_rates_bps(self.graph),
            seed=self.run.seed,
            horizon_s=experiment.time_limit_s,
            byte_scale=experiment.scaling.byte_scale,
            time_dilation=experiment.scaling.time_dilation,
        )

    def blank_result(self) -> RunResult:
        """The result, but for what happens."""
        run, experiment = self.run, self.run.experiment
        return RunResult(
            run_id=run.id,
            experiment=experiment.name,
            scheme=run.scheme.scheme,
            is_dlcp=self.scheme.is_dlcp,
            label=run.scheme.label,
            job=run.job_name,
            repeat=run.repeat,
            seed=run.seed,
            substrate=run.substrate,
            status="ok",
            run={
                "job": run.job.model_dump(mode="json", exclude=_OF_THE_FABRIC),
                "workload": run.workload.name,
                "background": [entry.model_dump(mode="json") for entry in experiment.background],
                "roles": {"workers": run.job.workers, "servers": run.job.servers},
                "drift_lasts": pattern_of(run.job.pattern).drift_lasts,
                "tenants": [tenant.job_name for tenant in run.tenants],
            },
            regime=regime(experiment, run.job, _rto_floors(run)),
            knobs=self.scheme.model_dump(mode="json"),
            topology=self.graph.model_dump(mode="json"),
            expect=[line.model_dump(mode="json") for line in experiment.expect],
            provenance=provenance.collect(run.seed),
        )


_OF_THE_FABRIC = {"port_buffer_bytes", "buffering"}
"""What a job may say of the switches' buffers: the regime tells it."""


def plan_run(run: Run) -> RunPlan:
    """Build a run's scheme and ask it everything."""
    experiment, scaling = run.experiment, run.experiment.scaling
    scheme = _scheme(run.scheme.scheme, run.scheme.knobs).for_job(run.job, run.workload)
    theirs = [_scheme(one.scheme.scheme, one.scheme.knobs).for_job(one.job, one.workload) for one in run.tenants]
    return RunPlan(
        run=run,
        scheme=scheme,
        settings=settings_for(scheme, scaling),
        hosts=hosts_for([scheme, *theirs], scaling),
        intent=experiment_intent(experiment, scheme.intent(experiment.port_buffer_bytes)),
        spec=plan_job(run.job_name, run.job, run.workload, scaling, run.seed),
        tenants=tuple(
            TenantPlan(
                one.scheme,
                settings_for(scheme, scaling),
                plan_job(one.job_name, one.job, one.workload, scaling, run.seed),
            )
            for one, scheme in zip(run.tenants, theirs, strict=True)
        ),
    )


def _scheme(name: str, knobs: dict[str, Any]) -> Scheme:
    return scheme_class(name).model_validate(knobs)


def _rto_floors(run: Run) -> dict[str, HostSettings]:
    """Host settings of the schemes that use kernel TCP, by label."""
    scaling = run.experiment.scaling
    schemes = {choice.label: _scheme(choice.scheme, choice.knobs) for choice in run.experiment.schemes}
    return {label: hosts_for([scheme], scaling) for label, scheme in schemes.items() if scheme.kind == "tcp"}

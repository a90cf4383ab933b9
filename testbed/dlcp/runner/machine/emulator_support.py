"""Refusal of an experiment that cannot be emulated on this machine: before anything is built, never ignored."""

from __future__ import annotations

from collections.abc import Mapping

from dlcp.errors import MachineCannot
from dlcp.model.experiment import Experiment, Scaling
from dlcp.model.loading.check_pfc import FASTEST_BPS
from dlcp.model.topology import Graph
from dlcp.model.units import show_duration, show_rate
from dlcp.schemes.base import Scheme
from dlcp.schemes.tcp import CONTROL_SYSCTL
from dlcp.substrates.emulate.capabilities import probe_congestion_control, probe_delays

ANY_SCALING = Scaling(lab_rate=1e10, byte_scale=1)
"""Scaling for a question that does not depend on it: the congestion control of a scheme."""


def require_supported(experiment: Experiment) -> None:
    """Raises MachineCannot with what is unsupported, why, and what to do.

    Without root the kernel cannot be asked for netem: then a plan may be made all the same, and `dlcp run` says that it
    needs root.
    """
    graph = experiment.topology.graph
    _require_delays(graph)
    if experiment.pfc is not None:
        _require_slow_links(graph)


def lacking(built: Mapping[str, Scheme]) -> dict[str, str]:
    """Label → why this machine's kernel cannot run that scheme. built: label → scheme."""
    whys = {label: why_not(scheme) for label, scheme in built.items()}
    return {label: why for label, why in whys.items() if why}


def why_not(scheme: Scheme) -> str:
    """Why this machine's kernel cannot run a scheme; empty when it can."""
    control = scheme.hosts(ANY_SCALING).sysctls.get(CONTROL_SYSCTL)
    probed = probe_congestion_control(control) if control else None
    return "" if probed is None or probed.ok else f"{probed.detail}: {probed.remedy}"


def _require_delays(graph: Graph) -> None:
    longest = max(graph.links, key=lambda link: link.delay_s)
    if not longest.delay_s:
        return
    probed = probe_delays()
    if probed.tried and not probed.ok:
        where = f"topology, {longest.a} – {longest.b}"
        text = f"unsupported: its delay of {show_duration(longest.delay_s)} needs the kernel's netem; {probed.detail}"
        raise MachineCannot(where, text, f"{probed.remedy}; or leave delays out")


def _require_slow_links(graph: Graph) -> None:
    fastest = max(graph.links, key=lambda link: link.rate_bps)
    if fastest.rate_bps > FASTEST_BPS:
        text = (
            f"unsupported: PFC is emulated by a loop of about a millisecond, which is too slow for {fastest.a} – "
            f"{fastest.b} with its {show_rate(fastest.rate_bps)}"
        )
        hint = f"links of at most {show_rate(FASTEST_BPS)}: lower rates and a larger byte_scale; or leave pfc out"
        raise MachineCannot("pfc", text, hint)

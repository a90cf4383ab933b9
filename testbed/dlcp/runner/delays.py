"""Link delays need netem, which not every kernel has: said before anything is built, never ignored."""

from __future__ import annotations

from dlcp.errors import MachineCannot
from dlcp.model.topology import Graph
from dlcp.model.units import show_duration
from dlcp.substrates.probe import probe_delays


def require_delays(graph: Graph) -> None:
    """Raises MachineCannot when links have delays and this machine has no netem.

    Without root it cannot be asked: then a plan may be made all the same, and `dlcp run` says that it needs root.
    """
    longest = max(graph.links, key=lambda link: link.delay_s)
    if not longest.delay_s:
        return
    found = probe_delays()
    if found.tried and not found.ok:
        where = f"topology, {longest.a} – {longest.b}"
        what = f"unsupported: its delay of {show_duration(longest.delay_s)} needs the kernel's netem; {found.detail}"
        raise MachineCannot(where, what, f"{found.remedy}; or leave delays out")

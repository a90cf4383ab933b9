"""Opens the transport that a scheme's settings name. Nothing falls back: a kind that cannot be opened is an error."""

from __future__ import annotations

from collections.abc import Callable

from dlcp.model.transport.settings import TransportSettings
from dlcp.transport.contract.endpoint import Endpoint

UDP_PORT = 5800
"""Where every host's DLCP engine is bound."""
TCP_PORT = 5900
"""Where a parameter server listens for its workers, and a rank of a ring for the one before it."""


def open_endpoint(
    rank: int,
    address: str,
    port: int,
    peers: dict[int, tuple[str, int]],
    settings: TransportSettings,
    *,
    job_cookie: int,
    connects_to: tuple[int, ...],
    link_rate_bps: float,
) -> Endpoint:
    """One rank's end of the transport `settings.kind`.

    peers: rank → (address, port) of every rank that this one exchanges messages with; connects_to: those that
    this end connects to, for a transport with connections; link_rate_bps: the host's line rate, for one that paces.
    Where settings.source_ports is above 1, `meet` must follow before anything is sent.
    KeyError for an unknown kind; TransportError or OSError when it cannot be opened.
    """
    opener = _OPENERS[settings.kind]
    return opener(rank, address, port, peers, settings, job_cookie, connects_to, link_rate_bps)


def _open_tcp(
    rank: int,
    address: str,
    port: int,
    peers: dict[int, tuple[str, int]],
    settings: TransportSettings,
    job_cookie: int,
    connects_to: tuple[int, ...],
    link_rate_bps: float,
) -> Endpoint:
    from dlcp.transport.tcp.endpoint import TcpEndpoint

    return TcpEndpoint(rank, address, port, peers, settings, job_cookie=job_cookie, connects_to=connects_to)


def _open_dlcp(
    rank: int,
    address: str,
    port: int,
    peers: dict[int, tuple[str, int]],
    settings: TransportSettings,
    job_cookie: int,
    connects_to: tuple[int, ...],
    link_rate_bps: float,
) -> Endpoint:
    from dlcp.transport.dlcp_endpoint import DlcpEndpoint

    cookie = job_cookie & 0xFFFF_FFFF  # what its header has room for
    # Where data leave from several ports, peers are known only when all have said theirs: see meet.
    known = peers if settings.source_ports == 1 else {}
    return DlcpEndpoint(
        rank,
        address,
        port,
        known,
        settings,
        job_cookie=cookie,
        link_rate_bps=link_rate_bps,
        source_ports=settings.source_ports,
    )


def source_ports(endpoint: Endpoint) -> list[int]:
    """The ports that an endpoint's data leave from besides its own; its peers must be told of them (meet)."""
    return list(getattr(endpoint, "source_ports", ()))


def meet(endpoint: Endpoint, peers: dict[int, tuple[str, int, list[int]]]) -> None:
    """Tell an endpoint that was opened with several source ports of its peers: rank → address, port, source ports."""
    from dlcp.transport.dlcp_endpoint import DlcpEndpoint

    assert isinstance(endpoint, DlcpEndpoint), "only DLCP has source ports"
    for rank, (address, port, others) in sorted(peers.items()):
        endpoint.add_peer(rank, address, port, others)


_Opener = Callable[
    [int, str, int, dict[int, tuple[str, int]], TransportSettings, int, tuple[int, ...], float], Endpoint
]
_OPENERS: dict[str, _Opener] = {"tcp": _open_tcp, "dlcp": _open_dlcp}

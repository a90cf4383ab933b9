"""Opens the transport that a scheme's settings name. Nothing falls back: a kind that cannot be opened is an error."""

from __future__ import annotations

from collections.abc import Callable

from dlcp.model.workload import TransportSettings
from dlcp.transport.endpoint import Endpoint

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
    from dlcp.transport.tcp import TcpEndpoint

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
    from dlcp.transport.engine import DlcpEndpoint

    cookie = job_cookie & 0xFFFF_FFFF  # what its header has room for
    return DlcpEndpoint(rank, address, port, peers, settings, job_cookie=cookie, link_rate_bps=link_rate_bps)


_Opener = Callable[
    [int, str, int, dict[int, tuple[str, int]], TransportSettings, int, tuple[int, ...], float], Endpoint
]
_OPENERS: dict[str, _Opener] = {"tcp": _open_tcp, "dlcp": _open_dlcp}

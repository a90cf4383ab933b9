"""Endpoints of every transport, for tests of what is alike over all of them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from loopback import DLCP, TCP, ranks

from dlcp.model.transport.settings import TransportSettings
from dlcp.transport.contract.endpoint import Endpoint
from dlcp.transport.in_process import InProcessNetwork


@pytest.fixture(params=[TCP, DLCP, None], ids=["tcp", "dlcp", "in-process"])
def pair(request: pytest.FixtureRequest) -> Iterator[list[Endpoint]]:
    """A worker and a server."""
    settings: TransportSettings | None = request.param
    if settings is None:
        yield list(InProcessNetwork(range(2)).endpoints.values())
        return
    with ranks(settings, 1, 1) as endpoints:
        yield endpoints

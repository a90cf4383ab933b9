"""Endpoints of either transport, for tests of what is alike over both."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from loopback import DLCP, TCP, ranks

from dlcp.transport.contract.endpoint import Endpoint


@pytest.fixture(params=[TCP, DLCP], ids=["tcp", "dlcp"])
def pair(request: pytest.FixtureRequest) -> Iterator[list[Endpoint]]:
    """A worker and a server."""
    with ranks(request.param, 1, 1) as endpoints:
        yield endpoints

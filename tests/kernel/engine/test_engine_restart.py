"""An engine that is started again at the same port with the same cookie, over loopback."""

from __future__ import annotations

import numpy as np
import pytest

from dlcp.model.transport.settings import TransportSettings
from dlcp.transport.contract.endpoint import Leg, MessageKey, TransportError
from dlcp.transport.dlcp_endpoint import DlcpEndpoint

ELEMENTS = 5_000
LOOPBACK = "127.0.0.1"
WITHIN_S = 5.0


def endpoint(rank: int, port: int = 0) -> DlcpEndpoint:
    settings = TransportSettings(kind="dlcp")
    found = DlcpEndpoint(rank, LOOPBACK, port, {}, settings, job_cookie=77, link_rate_bps=1e9)
    found.declare(0, ELEMENTS, queue=3)
    return found


def test_a_restarted_sender__is_told_so_and_not_that_its_data_arrived() -> None:
    with endpoint(1) as receiver:
        with endpoint(0) as first:
            port = first.port
            first.add_peer(1, LOOPBACK, receiver.port)
            receiver.add_peer(0, LOOPBACK, port)
            got = np.zeros(ELEMENTS, np.float32)
            receiver.receive(0, MessageKey(0, 0, Leg.PUSH), got)
            first.send(1, MessageKey(0, 0, Leg.PUSH), np.ones(ELEMENTS, np.float32))
            assert first.wait(WITHIN_S)
            assert receiver.wait(WITHIN_S)
        with endpoint(0, port) as second:
            second.add_peer(1, LOOPBACK, receiver.port)
            second.send(1, MessageKey(0, 0, Leg.PUSH), np.full(ELEMENTS, 99, np.float32))
            with pytest.raises(TransportError, match="rank 1 knows this rank from an earlier start"):
                second.wait(WITHIN_S)
        with pytest.raises(TransportError, match="rank 0 was started again"):
            receiver.wait(WITHIN_S)
        assert (got == 1).all()

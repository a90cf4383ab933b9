"""What breaks under an engine: a peer that is killed or stalls in mid-tensor, a link that is gone for a while."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import numpy as np
import pytest
from two_hosts import NEEDS_ROOT, WITHIN_S, hosts
from waits import wait_until

from dlcp.model.transport.settings import TransportSettings
from dlcp.transport.contract.endpoint import Leg, MessageKey, TransportError
from dlcp.transport.dlcp_endpoint import DlcpEndpoint

LOOPBACK = "127.0.0.1"
ELEMENTS = 500_000
SLOW_BPS = 2e7
"""The tensor takes 0.8 s: whatever happens after the first packet happens in mid-tensor."""
SILENCE_S = 0.5
KEY = MessageKey(3, 0, Leg.PUSH)
SENDER = """
import sys, time
import numpy as np
from dlcp.model.transport.settings import TransportSettings
from dlcp.transport.contract.endpoint import Leg, MessageKey
from dlcp.transport.dlcp_endpoint import DlcpEndpoint
port, elements, rate = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
settings = TransportSettings(kind="dlcp")
with DlcpEndpoint(1, "127.0.0.1", 0, {0: ("127.0.0.1", port)}, settings, job_cookie=5, link_rate_bps=rate) as end:
    end.declare(0, elements, queue=3)
    print(end.port, flush=True)
    sys.stdin.readline()
    end.send(0, MessageKey(3, 0, Leg.PUSH), np.ones(elements, np.float32))
    end.wait(60)
"""


def endpoint(rank: int, address: str = LOOPBACK, *, rate_bps: float = SLOW_BPS, silence_s: float) -> DlcpEndpoint:
    settings = TransportSettings(kind="dlcp")
    made = DlcpEndpoint(rank, address, 0, {}, settings, job_cookie=5, link_rate_bps=rate_bps, silence_s=silence_s)
    made.declare(0, ELEMENTS, queue=3)
    return made


@contextmanager
def sending_process(receiver: DlcpEndpoint) -> Iterator[subprocess.Popen[str]]:
    """Rank 1 in a process of its own, in the middle of sending the tensor to rank 0."""
    argv = [sys.executable, "-c", SENDER, str(receiver.port), str(ELEMENTS), str(SLOW_BPS)]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        try:
            receiver.add_peer(1, LOOPBACK, int(child.stdout.readline()))
            receiver.receive(1, KEY, np.empty(ELEMENTS, np.float32))
            child.stdin.write("\n")
            child.stdin.flush()
            wait_until(lambda: receiver.statistics()["data_packets_received"] > 0, "data come", WITHIN_S, every_s=0.002)
            yield child
        finally:
            child.kill()


@pytest.mark.parametrize("stop", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stalled"])
def test_a_peer_that_ends_in_mid_tensor_is_an_error_that_names_rank_tensor_and_what_is_missing(
    stop: signal.Signals,
) -> None:
    with endpoint(0, silence_s=SILENCE_S) as receiver:
        with sending_process(receiver) as child:
            child.send_signal(stop)
            with pytest.raises(
                TransportError, match=r"rank 1 is gone.*tensor 0 of iteration 3 \(push\): \d+ of 1389 packets have not"
            ):
                receiver.wait(WITHIN_S)
        assert receiver.statistics()["data_packets_received"] < 1389, "it was over before"


@NEEDS_ROOT
def test_a_link_that_is_down_for_a_second_delays_a_tensor_and_no_more() -> None:
    data, got = np.arange(ELEMENTS, dtype=np.float32), np.empty(ELEMENTS, np.float32)
    with hosts() as (here, there):
        sender = here.do(lambda: endpoint(0, "198.18.0.1", silence_s=10))
        receiver = there.do(lambda: endpoint(1, "198.18.0.2", silence_s=10))
        with sender, receiver:
            sender.add_peer(1, "198.18.0.2", receiver.port)
            receiver.add_peer(0, "198.18.0.1", sender.port)
            receiver.receive(0, KEY, got)
            sender.send(1, KEY, data)
            wait_until(lambda: receiver.statistics()["data_packets_received"] > 0, "data come", WITHIN_S, every_s=0.002)
            here.ip("link set wire0 down")
            time.sleep(1)
            before = receiver.statistics()["data_packets_received"]
            here.ip("link set wire0 up")
            assert before < 1389, "it was over before"
            assert len(receiver.wait(WITHIN_S)) == 1, receiver.pending()
            assert len(sender.wait(WITHIN_S)) == 1, sender.pending()
            assert sender.statistics()["send_errors"] > 0
    assert np.array_equal(got, data)


# R99
@NEEDS_ROOT
def test_a_path_for_smaller_packets_is_refused_with_its_size_and_counted_when_it_shrinks_later() -> None:
    with hosts() as (here, there):
        there.ip("link set wire0 mtu 1400")
        here.ip("link set wire0 mtu 1400")
        with here.do(lambda: endpoint(0, "198.18.0.1", silence_s=SILENCE_S)) as sender:
            with pytest.raises(TransportError, match="carries packets of 1400 bytes, DLCP's have 1500"):
                sender.add_peer(1, "198.18.0.2", 9)
            here.ip("link set wire0 mtu 1500")
            there.ip("link set wire0 mtu 1500")
            with there.do(lambda: endpoint(1, "198.18.0.2", silence_s=10)) as receiver:
                sender.add_peer(1, "198.18.0.2", receiver.port)
                receiver.add_peer(0, "198.18.0.1", sender.port)
                receiver.receive(0, KEY, np.empty(ELEMENTS, np.float32))
                here.ip("link set wire0 mtu 1400")
                sender.send(1, KEY, np.ones(ELEMENTS, np.float32))
                wait_until(lambda: sender.statistics()["too_large"] > 0, "a packet is refused", WITHIN_S, every_s=0.002)
                assert sender.statistics()["too_large"] <= sender.statistics()["data_packets_sent"]

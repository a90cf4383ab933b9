"""Drives the two ends of a transport bench: opens them, moves one batch, hands back what both measured."""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import Any

from dlcp.bench.channel import Channel
from dlcp.bench.transport.options import TransportOptions
from dlcp.errors import ExitCode, Problem
from dlcp.model.transport.settings import TransportSettings
from dlcp.transport._native import lib
from dlcp.transport.contract.endpoint import Bound

RECEIVER_RANK = 0
SETUP_WITHIN_S = 60.0
_SLACK_S = 30.0
_SLOWEST_BPS = 20e6
"""A batch that moves slower than this is given up."""
_PYTHON_BYTES = 40_000_000
"""What the reference moves in a repeat: about 28 000 packets, half a second."""


class EndFailed(Problem):
    """An end could not do what it was told."""

    def __init__(self, side: str, what: str) -> None:
        super().__init__(side, what, exit_code=ExitCode.RUN_FAILED)


@dataclass
class Batch:
    """What one batch of messages took. Fields as endpoint_process.py reports them."""

    sender: dict[str, Any]
    receiver: dict[str, Any]


class Pair:
    """A sender's end with one rank a sender, and a receiver's end with one rank."""

    def __init__(
        self, sender: Channel, receiver: Channel, addresses: dict[str, str], options: TransportOptions
    ) -> None:
        self._channels = {"sender": sender, "receiver": receiver}
        self._addresses = addresses
        self._options = options
        self._cookie = 0
        self._next = 0
        self._plain: dict[str, tuple[str, int]] = {}

    def open(self, bound: Bound) -> None:
        """Fresh endpoints at both ends, with this bound; a job of its own, so that nothing of another counts."""
        options = self._options
        self._cookie = secrets.randbits(32)
        self._next = 0
        settings = TransportSettings(
            kind="dlcp",
            congestion_control=options.congestion_control,
            stop=options.stop,
            selective_drop=options.selective_drop,
        )
        found = {}
        for side, ranks in (("receiver", [RECEIVER_RANK]), ("sender", self._senders)):
            found[side] = self._call(
                side,
                "open",
                ranks=ranks,
                address=self._addresses[side],
                cookie=self._cookie,
                elements=options.elements,
                settings=settings.model_dump(mode="json"),
                rate_bps=options.rate_bps,
                queue=options.queue,
                seed=options.seed,
                segmentation=options.segmentation,
                dtype=options.dtype,
                bound=[bound.bytes_share, bound.energy_share],
            )
        for side, other in (("receiver", "sender"), ("sender", "receiver")):
            there = found[other]
            peers = {rank: (there["address"], port) for rank, port in there["ports"].items()}
            self._call(side, "peers", peers=peers)
            self._plain[other] = (there["address"], there["plain_port"])

    def close(self) -> None:
        """Endpoints gone at both ends."""
        for side in self._channels:
            self._call(side, "close")

    def move(self, count: int, *, check: bool = False) -> Batch:
        """Every sender sends `count` messages; check: their values are compared."""
        options = self._options
        volume_bits = 8 * sum(options.sizes_bytes) / len(options.sizes_bytes) * count * options.senders
        limit_s = _SLACK_S + volume_bits / min(options.rate_bps, _SLOWEST_BPS)
        first, self._next = self._next, self._next + count
        ahead = options.receives_ahead
        self._ask(
            "receiver",
            "receive",
            peers=self._senders,
            first=first,
            count=count,
            ahead=ahead,
            check=check,
            limit_s=limit_s,
        )
        self._answer("receiver", SETUP_WITHIN_S)
        self._ask(
            "sender", "send", to=RECEIVER_RANK, first=first, count=count, in_flight=options.in_flight, limit_s=limit_s
        )
        return Batch(self._answer("sender", limit_s + _SLACK_S), self._answer("receiver", limit_s + _SLACK_S))

    def move_in_python(self) -> Batch:
        """The pure-Python pair moves its data between the same two processes."""
        messages = max(1, round(_PYTHON_BYTES / max(self._options.sizes_bytes)))
        self._ask("receiver", "python_receive", cookie=self._cookie)
        self._answer("receiver", SETUP_WITHIN_S)
        self._ask("sender", "python_send", peer=self._plain["receiver"], cookie=self._cookie, messages=messages)
        return Batch(self._answer("sender", SETUP_WITHIN_S), self._answer("receiver", SETUP_WITHIN_S))

    @property
    def _senders(self) -> list[int]:
        return list(range(RECEIVER_RANK + 1, RECEIVER_RANK + 1 + self._options.senders))

    def _call(self, side: str, command: str, **arguments: Any) -> dict[str, Any]:
        self._ask(side, command, **arguments)
        return self._answer(side, SETUP_WITHIN_S)

    def _ask(self, side: str, command: str, **arguments: Any) -> None:
        self._channels[side].send({"do": command, **arguments})

    def _answer(self, side: str, within_s: float) -> dict[str, Any]:
        answer = self._channels[side].receive(within_s)
        if "error" in answer:
            raise EndFailed(side, str(answer["error"]))
        return answer


def payload_share() -> float:
    """Of a link's bits, those that are gradients when every packet is full: 1440 of 1514."""
    return int(lib.DLCP_PAYLOAD_BYTES) / (int(lib.DLCP_PAYLOAD_BYTES) + int(lib.DLCP_FRAME_OVERHEAD_BYTES))

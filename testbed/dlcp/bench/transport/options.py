"""What a transport bench is asked for: read from the command line, all problems at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

from dlcp.errors import Problem, Problems
from dlcp.model import units
from dlcp.transport.contract.endpoint import Dtype
from dlcp.transport.contract.values import element_bytes

Against = Literal["none", "python", "reliable"]
MOST_SENDERS = 256
MOST_BYTES_IN_MEMORY = 1_000_000_000
"""Of receive buffers."""


@dataclass(frozen=True)
class TransportOptions:
    """One transport bench.

    sizes_bytes: of the tensors, sent in turn. count: messages a sender and repeat. rate_bps: what each sender paces
    itself to, and the shaped port's rate. loss: share of the packets dropped at random, by direction: to the
    receiver (data), to the sender (control). buffer_bytes: of the shaped port; 0 = one bandwidth-delay product of the
    round trip measured there. against: what runs in turn with it: the pure-Python pair, or DLCP's own bound 0.
    """

    sizes_bytes: tuple[int, ...] = (1_000_000,)
    count: int = 200
    in_flight: int = 2
    rate_bps: float = 40e9
    loss: float = 0.0
    loss_back: float = 0.0
    bound: float = 0.0
    energy_bound: float = 1.0
    dtype: Dtype = "float32"
    stop: Literal["lazy", "eager"] = "lazy"
    congestion_control: str = "timely"
    selective_drop: Literal["off", "wred", "ect"] = "off"
    queue: int = 3
    senders: int = 1
    buffer_bytes: int = 0
    shaped: bool = False
    segmentation: bool = True
    repeats: int = 5
    against: Against = "none"
    namespaces: bool = False
    seed: int = 1

    def check(self) -> None:
        """Raises Problems with everything that is wrong."""
        found = [
            Problem(where, what, hint)
            for wrong, where, what, hint in (
                (not self.sizes_bytes, "--size", "no size is given", "such as --size 1MB"),
                (
                    any(size < self._element_bytes or size % self._element_bytes for size in self.sizes_bytes),
                    "--size",
                    f"a tensor is a whole number of {self.dtype}, {self._element_bytes} bytes each",
                    "such as --size 1MB",
                ),
                (self.count < 1, "--count", f"{self.count} messages", "1 or more"),
                (self.in_flight < 1, "--in-flight", f"{self.in_flight} messages", "1 or more"),
                (self.repeats < 1, "--repeats", f"{self.repeats} repeats", "1 or more; 5 for a figure to quote"),
                (not 1 <= self.senders <= MOST_SENDERS, "--senders", f"{self.senders} senders", f"1 to {MOST_SENDERS}"),
                (not 0 <= self.queue <= 6, "--queue", f"queue {self.queue}", "0 to 6; 7 is for control packets"),
                (self.loss >= 1 or self.loss_back >= 1, "--loss", "all packets lost: nothing would end", "below 100 %"),
                (
                    self.against == "reliable" and self.bound == 0,
                    "--against reliable",
                    "compares a bound with bound 0, and the bound is 0",
                    "add --bound, such as --bound '10 %'",
                ),
                (
                    self.against == "python" and self.dtype != "float32",
                    "--against python",
                    "moves float32 only",
                    "leave --dtype out",
                ),
                (
                    self.against == "python" and self.senders > 1,
                    "--against python",
                    "is a pair: one sender, one receiver",
                    "leave --senders out",
                ),
                (
                    self._buffer_bytes() > MOST_BYTES_IN_MEMORY,
                    "--size",
                    "the receive buffers would take more than 1 GB",
                    "make --size, --senders or --in-flight smaller",
                ),
            )
            if wrong
        ]
        if found:
            raise Problems(found)

    @property
    def receives_ahead(self) -> int:
        """Receives that stand registered for each sender: enough that no message comes before its own.

        With several senders the receiver's thread may wait for a core while the engines, which outrank it, are busy.
        """
        least = 2 * self.in_flight
        room = MOST_BYTES_IN_MEMORY // max(1, max(self.sizes_bytes) * self.senders)
        return least if self.senders == 1 else max(least, min(8 * self.in_flight, room))

    def _buffer_bytes(self) -> int:
        """What the receiver must hold at least: twice what is in flight, of the largest tensor."""
        return max(self.sizes_bytes, default=0) * self.senders * 2 * self.in_flight

    @property
    def elements(self) -> list[int]:
        """Values of each tensor."""
        return [size // self._element_bytes for size in self.sizes_bytes]

    @property
    def _element_bytes(self) -> int:
        return element_bytes(self.dtype)


def quantity(option: str, parse: Callable[[object], Any], text: str) -> Any:
    """A quantity from the command line. Problem names the option."""
    try:
        return parse(text)
    except units.QuantityError as error:
        raise Problem(option, error.what, error.hint) from error

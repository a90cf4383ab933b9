"""What a user may choose, by argument or by environment variable DLCP_<NAME>; an argument wins."""

from __future__ import annotations

import math
import os
from collections.abc import Callable
from dataclasses import asdict, dataclass, field
from typing import Any, Literal, TypeVar

from dlcp.model.units import parse_fraction, parse_rate_bps
from dlcp.model.workload import TransportSettings
from dlcp.transport.endpoint import Bound

GRADIENT_LOSS_BOUND = 0.10
"""What may be lost where only gradients travel (both papers' evaluations; facts: "quality")."""
_LOCAL = ("address", "link_rate_bps", "strict")
"""Options that may differ from rank to rank."""
_Value = TypeVar("_Value")


def _from_environment(name: str, default: _Value, parse: Callable[[str], Any] = str) -> _Value:
    """A field whose default is what DLCP_<NAME> says when the options are made, else `default`."""

    def read() -> Any:
        text = os.environ.get(variable := f"DLCP_{name}")
        if text is None:
            return default
        try:
            return parse(text)
        except ValueError as error:
            raise ValueError(f"{variable}={text!r}: {error}") from None

    found: _Value = field(default_factory=read)
    return found


def _truth(text: str) -> bool:
    if text.lower() not in ("0", "1", "false", "true", "no", "yes"):
        raise ValueError("write 0 or 1")
    return text.lower() in ("1", "true", "yes")


@dataclass(frozen=True)
class DlcpOptions:
    """How a group, a hook or a DlcpOptimizer uses DLCP. All ranks must choose the same, but for the last three.

    loss_bound (DLCP_LOSS_BOUND): the share of the bytes of one all-reduce, or of one gradient on its way to its server,
    that may stay missing. None: 0 for the backend, whose all_reduce also carries metrics that must be exact;
    GRADIENT_LOSS_BOUND for the hook and DlcpOptimizer, which carry gradients only. Nothing is lost on purpose: the
    bound saves waiting for what the network lost. What has fewer than 8 packets is never lossy.
    energy_bound (DLCP_ENERGY_BOUND): the same as a share of Σ g²; 1 is no limit. Both must hold.
    holes (DLCP_HOLES): what is lost counts as `zero`, or the sum is made up for by `rescale`.
    stop (DLCP_STOP): `lazy` never ends a message before its sender has sent everything once; `eager` does.
    congestion_control (DLCP_CONGESTION_CONTROL), selective_drop (DLCP_SELECTIVE_DROP): see the transport.
    queues (DLCP_QUEUES): how many switch queues the layers are spread over, the front layers in the highest.
    silence_s (DLCP_SILENCE): a rank that owes something and is silent for so long is gone.
    address (DLCP_ADDRESS): this rank's IPv4 address; None: of the interface that leads to the store's host.
    link_rate_bps (DLCP_LINK_RATE, such as "25 Gbit/s"): of this host's link; None: what its interface says.
    strict (DLCP_STRICT): an all_reduce of floats by sum or avg that cannot go over DLCP is an error, not gloo's.

    ValueError when a value is impossible.
    """

    loss_bound: float | None = _from_environment("LOSS_BOUND", None, parse_fraction)
    energy_bound: float = _from_environment("ENERGY_BOUND", 1.0, parse_fraction)
    holes: Literal["zero", "rescale"] = _from_environment("HOLES", "zero")
    stop: Literal["lazy", "eager"] = _from_environment("STOP", "lazy")
    congestion_control: str = _from_environment("CONGESTION_CONTROL", "timely")
    selective_drop: Literal["wred", "ect", "off"] = _from_environment("SELECTIVE_DROP", "wred")
    queues: int = _from_environment("QUEUES", 5, int)
    silence_s: float = _from_environment("SILENCE", 10.0, float)
    address: str | None = _from_environment("ADDRESS", None)
    link_rate_bps: float | None = _from_environment("LINK_RATE", None, parse_rate_bps)
    strict: bool = _from_environment("STRICT", False, _truth)

    def __post_init__(self) -> None:
        self.bound(0.0)
        if self.holes not in ("zero", "rescale"):
            raise ValueError(f"holes are 'zero' or 'rescale', not {self.holes!r}")
        if not (math.isfinite(self.silence_s) and self.silence_s > 0):
            raise ValueError(f"silence_s must be above 0, not {self.silence_s}")
        if self.link_rate_bps is not None and not self.link_rate_bps > 0:
            raise ValueError(f"a link rate must be above 0 bit/s, not {self.link_rate_bps}")
        self.settings(0.0)

    def bound(self, default_loss: float) -> Bound:
        """What may be lost; default_loss: where loss_bound is None."""
        return Bound(default_loss if self.loss_bound is None else self.loss_bound, self.energy_bound)

    def settings(self, default_loss: float) -> TransportSettings:
        """The same as the transport knows it."""
        return TransportSettings(
            kind="dlcp",
            congestion_control=self.congestion_control,
            loss_bound=self.bound(default_loss).bytes_share,
            stop=self.stop,
            selective_drop=self.selective_drop,
            priority_queues=self.queues,
        )

    def agreed(self) -> dict[str, Any]:
        """What must be the same at every rank."""
        return {name: value for name, value in asdict(self).items() if name not in _LOCAL}

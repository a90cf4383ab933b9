"""QoS intent → what the emulated switch's maps hold, and back: what a port really does with an intent."""

from __future__ import annotations

from typing import Any

from dlcp.errors import Problem
from dlcp.model.qos import PRECEDENCES, QUEUES, DropProfile, QosIntent
from dlcp.switches.layout import (
    CERTAIN_Q32,
    FLOW_HASH,
    PER_PACKET,
    PROFILE_ACTIVE,
    PROFILE_MARK,
    AqmPort,
    AqmProfile,
)

_LARGEST_BYTES = 2**32 - 1

LOAD_BALANCING = {"flow-hash": FLOW_HASH, "per-packet": PER_PACKET}


def render(intent: QosIntent) -> AqmPort:
    """The value of every port's `aqm`.

    Sizes are taken as they are; a probability is rounded to 2^-32. Raises Problem when the queues reserve more
    than the port has (then their reserved bytes could not all be kept), or a size is beyond 32 bits.
    """
    reserved_bytes = sum(queue.reserved_bytes for queue in intent.queues.values())
    if reserved_bytes > intent.port_buffer_bytes:
        raise Problem(
            f"QoS intent {intent.name}",
            f"its queues reserve {reserved_bytes} B, the port's buffer is {intent.port_buffer_bytes} B",
            "reserve less, or enlarge port_buffer",
        )
    port = AqmPort(buffer_bytes=_size(intent, intent.port_buffer_bytes))
    for number in range(QUEUES):
        queue = intent.queue(number)
        port.queues[number].reserved_bytes = queue.reserved_bytes
        for precedence, profile in enumerate(queue.profiles):
            if profile is not None:
                port.queues[number].profiles[precedence] = _profile(intent, profile)
    return port


def effective(port: AqmPort) -> dict[str, Any]:
    """What a port's map value means, in the words of the intent; queues that are plain tail drop are left out."""
    queues: dict[str, Any] = {}
    for number in range(QUEUES):
        queue = port.queues[number]
        profiles = [_described(queue.profiles[precedence]) for precedence in range(PRECEDENCES)]
        if queue.reserved_bytes or any(profiles):
            queues[str(number)] = {"reserved_bytes": queue.reserved_bytes, "profiles": profiles}
    return {"port_buffer_bytes": port.buffer_bytes, "queues": queues}


def _profile(intent: QosIntent, profile: DropProfile) -> AqmProfile:
    return AqmProfile(
        probability_q32=round(profile.probability * CERTAIN_Q32),
        minimum_bytes=_size(intent, profile.minimum_bytes),
        maximum_bytes=_size(intent, profile.maximum_bytes),
        flags=PROFILE_ACTIVE | (PROFILE_MARK if profile.mark else 0),
    )


def _described(profile: AqmProfile) -> dict[str, Any] | None:
    if not profile.flags & PROFILE_ACTIVE:
        return None
    return {
        "minimum_bytes": profile.minimum_bytes,
        "maximum_bytes": profile.maximum_bytes,
        "probability": profile.probability_q32 / CERTAIN_Q32,
        "mark": bool(profile.flags & PROFILE_MARK),
    }


def _size(intent: QosIntent, size_bytes: int) -> int:
    if size_bytes > _LARGEST_BYTES:
        raise Problem(f"QoS intent {intent.name}", f"{size_bytes} B is more than a switch port counts (2^32 - 1)")
    return size_bytes

"""QoS intent → what the emulated switch's maps hold, and back: what a port really does with an intent."""

from __future__ import annotations

from typing import Any

from dlcp.errors import Problem
from dlcp.model.qos import PRECEDENCES, QUEUES, DropProfile, QosIntent
from dlcp.switches.bpf.map_structs import (
    CERTAIN_Q32,
    FLOW_HASH,
    FLOWLET,
    PER_PACKET,
    PROFILE_ACTIVE,
    PROFILE_MARK,
    ROUND_ROBIN,
    UNLIMITED_BYTES,
    AqmPort,
    AqmProfile,
    AqmQueue,
)

_LARGEST_BYTES = 2**32 - 1

_ALPHA_UNIT = 256
"""Of alpha_q8."""

LOAD_BALANCING = {"flow-hash": FLOW_HASH, "per-packet": PER_PACKET, "round-robin": ROUND_ROBIN, "flowlet": FLOWLET}


def render(intent: QosIntent) -> AqmPort:
    """The value of every port's `aqm`.

    Sizes are taken as they are; a probability is rounded to 2^-32, an alpha to 1/256. Raises Problem when the queues
    reserve more than the port has (then their reserved bytes could not all be kept), one reserves more than its limit,
    an alpha rounds to nothing, a size is beyond 32 bits, or it asks for what only switches of a lab have.
    """
    _refuse_what_only_hardware_has(intent)
    reserved_bytes = intent.reserved_bytes
    if reserved_bytes > intent.port_buffer_bytes:
        raise Problem(
            f"QoS intent {intent.name}",
            f"its queues reserve {reserved_bytes} B, the port's buffer is {intent.port_buffer_bytes} B",
            "reserve less, or enlarge port_buffer",
        )
    buffer_bytes = _size(intent, intent.port_buffer_bytes)
    _size(intent, intent.shared_buffer_bytes or 0)
    port = AqmPort(buffer_bytes=buffer_bytes, common_bytes=buffer_bytes - reserved_bytes)
    for number in range(QUEUES):
        port.queues[number] = _queue(intent, number)
    return port


def _refuse_what_only_hardware_has(intent: QosIntent) -> None:
    """Nothing that an intent says may stay undone unseen."""
    lacking = {
        "dscp: its codepoints are those of codepoint.h": bool(intent.dscp),
        "pfc.headroom: it pauses with a port's whole buffer to spare": bool(intent.pfc and intent.pfc.headroom_bytes),
        "pfc.watchdog": bool(intent.pfc and intent.pfc.watchdog_s),
    }
    for what, asked in lacking.items():
        if asked:
            raise Problem(f"QoS intent {intent.name}", f"the emulated switch has no {what}", "leave it out")


def averages(port: AqmPort) -> bool:
    """True when some queue's profiles look at an average."""
    return any(queue.averaging for queue in port.queues)


def effective(port: AqmPort) -> dict[str, Any]:
    """What a port's map value means, in the words of the intent; a queue's words that say nothing are left out, and so
    are queues that are plain tail drop."""
    queues = {str(number): _queue_in_words(port.queues[number]) for number in range(QUEUES)}
    plain = _queue_in_words(AqmQueue(limit_bytes=UNLIMITED_BYTES, alpha_q8=_ALPHA_UNIT))
    return {
        "port_buffer_bytes": port.buffer_bytes,
        "queues": {number: words for number, words in queues.items() if words != plain},
    }


def _queue(intent: QosIntent, number: int) -> AqmQueue:
    queue = intent.queue(number)
    limit_bytes = UNLIMITED_BYTES if queue.limit_bytes is None else _size(intent, queue.limit_bytes)
    alpha, reserved_bytes = intent.alpha_of(number), intent.reserved_of(number)
    alpha_q8 = round(alpha * _ALPHA_UNIT)
    if reserved_bytes > limit_bytes:
        what = f"queue {number} reserves {reserved_bytes} B, its limit is {limit_bytes} B"
        raise Problem(f"QoS intent {intent.name}", what, "a queue cannot hold what it reserves beyond its limit")
    if alpha_q8 == 0:
        what = f"alpha {alpha} of queue {number} is below half of 1/{_ALPHA_UNIT}, the smallest step"
        raise Problem(f"QoS intent {intent.name}", what, f"alpha is counted in 1/{_ALPHA_UNIT}")
    made = AqmQueue(
        reserved_bytes=reserved_bytes, limit_bytes=limit_bytes, alpha_q8=alpha_q8, averaging=queue.averaging
    )
    for precedence, profile in enumerate(queue.profiles):
        if profile is not None:
            made.profiles[precedence] = _profile(intent, profile)
    return made


def _queue_in_words(queue: AqmQueue) -> dict[str, Any]:
    words: dict[str, Any] = {
        "reserved_bytes": queue.reserved_bytes,
        "profiles": [_described(queue.profiles[precedence]) for precedence in range(PRECEDENCES)],
    }
    if queue.limit_bytes != UNLIMITED_BYTES:
        words["limit_bytes"] = queue.limit_bytes
    if queue.averaging:
        words["averaging"] = queue.averaging
    if queue.alpha_q8 != _ALPHA_UNIT:
        words["alpha"] = queue.alpha_q8 / _ALPHA_UNIT
    return words


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

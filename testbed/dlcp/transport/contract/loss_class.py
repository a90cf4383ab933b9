"""Loss classes: what of a message may be lost, and what a hole in it then counts as."""

from __future__ import annotations

from enum import Enum


class LossClass(Enum):
    """The class of a message. The pattern that sends it chooses; both its ends keep to it.

    MUST_ARRIVE: nothing may be lost, whatever a bound says, and none of its packets is tagged to be dropped, not even
    by a scheme that tags what is reliable (TransportSettings.tag_all).
    RELIABLE: nothing may be lost.
    BOUNDED: a bounded share may be lost. A hole counts as zero, or the mean is over what arrived: right for
    differences, such as gradients, wrong for values, such as parameters or activations.
    BOUNDED_LAST: a bounded share may be lost. A hole keeps what the receiver held before.
    """

    MUST_ARRIVE = "must-arrive"
    RELIABLE = "reliable"
    BOUNDED = "bounded"
    BOUNDED_LAST = "bounded-last"

    @property
    def may_lose(self) -> bool:
        """True if anything may be lost."""
        return self in (LossClass.BOUNDED, LossClass.BOUNDED_LAST)


def unless_few(wanted: LossClass, packet_count: int, below_packets: int) -> LossClass:
    """Return the class wanted, or MUST_ARRIVE for fewer packets than below_packets, of which a bounded share is less
    than one (TransportSettings.must_arrive_below_packets)."""
    return LossClass.MUST_ARRIVE if packet_count < below_packets else wanted

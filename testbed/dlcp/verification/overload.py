"""Selective drop under real overload: what may be dropped goes, what is protected stays."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from dlcp.model.frames import FRAME_BYTES
from dlcp.model.qos import PRECEDENCES, QUEUES, QosIntent
from dlcp.transport.contract.codepoint import ECT0, NOT_ECT, tos_of_queue
from dlcp.verification.placement import Station
from dlcp.verification.prober import Arrivals, Prober, Send
from dlcp.verification.rows import Row, Verdict, starved

CHECK = "selective drop"
Floats = npt.NDArray[np.float64]
SHARE = 0.8
"""Share of the port's rate that each of the two senders offers."""
SECONDS = 0.3
LEAST_PACKETS = 600
PROTECTED_LOSS = 0.001
TOLERANCE = 0.08
"""Tolerance of the droppable packets' lost share: where the overload begins and ends, the buffer fills and drains."""


@dataclass(frozen=True)
class Pairing:
    """Two kinds of packets of one queue, distinguished by precedence or by ECN."""

    queue: int
    protected: str
    droppable: str
    protected_tos: int
    droppable_tos: int

    @property
    def what(self) -> str:
        """Subject of its row."""
        return f"queue {self.queue}: {self.droppable}, not {self.protected.split()[-1]}"


def pairings(intent: QosIntent) -> list[Pairing]:
    """Pairs of kinds in each queue: the kind that its profiles protect, against the kind that they drop first."""
    pairs = []
    for queue in range(QUEUES):
        profiles = intent.queue(queue).profiles
        spared = [p for p in range(PRECEDENCES) if profiles[p] is None]
        dropping = [(profile.maximum_bytes, p) for p, profile in enumerate(profiles) if profile and not profile.mark]
        if spared and dropping:
            p = min(dropping)[1]
            pairs.append(
                Pairing(
                    queue,
                    f"precedence {spared[0]}",
                    f"precedence {p}",
                    tos_of_queue(queue, spared[0], ECT0),
                    tos_of_queue(queue, p, NOT_ECT),
                )
            )
        marking = [p for p, profile in enumerate(profiles) if profile and profile.mark]
        if marking:
            p = marking[0]
            ect, plain = tos_of_queue(queue, p, ECT0), tos_of_queue(queue, p, NOT_ECT)
            pairs.append(Pairing(queue, f"precedence {p}, ECT", f"precedence {p}, Not-ECT", ect, plain))
    return pairs


@dataclass(frozen=True)
class Outcome:
    """Packets sent and arrived of each kind, for how long they were sent, and what share of the droppable ones an ideal
    queue would have lost of just these."""

    protected_sent: int
    protected_arrived: int
    droppable_sent: int
    droppable_arrived: int
    seconds: float
    intended_loss: float


def judge(where: str, pairing: Pairing, rate_bps: float, found: Outcome) -> Row:
    """The droppable packets must make up for all that does not fit, the protected ones for nothing."""
    verdict: Verdict
    sent, wanted = found.protected_sent + found.droppable_sent, found.intended_loss
    lost = 1 - found.droppable_arrived / found.droppable_sent
    harmed = 1 - found.protected_arrived / found.protected_sent
    offered = sent * FRAME_BYTES * 8 / found.seconds / rate_bps
    verdict, why = "ok", ""
    if offered < 1.1:
        verdict, why = "inconclusive", f"only {offered:.2f} of the port's rate was offered"
    elif harmed > PROTECTED_LOSS:
        verdict, why = "deviates", f"{harmed:.1%} of what is protected ({pairing.protected}) is lost"
    elif abs(lost - wanted) > TOLERANCE:
        verdict, why = "deviates", f"{lost:.1%} of {pairing.droppable} is lost; the overload asks for {wanted:.1%}"
    return Row(
        CHECK,
        where,
        pairing.what,
        f"lost {wanted:.1%} / 0 %",
        f"lost {lost:.1%} / {harmed:.2%}",
        f"± {100 * TOLERANCE:.0f} / {100 * PROTECTED_LOSS:g} %",
        verdict,
        why,
        vars(found) | {"offered_load": offered},
    )


def probe(prober: Prober, station: Station, intent: QosIntent) -> list[Row]:
    """A row for each pairing of the port."""
    return [_probe(prober, station, intent, pairing) for pairing in pairings(intent)]


def _probe(prober: Prober, station: Station, intent: QosIntent, pairing: Pairing) -> Row:
    rates = [SHARE * station.rate_bps] * 2
    if SHARE * station.rate_bps > 0.95 * station.tester_bps:
        rates[0] = 0.9 * station.tester_bps
    seconds = max(SECONDS, LEAST_PACKETS * FRAME_BYTES * 8 / station.rate_bps)
    trains = [
        Send(host, station.sink, name, 0.0, ((tos, FRAME_BYTES),), int(rate * seconds / 8 / FRAME_BYTES), rate)
        for name, (host, tos, rate) in enumerate(
            zip((station.tester, station.blocker), (pairing.protected_tos, pairing.droppable_tos), rates, strict=True)
        )
    ]
    shot = prober.shoot(trains, 2 * intent.port_buffer_bytes * 8 / station.rate_bps + 0.02)
    arrivals = shot.at(station.sink)
    kept, dropped = (arrivals[arrivals["train"] == name] for name in range(2))
    if not len(kept) or not len(dropped):
        gone = " and ".join(
            kind for kind, arrived in ((pairing.protected, kept), (pairing.droppable, dropped)) if not len(arrived)
        )
        row = Row(CHECK, station.port, pairing.what, "", "nothing", "", "deviates", f"nothing of {gone} arrives")
        return starved(row, shot.starved)
    kept_s, dropped_s = (sent_s(times, train.count) for times, train in zip((kept, dropped), trains, strict=True))
    profiles = [profile for profile in intent.queue(pairing.queue).profiles if profile]
    middle = float(np.mean([profile.minimum_bytes + profile.maximum_bytes for profile in profiles])) / 2
    wanted = ideal_loss(kept_s, dropped_s, station.rate_bps, middle)
    span_s = float(np.ptp(np.concatenate([kept_s, dropped_s])))
    outcome = Outcome(trains[0].count, len(kept), trains[1].count, len(dropped), span_s, wanted)
    return starved(judge(station.port, pairing, station.rate_bps, outcome), shot.starved)


def sent_s(arrivals: Arrivals, count: int) -> Floats:
    """When each probe of a train was sent; of those that did not arrive, between their neighbours."""
    order = np.argsort(arrivals["number"])
    return np.interp(np.arange(count), arrivals["number"][order], arrivals["sent_ns"][order].astype(np.float64) / 1e9)


def ideal_loss(protected_s: Floats, droppable_s: Floats, rate_bps: float, full_bytes: float) -> float:
    """The share of the droppable packets that a queue loses which drops them beyond full_bytes and nothing else."""
    times = np.concatenate([protected_s, droppable_s])
    droppable = np.arange(len(times)) >= len(protected_s)
    backlog = last_s = lost = 0.0
    for index in np.argsort(times, kind="stable"):
        backlog = max(0.0, backlog - (times[index] - last_s) * rate_bps / 8)
        last_s = times[index]
        if droppable[index] and backlog > full_bytes:
            lost += 1
        else:
            backlog += FRAME_BYTES
    return lost / len(droppable_s)

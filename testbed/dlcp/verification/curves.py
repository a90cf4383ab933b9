"""Drop and mark curves: at which backlog a queue drops or marks packets of a precedence, and how often.

A load of many small probes, each behind a filler, piles up in a blocked queue. Nothing leaves, so the backlog that a
probe finds is exactly the bytes of those before it that arrived in the end. Every probe is one sample: (backlog, struck
or not). Fillers are packets of the queue that its profiles spare; where none are spared, the probes pile up alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import numpy.typing as npt

from dlcp.model.frames import FRAME_BYTES
from dlcp.model.qos import PRECEDENCES, DropProfile, QosIntent, QueueIntent
from dlcp.model.units import show_size
from dlcp.transport._native import ffi, lib
from dlcp.transport.contract.codepoint import CE, ECT0, NOT_ECT, tos_of_queue
from dlcp.verification.intervals import band
from dlcp.verification.probe_trains import Block, Load
from dlcp.verification.prober import SMALLEST_BYTES
from dlcp.verification.rows import Row, Verdict

DROP, MARK = "drop curve", "mark curve"
STEPS = 96
"""Probes of a load between an empty queue and the end of the curve."""
FLAT_BINS, SLOPE_BINS = 2, 8
BINS = 2 * FLAT_BINS + SLOPE_BINS + 1
"""Bands of a curve: below its minimum, on its slope, beyond its maximum, and one of the whole slope."""
BEYOND = 1.15
"""How far past a curve's maximum the probes go."""
LEAST_SAMPLES = 20
"""A bin with fewer says nothing."""
CERTAIN_Q32 = 1 << 32

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Curve:
    """What one profile strikes: probes of `tos`, lost, or marked where `marks`. filler_tos: None = none is spared."""

    queue: int
    precedence: int
    profile: DropProfile
    marks: bool
    tos: int
    filler_tos: int | None
    averaging: int

    @property
    def check(self) -> str:
        """Of its row."""
        return MARK if self.marks else DROP

    @property
    def what(self) -> str:
        """Of its row."""
        capable = {True: ", ECT", False: ", Not-ECT"}[self.marks] if self.profile.mark else ""
        return f"queue {self.queue}, precedence {self.precedence}{capable}"


@dataclass(frozen=True)
class Bin:
    """Samples of a range of backlogs. intended: the mean of the curve over the samples, and its range when every
    backlog were off by the tolerance. low, high: what the hits are compatible with."""

    from_bytes: float
    to_bytes: float
    trials: int
    hits: int
    intended: float
    intended_low: float
    intended_high: float
    low: float
    high: float

    @property
    def off(self) -> bool:
        """The band and the intended range do not meet."""
        return self.trials >= LEAST_SAMPLES and (self.low > self.intended_high or self.high < self.intended_low)


def curves_of(intent: QosIntent, queue: int) -> list[Curve]:
    """All curves of a queue; a marking profile has one for ECN-capable packets and one for the others."""
    found = []
    wanted = intent.queue(queue)
    for precedence, profile in enumerate(wanted.profiles):
        if profile is None:
            continue
        for marks in (True, False) if profile.mark else (False,):
            ecn = ECT0 if marks else NOT_ECT
            filler = tos_of_queue(queue, precedence, ECT0) if marks else spared_tos(wanted, queue)
            tos = tos_of_queue(queue, precedence, ecn)
            found.append(Curve(queue, precedence, profile, marks, tos, filler, wanted.averaging))
    return found


def spared_tos(wanted: QueueIntent, queue: int) -> int | None:
    """The TOS byte of packets of a queue that are dropped for want of room alone."""
    for precedence in range(PRECEDENCES):
        profile = wanted.profiles[precedence]
        if profile is None or profile.mark:
            return tos_of_queue(queue, precedence, NOT_ECT if profile is None else ECT0)
    return None


def load_of(curve: Curve, room_bytes: int) -> Load:
    """Probes from an empty queue to past the curve's maximum, or to what the queue can hold."""
    reach = min(BEYOND * curve.profile.maximum_bytes, room_bytes)
    step = max(SMALLEST_BYTES, int(reach / STEPS))
    if curve.filler_tos is None:
        size = min(FRAME_BYTES, max(SMALLEST_BYTES, 2 * step))
        return Load(((curve.tos, size),), 2 * int(reach / size))
    whole, rest = divmod(max(0, step - SMALLEST_BYTES), FRAME_BYTES)
    fillers = [FRAME_BYTES] * whole + ([max(SMALLEST_BYTES, rest)] if rest or not whole else [])
    pattern = (*((curve.filler_tos, size) for size in fillers), (curve.tos, SMALLEST_BYTES))
    return Load(pattern, int(reach / (sum(fillers) + SMALLEST_BYTES / 2)))


def tolerance_bytes(load: Load) -> int:
    """How exactly a backlog is known: the largest packet of the load."""
    return int(load.sizes.max())


def samples(curve: Curve, blocks: Sequence[Block], room_bytes: int) -> tuple[Floats, Bools]:
    """The backlog that each probe of the curve found, and whether it was struck. room_bytes: beyond it a probe may be
    dropped for want of room, and tells nothing."""
    backlogs, struck = [np.zeros(0)], [np.zeros(0, bool)]
    for block in blocks:
        probes, hits = _struck(curve, block, room_bytes)
        backlogs.append(_found(block)[probes].astype(np.float64))
        struck.append(hits)
    return np.concatenate(backlogs), np.concatenate(struck)


def averaged_samples(curve: Curve, blocks: Sequence[Block], room_bytes: int, rate_bps: float) -> tuple[Floats, Bools]:
    """The same by the average that the profile looks at, reckoned by aqm.h from all packets that the queue was sent.

    Where the average was at the start is not known, and when the queue was empty is known to two frames; a sample
    counts once what is left of either error is below the curve's own tolerance. A block that has not held makes the
    average unknown again.
    """
    average = ffi.new("struct dlcp_aqm_average *")
    frame_ns, weight = max(1, round(FRAME_BYTES * 8e9 / rate_bps)), 2.0**-curve.averaging
    unknown = float(curve.profile.maximum_bytes)
    backlogs, struck = [np.zeros(0)], [np.zeros(0, bool)]
    for block in blocks:
        if not block.held:
            unknown = float(curve.profile.maximum_bytes)
            continue
        tolerance = tolerance_bytes(block.load)
        idle = max(0, block.began_ns - int(average.idle_since_ns)) // frame_ns
        unknown = unknown * (1 - weight) ** idle + 2 * weight * (average.bytes_q16 / 65536)
        judged, sure = [], []
        for backlog in _found(block):
            judged.append(lib.dlcp_aqm_average(average, curve.averaging, int(backlog), block.began_ns, frame_ns))
            unknown *= 1 - weight
            sure.append(unknown <= tolerance)
        lib.dlcp_aqm_empty(average, block.emptied_ns)
        probes, hits = _struck(curve, block, room_bytes)
        keep = np.array(sure)[probes]
        backlogs.append(np.array(judged, np.float64)[probes][keep])
        struck.append(hits[keep])
    return np.concatenate(backlogs), np.concatenate(struck)


def _found(block: Block) -> npt.NDArray[np.int64]:
    """The backlog that each packet of a load found: those before it that arrived in the end."""
    sizes = block.load.sizes
    return np.concatenate(([0], np.cumsum(np.where(block.arrived, sizes, 0))[:-1]))


def _struck(curve: Curve, block: Block, room_bytes: int) -> tuple[npt.NDArray[np.int64], Bools]:
    """Numbers of the probes that tell of a curve, and whether each was dropped, or marked where the curve marks."""
    tos = np.tile([tos for tos, _ in block.load.pattern], block.load.repeat)
    probes = np.flatnonzero((tos == curve.tos) & (_found(block) + block.load.sizes <= room_bytes))
    seen = block.tos_by_number()
    if not curve.marks:
        return probes, seen[probes] < 0
    probes = probes[seen[probes] >= 0]
    return probes, (seen[probes] & CE) == CE


def dropped_instead(curve: Curve, blocks: Sequence[Block], room_bytes: int) -> int:
    """Probes of a marking curve that were dropped, though there was room."""
    missing = 0
    for block in blocks:
        tos = np.tile([tos for tos, _ in block.load.pattern], block.load.repeat)
        missing += int((~block.arrived & (tos == curve.tos) & (_found(block) + block.load.sizes <= room_bytes)).sum())
    return missing


def intended_curve(profile: DropProfile) -> Callable[[Floats], Floats]:
    """Backlogs in bytes → shares, by aqm.h."""
    native = ffi.new("struct dlcp_aqm_profile *")
    native.flags = lib.DLCP_AQM_ACTIVE
    native.minimum_bytes, native.maximum_bytes = profile.minimum_bytes, profile.maximum_bytes
    native.probability_q32 = round(profile.probability * CERTAIN_Q32)

    def share(backlogs: Floats) -> Floats:
        whole = np.maximum(backlogs, 0).astype(np.int64)
        different, back = np.unique(whole, return_inverse=True)
        found = [lib.dlcp_aqm_probability_q32(native, int(backlog)) / CERTAIN_Q32 for backlog in different]
        return np.array(found, np.float64)[back]

    return share


def bins_of(backlogs: Floats, struck: Bools, profile: DropProfile, tolerance: float, alpha: float) -> list[Bin]:
    """Ranges (from, to] below the curve, on its slope and beyond it, and one of the whole slope.

    alpha: how often a band misses by chance. The samples of a bin have different shares: their sum spreads less than a
    binomial's, so the band is if anything too wide.
    """
    minimum, maximum, reach = profile.minimum_bytes, profile.maximum_bytes, float(backlogs.max(initial=0.0)) + 1
    edges = [-1.0, *np.linspace(0, minimum, FLAT_BINS + 1)[1:], *np.linspace(minimum, maximum, SLOPE_BINS + 1)[1:]]
    edges += list(np.linspace(maximum, max(maximum, reach), FLAT_BINS + 1)[1:])
    edges = sorted({min(edge, reach) for edge in edges})
    ranges = list(pairwise(edges))
    if minimum < min(maximum, reach):
        ranges.append((float(minimum), float(min(maximum, reach))))
    curve = intended_curve(profile)
    found = []
    for low, high in ranges:
        inside = (backlogs > low) & (backlogs <= high)
        if inside.any():
            found.append(_bin(backlogs[inside], struck[inside], curve, tolerance, alpha, max(0.0, low), high))
    return found


def _bin(
    backlogs: Floats,
    struck: Bools,
    curve: Callable[[Floats], Floats],
    tolerance: float,
    alpha: float,
    low: float,
    high: float,
) -> Bin:
    hits, trials = int(struck.sum()), len(struck)
    means = [float(curve(backlogs + shift).mean()) for shift in (-tolerance, 0.0, tolerance)]
    return Bin(low, high, trials, hits, means[1], means[0], means[2], *band(hits, trials, alpha))


def judge(
    curve: Curve,
    where: str,
    backlogs: Floats,
    struck: Bools,
    *,
    tolerance: float,
    alpha: float,
    doubt: str = "",
    dropped: int = 0,
) -> Row:
    """The row of one curve; data: its bins. dropped: probes that should have been marked at most."""
    verdict: Verdict
    bins = bins_of(backlogs, struck, curve.profile, tolerance, alpha)
    off = [one for one in bins if one.off]
    reached = float(backlogs.max()) if len(backlogs) else 0.0
    profile = curve.profile
    word = "marked" if curve.marks else "dropped"
    short = reached < profile.maximum_bytes
    if doubt or len(backlogs) < LEAST_SAMPLES:
        verdict, why = "inconclusive", doubt or f"{len(backlogs)} samples"
    elif curve.marks and dropped:
        verdict, why = "deviates", f"{dropped} ECN-capable probes were dropped, beside {len(backlogs)} that arrived"
    elif off:
        worst = max(off, key=lambda one: abs(one.hits / one.trials - one.intended))
        verdict = "deviates"
        why = (
            f"at {_kb(worst.from_bytes)}–{_kb(worst.to_bytes)} kB {worst.hits / worst.trials:.1%} of {worst.trials} "
            f"are {word} (band {worst.low:.1%}–{worst.high:.1%}), intended {worst.intended:.1%}"
        )
    elif reached <= profile.minimum_bytes:
        verdict, why = "inconclusive", f"the probes reached {show_size(int(reached))} only"
    elif not any(one.trials >= LEAST_SAMPLES and one.to_bytes > profile.minimum_bytes for one in bins):
        verdict, why = (
            "inconclusive",
            f"fewer than {LEAST_SAMPLES} samples of any range past {_kb(profile.minimum_bytes)} kB",
        )
    else:
        verdict, why = "ok", ""
    intended = intended_words(profile)
    measured = _observed(backlogs, struck, word) + (f"; seen up to {_kb(reached)} kB" if short else "")
    return Row(
        curve.check,
        where,
        curve.what,
        intended,
        measured,
        f"± {tolerance:.0f} B",
        verdict,
        why,
        {
            "samples": len(backlogs),
            "alpha": alpha,
            "bins": [_data(one) for one in bins],
            "queue": curve.queue,
            "precedence": curve.precedence,
            "profile": profile.model_dump(),
            "marks": curve.marks,
        },
    )


def intended_words(profile: DropProfile) -> str:
    """ "6.0–16.0 kB: 0–100 %"; of a step "from 6.0 kB on"."""
    if profile.minimum_bytes == profile.maximum_bytes:
        return f"all beyond {_kb(profile.minimum_bytes)} kB"
    return f"{_kb(profile.minimum_bytes)}–{_kb(profile.maximum_bytes)} kB: 0–{100 * profile.probability:.4g} %"


def _observed(backlogs: Floats, struck: Bools, word: str) -> str:
    if not len(backlogs):
        return "nothing"
    if not struck.any():
        return f"none of {len(struck)} {word}"
    first = backlogs[struck].min()
    spared = backlogs[~struck]
    last = f", all past {_kb(float(spared.max()))} kB" if len(spared) else ", none spared"
    return f"{word} from {_kb(float(first))}{last}"


def _data(one: Bin) -> dict[str, Any]:
    return vars(one) | {"off": one.off}


def _kb(size_bytes: float) -> str:
    return f"{size_bytes / 1000:.1f}"

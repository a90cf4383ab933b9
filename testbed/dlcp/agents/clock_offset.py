"""A host's clocks against its caller's: measured by short exchanges, of which the quickest counts.

An agent says what its clock shows between a question's going and its answer's coming: so its clock is ahead by what it
says less the middle of the two, give or take half of what they are apart. Nothing about the way there and back is
assumed (Cristian, Probabilistic clock synchronization, 1989). Measured before and after a job, a clock is taken to have
run evenly in between.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import numpy.typing as npt

EXCHANGES = 50
"""Of one reading: tens of milliseconds over SSH; the quickest of them met no other work."""

Ask = Callable[[], dict[str, Any]]
"""The command `clock` of an agent."""


@dataclass(frozen=True)
class Reading:
    """At at_s of the caller's CLOCK_MONOTONIC the host's was ahead_s ahead, and its CLOCK_REALTIME real_ahead_s ahead
    of the caller's CLOCK_MONOTONIC; both within error_s."""

    at_s: float
    ahead_s: float
    real_ahead_s: float
    error_s: float


class FarClock:
    """A host's CLOCK_MONOTONIC as its caller knows it. ask: None = it is the caller's own: nothing is translated."""

    def __init__(self, ask: Ask | None = None) -> None:
        self._ask = ask
        self.readings: list[Reading] = []

    def read(self) -> None:
        """Measure once more."""
        if self._ask is not None:
            self.readings.append(measure(self._ask))

    def read_afresh(self, exchanges: int) -> None:
        """Forget what was measured, and measure: for what is over in a moment."""
        if self._ask is not None:
            self.readings = [measure(self._ask, exchanges)]

    def there(self, here_s: float) -> float:
        """What the host's clock shows at an instant of the caller's."""
        if not self.readings:
            return here_s
        return here_s + float(np.interp(here_s, self._at_s(), [one.ahead_s for one in self.readings]))

    @overload
    def here(self, there_s: float) -> float: ...
    @overload
    def here(self, there_s: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]: ...
    def here(self, there_s: float | npt.NDArray[np.float64]) -> float | npt.NDArray[np.float64]:
        """The instant of the caller's clock at which the host's showed this: one, or an array of them."""
        if not self.readings:
            return there_s
        ahead_s = [one.ahead_s for one in self.readings]
        return self._back(there_s, ahead_s)

    def real_here(self, there_s: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
        """The same of what the host's CLOCK_REALTIME showed. Without readings nothing is translated."""
        if not self.readings:
            return there_s
        found = self._back(there_s, [one.real_ahead_s for one in self.readings])
        assert isinstance(found, np.ndarray)
        return found

    @property
    def error_s(self) -> float:
        """How far a translated instant may be off; 0 for the caller's own clock."""
        return max((one.error_s for one in self.readings), default=0.0)

    @property
    def drift_ppm(self) -> float:
        """By how much it ran faster than the caller's, from the first reading to the last; slower is below 0."""
        return 1e6 * self._drift_s() / self._apart_s() if len(self.readings) > 1 else 0.0

    @property
    def sure_drift_ppm(self) -> float:
        """What of the drift's size no error of the readings can explain."""
        if len(self.readings) < 2:
            return 0.0
        doubt_s = self.readings[0].error_s + self.readings[-1].error_s
        return 1e6 * max(0.0, abs(self._drift_s()) - doubt_s) / self._apart_s()

    def data(self) -> dict[str, Any]:
        """For result.json."""
        ahead_s = self.readings[0].ahead_s if self.readings else 0.0
        return {
            "ahead_s": ahead_s,
            "error_s": self.error_s,
            "drift_ppm": self.drift_ppm,
            "readings": [vars(one) for one in self.readings],
        }

    def _drift_s(self) -> float:
        return self.readings[-1].ahead_s - self.readings[0].ahead_s

    def _apart_s(self) -> float:
        return self.readings[-1].at_s - self.readings[0].at_s

    def _at_s(self) -> list[float]:
        return [one.at_s for one in self.readings]

    def _back(self, there_s: float | npt.NDArray[np.float64], ahead_s: list[float]) -> float | npt.NDArray[np.float64]:
        shown_s = [at_s + one for at_s, one in zip(self._at_s(), ahead_s, strict=True)]
        found = there_s - np.interp(there_s, shown_s, ahead_s)
        return found if isinstance(there_s, np.ndarray) else float(found)


def measure(ask: Ask, exchanges: int = EXCHANGES) -> Reading:
    """Read a far clock: the quickest of some exchanges."""
    return min((_exchange(ask) for _ in range(exchanges)), key=lambda one: one.error_s)


def _exchange(ask: Ask) -> Reading:
    before_s = time.monotonic()
    said = ask()
    after_s = time.monotonic()
    middle_s = (before_s + after_s) / 2
    return Reading(
        at_s=middle_s,
        ahead_s=said["monotonic_s"] - middle_s,
        real_ahead_s=said["real_s"] - middle_s,
        error_s=(after_s - before_s) / 2,
    )

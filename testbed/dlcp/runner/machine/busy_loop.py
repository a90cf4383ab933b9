"""Keeps a share of one core busy until it is killed: others' work, planted during a run.  Usage: busy_loop.py SHARE"""

from __future__ import annotations

import sys
import time

PERIOD_S = 0.05
"""It works and rests within so long: longer than a scheduler's slice, shorter than an iteration of a job."""


def main(share: float) -> None:
    """Work for `share` of every period."""
    while True:
        begun_s = time.perf_counter()
        while time.perf_counter() - begun_s < share * PERIOD_S:
            pass
        time.sleep(max(0.0, PERIOD_S - (time.perf_counter() - begun_s)))


if __name__ == "__main__":
    main(float(sys.argv[1]))

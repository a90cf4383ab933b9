"""How long it takes until all ranks have an error after one was killed, or has left: the dlcp backend and gloo.

    python tests/bench/rank_death.py [--repeats 10]

Three ranks on loopback, started for each repeat; two wait in an all-reduce when the third ends (SIGKILL, or
destroy_process_group). The store lives in this process, as torchrun's does, so that it outlives every rank. Repeats of
the two backends alternate. Prints a line a backend and end: median and worst of the slowest rank. Exits with 1 when a
median of dlcp is above a second.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))
from lost_rank import NOTICED_WITHIN_S, RANKS, slowest_survivor_s

BACKENDS = ("dlcp", "gloo")
ENDS = ("killed", "leaves")


def main() -> None:
    """Measure, print, judge."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=10)
    repeats = parser.parse_args().repeats
    if repeats < 1:
        parser.error("--repeats: at least 1")
    seconds: dict[tuple[str, str], list[float]] = {(end, backend): [] for end in ENDS for backend in BACKENDS}
    print(f"{RANKS} ranks, {repeats} repeats, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
    for _ in range(repeats):
        for end, backend in seconds:
            seconds[end, backend].append(slowest_survivor_s(backend, end))
    for (end, backend), measured in seconds.items():
        print(f"{end:8} {backend:6} median {statistics.median(measured):7.3f} s, worst {max(measured):7.3f} s")
    sys.exit(any(statistics.median(seconds[end, "dlcp"]) > NOTICED_WITHIN_S for end in ENDS))


if __name__ == "__main__":
    main()

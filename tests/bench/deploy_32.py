"""How long the playbooks take to deploy an intent to 32 switches, and what the time goes into.

    python tests/bench/deploy_32.py [--switches 32] [--intent dlcp-ect] [--playbook deploy]

The switches are stubs of SONiC on this machine: a real sshd on 32 ports, a real redis behind each, so that what the
devices do (Python starts, rows are written) is done by the same two cores as what the controller does.
"""

from __future__ import annotations

import argparse
import os
import resource
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "helpers"))

from sonic_lab import SonicLab, sonic_lab


def topology(switches: int) -> dict[str, object]:
    """A leaf-spine fabric of so many switches, a quarter of them spines, a host at each leaf."""
    spines = max(1, switches // 4)
    leaves = switches - spines
    return {"kind": "leaf-spine", "leaves": leaves, "spines": spines, "hosts": leaves, "rate": "100 Mbit/s"}


def timed(fabric: SonicLab, name: str, *options: str, **variables: object) -> tuple[float, float, str]:
    """Wall seconds, CPU seconds of the controller alone, and what was printed."""
    before, began = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    done = fabric.lab.play(name, *options, **variables)
    wall_s, after = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime, done.stdout


def main() -> None:
    """Print a line a play."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--switches", type=int, default=32)
    parser.add_argument("--intent", default="dlcp-ect")
    words = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, sonic_lab(Path(folder), topology(words.switches), "direct") as fabric:
        print(f"{words.switches} switches, {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}")
        for title, options in (("look", ["--check"]), ("deploy", []), ("again", [])):
            wall_s, cpu_s, _ = timed(fabric, "deploy", *options, intent=words.intent, yes=True)
            print(f"{title:8} {wall_s:6.1f} s wall, {cpu_s:6.1f} s of CPU in the controller", flush=True)
        wall_s, cpu_s, _ = timed(fabric, "rollback", yes=True)
        print(f"{'rollback':8} {wall_s:6.1f} s wall, {cpu_s:6.1f} s of CPU in the controller")


if __name__ == "__main__":
    main()

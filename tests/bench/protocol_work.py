"""Count the protocol's instructions for each data packet with callgrind: exact, the same on every run and every load.

`python tests/bench/protocol_work.py` prints them for 2, 16, 144 and 1000 peers, N:1 (push) and 1:N (pull).
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).resolve().parent
NATIVE = HERE.parents[1] / "testbed" / "native"
WITH_SOCKETS = {
    "engine.c",
    "datagrams.c",
    "sockets.c",
    "traffic_lanes.c",
    "traffic_source.c",
    "traffic_sink.c",
    "blast.c",
}
"""Files of the core that are not the state machine."""
COUNTED = ("dlcp_protocol_input", "dlcp_protocol_poll_transmit", "dlcp_protocol_next_timer")
"""The functions that packets pass through; they do not call each other."""
MESSAGES = 3
"""Of 32 packets each, by worker: the first begins with a cold window."""
PEERS = (2, 16, 144, 1000)
DIRECTIONS = ("push", "pull")
LIMIT_S = 300.0


@dataclass(frozen=True)
class Work:
    """One run. checksum: of all packets, their order and their times."""

    instructions: int
    data_packets: int
    checksum: str

    @property
    def per_packet(self) -> float:
        """Instructions a data packet, at both ends together, acknowledgements and losses included."""
        return self.instructions / self.data_packets


def missing() -> str:
    """Why nothing can be counted on this machine and what to install; empty if it can."""
    absent = [program for program in ("gcc", "valgrind") if shutil.which(program) is None]
    return f"{' and '.join(absent)} not installed: apt install {' '.join(absent)}" if absent else ""


def build(folder: Path) -> Path:
    """Compile the parameter server with the state machine, as optimised as the package has it."""
    program = folder / "protocol_incast"
    sources = [
        path for path in sorted(NATIVE.rglob("*.c")) if path.name not in WITH_SOCKETS and ".bpf." not in path.name
    ]
    includes = [f"-I{header}" for header in sorted({path.parent for path in NATIVE.rglob("*.h")})]
    command = ["gcc", "-std=gnu11", "-O3", "-fno-tree-slp-vectorize", "-Wall", "-Wextra", "-Werror", *includes]
    subprocess.run([*command, HERE / "protocol_incast.c", *sources, "-lm", "-o", program], check=True)
    return program


def count(program: Path, peers: int, direction: str) -> Work:
    """Run the program under callgrind."""
    with tempfile.TemporaryDirectory() as folder:
        profile = Path(folder, "profile")
        toggles = [f"--toggle-collect={name}" for name in COUNTED]
        command = ["valgrind", "--tool=callgrind", f"--callgrind-out-file={profile}", *toggles]
        done = subprocess.run(
            [*command, program, str(peers), str(MESSAGES), direction],
            capture_output=True,
            text=True,
            check=True,
            timeout=LIMIT_S,
        )
        total = re.search(r"^(?:totals|summary): (\d+)", profile.read_text(), flags=re.MULTILINE)
    assert total, "callgrind wrote no total"
    outcome = json.loads(done.stdout)
    return Work(int(total[1]), outcome["data_packets"], outcome["checksum"])


def main() -> None:
    """Print a table."""
    if reason := missing():
        raise SystemExit(f"protocol_work: {reason}")
    print("peers  direction  data packets  instructions a packet")
    with tempfile.TemporaryDirectory() as folder:
        program = build(Path(folder))
        for direction in DIRECTIONS:
            for peers in PEERS:
                work = count(program, peers, direction)
                print(f"{peers:5}  {direction:9}  {work.data_packets:12}  {work.per_packet:21.0f}", flush=True)


if __name__ == "__main__":
    main()

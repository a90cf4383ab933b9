"""`dlcp report` over ten million rows of `messages`: makes the rows, measures wall time, CPU time and peak memory.

    python tests/bench/report_rows.py [--rows 10000000] [--keep FOLDER]

Ten schemes, two jobs and five repeats of each, so 100 runs; durations are log-normal with a heavy tail, seeds fixed.
The report is made in a process of its own, whose peak resident size the kernel tells (/proc's VmHWM through getrusage).
Prints one line of JSON. What the product promises on two cores: under LIMIT_S of wall time and LIMIT_BYTES.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

sys.path.insert(0, str(Path(__file__).parent.parent / "helpers"))
from synthetic_results import REGIME

from dlcp.model.loading.stored_result import record_tables
from dlcp.model.result import TABLES, RunResult
from dlcp.model.tables import write_columns
from dlcp.model.topology import LeafSpine

LIMIT_S, LIMIT_BYTES = 60.0, 4 << 30
SCHEMES = ("tcp", "tcp-tuned", "dctcp-udp", "pias", "p3", "bytescheduler", "ltp", "optireduce", "topk", "dlcp")
JOBS = ("resnet50", "vgg16")
REPEATS = 5
WORKERS = tuple(f"h{number}" for number in (1, 2, 3, 4, 6, 7, 8, 9))
SERVERS = ("h5", "h10")
ITERATIONS = 125
_REPORT = "import sys; from pathlib import Path; from dlcp.report import report; report(Path(sys.argv[1]))"


def main() -> None:
    """Make the rows, measure the report, print the figures."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000)
    parser.add_argument("--keep", type=Path, help="make the results here (or use those that are here), and leave them")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        root = arguments.keep or Path(temporary)
        folder = root / "rows"
        if not folder.is_dir():
            make(folder, arguments.rows)
        print(json.dumps(measure(folder)))


def measure(folder: Path) -> dict[str, Any]:
    """rows, wall_s, cpu_s (user and system, all threads and children), peak_bytes, within (the two limits)."""
    started = time.monotonic()
    subprocess.run([sys.executable, "-c", _REPORT, str(folder)], check=True)
    wall_s = time.monotonic() - started
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    peak_bytes = used.ru_maxrss * 1024
    return {
        "rows": sum(pq.read_metadata(file).num_rows for file in folder.glob("*/messages.parquet")),
        "wall_s": round(wall_s, 1),
        "cpu_s": round(used.ru_utime + used.ru_stime, 1),
        "peak_bytes": peak_bytes,
        "cores": len(os.sched_getaffinity(0)),
        "within": wall_s < LIMIT_S and peak_bytes < LIMIT_BYTES,
    }


def make(folder: Path, rows: int) -> None:
    """Write the runs, rows messages in all (rounded to whole tensors)."""
    tensors = max(1, round(rows / (len(SCHEMES) * len(JOBS) * REPEATS * ITERATIONS * len(WORKERS) * 2)))
    shape = (ITERATIONS, tensors, 2, len(WORKERS))
    grids = [grid.ravel() for grid in np.meshgrid(*map(np.arange, shape), indexing="ij")]
    shared = _shared_columns(*grids)
    for number, (scheme, job, repeat) in enumerate((s, j, r) for s in SCHEMES for j in JOBS for r in range(REPEATS)):
        _make_run(folder / f"run{number:03}", number, scheme, job, repeat, shared)


def _shared_columns(iteration: np.ndarray, tensor: np.ndarray, leg: np.ndarray, worker: np.ndarray) -> dict[str, Any]:
    hosts, servers = np.array(WORKERS)[worker], np.array(SERVERS)[tensor % len(SERVERS)]
    return {
        "iteration": iteration,
        "warmup": iteration < 2,
        "tensor": tensor,
        "layer": tensor,
        "leg": pa.array(np.where(leg == 0, "push", "pull")),
        "src": pa.array(np.where(leg == 0, hosts, servers)),
        "dst": pa.array(np.where(leg == 0, servers, hosts)),
        "bytes": np.full(len(iteration), 44_000),
    }


def _make_run(folder: Path, number: int, scheme: str, job: str, repeat: int, shared: dict[str, Any]) -> None:
    generator = np.random.default_rng((7, number))
    count = len(shared["bytes"])
    slow = 1 + 0.1 * (len(SCHEMES) - SCHEMES.index(scheme))
    lossy = scheme in ("dlcp", "ltp", "optireduce")
    pushed = np.asarray(shared["leg"]) == "push"
    duration_s = 0.02 * slow * generator.lognormal(0, 0.6, count)
    lost = np.where(pushed & lossy, (44_000 * 0.09 * generator.random(count)).astype(int), 0)
    start_s = 0.4 * shared["iteration"] + 0.1 * generator.random(count)
    tables: dict[str, dict[str, Any]] = {
        "messages": shared
        | {
            "job": pa.array([job] * count),
            "start_s": start_s,
            "end_s": start_s + duration_s,
            "delivered_bytes": 44_000 - lost,
            "lost_bytes": lost,
            "resent_bytes": generator.integers(0, 2000, count),
            "probes": np.zeros(count, int),
            "loss_bound": np.where(pushed & lossy, 0.1, 0.0),
            "lost_energy_share": lost / 44_000 * 0.4,
            "energy_bound": np.ones(count),
            "tensor_bytes": shared["bytes"],
        }
    }
    rounds = np.repeat(np.arange(ITERATIONS), len(WORKERS))
    took_s = 0.3 * slow * generator.lognormal(0, 0.05, len(rounds))
    tables["iterations"] = {
        "job": [job] * len(rounds),
        "worker": list(WORKERS) * ITERATIONS,
        "iteration": rounds,
        "warmup": rounds < 2,
        "start_s": 0.4 * rounds,
        "end_s": 0.4 * rounds + took_s,
        "compute_s": np.full(len(rounds), 0.1),
        "exposed_comm_s": took_s - 0.1,
        "parameters_crc32": rounds,
        "codec_s": np.zeros(len(rounds)),
    }
    tables["ports"] = _ports(generator)
    folder.mkdir(parents=True)
    for name, columns in tables.items():
        write_columns(folder, name, columns)
    graph = LeafSpine(kind="leaf-spine", leaves=2, spines=2, hosts=10, rate=1e8).graph
    result = RunResult(
        run_id=folder.name,
        experiment="rows",
        scheme=scheme,
        is_dlcp=scheme == "dlcp",
        label=scheme,
        job=job,
        repeat=repeat,
        seed=repeat,
        substrate="emulate",
        status="suspect" if number == 3 else "ok",
        reason="made up" if number == 3 else "",
        jct_s=float(40 * slow * generator.lognormal(0, 0.01)),
        regime=REGIME,
        topology=graph.model_dump(mode="json"),
        run={"workload": job, "job": {"workers": WORKERS, "servers": SERVERS}},
        ideal={"iteration_s": 0.25, "jct_s": 32.0, "communication_s": 0.2, "compute_s": 0.1},
        knobs={"window": len(scheme)},
        provenance={"commit": "0123456789abcdef", "made_up": True},
    )
    result.tables = record_tables(folder)
    (folder / "result.json").write_text(result.model_dump_json(), encoding="utf-8")


def _ports(generator: np.random.Generator) -> dict[str, Any]:
    """22 ports, eight queues, three precedences each."""
    count = 22 * 8 * 3
    made: dict[str, Any] = {name: generator.integers(0, 1000, count) for name in TABLES["ports"]}
    return made | {
        "switch": ["s1"] * count,
        "port": [f"p{row // 24}" for row in range(count)],
        "queue": np.arange(count) // 3 % 8,
        "precedence": np.arange(count) % 3,
        "backlog_histogram": [[1, 2]] * count,
    }


if __name__ == "__main__":
    main()

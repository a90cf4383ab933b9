"""Made-up but realistic result directories: three schemes, a profile job and a real one, five repeats, from a seed.

Message times are a service time, a log-normal queueing part that a whole iteration shares, and with some
probability one retransmission timeout; the probability and the timeout are what sets the schemes apart.
"""

from __future__ import annotations

import argparse
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from dlcp.model.loading.stored_result import record_tables
from dlcp.model.result import TABLES, RunResult
from dlcp.model.tables import write_columns
from dlcp.model.topology import LeafSpine

PROFILE, REAL = "profile", "real"
WORKERS = ("h1", "h2", "h3", "h4", "h6", "h7", "h8", "h9")
SERVERS = ("h5", "h10")
LINK_BPS = 1e8


@dataclass(frozen=True)
class Behaviour:
    """How a made-up scheme fares: queueing (s), chance and length of a timeout, lost and resent shares."""

    scheme: str
    label: str
    queueing_s: float
    timeout_chance: float
    timeout_s: float
    lost: float
    resent: float
    knobs: dict[str, Any]


SCHEMES = (
    Behaviour(
        "tcp",
        "TCP",
        0.024,
        0.020,
        0.200,
        0.0,
        0.011,
        {
            "congestion_control": "cubic",
            "ecn": False,
            "rto_min_s": 0.2,
            "load_balancing": "flow-hash",
            "priority_queues": 1,
        },
    ),
    Behaviour(
        "tcp-tuned",
        "TCP tuned",
        0.020,
        0.016,
        0.010,
        0.0,
        0.014,
        {
            "congestion_control": "cubic",
            "ecn": False,
            "rto_min_s": 0.005,
            "load_balancing": "flow-hash",
            "priority_queues": 1,
        },
    ),
    Behaviour(
        "dlcp",
        "DLCP",
        0.012,
        0.0,
        0.0,
        0.021,
        0.004,
        {
            "congestion_control": "timely",
            "loss_bound": 0.1,
            "stop": "lazy",
            "selective_drop": "wred",
            "load_balancing": "per-packet",
            "priority_queues": 5,
        },
    ),
)
EXPECT = [
    {"job": PROFILE, "metric": "jct_s", "scheme": "DLCP", "against": "TCP", "relation": "better"},
    {"job": PROFILE, "metric": "message_p99_s", "scheme": "DLCP", "against": "TCP", "relation": "better"},
    {"job": PROFILE, "metric": "jct_s", "scheme": "DLCP", "against": "TCP tuned", "relation": "not-worse"},
    {"job": REAL, "metric": "final_accuracy", "scheme": "DLCP", "against": "TCP", "relation": "not-worse"},
    {"job": REAL, "metric": "time_to_accuracy_s", "scheme": "DLCP", "against": "TCP", "relation": "better"},
]
REGIME = {
    "link_rate_bps": LINK_BPS,
    "lab_rate_bps": 1e10,
    "byte_scale": 25.0,
    "time_dilation": 4.0,
    "port_buffer_bytes": 50_000,
    "port_buffer_packets": 33,
    "port_buffer_lab_s": 0.001,
    "bucket_packets": 30.6,
    "TCP_rto_floor_lab_s": 0.05,
    "TCP tuned_rto_floor_lab_s": 0.005,
}


def make_results(
    root: Path,
    *,
    experiment: str = "quickstart",
    repeats: int = 5,
    seed: int = 1,
    iterations: int = 24,
    tensors: int = 16,
    schemes: tuple[Behaviour, ...] = SCHEMES,
    suspect: tuple[tuple[str, str, int], ...] = (),
) -> Path:
    """Write root/<experiment>/<run-id>/… and return root/<experiment>. suspect: (label, job, repeat) of such runs."""
    for job, count in ((PROFILE, tensors), (REAL, 4)):
        for behaviour in schemes:
            for repeat in range(repeats):
                index = [scheme.label for scheme in SCHEMES].index(behaviour.label)
                generator = np.random.default_rng((seed, repeat, index, job == REAL))
                shared = np.random.default_rng((seed, repeat, job == REAL)).normal(1, 0.04)
                tables, jct_s = _tables(generator, behaviour, job, iterations, count, float(shared))
                bad = (behaviour.label, job, repeat) in suspect
                result = _result(experiment, behaviour, job, repeat, seed, jct_s, bad)
                write_run(root / experiment / result.run_id, result, tables)
    return root / experiment


def write_run(directory: Path, result: RunResult, tables: dict[str, dict[str, Any]]) -> None:
    """One result directory, the tables first."""
    directory.mkdir(parents=True)
    for name, columns in tables.items():
        write_columns(directory, name, columns)
    result.tables = record_tables(directory)
    (directory / "result.json").write_text(result.model_dump_json(indent=1), encoding="utf-8")


def record_again(experiment: Path) -> None:
    """Write the tables that each run of an experiment has into its result.json, after a test has changed some."""
    for file in experiment.glob("*/result.json"):
        tables = {name: table.model_dump() for name, table in record_tables(file.parent).items()}
        file.write_text(json.dumps(json.loads(file.read_text(encoding="utf-8")) | {"tables": tables}), encoding="utf-8")


def _result(
    experiment: str, behaviour: Behaviour, job: str, repeat: int, seed: int, jct_s: float, bad: bool
) -> RunResult:
    graph = LeafSpine(kind="leaf-spine", leaves=2, spines=2, hosts=10, rate=LINK_BPS).graph
    idle = 0.04 if bad else 0.31
    return RunResult(
        run_id=f"{behaviour.scheme}-{job}-{repeat}",
        experiment=experiment,
        scheme=behaviour.scheme,
        is_dlcp=behaviour.scheme.startswith("dlcp"),
        label=behaviour.label,
        job=job,
        repeat=repeat,
        seed=seed * 1000 + repeat,
        substrate="emulate",
        status="suspect" if bad else "ok",
        reason="CPU idle 4 % is below 10 %" if bad else "",
        jct_s=jct_s,
        run={"workload": job, "job": {"workers": WORKERS, "servers": SERVERS}},
        regime=REGIME,
        ideal={
            "iteration_s": 0.27 if job == PROFILE else 0.05,
            "jct_s": 6.5 if job == PROFILE else 1.2,
            "message_s": 0.0066,
        },
        traffic={"dlcp": 10_485_760, "tcp": 0} if behaviour.scheme == "dlcp" else {"dlcp": 0, "tcp": 10_485_760},
        knobs=behaviour.knobs,
        topology=graph.model_dump(mode="json"),
        intended=_settings(behaviour),
        effective=_settings(behaviour),
        fidelity={
            "cpu_idle": {"value": idle, "bound": 0.1, "unit": "share", "ok": not bad},
            "conservation": {"value": 0, "bound": 0, "unit": "packets", "ok": True},
            "sched_late": {"value": 0.0021, "bound": 0.01, "unit": "s", "ok": True},
        },
        expect=EXPECT,
        provenance={"commit": "0123456789abcdef", "dirty": False, "kernel": "6.1.0", "python": "3.11", "made_up": True},
    )


def _settings(behaviour: Behaviour) -> dict[str, Any]:
    mode = "per-packet" if behaviour.scheme == "dlcp" else "flow-hash"
    return {
        "load_balancing": dict.fromkeys(("l1", "l2", "s1", "s2"), mode),
        "ports": {"all": {"port_buffer_bytes": 50_000, "loss": 0.0}},
        "hosts": {"all": {"sysctls": {"net.ipv4.tcp_sack": "1"}, "rto_min_s": behaviour.knobs.get("rto_min_s")}},
    }


def _tables(
    generator: np.random.Generator, behaviour: Behaviour, job: str, iterations: int, tensors: int, shared: float
) -> tuple[dict[str, dict[str, Any]], float]:
    compute_s = 0.25 if job == PROFILE else 0.03
    messages, exposed = _messages(generator, behaviour, job, iterations, tensors, shared)
    times = compute_s + exposed
    starts = 100.0 + np.concatenate([[0.0], np.cumsum(times)[:-1]])
    messages["start_s"] = messages["start_s"] + starts[messages["iteration"]]
    messages["end_s"] = messages["end_s"] + starts[messages["iteration"]]
    workers = np.tile(np.arange(len(WORKERS)), iterations)
    iteration = np.repeat(np.arange(iterations), len(WORKERS))
    jitter = np.abs(generator.normal(0, 0.002, len(iteration)))
    tables = {
        "iterations": {
            "job": [job] * len(iteration),
            "worker": [WORKERS[w] for w in workers],
            "iteration": iteration,
            "warmup": iteration == 0,
            "start_s": starts[iteration],
            "end_s": (starts + times)[iteration] + jitter,
            "compute_s": np.full(len(iteration), compute_s),
            "exposed_comm_s": exposed[iteration] + jitter,
            "parameters_crc32": 7919 * iteration + 13,
            "codec_s": np.zeros(len(iteration)),
        },
        "messages": messages,
        "ports": _ports(generator, behaviour),
        "hosts": {
            "host": ["machine"] * 3,
            "time_s": [100.0, 101.0, 102.0],
            "cpu_busy": [0.6, 0.7, 0.65],
            "softnet_dropped": [0, 0, 0],
            "rx_overflow": [0, 0, 0],
            "sched_late_s": [0.001, 0.002, 0.001],
        },
    }
    if job == REAL:
        tables["training"] = _training(generator, job, float(times.sum()), behaviour.lost)
    return tables, float(times.sum())


def _messages(
    generator: np.random.Generator, behaviour: Behaviour, job: str, iterations: int, tensors: int, shared: float
) -> tuple[dict[str, Any], np.ndarray]:
    shape = (iterations, tensors, 2, len(WORKERS))
    iteration, tensor, leg, worker = (grid.ravel() for grid in np.meshgrid(*map(np.arange, shape), indexing="ij"))
    size = (np.random.default_rng(7).integers(20, 60, tensors) * 1400)[tensor]
    burst = generator.random((iterations, 1, 1, 1)) < 0.3
    queueing = behaviour.queueing_s * shared * generator.lognormal(0, 0.5, shape) * np.where(burst, 1.9, 1.0)
    timeout = (generator.random(shape) < behaviour.timeout_chance * np.where(burst, 2.5, 0.4)) * behaviour.timeout_s
    duration = (8 * size / LINK_BPS + queueing.ravel() + timeout.ravel()) * np.where(leg == 0, 1.0, 0.8)
    exposed = duration.reshape(shape).max(axis=(1, 2, 3)) * 1.3
    start = generator.random(len(size)) * 0.05
    droppable = (leg == 0) & (behaviour.lost > 0)
    lost = np.where(droppable, size * np.minimum(generator.gamma(2, behaviour.lost / 2, len(size)), 0.0995), 0)
    server = tensor % len(SERVERS)
    hosts, servers = np.array(WORKERS), np.array(SERVERS)
    return {
        "job": [job] * len(size),
        "iteration": iteration,
        "warmup": iteration == 0,
        "tensor": tensor,
        "layer": tensor,
        "leg": np.where(leg == 0, "push", "pull"),
        "src": np.where(leg == 0, hosts[worker], servers[server]),
        "dst": np.where(leg == 0, servers[server], hosts[worker]),
        "bytes": size,
        "start_s": start,
        "end_s": start + duration,
        "delivered_bytes": size - lost.astype(int),
        "lost_bytes": lost.astype(int),
        "resent_bytes": generator.binomial(size, behaviour.resent),
        "probes": generator.integers(0, 2, len(size)),
        "loss_bound": np.where(droppable, 0.1, 0.0),
        "lost_energy_share": lost / size * 0.4,
        "energy_bound": np.ones(len(size)),
        "tensor_bytes": size,
    }, exposed


def _ports(generator: np.random.Generator, behaviour: Behaviour) -> dict[str, Any]:
    """All switches' ports; queue 7 is control, 0 TCP's, 5 the background's, 6 to 2 DLCP's own."""
    data_queues = range(2, 7) if behaviour.scheme == "dlcp" else (0,)
    graph = LeafSpine(kind="leaf-spine", leaves=2, spines=2, hosts=10, rate=LINK_BPS).graph
    rows: list[dict[str, Any]] = []
    for switch in graph.switches:
        for neighbour in graph.neighbours[switch]:
            for queue in sorted({*data_queues, 5, 7}):
                for precedence in range(3):
                    used = precedence == 0 or (behaviour.scheme == "dlcp" and queue in data_queues)
                    packets = int(generator.poisson(900 / len(data_queues))) * used
                    tail = packets // 60 if behaviour.scheme != "dlcp" and queue in (0, 5) else packets // 900
                    wred = (packets * precedence // 25) if behaviour.scheme == "dlcp" else 0
                    marks = packets // 40 if behaviour.scheme == "dlcp" and precedence == 0 and queue < 7 else 0
                    rows.append(
                        {
                            "switch": switch,
                            "port": f"{switch}-{neighbour}",
                            "queue": queue,
                            "precedence": precedence,
                            "received_packets": packets,
                            "received_bytes": 1500 * packets,
                            "enqueued_packets": packets,
                            "enqueued_bytes": 1500 * packets,
                            "sent_packets": packets,
                            "sent_bytes": 1500 * packets,
                            "dropped_wred_packets": wred,
                            "dropped_wred_bytes": 1500 * wred,
                            "dropped_tail_packets": tail,
                            "dropped_tail_bytes": 1500 * tail,
                            **{
                                f"dropped_{cause}_{unit}": 0
                                for cause in ("shared", "loss", "down", "unrouted")
                                for unit in ("packets", "bytes")
                            },
                            "marked_ce_packets": marks,
                            "marked_ce_bytes": 1500 * marks,
                            "peak_backlog_bytes": 30_000 if precedence == 0 else 0,
                            "backlog_histogram": [packets, packets // 2, packets // 4, 0] if precedence == 0 else [],
                        }
                    )
    return {column: [row[column] for row in rows] for column in TABLES["ports"]}


def _training(generator: np.random.Generator, job: str, duration_s: float, lost: float) -> dict[str, Any]:
    step = np.arange(1, 11) * 60
    accuracy = 0.862 - 0.35 * np.exp(-step / 130) + generator.normal(0, 0.0025, len(step)) - 0.05 * lost
    return {
        "job": [job] * len(step),
        "step": step,
        "time_s": duration_s * step / 600,
        "loss": 2.3 * (1 - accuracy),
        "accuracy": accuracy,
    }


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("root", type=Path)
    parser.add_argument("--iterations", type=int, default=24)
    parser.add_argument("--tensors", type=int, default=16)
    arguments = parser.parse_args()
    print(make_results(arguments.root, iterations=arguments.iterations, tensors=arguments.tensors))

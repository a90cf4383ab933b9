"""Agents as a caller meets them: started from a zygote, commanded, measured, and gone when nobody commands them."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from extras import needs
from local_agents import agents, session
from loopback import TCP
from waits import in_time

from dlcp.agents.control.handles import AgentError, AgentHandle, Zygote, gather, request_all
from dlcp.agents.control.session import JobResult
from dlcp.agents.job_spec import JobSpec, LayerWork
from dlcp.agents.process.profile_job import backward_phases, forward_phases, synthetic_gradient
from dlcp.errors import Problem
from dlcp.model.result import TABLES
from dlcp.model.transport.settings import Compression, TransportSettings
from dlcp.model.transport.stages import TimeBounds
from dlcp.substrates.ideal import transfers_of
from dlcp.substrates.result_audit import broken_promises

SETTINGS = [TCP, TransportSettings(kind="dlcp", loss_bound=0.1, priority_queues=5)]

SPEC = JobSpec(
    name="job",
    kind="profile",
    workers=("h1", "h2"),
    servers=("h3",),
    iterations=5,
    warmup_iterations=1,
    bucket_bytes=20_000,
    seed=5,
    layers=tuple(
        LayerWork(name=f"layer{i}", elements=2_000 + 900 * i, forward_s=0.002, backward_s=0.003) for i in range(6)
    ),
)


@pytest.fixture(scope="module")
def zygote() -> Iterator[Zygote]:
    with Zygote.spawn() as found:
        yield found


def gone(pid: int, timeout_s: float = 5.0) -> bool:
    """True as soon as no process has this id (or only its zombie), False when it lives on."""
    return in_time(lambda: not runs(pid), timeout_s, every_s=0.02)


def runs(pid: int) -> bool:
    """Whether a process has this id that is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize("settings", SETTINGS, ids=["tcp", "dlcp"])
def test_profile_job__fills_its_tables(zygote: Zygote, settings: TransportSettings, tmp_path: Path) -> None:
    progress: list[int] = []
    with agents(zygote, SPEC.hosts) as started:
        job = session(started, SPEC, settings, tmp_path)
        job.open()
        start_s = job.start()
        end_s = job.wait(progress.append)
        result = job.collect()
        job.close()
    tensors = SPEC.tensors(settings)
    assert set(result.iterations) == set(TABLES["iterations"])
    assert set(result.messages) == set(TABLES["messages"])
    assert len(result.iterations["job"]) == 2 * SPEC.iterations
    assert len(result.messages["job"]) == 2 * 2 * SPEC.iterations * len(tensors)
    assert progress[-1] == SPEC.iterations
    check_iterations(result.iterations, start_s, end_s)
    check_messages(result.messages, settings)
    assert set(result.statistics) == set(SPEC.hosts)
    assert 0 < result.statistics["h1"]["sched_late_s"] < 0.1
    assert not list(tmp_path.glob("*.npz"))


def done(zygote: Zygote, spec: JobSpec, settings: TransportSettings, tmp_path: Path) -> JobResult:
    """What a job of agents leaves when it has run to its end."""
    with agents(zygote, spec.hosts) as started:
        job = session(started, spec, settings, tmp_path)
        job.open()
        job.start()
        job.wait()
        result = job.collect()
        job.close()
        return result


RING = SPEC.model_copy(update={"workers": ("h1", "h2", "h3"), "servers": (), "pattern": "ring", "bucket_bytes": 60_000})


@pytest.mark.parametrize("settings", SETTINGS, ids=["tcp", "dlcp"])
def test_ring_job__leaves_identical_parameters_and_a_row_for_every_hop(
    zygote: Zygote, settings: TransportSettings, tmp_path: Path
) -> None:
    result = done(zygote, RING, settings, tmp_path)
    assert broken_promises(result.iterations, result.messages) == ""
    pairs = set(zip(result.iterations["iteration"], result.iterations["parameters_crc32"], strict=True))
    assert len(pairs) == RING.iterations, "all workers hold the same bits, and every iteration changes them"
    hops = set(zip(result.messages["src"], result.messages["dst"], strict=True))
    assert hops == {("h1", "h2"), ("h2", "h3"), ("h3", "h1")}
    sizes = {tensor: found.size_bytes for tensor, found in enumerate(RING.tensors(settings))}
    carried: dict[tuple[int, int, str], int] = {}
    messages = result.messages
    for iteration, tensor, leg, size in zip(
        messages["iteration"], messages["tensor"], messages["leg"], messages["bytes"], strict=True
    ):
        carried[iteration, tensor, leg] = carried.get((iteration, tensor, leg), 0) + size
    assert len(carried) == RING.iterations * len(sizes) * 2
    assert all(size == 2 * sizes[tensor] for (_, tensor, _), size in carried.items()), "N - 1 hops of every byte a leg"


CODED = [
    TCP.model_copy(update={"compression": Compression(method="powersgd", knobs={"rank": 1})}),  # two rounds
    TCP.model_copy(update={"compression": Compression(method="dgc", knobs={"ratio": 0.05})}),  # lengths vary
    SETTINGS[1].model_copy(update={"compression": Compression(method="topk", knobs={"ratio": 0.4})}),
]


@pytest.mark.parametrize("settings", CODED, ids=lambda settings: settings.compression.method)
def test_compressed_job__leaves_identical_parameters_and_a_row_for_every_code(
    zygote: Zygote, settings: TransportSettings, tmp_path: Path
) -> None:
    result = done(zygote, SPEC, settings, tmp_path)
    assert broken_promises(result.iterations, result.messages) == ""
    pairs = set(zip(result.iterations["iteration"], result.iterations["parameters_crc32"], strict=True))
    assert len(pairs) == SPEC.iterations, "both workers hold the same bits, and every iteration changes them"
    assert all(codec_s > 0 for codec_s in result.iterations["codec_s"])
    messages, tensors = result.messages, SPEC.tensors(settings)
    rounds = 2 if settings.compression and settings.compression.method == "powersgd" else 1
    assert len(messages["job"]) == 2 * 2 * SPEC.iterations * len(tensors) * rounds
    assert set(messages["tensor"]) == set(range(len(tensors)))
    gradient_bytes = sum(tensor.size_bytes for tensor in tensors)
    assert sum(messages["tensor_bytes"]) == 2 * 2 * SPEC.iterations * gradient_bytes, "told once, not in every round"
    pushed = [(size, leg) for size, leg in zip(messages["bytes"], messages["leg"], strict=True) if leg == "push"]
    assert sum(size for size, _ in pushed) < 0.85 * 2 * SPEC.iterations * gradient_bytes
    bounded = {leg for leg, bound in zip(messages["leg"], messages["loss_bound"], strict=True) if bound > 0}
    assert bounded == ({"push"} if settings.kind == "dlcp" else set())


TRANSPOSE = RING.model_copy(update={"pattern": "transpose"})


@pytest.mark.parametrize("settings", SETTINGS, ids=["tcp", "dlcp"])
def test_transpose_job__leaves_identical_parameters_and_every_piece_and_result(
    zygote: Zygote, settings: TransportSettings, tmp_path: Path
) -> None:
    result = done(zygote, TRANSPOSE, settings, tmp_path)
    assert broken_promises(result.iterations, result.messages) == ""
    pairs = set(zip(result.iterations["iteration"], result.iterations["parameters_crc32"], strict=True))
    assert len(pairs) == TRANSPOSE.iterations, "all workers hold the same bits, and every iteration changes them"
    carried: dict[tuple[str, str, str], int] = {}
    messages = result.messages
    for source, sink, leg, size in zip(
        messages["src"], messages["dst"], messages["leg"], messages["bytes"], strict=True
    ):
        carried[source, sink, leg] = carried.get((source, sink, leg), 0) + size
    ideal = {(t.source, t.destination): t.size_bytes for t in transfers_of(TRANSPOSE, settings)[:6]}
    assert {(a, b): size for (a, b, leg), size in carried.items() if leg == "push"} == {
        pair: size * TRANSPOSE.iterations for pair, size in ideal.items()
    }
    assert all(carried[b, a, "pull"] == size for (a, b, leg), size in carried.items() if leg == "push")
    assert len(carried) == 12, "each of three to two others, on two legs"
    assert set(messages["loss_bound"]) <= {settings.loss_bound, 0.0}


@pytest.mark.parametrize("hadamard", [False, True])
def test_optireduce__workers_drift_from_the_first_result_that_lost_something(
    zygote: Zygote, hadamard: bool, tmp_path: Path
) -> None:
    """An eager stop closes a message that may lose anything at its first packet."""
    settings = TransportSettings(
        kind="dlcp",
        stop="eager",
        must_arrive_below_packets=0,
        hadamard=hadamard,
        time_bounds=TimeBounds(warmup_iterations=2),
    )
    result = done(zygote, TRANSPOSE, settings, tmp_path)
    messages, iterations = result.messages, result.iterations
    assert broken_promises(iterations, messages, drift_lasts=True) == ""
    lost = {
        i
        for i, leg, size in zip(messages["iteration"], messages["leg"], messages["lost_bytes"], strict=True)
        if leg == "pull" and size
    }
    assert lost == set(range(2, TRANSPOSE.iterations))
    assert {b for i, b in zip(messages["iteration"], messages["loss_bound"], strict=True) if i >= 2} == {1.0}
    held = set(zip(iterations["iteration"], iterations["parameters_crc32"], strict=True))
    apart = [sum(one == i for one, _ in held) for i in range(TRANSPOSE.iterations)]
    assert apart == [1, 1] + [3] * (TRANSPOSE.iterations - 2)
    for host in TRANSPOSE.workers:
        times = result.statistics[host]["told"]["stage_times"]
        assert times["push"]["hard_s"] > 0
        assert set(times) == {"push", "pull"}
        assert set(times["pull"]) == {"hard_s", "expected_s", "wait_share"}


@pytest.mark.parametrize("every", [1, 3])
def test_drift__workers_are_identical_after_every_full_sync(zygote: Zygote, every: int, tmp_path: Path) -> None:
    """An eager stop loses about what it may lose, on a clean network too: real holes in real pulls."""
    settings = TransportSettings(kind="dlcp", pull_loss_bound=0.4, full_sync_every=every, stop="eager")
    spec = SPEC.model_copy(update={"bucket_bytes": 60_000, "iterations": 8})
    result = done(zygote, spec, settings, tmp_path)
    assert broken_promises(result.iterations, result.messages) == ""
    messages, iterations = result.messages, result.iterations
    pulls = [i for i, leg in enumerate(messages["leg"]) if leg == "pull"]
    lossy = {messages["iteration"][i] for i in pulls if messages["loss_bound"][i] > 0}
    assert lossy == {i for i in range(7) if (i + 1) % every}
    lost = {messages["iteration"][i] for i in pulls if messages["lost_bytes"][i]}
    assert lost <= lossy
    assert bool(lost) == (every > 1), "an eager stop leaves holes where it may"
    held = set(zip(iterations["iteration"], iterations["parameters_crc32"], strict=True))
    assert {sum(one == i for one, _ in held) for i in range(8) if i not in lossy} == {1}


def check_iterations(columns: dict[str, list], start_s: float, end_s: float) -> None:
    """Iterations follow each other without a gap, hold at least their compute, and leave identical parameters."""
    for worker in SPEC.workers:
        rows = [i for i, name in enumerate(columns["worker"]) if name == worker]
        starts, ends = ([columns[name][i] for i in rows] for name in ("start_s", "end_s"))
        assert starts[0] == start_s
        assert starts[1:] == ends[:-1]
        assert ends[-1] <= end_s
        assert all(b - a >= SPEC.compute_s - 1e-9 for a, b in zip(starts, ends, strict=True))
        assert [columns["warmup"][i] for i in rows] == [True] + [False] * (SPEC.iterations - 1)
    pairs = set(zip(columns["iteration"], columns["parameters_crc32"], strict=True))
    assert len(pairs) == SPEC.iterations, "all workers hold the same bits"
    assert len({crc32 for _, crc32 in pairs}) == SPEC.iterations, "every iteration changes the parameters"


def test_source_ports__are_told_to_every_peer(zygote: Zygote, tmp_path: Path) -> None:
    """A peer drops what comes from a port that it was not told of: the job would stall."""
    settings = TransportSettings(kind="dlcp", source_ports=4)
    result = done(zygote, SPEC, settings, tmp_path)
    assert broken_promises(result.iterations, result.messages) == ""
    assert all(found["transport"]["strange_address"] == 0 for found in result.statistics.values())


def check_messages(columns: dict[str, list], settings: TransportSettings) -> None:
    rows = [dict(zip(columns, values, strict=True)) for values in zip(*columns.values(), strict=True)]
    sizes = [tensor.size_bytes for tensor in SPEC.tensors(settings)]
    for row in rows:
        assert row["bytes"] == sizes[row["tensor"]]
        assert row["delivered_bytes"] + row["lost_bytes"] == row["bytes"]
        assert row["start_s"] < row["end_s"] < row["start_s"] + 5
        worker, server = (row["src"], row["dst"])[:: 1 if row["leg"] == "push" else -1]
        assert worker in SPEC.workers
        assert server in SPEC.servers
        assert row["lost_bytes"] <= row["loss_bound"] * row["bytes"]
        assert row["loss_bound"] == (settings.loss_bound if row["leg"] == "push" else 0.0)


def test_agent__dies_when_its_channel_ends_whatever_it_does(zygote: Zygote, tmp_path: Path) -> None:
    """In the middle of a job too: nobody is left to stop it."""
    long = SPEC.model_copy(update={"iterations": 10_000})
    with agents(zygote, SPEC.hosts) as started:
        job = session(started, long, SETTINGS[0], tmp_path, limit_s=300)
        job.open()
        job.start()
        time.sleep(0.5)
        pids = [agent_pid(host) for host in SPEC.hosts]
        assert all(not gone(pid, timeout_s=0.05) for pid in pids)
    assert all(gone(pid) for pid in pids)


def agent_pid(host: str) -> int:
    """The process that calls itself this host's agent, among the children of this process's zygote."""
    for path in Path("/proc").glob("[0-9]*/comm"):
        try:
            if path.read_text().strip() == f"agent-{host}" and grandparent(int(path.parent.name)) == os.getpid():
                return int(path.parent.name)
        except (FileNotFoundError, ProcessLookupError):
            continue
    raise AssertionError(f"no agent of {host}")


def grandparent(pid: int) -> int:
    def parent(of: int) -> int:
        return int(Path(f"/proc/{of}/stat").read_text().rsplit(")", 1)[1].split()[1])

    return parent(parent(pid))


def test_dead_worker__fails_the_job_with_its_name(zygote: Zygote, tmp_path: Path) -> None:
    long = SPEC.model_copy(update={"iterations": 10_000})
    with agents(zygote, SPEC.hosts) as started:
        job = session(started, long, SETTINGS[0], tmp_path, limit_s=300)
        job.open()
        job.start()
        time.sleep(0.3)
        os.kill(agent_pid("h2"), 9)
        with pytest.raises(AgentError, match=r"h2: the agent died|rank 1 is gone"):
            job.wait()


def test_time_limit__says_what_was_waited_for(zygote: Zygote, tmp_path: Path) -> None:
    long = SPEC.model_copy(update={"iterations": 10_000})
    with agents(zygote, SPEC.hosts) as started:
        job = session(started, long, SETTINGS[0], tmp_path, limit_s=0.5)
        job.open()
        job.start()
        with pytest.raises(AgentError, match="out of time"):
            job.wait()


def test_errors__name_host_and_command(zygote: Zygote) -> None:
    with agents(zygote, ("h1", "h2")) as started:
        with pytest.raises(AgentError, match="h1: dance: ValueError: there is no command 'dance'"):
            started["h1"].request({"command": "dance"}, 5)
        with pytest.raises(AgentError, match="h2: start: AssertionError: prepare comes before start"):
            request_all(started, {"h2": {"command": "start", "at": 0.0, "give_up_at": 0.0}}, 5)
        assert started["h1"].request({"command": "status"}, 5)["state"] == "failed"


def test_open__fails_within_its_time_when_the_server_is_not_there(zygote: Zygote) -> None:
    with agents(zygote, ("h1",)) as started:
        command = {
            "command": "open",
            "rank": 0,
            "address": "127.0.0.1",
            "port": 1,
            "peers": {"1": ["127.0.0.2", 1]},
            "settings": SETTINGS[0].model_dump(mode="json"),
            "cookie": 1,
            "connects_to": [1],
            "link_rate_bps": 1e9,
        }
        with pytest.raises(AgentError, match=r"h1: no answer to open in 0\.5 s"):
            started["h1"].request(command, 0.5)


def test_gather__sees_a_reply_that_the_tick_has_read() -> None:
    """A status request, made while another reply is awaited, may take both replies off the channel."""
    ours, theirs = socket.socketpair()
    handle = AgentHandle("h1", ours)
    job = handle.send({"command": "start"})

    def tick() -> None:
        status = handle.send({"command": "status"})
        for number in (job, status):
            theirs.sendall(json.dumps({"id": number, "ok": True, "result": {"number": number}}).encode() + b"\n")
        handle.result(status, 1.0)

    with theirs:
        assert gather({"h1": (handle, job)}, 3.0, tick) == {"h1": {"number": job}}
    handle.close()


def test_logs__hold_what_an_agent_prints(zygote: Zygote, tmp_path: Path) -> None:
    with agents(zygote, ("h1",), logs=tmp_path) as started, pytest.raises(AgentError):
        started["h1"].request({"command": "dance"}, 5)
    assert "there is no command 'dance'" in (tmp_path / "h1.log").read_text()


def test_zygote__a_second_client_may_adopt_it(zygote: Zygote) -> None:
    adopted = Zygote.adopt(os.dup(zygote.fileno()))
    with agents(adopted, ("h1",)) as started:
        assert started["h1"].request({"command": "status"}, 5)["state"] == "idle"
    adopted.close()


@needs("torch")
def test_zygote__passes_the_problem_of_loading_on() -> None:
    with pytest.raises(Problem, match="no such training script"):
        Zygote.spawn("no_such_script.py")


def test_stdin_agent__speaks_json_lines_and_ends_with_its_input() -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "dlcp.agents.process.stdio"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    output, _ = process.communicate(b'{"id": 1, "command": "status"}\n', timeout=20)
    assert json.loads(output) == {"id": 1, "ok": True, "result": {"iteration": 0, "state": "idle"}}
    assert process.returncode == 0


def test_phases__hold_all_compute_and_every_tensor_once() -> None:
    tensors = SPEC.tensors(SETTINGS[0])
    forward, backward = forward_phases(SPEC.layers, tensors), backward_phases(SPEC.layers, tensors)
    assert sum(phase.compute_s for phase in forward + backward) == pytest.approx(SPEC.compute_s)
    assert [t for phase in forward for t in phase.tensors] == list(range(len(tensors)))
    assert [t for phase in backward for t in phase.tensors] == list(reversed(range(len(tensors))))


def test_phases__a_tensor_waits_for_the_backward_of_its_first_layer() -> None:
    """Layers 0 and 1 share a tensor: it is needed before layer 0, and ready only after layer 0's backward."""
    layers = tuple(LayerWork(name=f"l{i}", elements=n, forward_s=1, backward_s=2) for i, n in enumerate((10, 10, 5000)))
    spec = SPEC.model_copy(update={"layers": layers, "bucket_bytes": 8_000})
    tensors = spec.tensors(SETTINGS[0])
    assert (tensors[0].first_layer, tensors[0].last_layer) == (0, 1)
    backward = backward_phases(layers, tensors)
    assert (backward[0].compute_s, backward[0].tensors) == (2, [2, 1])
    assert (backward[1].compute_s, backward[1].tensors) == (4, [0])


def test_synthetic_gradient__packets_differ_and_workers_too() -> None:
    """The spread that selective dropping acts on: packet means differ by more than a factor of two inside a layer."""
    spec = SPEC.model_copy(update={"layers": (LayerWork(name="one", elements=36_000),)})
    gradients = [synthetic_gradient(spec, worker) for worker in range(2)]
    means = np.abs(gradients[0]).reshape(-1, 360).mean(axis=1)
    low, high = np.quantile(means, [0.1, 0.9])
    assert high > 2 * low
    assert not np.array_equal(gradients[0], gradients[1])
    np.testing.assert_array_equal(gradients[0], synthetic_gradient(spec, 0))

"""A real training job: PyTorch over the parameter server, on Fashion-MNIST."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
import yaml
from local_agents import agents, session
from loopback import TCP
from pydantic import TypeAdapter

from dlcp.agents.control.handles import Zygote
from dlcp.agents.job_spec import JobSpec, plan_job
from dlcp.agents.process.inprocess_job import InProcessJob
from dlcp.agents.process.rank_factory import optimizer
from dlcp.agents.records import messages_an_iteration
from dlcp.agents.scripts import JobOptions, load_script
from dlcp.datasets.batches import Batches, order
from dlcp.datasets.fashion_mnist import INSTALL
from dlcp.errors import Problem
from dlcp.model.experiment import Scaling
from dlcp.model.result import TABLES
from dlcp.model.transport.masks import MaskSettings
from dlcp.model.transport.settings import Compression, TransportSettings
from dlcp.model.workload import Job, Workload
from dlcp.paths import WORKLOADS

SCRIPT = "fashion_mnist_cnn.py"
STEPS = 6
SETTINGS = [TCP, TransportSettings(kind="dlcp", loss_bound=0.0, priority_queues=5)]


def script() -> ModuleType:
    return load_script(SCRIPT)


@pytest.fixture(scope="module")
def data() -> None:
    try:
        script().images("t10k")
    except Problem as problem:
        pytest.skip(str(problem))


@pytest.fixture(scope="module")
def zygote(data: None) -> Iterator[Zygote]:
    with Zygote.spawn(SCRIPT) as found:
        yield found


def spec(
    byte_scale: float = 1.0,
    pattern: str = "parameter-server",
    compute: str | None = "30 ms",
    time_dilation: float = 1.0,
) -> JobSpec:
    path = WORKLOADS / "fashion-mnist-cnn.yaml"
    content = yaml.safe_load(path.read_text()) | {"compute": compute}
    workload = TypeAdapter(Workload).validate_python(content)
    job = Job(
        workload="fashion-mnist-cnn",
        workers=("h1", "h2"),
        servers=() if pattern == "ring" else ("h3",),
        pattern=pattern,
        iterations=STEPS,
        bucket=40_000,
        evaluations=3,
    )
    scaling = Scaling(lab_rate="10 Gbit/s", byte_scale=byte_scale, time_dilation=time_dilation)
    return plan_job("real", job, workload, scaling, seed=3)


def reference_loss_and_accuracy(found: JobSpec) -> tuple[float, float]:
    """The same training in this process: plain autograd, gradients averaged over the workers, the same update."""
    module, sgd = script(), optimizer(found)
    jobs = [module.job(JobOptions(found.seed, worker, 2, found.batch)) for worker in range(2)]
    model = jobs[0].model
    parameters = list(model.parameters())
    velocities = [torch.zeros_like(p) for p in parameters]
    for step in range(STEPS):
        gradients = []
        for job in jobs:
            inputs, labels = job.batch(step)
            gradients.append(torch.autograd.grad(job.loss(model(inputs), labels), parameters))
        with torch.no_grad():
            for p, v, *each in zip(parameters, velocities, *gradients, strict=True):
                v.mul_(sgd.momentum).add_((each[0] + each[1]) / 2)
                p.sub_(v * sgd.rate(step))
    inputs, labels = jobs[0].test_set()
    with torch.no_grad():
        output = model(inputs)
        return float(jobs[0].loss(output, labels)), float((output.argmax(1) == labels).float().mean())


@pytest.mark.parametrize("pattern", ["parameter-server", "ring"])
@pytest.mark.parametrize("settings", SETTINGS, ids=["tcp", "dlcp"])
def test_training__equals_the_same_steps_in_one_process(
    zygote: Zygote, settings: TransportSettings, pattern: str, tmp_path: Path
) -> None:
    found = spec(pattern=pattern)
    with agents(zygote, found.hosts) as started:
        job = session(started, found, settings, tmp_path)
        job.open()
        job.start()
        job.wait()
        result, training = job.collect(), job.evaluate()
        job.close()
    loss, accuracy = reference_loss_and_accuracy(found)
    assert set(training) == set(TABLES["training"])
    assert training["step"] == [1, 3, 5]
    assert training["time_s"] == sorted(training["time_s"])
    assert training["loss"][-1] == pytest.approx(loss, abs=1e-4)
    assert training["accuracy"][-1] == pytest.approx(accuracy, abs=2e-3)
    rows = list(zip(result.iterations["iteration"], result.iterations["parameters_crc32"], strict=True))
    assert len(rows) == 2 * STEPS
    assert len(set(rows)) == STEPS, "both workers hold the same bits after every iteration"
    assert all(compute_s > 0 for compute_s in result.iterations["compute_s"])
    assert len(result.messages["job"]) == STEPS * messages_an_iteration(found, found.tensors(settings), settings)
    masked = TransportSettings(kind="masked", must_arrive_below_packets=0, mask=MaskSettings(loss=0.0))
    in_process = InProcessJob(found, masked).run(lambda done: None)
    checksums = in_process.iterations["parameters_crc32"]
    assert checksums == result.iterations["parameters_crc32"], "the same bits, without a network"
    assert in_process.training["accuracy"] == training["accuracy"]


@pytest.mark.parametrize("time_dilation", [1.0, 3.0])
def test_training__takes_as_long_as_declared_whatever_the_machine_needs(
    zygote: Zygote, time_dilation: float, tmp_path: Path
) -> None:
    found = spec(time_dilation=time_dilation)
    quick = spec(compute=None, time_dilation=time_dilation)
    results = []
    for job_spec in (found, quick):
        with agents(zygote, job_spec.hosts) as started:
            job = session(started, job_spec, SETTINGS[1].model_copy(update={"time_dilation": time_dilation}), tmp_path)
            job.open()
            job.start()
            job.wait()
            results.append(job.collect())
            job.close()
    paced, free = results
    assert found.compute_s == pytest.approx(0.03 * time_dilation)
    assert sum(layer.forward_s for layer in found.layers) == pytest.approx(0.01 * time_dilation)
    assert quick.compute_s == 0
    lasted = np.subtract(paced.iterations["end_s"], paced.iterations["start_s"])
    assert (lasted > 0.0299 * time_dilation).all(), "no iteration is quicker than its declared compute"
    assert np.median(lasted) < 0.03 * time_dilation + 0.03, "and not much slower: the network here is a loopback"
    assert paced.iterations["compute_s"] == pytest.approx([found.compute_s] * 2 * STEPS)
    assert paced.iterations["parameters_crc32"] == free.iterations["parameters_crc32"], "the same bits"
    for host in found.workers:
        statistics = paced.statistics[host]
        assert 0 <= statistics["compute_over_share"] <= 1
        assert (statistics["compute_over_s"] > 0) is (statistics["compute_over_share"] > 0)
        assert free.statistics[host]["compute_over_s"] == 0


def test_training__in_half_precision_learns_what_whole_gradients_teach(zygote: Zygote, tmp_path: Path) -> None:
    found = spec()
    settings = SETTINGS[0].model_copy(update={"compression": Compression(method="fp16")})
    with agents(zygote, found.hosts) as started:
        job = session(started, found, settings, tmp_path, limit_s=60)
        job.open()
        job.start()
        job.wait()
        result, training = job.collect(), job.evaluate()
        job.close()
    loss, _ = reference_loss_and_accuracy(found)
    assert training["loss"][-1] == pytest.approx(loss, abs=5e-3)
    rows = set(zip(result.iterations["iteration"], result.iterations["parameters_crc32"], strict=True))
    assert len(rows) == STEPS, "both workers hold the same bits after every iteration"
    assert sum(result.messages["bytes"]) * 2 == sum(result.messages["tensor_bytes"])


@pytest.mark.parametrize(("name", "parameters"), [(SCRIPT, 52_138), ("fashion_mnist_mlp.py", 109_386)])
def test_layers__are_the_models(name: str, parameters: int) -> None:
    found = load_script(name)
    job = found.job(JobOptions(seed=1, worker=0, workers=1, batch=4))
    counts = tuple(sum(p.numel() for p in layer.parameters()) for layer in job.layers)
    assert counts == tuple(count for _, count in found.LAYERS)
    assert sum(counts) == sum(p.numel() for p in job.model.parameters()) == parameters


def test_initial_parameters__follow_from_the_seed_alone() -> None:
    first, again, other = (
        script().job(JobOptions(seed, worker, 8, 16)).initial_parameters() for seed, worker in ((1, 0), (1, 5), (2, 0))
    )
    np.testing.assert_array_equal(first, again)
    assert not np.array_equal(first, other)


def test_order__workers_share_an_epoch_without_overlap() -> None:
    count, workers, batch = 1000, 4, 25
    epoch, following = (
        np.concatenate(
            [order(7, worker, workers, batch, count, first + step) for step in range(10) for worker in range(workers)]
        )
        for first in (0, 10)
    )
    assert sorted(epoch) == list(range(count))
    assert sorted(following) == list(range(count))
    assert not np.array_equal(epoch, following)


def test_byte_scale__does_not_touch_real_gradients() -> None:
    assert spec(byte_scale=100.0).layers == spec().layers


@pytest.mark.parametrize(
    "content",
    [None, b"not gzip", gzip.compress(b"\0\0\x08\x03short"), gzip.compress(bytes(2000))[:40]],
    ids=["missing", "not gzip", "short", "cut off"],
)
def test_data__missing_or_broken_says_where_to_get_it(
    content: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if content is not None:
        (tmp_path / "t10k-images-idx3-ubyte.gz").write_bytes(content)
    monkeypatch.setenv("DLCP_DATA", str(tmp_path))
    with pytest.raises(Problem) as caught:
        script().images.__wrapped__("t10k")
    assert str(tmp_path / "t10k-images-idx3-ubyte.gz") in caught.value.where
    assert INSTALL in caught.value.hint
    assert "DLCP_DATA" in caught.value.hint


def test_data__missing_in_the_zygote_reaches_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DLCP_DATA", str(tmp_path))
    with pytest.raises(Problem, match="Fashion-MNIST") as caught:
        Zygote.spawn(SCRIPT)
    assert INSTALL in caught.value.hint


def test_batches__by_class_share_the_classes_out_and_all_samples_are_seen() -> None:
    classes = np.random.default_rng(1).integers(10, size=1000)
    workers, batch = 4, 25
    seen = {}
    for worker in range(workers):
        batches = Batches(JobOptions(7, worker, workers, batch, "by-class"))
        seen[worker] = np.concatenate([batches(classes, step) for step in range(10)])
        assert len(set(classes[seen[worker]])) <= 4, "of ten classes, a quarter and what it shares with neighbours"
    assert sorted(np.concatenate(list(seen.values()))) == list(range(1000))


def test_batches__shuffled_are_turns_in_one_order() -> None:
    classes = np.zeros(100, np.int64)
    found = Batches(JobOptions(7, 1, 2, 10))(classes, 3)
    np.testing.assert_array_equal(found, order(7, 1, 2, 10, 100, 3))

"""Training in one process: the sums of a parameter server, masks for a network, no time, the same bits every time."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pyarrow.parquet as pq
import pytest
from extras import needs
from test_execute import Silent, fine

from dlcp.agents.job_spec import JobSpec
from dlcp.agents.process.inprocess_exchange import Exchange, Exchanges, Pushed, RanksInProcess
from dlcp.agents.process.inprocess_job import InProcessJob, Trained
from dlcp.datasets import fashion_mnist
from dlcp.errors import Problem
from dlcp.model.base import OnProgress
from dlcp.model.loading.mask_file import read_recording
from dlcp.model.loading.stored_result import record_tables
from dlcp.model.result import TABLES, RunResult
from dlcp.model.run import Run
from dlcp.model.tables import write_columns, write_rows
from dlcp.model.transport.masks import MaskSettings
from dlcp.model.transport.settings import TransportSettings
from dlcp.runner.planning.check import Ready, ready
from dlcp.runner.planning.plan import Plan, plan, usual_substrate
from dlcp.runner.running.execute import execute
from dlcp.runner.running.record_masks import record_masks
from dlcp.substrates.inprocess.substrate import InProcess
from dlcp.substrates.run_plan import plan_run
from dlcp.transport.aggregation.loss_masks import Lost
from dlcp.transport.contract.endpoint import Floats
from dlcp.transport.contract.packing import Packing
from experiments import document, small, write

Holes = Literal["zero", "rescale", "last"]
WORKERS, ITERATIONS = 3, 8


pytestmark = needs("torch")


@pytest.fixture(scope="module", autouse=True)
def data() -> None:
    try:
        fashion_mnist.images("t10k")
    except Problem as problem:
        pytest.skip(str(problem))


def ready_with(folder: Path, *schemes: dict[str, Any], **changes: Any) -> Ready:
    job = {
        "workload": "fashion-mnist-mlp",
        "workers": ["h1", "h2", "h3"],
        "servers": ["h4"],
        "iterations": ITERATIONS,
        "bucket": "110 kB",
        "byte_scaled": False,
        "evaluations": 2,
    }
    named = [{"scheme": "masked", "label": f"label {i}", "knobs": knobs} for i, knobs in enumerate(schemes)]
    content = document(jobs={"mlp": job}, repeats=1, schemes=named, **changes)
    return ready(write(folder, content))


def masked(holes: Holes = "zero", **mask: object) -> TransportSettings:
    mask_settings = MaskSettings.model_validate(mask)
    return TransportSettings(kind="masked", must_arrive_below_packets=0, holes=holes, mask=mask_settings)


def trained(found: Plan, **mask: object) -> tuple[JobSpec, Trained]:
    spec = plan_run(found.cells[0].run).spec
    return spec, InProcessJob(spec, masked(**mask)).run(lambda done: None)


def among_equals(found: Plan, pattern: str) -> JobSpec:
    """Return the job's spec with a pattern that has no servers."""
    return plan_run(found.cells[0].run).spec.model_copy(update={"pattern": pattern, "servers": ()})


@pytest.fixture
def tiny(tmp_path: Path) -> Plan:
    return plan(ready_with(tmp_path, {"loss": "40 %"}), "inprocess")


def test_training__the_same_seed_gives_the_same_bits(tiny: Plan) -> None:
    tables = []
    for _ in range(2):
        _, found = trained(tiny, loss=0.4, order="large-first")
        tables.append({**found.iterations, **found.messages, **found.training, "energy": [found.lost_energy_share]})
    assert tables[0].keys() == tables[1].keys()
    for name, values in tables[0].items():
        np.testing.assert_array_equal(np.array(values), np.array(tables[1][name]), err_msg=name)


def test_training__loses_what_the_masks_say(tiny: Plan) -> None:
    spec, found = trained(tiny, loss=0.25, order="tail-cut")
    lost, sizes, tensor = (np.array(found.messages[name]) for name in ("lost_bytes", "bytes", "tensor"))
    assert len(lost) == ITERATIONS * WORKERS * (tensor.max() + 1)
    assert sizes.sum() == ITERATIONS * WORKERS * spec.elements * 4
    assert lost[tensor == 0].sum() == 0, "the front is not in the tail"
    assert (lost[tensor == tensor.max()] == sizes[tensor == tensor.max()]).all(), "the output layers never arrive"
    assert lost.sum() == pytest.approx(0.25 * sizes.sum(), rel=0.02)
    assert found.lost_energy_share > 0.5, "they hold most of the energy"


def test_training__losing_everything_leaves_the_parameters_as_they_were(tiny: Plan) -> None:
    _, found = trained(tiny, loss=1.0)
    assert len(set(found.iterations["parameters_crc32"])) == 1
    assert found.lost_energy_share == pytest.approx(1.0)


@pytest.mark.parametrize("holes", ["zero", "rescale", "last"])
def test_exchange__ranks_leave_the_bits_of_the_sum_at_once(tiny: Plan, holes: Holes) -> None:
    spec = plan_run(tiny.cells[0].run).spec
    settings = masked(holes, loss=0.3, order="large-first")
    at_once = InProcessJob(spec, settings).run(lambda done: None)
    ranks = InProcessJob(spec, settings, RanksInProcess).run(lambda done: None)
    assert ranks.iterations["parameters_crc32"] == at_once.iterations["parameters_crc32"]
    assert ranks.training == at_once.training
    assert ranks.lost_energy_share == pytest.approx(at_once.lost_energy_share, rel=1e-6)
    for name, values in at_once.messages.items():
        if name == "lost_energy_share":
            np.testing.assert_allclose(ranks.messages[name], values, rtol=1e-6)
        else:
            np.testing.assert_array_equal(np.array(ranks.messages[name]), np.array(values), err_msg=name)


@pytest.mark.parametrize("pattern", ["ring", "transpose"])
def test_pattern__without_servers_loses_of_what_each_worker_sends(tiny: Plan, pattern: str) -> None:
    spec = among_equals(tiny, pattern)
    found = InProcessJob(spec, masked(loss=0.25)).run(lambda done: None)
    again = InProcessJob(spec, masked(loss=0.25)).run(lambda done: None)
    crc32 = found.iterations["parameters_crc32"]
    assert crc32 == again.iterations["parameters_crc32"], "whatever thread came first"
    by_worker = np.array(crc32).reshape(WORKERS, ITERATIONS)
    assert (by_worker == by_worker[0]).all(), "results lose nothing"
    sizes, lost = np.array(found.messages["bytes"]), np.array(found.messages["lost_bytes"])
    assert sizes.sum() == ITERATIONS * (WORKERS - 1) * spec.elements * 4, "nobody sends its own chunk"
    assert lost.sum() == pytest.approx(0.25 * sizes.sum(), rel=0.05)
    assert found.lost_energy_share == pytest.approx(0.25, abs=0.15), "some packets hold much of it"


def test_pattern__a_loss_in_a_ring_takes_more_than_the_gradient_of_its_sender(tiny: Plan) -> None:
    """All is lost of what one worker sends. In a transpose that is one gradient; in a ring the sum up to it."""
    losses = {"loss": 1 / WORKERS, "spread": "one-worker"}
    kept = {}
    for pattern in ("ring", "transpose"):
        seen: list[float] = []
        exchange = watching(seen)
        InProcessJob(among_equals(tiny, pattern), masked(**losses), exchange).run(lambda done: None)
        kept[pattern] = sum(seen) / len(seen)
    size = WORKERS
    others = (size - 1) / size  # of each chunk but its own, the unlucky one's gradient is missing
    assert kept["transpose"] == pytest.approx(1 - others / size, abs=0.01)
    assert kept["ring"] == pytest.approx(1 - sum(range(1, size)) / size**2, abs=0.01)


def watching(seen: list[float]) -> Exchanges:
    """Gradients of ones, so that a step of the parameters tells which share of all gradients took part in it."""

    def exchange(spec: JobSpec, settings: TransportSettings, parameters: Floats, packing: Packing) -> Exchange:
        plain = spec.model_copy(update={"learning_rate": 1.0, "momentum": 0.0, "iterations": 10**6})
        inner = RanksInProcess(plain, settings, parameters, packing)
        step = inner.step

        def one(iteration: int, rows: Floats, lost: Lost) -> Pushed:
            before = parameters.copy()
            rows[:] = 1.0
            pushed = step(iteration, rows, lost)
            moved = before - parameters
            seen.append(float(moved.mean() / moved.max()))
            return pushed

        inner.step = one  # type: ignore[method-assign]
        return inner

    return exchange


def test_training__a_lower_rate_is_another_training(tiny: Plan) -> None:
    runs = [trained(tiny, loss=0.0, damped=damped)[1].iterations["parameters_crc32"] for damped in (0.0, 0.4)]
    assert runs[0][0] != runs[1][0]


def test_substrate__a_run_in_its_own_process_has_the_same_bits_and_no_time(tiny: Plan, tmp_path: Path) -> None:
    with InProcess() as substrate:
        done = execute(tiny, tmp_path / "results", Silent(), substrate=nullcontext(substrate))
    assert done.statuses == {"ok": 1}
    (folder,) = (path for path in (tmp_path / "results" / "small").iterdir() if path.is_dir())
    result = RunResult.model_validate_json((folder / "result.json").read_text())
    assert result.jct_s is None
    assert result.warnings == ["trained in one process: no time in this result is a measurement, steps are"]
    assert np.isnan(pq.read_table(folder / "messages.parquet")["end_s"].to_numpy()).all()
    _, here = trained(tiny, loss=0.4)
    there = pq.read_table(folder / "iterations.parquet")["parameters_crc32"].to_pylist()
    assert there == here.iterations["parameters_crc32"]
    assert result.statistics["gradient"]["lost_energy_share"] == here.lost_energy_share
    assert pq.read_table(folder / "training.parquet")["step"].to_pylist() == [3, 7]


def test_recording__holes_of_a_run_are_replayed_where_they_were(tiny: Plan, tmp_path: Path) -> None:
    planned = plan_run(tiny.cells[0].run)
    result = planned.blank_result()
    result.run["job"] |= {"record_holes": True, "warmup_iterations": 1}
    folder = tmp_path / result.run_id
    folder.mkdir()
    holes = [("mlp", 0, 1, "h1", "h4", [0]), ("mlp", 1, 1, "h3", "h4", [0, 5]), ("mlp", 7, 0, "h2", "h4", [2])]
    for table in TABLES:
        write_rows(folder, table, [])
    write_columns(folder, "holes", dict(zip(TABLES["holes"], map(list, zip(*holes, strict=True)), strict=True)))
    result.tables = record_tables(folder)
    (folder / "result.json").write_text(result.model_dump_json())
    path, written = record_masks(folder, "some", tmp_path / "masks")
    found = read_recording(path)
    assert (found.iterations, found.workers, found.source["run_id"]) == (ITERATIONS - 1, WORKERS, result.run_id)
    first = found.packets[0]
    where = [tuple(int(index) for index in one) for one in np.argwhere(found.lost)]
    assert where == [(0, 2, first), (0, 2, first + 5), (6, 1, 2)], "iteration without warm-up, worker, packet of all"
    assert (found.lost == written.lost).all()
    with pytest.raises(Problem, match="cannot be a name"):
        record_masks(folder, "../some", tmp_path / "masks")
    result.run["job"]["record_holes"] = False
    (folder / "result.json").write_text(result.model_dump_json())
    with pytest.raises(Problem, match="holds 0 finished runs"):
        record_masks(folder, "some", tmp_path / "masks")


class Several:
    """A substrate with room for several runs, which only end once that many have begun."""

    def __init__(self, at_once: int, outcome: Callable[[Run, Path], RunResult] = fine) -> None:
        self.at_once = at_once
        self.stopped = False
        self._outcome = outcome
        self._together = threading.Barrier(at_once)

    def __enter__(self) -> Several:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def stop(self) -> None:
        self.stopped = True
        self._together.abort()

    def run(self, run: Run, directory: Path, on_progress: OnProgress) -> RunResult:
        try:
            self._together.wait(timeout=20)
        except threading.BrokenBarrierError:
            raise KeyboardInterrupt from None
        return self._outcome(run, directory)


def test_execute__makes_as_many_runs_at_a_time_as_the_substrate_has_room_for(tmp_path: Path) -> None:
    found = plan(ready_with(tmp_path, {"loss": "1 %"}, {"loss": "2 %"}, {"loss": "3 %"}), "inprocess")
    substrate = Several(3)
    assert execute(found, tmp_path / "results", Silent(), substrate=substrate).statuses == {"ok": 3}
    assert not substrate.stopped


def test_execute__an_interrupt_ends_the_others_and_stores_nothing_half(tmp_path: Path) -> None:
    found = plan(ready_with(tmp_path, {"loss": "1 %"}, {"loss": "2 %"}), "inprocess")

    def interrupted(run: Run, directory: Path) -> RunResult:
        raise KeyboardInterrupt

    substrate = Several(2, interrupted)
    with pytest.raises(KeyboardInterrupt):
        execute(found, tmp_path / "results", Silent(), substrate=substrate)
    assert substrate.stopped
    assert list((tmp_path / "results" / "small").iterdir()) == []


def test_plan__a_file_of_masked_schemes_is_made_in_process(tmp_path: Path) -> None:
    masked = ready_with(tmp_path, {"loss": "1 %"})
    assert usual_substrate(masked) == "inprocess"
    mixed = document(schemes=[{"scheme": "tcp", "label": "TCP"}, {"scheme": "dlcp", "label": "DLCP"}])
    assert usual_substrate(small(tmp_path / "other", schemes=mixed["schemes"])) == "emulate"


def test_plan__a_recording_is_part_of_what_a_run_is(tmp_path: Path) -> None:
    recorded = {"order": "recorded", "recorded": "mlp-incast"}
    (cell,) = plan(ready_with(tmp_path, recorded), "inprocess").cells
    assert list(cell.definition["inputs"]) == ["mlp-incast"]

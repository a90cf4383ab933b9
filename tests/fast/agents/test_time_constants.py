"""No time constant is left out of time dilation: each stands in time_constants.yaml, with its class and a reason."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
import yaml
from time_constants import NATIVE, in_c, in_python, time_constants

from dlcp.agents.process.job_rank import JobRank, Opened, Prepared
from dlcp.model.experiment import Experiment, experiment_intent
from dlcp.model.loading.experiment_files import load_experiment
from dlcp.model.qos import FLOWLET_GAP_S, Pfc, QosIntent
from dlcp.model.transport.settings import TransportSettings
from dlcp.paths import EXPERIMENTS
from dlcp.substrates.emulate.pfc import PauseLoop
from dlcp.traffic.native import group_datagrams
from dlcp.transport.contract.waiting import STALL_TIMEOUT_S

TABLE = Path(__file__).with_name("time_constants.yaml")
CLASSES = {"lab", "host", "limit", "unit", "proof"}


def classified() -> list[tuple[str, str, str]]:
    """("file: name", class, reason) of every row."""
    table = yaml.safe_load(TABLE.read_text(encoding="utf-8"))
    return [
        (f"{file}: {name}", kind, str(why))
        for kind, files in table.items()
        for file, names in files.items()
        for name, why in names.items()
    ]


def test_every_time_constant_is_classified() -> None:
    missing = time_constants() - {name for name, _, _ in classified()}
    assert not missing, f"what should time dilation do to these? Say it in {TABLE.name}, which says how: {missing}"


def test_the_table_names_nothing_that_is_gone_and_nothing_twice() -> None:
    names = [name for name, _, _ in classified()]
    assert not set(names) - time_constants(), "remove them from the table"
    assert len(names) == len(set(names))


def test_every_row_has_a_class_and_a_reason() -> None:
    for name, kind, why in classified():
        assert kind in CLASSES, name
        assert len(why) > 3, f"{name} has no reason"


def test_the_search_finds_what_it_is_meant_to_find(tmp_path: Path) -> None:
    """A constant of each form, so that an empty search cannot pass for a complete table."""
    source = tmp_path / "source.c"
    source.write_text(
        "#define PAUSE_NS 5\n#define LONG (3 * MILLISECOND)\n#define PACKETS 8\n/* #define NOT_NS 1 */\n"
        "enum {\n\tREST_US = 7,\n\tCOUNT = 3,\n};\nenum { WINDOW_S = 15 };\n"
        "void f(void) { wait(250 * MICROSECOND); usleep(30); poll(&all, 1, at); clock_nanosleep(0, 0, &rest, 0); }\n"
    )
    assert set(in_c(source)) == {"PAUSE_NS", "LONG", "REST_US", "WINDOW_S", "250 * MICROSECOND", "usleep(30)"}
    source = tmp_path / "source.py"
    source.write_text(
        "HOLD_S = 0.1\n_SPAN_MS: int = 3\nCOUNT = 4\nclass A:\n    gap_s: float = 0.5\n    end_s = 0.0\n"
        "    floor_s: float = Field(default=0.2, gt=0)\n"
        "def f(a, patience_s=3.0, *, timeout_s=None, late_s=2):\n    time.sleep(0.2)\n    event.wait(left_s)\n"
        "    run(command, timeout=9)\n"
    )
    assert set(in_python(source)) == {
        "HOLD_S",
        "_SPAN_MS",
        "gap_s",
        "floor_s",
        "f(patience_s)",
        "f(late_s)",
        "time.sleep(0.2)",
        "run(command, timeout=9)",
    }


def test_only_the_engine_reads_a_clock_and_only_where_it_is_made_lab_time() -> None:
    """So that no constant of the protocol and of congestion control can be in another time."""
    readers = {
        path.name for path in NATIVE.rglob("*.c") if re.search(r"clock_gettime|gettimeofday|\btime\(", path.read_text())
    }
    assert readers == {"engine.c", "datagrams.c", "traffic_source.c", "traffic_sink.c"}, "whose clock is it?"
    engine = (NATIVE / "engine/engine.c").read_text()
    assert engine.count("clock_gettime(CLOCK_MONOTONIC") == 1, "in host_now_ns alone"
    users = re.findall(
        r"^(?:static )?(?:[\w *]+?)(\w+)\([^;{]*\)\n\{\n(?:(?!^\}).*\n)*?.*host_now_ns\(\)", engine, re.MULTILINE
    )
    assert set(users) == {"now_ns", "sleep_until_something", "dlcp_engine_new", "dlcp_engine_wait"}


def dilated(factor: float, **more: Any) -> Experiment:
    experiment = load_experiment(EXPERIMENTS / "quickstart.yaml").experiment
    scaling = experiment.scaling.model_copy(update={"time_dilation": factor})
    return experiment.model_copy(update={"scaling": scaling, **more})


@pytest.mark.parametrize("factor", [1.0, 4.0])
def test_flowlet_gap__the_schemes_is_stretched_the_experiments_is_as_written(factor: float) -> None:
    intent = QosIntent(name="any", port_buffer=40_000)
    assert experiment_intent(dilated(factor), intent).flowlet_gap_s == pytest.approx(FLOWLET_GAP_S * factor)
    assert experiment_intent(dilated(factor, flowlet_gap_s=0.002), intent).flowlet_gap_s == 0.002


@pytest.mark.parametrize("factor", [1.0, 2.0, 4.0, 10.0])
def test_background__a_group_has_as_many_datagrams_at_every_dilation(factor: float) -> None:
    for lab_bps in (5e6, 1e8, 1e9, 1e10):
        assert group_datagrams(lab_bps / factor, factor) == group_datagrams(lab_bps)


@pytest.mark.parametrize(("factor", "looks"), [(1.0, 100), (10.0, 10)])
def test_pfc__the_loop_looks_as_often_in_lab_time(factor: float, looks: int, monkeypatch: pytest.MonkeyPatch) -> None:
    class Ports:
        switch_ports: tuple[tuple[str, str], ...] = ()
        looked = 0

        def backlogs(self) -> npt.NDArray[np.uint64]:
            self.looked += 1
            return np.zeros((0, 8), np.uint64)

    monkeypatch.setattr("dlcp.substrates.emulate.pfc.go_ahead", lambda: None)
    graph = load_experiment(EXPERIMENTS / "quickstart.yaml").experiment.topology.graph
    pfc = Pfc(queues=(3,), xoff="30 kB", xon="15 kB")
    most = 0
    for _ in range(5):  # on a busy machine a look may be late, so that there are fewer; there are never more
        ports: Any = Ports()
        with PauseLoop(ports, graph, pfc, factor):
            time.sleep(0.1)
        most = max(most, ports.looked)
        if most > 0.65 * looks:
            break
    assert most == pytest.approx(looks, rel=0.35), "a look every ms of lab time"


def test_ranks_wait_as_long_in_lab_time() -> None:
    class Role:
        def __init__(self) -> None:
            from dlcp.transport.contract.waiting import Patience

            self.patience = Patience()

    rank = JobRank()
    role: Any = Role()
    endpoint: Any = None
    rank._opened = Opened(0, TransportSettings(kind="tcp", time_dilation=4.0), endpoint)
    rank._prepared = Prepared(role, lambda at: [])
    rank.start(0.0, 5.0)
    assert role.patience.stall_timeout_s == 4 * STALL_TIMEOUT_S
    assert role.patience.give_up_at_s == 5.0, "an instant, which the caller has chosen"

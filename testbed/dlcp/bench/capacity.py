"""How large and how fast a fabric this machine emulates so that its own monitors believe the run: the frontier of hosts
and link rate, found with short real runs of a parameter-server job.

For every number of hosts the rate is searched on a grid of readable rates: the last one at which no monitor objects.
Where a run's seconds go does not depend on the rate: messages are scaled with the links, as --scale-down does.
"""

from __future__ import annotations

import tempfile
import textwrap
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Literal

from dlcp.agents.machine_monitor import MachineMonitor
from dlcp.bench.machine_noise import BUSY_BEFORE_LIMIT, Watch
from dlcp.bench.statistics import FORMAT_VERSION
from dlcp.errors import Problem, Problems
from dlcp.model.base import OnProgress
from dlcp.model.experiment import Experiment, SchemeChoice
from dlcp.model.frames import PAYLOAD_BYTES
from dlcp.model.loading.experiment_files import load_workload
from dlcp.model.run import Run
from dlcp.model.workload import Workload
from dlcp.substrates.base import Substrate
from dlcp.substrates.emulate.substrate import Emulation

RATES_MBIT = (
    2.0,
    2.5,
    3.2,
    4.0,
    5.0,
    6.3,
    8.0,
    10.0,
    12.5,
    16.0,
    20.0,
    25.0,
    32.0,
    40.0,
    50.0,
    63.0,
    80.0,
    100.0,
    125.0,
    160.0,
    200.0,
    250.0,
    320.0,
    400.0,
    500.0,
    630.0,
    800.0,
    1000.0,
)
"""Ten steps a decade."""
LAB_RATE_BPS = 10e9
HOSTS_A_SERVER = 5
"""As in the quickstart: eight workers to two servers."""
HOSTS_A_LEAF = 8
ITERATIONS = 5
BUCKET_BYTES = 44_000
PORT_BUFFER_BYTES = 40_000
TIME_LIMIT_S = 15.0
FIRST_GUESS_MBIT = 1000.0
"""Hosts × rate that two cores were seen to carry: where the search begins."""
SECONDS_A_HOST = 0.12
"""A run's set-up and tear-down (measured: 1.5 s with 10 hosts, 8 s with 64)."""
SECONDS_A_RUN = 4.0
QUIET_FOR_S = 0.5
QUIET_WITHIN_S = 3.0
JOB = "capacity"
SUSPECT_WORDS = 60

Scheme = Literal["dlcp", "tcp", "tcp-tuned"]


@dataclass(frozen=True)
class CapacityOptions:
    """hosts: how many, one search each. minutes: after which no further run begins."""

    hosts: tuple[int, ...] = (4, 10, 20, 32, 64)
    schemes: tuple[Scheme, ...] = ("dlcp", "tcp")
    minutes: float = 6.0
    seed: int = 1

    def __post_init__(self) -> None:
        wrong = [count for count in self.hosts if not 4 <= count <= 256]
        if wrong or not self.hosts:
            raise Problem("--hosts", f"{', '.join(map(str, wrong)) or 'none'}: from 4 to 256 hosts", "such as 10")


@dataclass(frozen=True)
class Trial:
    """One run. believed: no monitor objected. why: the monitors that did, or how it failed. cpu_busy: of all cores."""

    scheme: str
    hosts: int
    rate_mbit: float
    believed: bool
    why: str
    cpu_busy: float | None
    packets_per_s: float


@dataclass
class Frontier:
    """The largest rate of a scheme with so many hosts that was believed: None when none was. complete: the next rate of
    the grid was tried too (or there is none); why: what objected there."""

    scheme: str
    hosts: int
    rate_mbit: float | None = None
    complete: bool = False
    why: str = ""
    trials: list[Trial] = field(default_factory=list)


def bench(options: CapacityOptions, on_progress: OnProgress) -> dict[str, Any]:
    """Search every (scheme, hosts); needs root. Returns the report as data: `frontier`, one row each.

    on_progress: told the share done and what is tried. Raises MachineCannot when this machine cannot emulate at all.
    """
    until_s = time.monotonic() + options.minutes * 60
    begun_s = time.monotonic()
    found: list[Frontier] = []
    with Watch() as watch, Emulation() as substrate, MachineMonitor() as monitor:
        workload = _workload()
        for hosts in options.hosts:
            for scheme in options.schemes:
                guess = next((one.rate_mbit for one in reversed(found) if one.hosts == hosts and one.rate_mbit), None)
                frontier = Frontier(scheme, hosts)
                search = Search(guess or FIRST_GUESS_MBIT / hosts)
                while (index := search.next()) is not None and time.monotonic() + cost_s(hosts) < until_s:
                    _await_quiet(monitor)
                    rate = RATES_MBIT[index]
                    share = (time.monotonic() - begun_s) / (until_s - begun_s)
                    on_progress(min(1.0, share), f"{hosts} hosts, {scheme}, {rate:g} Mbit/s")
                    trial = _try(substrate, workload, scheme, hosts, rate, options.seed)
                    frontier.trials.append(trial)
                    search.tell(index, believed=trial.believed)
                _conclude(frontier, search)
                found.append(frontier)
    return {
        "format": FORMAT_VERSION,
        "bench": "capacity",
        "options": asdict(options),
        "frontier": [asdict(one) for one in found],
        "machine": watch.found(),
    }


def _await_quiet(monitor: MachineMonitor) -> None:
    """What the run before has left behind, and others' short work, shall not spoil the next: wait a little for them."""
    until_s = time.monotonic() + QUIET_WITHIN_S
    while time.monotonic() < until_s:
        looked_s = time.monotonic()
        time.sleep(QUIET_FOR_S)
        if monitor.cpu_busy(looked_s, time.monotonic()) <= BUSY_BEFORE_LIMIT:
            return


def cost_s(hosts: int) -> float:
    """What a run takes, about."""
    return SECONDS_A_RUN + SECONDS_A_HOST * hosts


class Search:
    """Which rate to try next: from a guess in growing steps until one is believed and a faster one is not, then by
    halves between the two."""

    def __init__(self, guess_mbit: float) -> None:
        self._at = min(range(len(RATES_MBIT)), key=lambda index: abs(RATES_MBIT[index] - guess_mbit))
        self._step = 1
        self.good = -1
        self.bad = len(RATES_MBIT)

    def next(self) -> int | None:
        """Index of a rate; None when the frontier is known."""
        return self._at if self.good < self._at < self.bad else None

    def tell(self, index: int, *, believed: bool) -> None:
        """What became of it."""
        if believed:
            self.good = max(self.good, index)
        else:
            self.bad = min(self.bad, index)
        if self.good >= 0 and self.bad < len(RATES_MBIT):
            self._at = (self.good + self.bad) // 2
        else:
            self._at = index + self._step if believed else index - self._step
            self._at = max(0, min(len(RATES_MBIT) - 1, self._at))
            self._step *= 2

    @property
    def complete(self) -> bool:
        """Nothing is left to try."""
        return self.next() is None


def _conclude(frontier: Frontier, search: Search) -> None:
    frontier.complete = search.complete
    frontier.rate_mbit = RATES_MBIT[search.good] if search.good >= 0 else None
    objected = [one for one in frontier.trials if not one.believed]
    frontier.why = min(objected, key=lambda one: one.rate_mbit).why if objected else ""


def _try(substrate: Substrate, workload: Workload, scheme: str, hosts: int, rate_mbit: float, seed: int) -> Trial:
    """One run in a folder that is thrown away."""
    experiment = experiment_of(scheme, hosts, rate_mbit, seed)
    choice, job = experiment.schemes[0], experiment.jobs[JOB]
    run = Run("0" * 12, experiment, choice, JOB, job, workload, 0, seed, "emulate")
    with tempfile.TemporaryDirectory(prefix="dlcp-capacity-") as folder:
        result = substrate.run(run, Path(folder), lambda share, text: None)
    objected = [name for name, one in result.fidelity.items() if not one["ok"]]
    said = ", ".join(f"{name} {result.fidelity[name]['value']:.3g}" for name in objected)
    busy = result.fidelity.get("cpu_busy", {}).get("value")
    data_bytes = sum(result.traffic.values())
    return Trial(
        scheme,
        hosts,
        rate_mbit,
        result.status == "ok",
        said or result.reason[:SUSPECT_WORDS],
        busy,
        data_bytes / PAYLOAD_BYTES / result.jct_s if result.jct_s else 0.0,
    )


def experiment_of(scheme: str, hosts: int, rate_mbit: float, seed: int) -> Experiment:
    """A parameter-server job over all hosts of a leaf-spine fabric; every fifth host is a server."""
    names = [f"h{i + 1}" for i in range(hosts)]
    servers = names[HOSTS_A_SERVER - 1 :: HOSTS_A_SERVER] or names[-1:]
    leaves = max(2, -(-hosts // HOSTS_A_LEAF))
    job = {
        "workload": "resnet50",
        "workers": [name for name in names if name not in servers],
        "servers": servers,
        "iterations": ITERATIONS,
        "warmup_iterations": 1,
        "bucket_bytes": BUCKET_BYTES,
    }
    return Experiment.model_validate(
        {
            "format": 1,
            "name": JOB,
            "description": "how much this machine carries",
            "seed": seed,
            "repeats": 1,
            "time_limit_s": TIME_LIMIT_S,
            "port_buffer_bytes": PORT_BUFFER_BYTES,
            "topology": {
                "kind": "leaf-spine",
                "leaves": leaves,
                "spines": max(2, leaves // 2),
                "hosts": hosts,
                "rate_bps": rate_mbit * 1e6,
            },
            "scaling": {"lab_rate_bps": LAB_RATE_BPS, "byte_scale": max(1.0, LAB_RATE_BPS / (rate_mbit * 1e6))},
            "jobs": {JOB: job},
            "schemes": [SchemeChoice(scheme=scheme, label=scheme)],
        }
    )


def _workload() -> Workload:
    workload, problems = load_workload("resnet50")
    if workload is None:
        raise Problems(problems)
    return workload


def rows(found: dict[str, Any]) -> list[dict[str, Any]]:
    """The report as a table: a row for each number of hosts, a column for each scheme, and what objected beyond."""
    table = []
    for hosts in found["options"]["hosts"]:
        row: dict[str, Any] = {"hosts": hosts}
        for one in found["frontier"]:
            if one["hosts"] == hosts:
                rate = "none" if one["rate_mbit"] is None else f"{one['rate_mbit']:g} Mbit/s"
                if not one["complete"]:
                    rate = "not measured" if not one["trials"] else f"{rate}, search cut short"
                row[one["scheme"]] = rate
                row[f"{one['scheme']}: beyond it"] = one["why"]
        table.append(row)
    return table


def draw(found: dict[str, Any], file: Path) -> None:
    """The frontier as a picture; its format follows from the file's name. What was tried is there too: full where the
    run was believed, hollow where it was suspect."""
    import seaborn as sns
    from matplotlib.figure import Figure
    from matplotlib.ticker import FuncFormatter

    with sns.axes_style("whitegrid"):
        figure = Figure(figsize=(7.0, 4.4), layout="constrained", dpi=110)
        axes = figure.subplots()
        schemes = found["options"]["schemes"]
        for place, (scheme, colour) in enumerate(zip(schemes, sns.color_palette("colorblind"), strict=False)):
            look: dict[str, Any] = {"color": colour, "marker": "osD^v"[place % 5]}
            beside = 1 + 0.02 * (place - (len(schemes) - 1) / 2)  # or the marks of two schemes hide each other
            mine = [one for one in found["frontier"] if one["scheme"] == scheme]
            line = [(one["hosts"] * beside, one["rate_mbit"]) for one in mine if one["rate_mbit"] is not None]
            axes.plot(*_columns(line), markersize=8, label=scheme, zorder=3, **look)
            for believed, face in ((True, colour), (False, "none")):
                tried = [
                    (one["hosts"] * beside, one["rate_mbit"])
                    for entry in mine
                    for one in entry["trials"]
                    if one["believed"] == believed
                ]
                axes.plot(*_columns(tried), linestyle="none", markersize=4, markerfacecolor=face, alpha=0.8, **look)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log")
        axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.set_xticks(found["options"]["hosts"])
        axes.set_xlabel("hosts")
        axes.set_ylabel("link rate (Mbit/s)")
        axes.set_title("the fastest links that a run is believed with")
        axes.legend(title="hollow: suspect", loc="upper right")
        machine = found["machine"]
        caption = f"Linux {machine['kernel']}, {machine['words']}"
        figure.supxlabel(textwrap.fill(caption, 125), x=0.01, ha="left", fontsize=6.5)
        figure.savefig(file)


def _columns(points: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in points], [y for _, y in points]

"""Every exchange pattern: bytes on the wire = plan, message by message. And docs/add-a-pattern.md, step by step."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from guides import added_to, block
from job_in_process import run_job
from loopback import TCP
from pydantic import ValidationError
from wire_and_plan import assert_left, assert_wire_is_plan

import dlcp
from dlcp import patterns
from dlcp.agents.job_spec import JobSpec, LayerWork
from dlcp.agents.process.inprocess_exchange import pushes_of
from dlcp.model.replicas import drift_lasts
from dlcp.model.transport.loss import PhaseBound
from dlcp.model.transport.settings import Compression, TransportSettings
from dlcp.model.workload import Job
from dlcp.patterns import names, names_where, pattern_of
from dlcp.runner.planning.check import check
from dlcp.runner.planning.estimate import expected_s
from dlcp.runner.planning.plan import plan
from dlcp.substrates.result_audit import broken_promises
from dlcp.transport import compression
from experiments import document, small, write

GUIDE = "add-a-pattern"
GUIDE_PATTERN = "all-gather"
SETTINGS = {
    "tcp": TCP,
    "dlcp": TransportSettings(kind="dlcp", loss_bound=0.1, priority_queues=5),
    "dlcp-small": TransportSettings(kind="dlcp", loss_bound=0.1, must_arrive_below_packets=0),
}
SUMMING = [name for name in names() if pattern_of(name).sums_at_servers]


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """A folder whose files are as good as those in testbed/dlcp/patterns."""
    with added_to(patterns, tmp_path / "patterns") as added:
        yield added


@pytest.fixture
def guide_pattern(folder: Path) -> str:
    """Step 1 of the guide."""
    (folder / "all_gather.py").write_text(block(GUIDE, "python"), encoding="utf-8")
    return GUIDE_PATTERN


def spec_of(pattern: str, workers: int = 3) -> JobSpec:
    """Layers of which one is smaller than a packet for each worker, and whose last packets are short."""
    hosts = tuple(f"h{i + 1}" for i in range(workers))
    servers = ("s1", "s2") if pattern_of(pattern).has_servers else ()
    layers = (LayerWork(name="small", elements=500), LayerWork(name="large", elements=30_001))
    return JobSpec(
        name="job",
        kind="profile",
        workers=hosts,
        servers=servers,
        pattern=pattern,
        iterations=4,
        warmup_iterations=1,
        bucket_bytes=40_000,
        seed=3,
        layers=layers,
    )


def sends_what_it_says(pattern: str, settings: TransportSettings, folder: Path, workers: int = 3) -> None:
    spec = spec_of(pattern, workers)
    done = run_job(spec, settings, folder)
    assert_wire_is_plan(spec, settings, done)
    planned = list(pattern_of(pattern).messages(spec.traffic(settings)))
    for one in planned:
        assert one.destination in spec.peers_of(one.source)
        assert one.source in spec.peers_of(one.destination)
    tensors = spec.tensors(settings)
    rows = list(zip(done.messages["tensor"], done.messages["tensor_bytes"], strict=True))
    assert Counter(rows) == Counter((one.tensor, one.tensor_bytes) for one in planned for _ in range(spec.iterations))
    assert {one.tensor for one in planned} == set(range(len(tensors)))
    lasts = pattern_of(pattern).drift_lasts
    assert broken_promises(done.iterations, done.messages, drift_lasts=lasts) == ""
    held = set(zip(done.iterations["iteration"], done.iterations["parameters_crc32"], strict=True))
    assert len(held) == spec.iterations, "all workers hold the same bits, and every iteration changes them"


@pytest.mark.parametrize("workers", [2, 3])
@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
@pytest.mark.parametrize("pattern", names())
def test_every_pattern__sends_the_messages_that_it_says(
    pattern: str, settings: TransportSettings, workers: int, tmp_path: Path
) -> None:
    sends_what_it_says(pattern, settings, tmp_path, workers)


@pytest.mark.parametrize("pattern", [name for name in names() if not pattern_of(name).no_last_gradient])
def test_patterns_with_last_gradients__send_the_messages_that_they_say(pattern: str, tmp_path: Path) -> None:
    """Bounds on both legs that change by iteration, and holes that keep what was there."""
    lasting = {"holes": "last", "pull_loss_bound": 0.05, "full_sync_every": 2, "loss_bound_schedule": ((0.5, 0.0),)}
    sends_what_it_says(pattern, SETTINGS["dlcp-small"].model_copy(update=lasting), tmp_path)


@pytest.mark.parametrize("pattern", SUMMING)
def test_patterns_with_summing_servers__announce_what_they_say(pattern: str, tmp_path: Path) -> None:
    rule = PhaseBound(critical=0.01, relaxed=0.1, drop=0.5, check_every=1)
    settings = SETTINGS["dlcp"].model_copy(update={"phases": rule})
    assert list(pattern_of(pattern).announcements(spec_of(pattern).traffic(settings)))
    sends_what_it_says(pattern, settings, tmp_path)


def coded(settings: TransportSettings, method: str) -> TransportSettings:
    return settings.model_copy(update={"compression": Compression(method=method)})


def methods_by_plan(pattern: str, settings: TransportSettings) -> list[str]:
    """One compressor for each kind of plan: rounds, dtypes and lengths that vary."""
    first: dict[frozenset[tuple[int, str, bool]], str] = {}
    for method in compression.names():
        if settings.kind == "tcp" or compression.compressor_class(method).tolerates_loss:
            traffic = spec_of(pattern).traffic(coded(settings, method))
            kinds = {(one.number, one.dtype, one.variable) for one in pattern_of(pattern).messages(traffic)}
            first.setdefault(frozenset(kinds), method)
    return list(first.values())


@pytest.mark.parametrize(
    ("pattern", "settings", "method"),
    [
        pytest.param(pattern, settings, method, id=f"{pattern}-{settings.kind}-{method}")
        for pattern in SUMMING
        for settings in (TCP, SETTINGS["dlcp-small"])
        for method in methods_by_plan(pattern, settings)
    ],
)
def test_patterns_with_summing_servers__send_the_codes_that_they_say(
    pattern: str, settings: TransportSettings, method: str, tmp_path: Path
) -> None:
    sends_what_it_says(pattern, coded(settings, method), tmp_path)


PLANTED = '''
from dataclasses import replace
import numpy as np
from dlcp.patterns.all_gather import AllGather, AllGatherWorker
from dlcp.transport.contract.endpoint import Bound, Leg, MessageKey
from dlcp.transport.contract.loss_class import LossClass

class Worker(AllGatherWorker):
    """Sends each gradient once more than planned, and notes only the planned ones."""

    LEG = Leg.PUSH

    def _start(self, tensor, iteration, gradient):
        key = MessageKey(iteration, tensor, self.LEG, 9)
        for peer in self._others:
            self._mailbox.expect(peer, key, np.zeros_like(gradient))
            self._mailbox.send(peer, key, gradient.copy())
        return super()._start(tensor, iteration, gradient)

    def _poll(self, timeout_s):
        planned = [each for each in self._mailbox.take(timeout_s) if not each.key.step]
        self._noted += planned
        return [done for each in planned if (done := self._note(each))]

class Another(AllGather):
    def worker(self, place):
        return Worker(place, self.peers(place.rank, place.traffic.workers, 0))

class OtherLegWorker(Worker):
    LEG = Leg.PULL

class OtherLeg(AllGather):
    def worker(self, place):
        return OtherLegWorker(place, self.peers(place.rank, place.traffic.workers, 0))

class Missing(AllGather):
    """Plans a message that nobody sends."""

    def messages(self, traffic):
        messages = list(super().messages(traffic))
        yield from [*messages, replace(messages[0], step=1)]

class OtherClass(AllGather):
    """Says that holes keep what was there. The worker allows no holes, and would make them zeros."""

    def messages(self, traffic):
        for message in super().messages(traffic):
            yield replace(message, loss=LossClass.BOUNDED_LAST)

class TooMuch(AllGather):
    """Agrees a tensor more than its plan has."""

    def worker(self, place):
        place.mailbox.endpoint.declare(len(place.traffic.tensors), 1, queue=3)
        return super().worker(place)
'''


@pytest.mark.parametrize(
    ("name", "error", "text"),
    [
        ("Another", AssertionError, "sent or expected other messages than those of the plan"),
        ("OtherLeg", ValueError, "the plan of a planted has no message of number . on the pull leg"),
        ("Missing", ValueError, "belong to the job"),
        ("OtherClass", AssertionError, "Placement.ZERO of Message"),
        ("TooMuch", AssertionError, "agreed other tensors than those of the plan"),
    ],
)
def test_a_pattern_that_departs_from_its_plan__is_found(
    name: str, error: type[Exception], text: str, folder: Path, guide_pattern: str, tmp_path: Path
) -> None:
    (folder / "planted.py").write_text(f"{PLANTED}\nPATTERN = {name}\n", encoding="utf-8")
    settings = TCP.model_copy(update={"must_arrive_below_packets": 0})
    with pytest.raises(error, match=text):
        sends_what_it_says("planted", settings, tmp_path, workers=2)


@pytest.mark.parametrize("settings", [TCP, SETTINGS["dlcp"]], ids=["tcp", "dlcp"])
def test_a_message_that_no_rank_asked_for__is_found_in_the_counters(
    settings: TransportSettings, tmp_path: Path
) -> None:
    """As if the kernel or the engine had sent one message more."""
    done = run_job(spec_of("transpose", 2), settings, tmp_path)
    sent = [call for call in done.endpoints[0].calls if not call.received]
    assert_left(settings, sent, done.endpoints[0].declared, done.statistics[0])
    with pytest.raises(AssertionError):
        assert_left(settings, sent[1:], done.endpoints[0].declared, done.statistics[0])


@pytest.mark.parametrize("workers", [2, 3, 5])
@pytest.mark.parametrize("pattern", names())
def test_every_pattern__agrees_with_itself(pattern: str, workers: int) -> None:
    """Of two peers each knows the other and one opens the connection; rough and exact bytes are nearly the same."""
    found, spec = pattern_of(pattern), spec_of(pattern, workers)
    ranks = range(len(spec.hosts))
    pairs = {frozenset((rank, peer)) for rank in ranks for peer in spec.peers_of(rank)}
    opened = [frozenset((rank, peer)) for rank in ranks for peer in spec.connects_to(rank)]
    assert all(rank in spec.peers_of(peer) for rank in ranks for peer in spec.peers_of(rank))
    assert len(opened) == len(set(opened))
    assert set(opened) == pairs
    gradient_bytes = 4 * spec.elements
    rough = len(found.journeys(spec)) * found.share_of_journey(spec) * gradient_bytes
    exact = sum(size_bytes for _, _, size_bytes in found.transfers(spec.traffic(TCP)))
    assert exact == pytest.approx(rough)
    assert sum(one.size_bytes for one in found.messages(spec.traffic(TCP))) == pytest.approx(exact)


def test_guide__its_pattern_sends_the_messages_that_it_says(guide_pattern: str, tmp_path: Path) -> None:
    for name, settings in SETTINGS.items():
        own = tmp_path / name
        own.mkdir()
        sends_what_it_says(guide_pattern, settings, own)
    test_every_pattern__agrees_with_itself(guide_pattern, 3)


def test_guide__its_job_is_planned_and_unfit_schemes_are_refused(guide_pattern: str, tmp_path: Path) -> None:
    job = yaml.safe_load(block(GUIDE, "yaml"))
    ready = small(tmp_path, jobs={"one": job})
    cells = plan(ready).cells
    assert {cell.run.job.pattern for cell in cells} == {guide_pattern}
    assert all(expected_s(cell.run) > 0 for cell in cells)
    unfit = [{"scheme": name, "label": name} for name in ("p3", "optireduce")]
    checked = check(write(tmp_path, document(jobs={"one": job}, schemes=unfit)), tmp_path / "workloads")
    texts = sorted(problem.what for problem in checked.problems)
    assert texts == [
        "`pattern`: workers sum among themselves, this job has the pattern all-gather",
        "`slice`: P3 schedules pushes to parameter servers; job of small is an all-gather",
    ]


def test_guide__masks_are_refused_where_nothing_may_be_lost(guide_pattern: str) -> None:
    with pytest.raises(ValueError, match="nothing may be lost of the gradients of an all-gather"):
        pushes_of(spec_of(guide_pattern), TransportSettings(kind="masked", must_arrive_below_packets=0))


@pytest.mark.parametrize("pattern", names())
def test_every_pattern__is_judged_by_reports_as_by_its_run(pattern: str) -> None:
    """Stored results say whether drift lasts; older ones do not."""
    lasts = pattern_of(pattern).drift_lasts
    assert drift_lasts({"job": {"pattern": pattern}}) == lasts
    assert drift_lasts({"job": {"pattern": pattern}, "drift_lasts": not lasts}) != lasts


def test_an_unknown_pattern__is_told_with_those_that_there_are(guide_pattern: str) -> None:
    known = "all-gather, parameter-server, ring, transpose"
    with pytest.raises(ValueError, match=f"no pattern is called 'rings'; known: {known}"):
        pattern_of("rings")
    with pytest.raises(ValidationError, match=f"no pattern is called 'rings'; known: {known}"):
        JobSpec.model_validate(spec_of("ring").model_dump() | {"pattern": "rings"})


def test_a_file_without_a_pattern__is_told_by_its_name(folder: Path) -> None:
    (folder / "empty.py").write_text('"""Nothing."""\n')
    with pytest.raises(TypeError, match=r"empty\.py: PATTERN must be a subclass"):
        pattern_of("empty")


def test_hints_name_all_patterns_that_can(guide_pattern: str) -> None:
    assert names_where(lambda pattern: not pattern.has_servers) == "all-gather, or ring, or transpose"


def named_in(source: str, wanted: set[str]) -> list[str]:
    """Texts of a module that are a pattern's name."""
    nodes = ast.walk(ast.parse(source))
    return [node.value for node in nodes if isinstance(node, ast.Constant) and node.value in wanted]


def test_no_other_file_names_a_pattern() -> None:
    """But the default in the model of a job, and what is known of stored results that do not say it themselves."""
    root = Path(dlcp.__file__).parent
    files = [file for file in root.rglob("*.py") if file.parent != root / "patterns"]
    found = {file.relative_to(root).as_posix(): named_in(file.read_text("utf-8"), set(names())) for file in files}
    assert {file: texts for file, texts in found.items() if texts} == {
        "model/workload.py": [Job.model_fields["pattern"].default],
        "model/replicas.py": ["transpose"],
    }
    assert named_in('job.pattern == "ring"', set(names())) == ["ring"]

"""Every exchange pattern: what its ranks send is what it says they send. And docs/add-a-pattern.md, step by step."""

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

import dlcp
from dlcp import patterns
from dlcp.agents.job_spec import JobSpec, LayerWork
from dlcp.model.replicas import drift_lasts
from dlcp.model.workload import Compression, Job, TransportSettings
from dlcp.patterns import names, names_where, pattern_of
from dlcp.runner.planning.check import check
from dlcp.runner.planning.estimate import expected_s
from dlcp.runner.planning.plan import plan
from dlcp.substrates.result_audit import broken_promises
from experiments import document, small, write

GUIDE = "add-a-pattern"
GUIDE_PATTERN = "all-gather"
SETTINGS = {
    "tcp": TCP,
    "dlcp": TransportSettings(kind="dlcp", loss_bound=0.1, priority_queues=5),
    "dlcp-small": TransportSettings(kind="dlcp", loss_bound=0.1, must_arrive_below_packets=0),
}


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
        name="job", kind="profile", workers=hosts, servers=servers, pattern=pattern, iterations=4,
        warmup_iterations=1, bucket_bytes=40_000, seed=3, layers=layers,
    )  # fmt: skip


def sends_what_it_says(pattern: str, settings: TransportSettings, folder: Path, workers: int = 3) -> None:
    spec = spec_of(pattern, workers)
    done = run_job(spec, settings, folder)
    planned = list(pattern_of(pattern).messages(spec.traffic(settings)))
    ends = Counter(
        (rank, one.received, one.key.iteration, one.peer, one.key.tensor, one.key.leg, one.key.step, one.bytes)
        for rank, completions in enumerate(done.completions)
        for one in completions
    )
    assert ends == Counter(
        (rank, received, iteration, peer, one.number, one.leg, one.step, one.size_bytes)
        for iteration in range(spec.iterations)
        for one in planned
        for rank, received, peer in ((one.source, False, one.destination), (one.destination, True, one.source))
    )
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


@pytest.mark.parametrize("method", ["topk", "powersgd"])
@pytest.mark.parametrize("pattern", [name for name in names() if pattern_of(name).sums_at_servers])
def test_patterns_with_summing_servers__send_the_codes_that_they_say(pattern: str, method: str, tmp_path: Path) -> None:
    settings = TCP.model_copy(update={"compression": Compression(method=method)})
    spec = spec_of(pattern)
    done = run_job(spec, settings, tmp_path)
    planned = list(pattern_of(pattern).messages(spec.traffic(settings)))
    assert len(done.messages["bytes"]) == spec.iterations * len(planned)
    assert sum(done.messages["bytes"]) <= spec.iterations * sum(one.size_bytes for one in planned)
    if not any(one.variable for one in planned):
        assert sum(done.messages["bytes"]) == spec.iterations * sum(one.size_bytes for one in planned)


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

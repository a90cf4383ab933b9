"""`dlcp bench allreduce`, small. Nothing is timed."""

from __future__ import annotations

import os

import pytest
from bench_command import bench, figure, report
from extras import needs

pytestmark = needs("torch")  # gloo is PyTorch's
QUICK = ("allreduce", "--size", "400kB", "--count", "3", "--repeats", "2")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces; run as root")


def bytes_over_dlcp(run: dict[str, object]) -> list[int]:
    return [rank["counters"]["data_bytes_sent"] for rank in run["ranks"]]  # type: ignore[attr-defined]


@pytest.mark.long
def test_dlcp_goes_over_dlcp_and_gloo_does_not() -> None:
    found = report(*QUICK, "--ranks", "3")
    assert figure(found, "wall, DLCP ÷ gloo")["repeats"] == 2
    assert [run["variant"] for run in found["runs"]] == ["dlcp", "gloo", "gloo", "dlcp"]
    for run in found["runs"]:
        if run["variant"] == "dlcp":
            assert min(bytes_over_dlcp(run)) > 0.9 * 3 * 400_000 * 4 / 3  # each rank: 2 (N - 1) / N of its data
        else:
            assert bytes_over_dlcp(run) == [0, 0, 0]
    assert figure(found, "p99 of all repeats, DLCP")["why"] == "p99 needs 1000 samples, there are 6"


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--ranks", "1"), 2, "--ranks"),
        (("--size", "10 B"), 2, "--size"),
        (("--size", "1 GB"), 2, "4 GB"),
        (("--loss", "1 %"), 3, "unsupported on loopback"),
        (("--ranks", "2", "--congestion-control", "reno"), 1, "reno"),
    ],
)
def test_what_cannot_be_done_is_said_with_its_exit_code(arguments: tuple[str, ...], code: int, words: str) -> None:
    done = bench("allreduce", *arguments)
    assert done.returncode == code, done.stderr
    assert words in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


@pytest.mark.root
@needs_root
@pytest.mark.long
def test_namespaces_with_a_lossy_link() -> None:
    found = report(*QUICK[:-1], "1", "--namespaces", "--loss", "2 %", "--bound", "5 %")
    assert found["where"] == "namespaces"
    assert [run["variant"] for run in found["runs"]] == ["dlcp", "gloo"]
    for run in found["runs"]:
        assert run["network_drops"]["random, from rank 0"] > 0
        assert run["network_drops"]["random, to rank 0"] > 0

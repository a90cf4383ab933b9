"""Without root: what needs it says so, why, and what to run, once; what does not need it works."""

from __future__ import annotations

import functools
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from extras import needs
from synthetic_results import make_results

NOBODY = 65534
REASON = "it makes network namespaces and loads eBPF programs"


@functools.cache
def dropped() -> tuple[str, ...]:
    """A command that gives up root: as nobody where nobody may execute this Python, else as a user without any
    capability in a namespace of users."""
    if os.geteuid() != 0:
        return ()
    as_nobody = ("setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", "--inh-caps=-all")
    for command in (as_nobody, ("unshare", "--user")):
        done = subprocess.run(
            [*command, sys.executable, "-c", "import dlcp.cli.main"], capture_output=True, check=False
        )
        if done.returncode == 0:
            return command
    pytest.skip("neither setpriv nor unshare --user can start this Python; run as another user than root")


@pytest.fixture
def folder() -> Iterator[Path]:
    """One that nobody can come to and write in: pytest's own are the owner's alone. Who is not root writes in it as
    oneself, where $TMPDIR says."""
    with tempfile.TemporaryDirectory(dir="/tmp" if os.geteuid() == 0 else None) as name:
        Path(name).chmod(0o777)
        yield Path(name)


def dlcp(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [*dropped(), sys.executable, "-m", "dlcp.cli.main", *arguments]
    return subprocess.run(
        command, cwd=folder, capture_output=True, text=True, timeout=90, check=False, stdin=subprocess.DEVNULL
    )


@pytest.mark.parametrize(
    "arguments",
    [
        ("run", "quickstart"),
        ("shell", "quickstart", "-c", "pingall"),
        pytest.param(("doctor", "--calibrate"), marks=needs("mininet")),
        pytest.param(("bench", "switch"), marks=needs("mininet")),
        ("bench", "transport", "--namespaces", "--count", "1"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_what_needs_root_says_why_and_what_to_run(arguments: tuple[str, ...], folder: Path) -> None:
    done = dlcp(folder, *arguments)
    told = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 3, told
    assert told.count("needs root") == 1, told
    assert REASON in told
    assert f"{Path(sys.executable).with_name('dlcp')}" in told, "with the very command"
    assert "Traceback" not in told
    assert list(folder.glob("results/*/*.tmp")) == [], "refused before it began"


@pytest.mark.parametrize(
    "arguments",
    [("check", "quickstart"), ("plan", "quickstart"), ("show", "schemes"), ("show", "topologies"), ("clean",)],
    ids=lambda words: " ".join(words[:2]),
)
def test_what_does_not_need_root_works(arguments: tuple[str, ...], folder: Path) -> None:
    done = dlcp(folder, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout


@pytest.mark.parametrize("command", ["status", pytest.param("report", marks=pytest.mark.long)])
def test_results_that_root_made_are_read(command: str, folder: Path) -> None:
    experiment = make_results(folder / "results", iterations=12, tensors=8)
    for number, run in enumerate(sorted(experiment.iterdir())):
        named = run.rename(run.with_name(f"{number:012x}"))  # as the store names them
        result = json.loads((named / "result.json").read_text())
        (named / "result.json").write_text(json.dumps(result | {"run_id": named.name}))
    if command == "report":
        experiment.chmod(0o777)  # the report goes beside the results
    done = dlcp(folder, command)
    assert "Traceback" not in done.stderr
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout


@pytest.mark.root
@needs("mininet")
@pytest.mark.skipif(os.geteuid() != 0, reason="without root it does not come so far; run as root")
@pytest.mark.parametrize(
    "arguments", [("run", "quickstart"), ("shell", "quickstart", "-c", "net"), ("bench", "switch")]
)
def test_without_private_namespaces_nothing_is_started(arguments: tuple[str, ...], folder: Path) -> None:
    """As in a container that may not make any: the kernel's words, and what to do."""
    stand_in = folder / "bin" / "unshare"
    stand_in.parent.mkdir()
    stand_in.write_text("#!/bin/sh\necho 'unshare: unshare failed: Operation not permitted' >&2\nexit 1\n")
    stand_in.chmod(0o755)
    done = subprocess.run(
        [sys.executable, "-m", "dlcp.cli.main", *arguments],
        cwd=folder,
        env={**os.environ, "PATH": f"{stand_in.parent}{os.pathsep}{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        timeout=90,
        check=False,
    )
    told = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 3, told
    assert "private namespaces cannot be made here: unshare: unshare failed: Operation not permitted" in told
    assert "--privileged" in told

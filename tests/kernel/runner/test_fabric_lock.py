"""One process at a time has a fabric, and whoever has ended has nothing, whatever its file says."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from dlcp.errors import ExitCode, MachineCannot
from dlcp.substrates.lab.fabric_lock import held, release, take


@pytest.fixture
def other() -> Iterator[int]:
    """A process that lives, of which this one is no descendant."""
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process.pid
        process.kill()


@pytest.fixture
def lock(tmp_path: Path) -> Path:
    return tmp_path / "lab" / "lock"


def said(lock: Path) -> dict[str, Any]:
    text = lock.read_text(encoding="utf-8")
    return dict(json.loads(text)) if text else {}


def changed(lock: Path, **words: Any) -> None:
    lock.write_text(json.dumps(said(lock) | words), encoding="utf-8")


def test_while_one_lives_another_is_told_who_has_it(lock: Path, other: int) -> None:
    take(lock, "running quickstart", pid=other)
    with pytest.raises(MachineCannot, match=rf"running quickstart \(process {other} of .*\) has the fabric") as refused:
        take(lock, "deploying dlcp-wred")
    assert refused.value.exit_code == ExitCode.MACHINE_CANNOT
    release(lock)
    assert said(lock)["pid"] == other, "nobody gives back what another one has"


def test_who_has_ended_has_nothing(lock: Path) -> None:
    with subprocess.Popen(["sleep", "600"]) as process:
        take(lock, "running quickstart", pid=process.pid)
        process.kill()
    take(lock, "deploying dlcp-wred")
    assert said(lock)["pid"] == os.getpid()


@pytest.mark.parametrize("words", [{"born": 1}, {"boot": "another"}], ids=["a number used again", "another boot"])
def test_a_number_alone_is_nobody(lock: Path, other: int, words: dict[str, Any]) -> None:
    take(lock, "running quickstart", pid=other)
    changed(lock, **words)
    take(lock, "deploying dlcp-wred")
    assert said(lock)["pid"] == os.getpid()


def test_of_another_machine_nobody_here_can_say_whether_it_lives(lock: Path, other: int) -> None:
    take(lock, "running quickstart", pid=other)
    changed(lock, machine="elsewhere", boot="another")
    with pytest.raises(MachineCannot, match=f"on elsewhere has the fabric\n.*rm {lock}"):
        take(lock, "deploying dlcp-wred")


def test_what_is_no_lock_holds_nothing(lock: Path) -> None:
    lock.parent.mkdir()
    for text in ("", "half a l", "{}", '{"pid": 1}'):
        lock.write_text(text, encoding="utf-8")
        with held(lock, "deploying dlcp-wred"):
            assert said(lock)["pid"] == os.getpid()


def test_a_block_within_a_block_gives_nothing_back(lock: Path) -> None:
    with held(lock, "running quickstart"):
        with held(lock, "deploying dlcp-wred"):
            assert said(lock)["what"] == "running quickstart"
        assert said(lock)["pid"] == os.getpid()
    assert said(lock) == {}


def test_what_a_holder_starts_uses_what_it_has_and_leaves_it(lock: Path) -> None:
    source = (
        "import sys; from pathlib import Path; from dlcp.substrates.lab.fabric_lock import held\n"
        "with held(Path(sys.argv[1]), 'deploying dlcp-wred'): print(Path(sys.argv[1]).read_text())"
    )
    with held(lock, "running quickstart"):
        words = ["sh", "-c", '"$@"; exit $?', "sh", sys.executable, "-c", source, str(lock)]
        done = subprocess.run(words, capture_output=True, text=True, check=True)
        assert json.loads(done.stdout)["pid"] == os.getpid()
        assert said(lock)["what"] == "running quickstart"

"""Where a run comes from: the commit, and whether what it ran differs from it."""

from __future__ import annotations

import os
import subprocess
import time
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from dlcp.substrates import provenance

NOBODY = 65534
PAGE, RECORD, CODE = "analysis/RESULTS.md", "testbed/experiments/tuned/headline.yaml", "testbed/dlcp/cli/main.py"


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A repository with a page of results, a record of searches and code, all committed."""
    for name in (PAGE, RECORD, CODE):
        (tmp_path / name).parent.mkdir(parents=True)
        (tmp_path / name).write_text("as committed\n")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=t", "-c", "user.email=t@example.org"]
    for arguments in (["init", "-q"], ["add", "."], ["commit", "-qm", "all"]):
        subprocess.run([*git, *arguments], check=True)
    monkeypatch.setattr(provenance, "REPOSITORY", tmp_path)
    return tmp_path


@pytest.mark.parametrize(("changed", "dirty"), [((), False), ((PAGE, RECORD), False), ((CODE,), True)])
def test_what_the_program_itself_writes_is_no_other_tree(checkout: Path, changed: tuple[str, ...], dirty: bool) -> None:
    for name in changed:
        (checkout / name).write_text("otherwise\n")
    found = provenance.collect(seed=1)
    assert found["dirty"] is dirty
    assert len(found["commit"]) == 40


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a checkout away; run as root")
def test_a_checkout_of_another_user_has_a_commit(checkout: Path) -> None:
    """Git refuses such a one, as an ordinary user meets in a clone that root made."""
    (checkout / CODE).write_text("otherwise\n")
    for path in (checkout, *checkout.rglob("*")):
        os.chown(path, NOBODY, NOBODY)
    found = provenance.collect(seed=1)
    assert len(found["commit"]) == 40
    assert found["dirty"] is True


def test_a_result_says_when_it_was_made() -> None:
    before = time.time()
    made = datetime.fromisoformat(provenance.collect(seed=1)["made_at"])
    assert made.utcoffset() == timedelta(0)
    assert before - 0.001 <= made.timestamp() <= time.time()

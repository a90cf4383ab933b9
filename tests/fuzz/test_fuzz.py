"""Every fuzz target: what earlier runs learnt, then some seconds of looking for more; `make fuzz` looks longer."""

from __future__ import annotations

from pathlib import Path

import pytest
import run

SECONDS = 20
SEED = 20_080_844


@pytest.fixture(scope="module", autouse=True)
def able() -> None:
    if reason := run.missing():
        pytest.skip(reason)


@pytest.mark.long
@pytest.mark.parametrize("target", run.targets())
def test_no_input_breaks_a_promise(target: str, tmp_path: Path) -> None:
    program = run.build(target, tmp_path)
    known = run.unpack(target, tmp_path / "known")
    assert list(known.iterdir()), "make fuzz has learnt something of every target"
    done = run.fuzz(program, [tmp_path / "found", known], SECONDS, SEED)
    assert done.returncode == 0, done.stderr


@pytest.mark.long
def test_a_broken_promise_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The harness itself: a target that fails on its first input makes the run fail."""
    (tmp_path / "broken_target.c").write_text(
        "#include <stdint.h>\n#include <stdlib.h>\n"
        "int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { if (!data || size < 9) abort(); return 0; }\n"
    )
    monkeypatch.setattr(run, "HERE", tmp_path)
    monkeypatch.setattr(run, "FINDINGS", tmp_path / "findings")
    done = run.fuzz(run.build("broken", tmp_path), [tmp_path], 2, SEED)
    assert done.returncode != 0
    assert list((tmp_path / "findings").iterdir())

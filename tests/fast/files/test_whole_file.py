"""Files are replaced whole, never through a link, and by one helper."""

from __future__ import annotations

import ast
import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import dlcp
from dlcp.files.atomic_file import PARTIAL, write_whole

PACKAGE = Path(dlcp.__file__).parent
HELPERS = {
    "files/atomic_file.py",
    "switches/private_folder.py",  # runs on devices, with any Python there and without the package
}


@pytest.fixture(autouse=True)
def usual_umask() -> Iterator[None]:
    before = os.umask(0o022)
    yield
    os.umask(before)


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_file_is_never_written_through_a_link(tmp_path: Path) -> None:
    (tmp_path / "mine").write_text("mine")
    for link in ("report.html", "report.html" + PARTIAL):
        (tmp_path / link).symlink_to(tmp_path / "mine")
    write_whole(tmp_path / "report.html", b"whole")
    assert (tmp_path / "report.html").read_bytes() == b"whole"
    assert not (tmp_path / "report.html").is_symlink()
    assert (tmp_path / "mine").read_text() == "mine"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["mine", "report.html"]


def test_permissions_are_the_umask_s_unless_said(tmp_path: Path) -> None:
    write_whole(tmp_path / "usual", b"")
    write_whole(tmp_path / "secret", b"", mode=0o600)
    os.umask(0o077)
    write_whole(tmp_path / "public", b"", mode=0o644, contended=True)
    assert [mode(tmp_path / name) for name in ("usual", "secret", "public")] == [0o644, 0o600, 0o644]


def test_a_secret_is_closed_before_its_first_byte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen = []
    monkeypatch.setattr(os, "fchmod", lambda descriptor, wanted: seen.append(os.fstat(descriptor)))
    write_whole(tmp_path / "secret", b"secret", mode=0o600)
    assert [(stat.S_IMODE(status.st_mode), status.st_size) for status in seen] == [(0o600, 0)]


@pytest.mark.parametrize("contended", [False, True])
def test_a_failed_write_keeps_the_old_file_and_leaves_no_partial_one(
    contended: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "record.json"
    write_whole(path, b"old", durable=True, contended=contended)

    def fail(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(OSError, match="No space"):
        write_whole(path, b"new", durable=True, contended=contended)
    assert [(found.name, found.read_bytes()) for found in tmp_path.iterdir()] == [("record.json", b"old")]


def test_a_writer_meanwhile_does_not_put_its_half_in_the_place_of_the_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "calibration.json"

    def other_writer_begins(descriptor: int) -> None:
        monkeypatch.undo()
        write_whole(path, b"other", contended=True)

    monkeypatch.setattr(os, "fsync", other_writer_begins)
    write_whole(path, b"mine", durable=True, contended=True)
    assert [(found.name, found.read_bytes()) for found in tmp_path.iterdir()] == [("calibration.json", b"mine")]


def replaces_files(source: str) -> list[str]:
    """Return the calls of a source that replace files or make partial ones, by name."""
    calls = [node for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Call)]
    found = []
    for call in calls:
        if not isinstance(call.func, ast.Attribute):
            continue
        path_replace = call.func.attr == "replace" and len(call.args) == 1 and not call.keywords
        name = ast.unparse(call.func)
        if path_replace or name in ("os.replace", "os.rename", "os.fsync", "tempfile.mkstemp"):
            found.append(name)
    return found


def test_no_other_module_replaces_a_file() -> None:
    found = {
        relative: calls
        for path in sorted(PACKAGE.rglob("*.py"))
        if (relative := path.relative_to(PACKAGE).as_posix()) not in HELPERS
        and (calls := replaces_files(path.read_text(encoding="utf-8")))
    }
    assert not found, f"write with model.whole_file: {found}"


@pytest.mark.parametrize("source", ["os.replace(a, b)", "partial.replace(path)", "os.fsync(file)", "os.rename(a, b)"])
def test_a_second_helper_would_be_found(source: str) -> None:
    assert replaces_files(source)
    assert not replaces_files("text.replace(a, b); moment.replace(tzinfo=None)")

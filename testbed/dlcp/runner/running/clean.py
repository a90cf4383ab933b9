"""Removes what this tool owns, and nothing else: unfinished runs, and results if asked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from dlcp.files.atomic_file import remove_entry
from dlcp.runner.running.store import Store, stores


@dataclass(frozen=True)
class Leftover:
    """A file or folder that can go, and what it is. size_bytes: of all that is in it."""

    path: Path
    what: str
    size_bytes: int


@dataclass(frozen=True)
class Cleaning:
    """leftovers: what can go. kept: what is in use, and so stays."""

    leftovers: tuple[Leftover, ...]
    kept: tuple[str, ...]


def find(results: Path, *, with_results: bool = False) -> Cleaning:
    """Paths under results/ that can be removed. with_results: finished runs and reports too. Touches nothing."""
    leftovers: list[Leftover] = []
    kept: list[str] = []
    for store in stores(results):
        if store.in_use():
            kept.append(f"{store.folder}: runs are being made there")
            continue
        leftovers += [_leftover(path, "unfinished run") for path in store.unfinished()]
        if with_results:
            leftovers += [_leftover(path, "run") for path in store.finished()]
            leftovers += [_leftover(path, "report") for path in store.reports()]
    return Cleaning(tuple(leftovers), tuple(kept))


def remove(results: Path, *, with_results: bool = False) -> Cleaning:
    """Remove what `find` lists and return it; then folders that are left empty."""
    cleaning = find(results, with_results=with_results)
    owners = {leftover.path.parent for leftover in cleaning.leftovers}
    for folder in sorted(owners):
        with Store(results, folder.name).locked():  # removes unfinished runs itself
            for leftover in cleaning.leftovers:
                if leftover.path.parent == folder:
                    remove_entry(leftover.path)
        if not any(folder.iterdir()):
            folder.rmdir()
    return cleaning


def _leftover(path: Path, what: str) -> Leftover:
    inside = path.rglob("*") if path.is_dir() and not path.is_symlink() else [path]
    return Leftover(path, what, sum(file.lstat().st_size for file in inside if not file.is_dir() or file.is_symlink()))

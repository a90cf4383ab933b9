"""Files that are there whole or not at all, and folders that go without what a link in their place points to."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from pathlib import Path

PARTIAL = ".part"


def write_whole(
    path: Path, content: bytes, *, mode: int | None = None, durable: bool = False, contended: bool = False
) -> None:
    """Put a file in the place of what is there, by a rename, so that a reader sees the old one or this one. OSError
    when it cannot be written.

    The content is first written to a partial file in the same folder. A file or link that a killed writer left there is
    removed first, and never written to.

    mode: the permissions of the file, from its first byte on; None: as the umask leaves them.
    durable: put the content on disk before the rename, so that it survives a power cut.
    contended: other processes may write this file at the same time; each writes a partial file of its own, and the last
    rename wins. A killed writer's partial file then stays.
    """
    descriptor, partial = _new_partial(path, 0o666 if mode is None else mode, contended=contended)
    try:
        with open(descriptor, "wb") as file:
            if mode is not None:
                os.fchmod(descriptor, mode)
            file.write(content)
            if durable:
                file.flush()
                os.fsync(descriptor)
        os.replace(partial, path)
    except BaseException:
        with contextlib.suppress(FileNotFoundError):
            partial.unlink()
        raise


def sync(path: Path) -> None:
    """Put a file's content, or a folder's entries, on disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def remove_entry(path: Path) -> None:
    """Remove a folder with all that is in it, a file, or a link but not what it points to. Fine when it is gone."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _new_partial(path: Path, mode: int, *, contended: bool) -> tuple[int, Path]:
    """Make an empty file to write to; never one that is there already, nor what a link points to."""
    if contended:
        descriptor, name = tempfile.mkstemp(prefix=path.name, suffix=PARTIAL, dir=path.parent)
        return descriptor, Path(name)
    partial = path.with_name(path.name + PARTIAL)
    partial.unlink(missing_ok=True)
    return os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC, mode), partial

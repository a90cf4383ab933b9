"""Files that are there whole or not at all, and folders that go without what a link in their place points to."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

PARTIAL = ".part"


def write_whole(path: Path, content: bytes) -> None:
    """Put a file in the place of what is there, by a rename, so that a reader sees the old one or this one. OSError
    when it cannot be written.

    The content is first written to a file next to it. A file or link that a killed writer left there is removed first,
    and never written to.
    """
    partial = path.with_name(path.name + PARTIAL)
    partial.unlink(missing_ok=True)
    with partial.open("xb") as file:
        file.write(content)
    os.replace(partial, path)


def remove_entry(path: Path) -> None:
    """Remove a folder with all that is in it, a file, or a link but not what it points to. Fine when it is gone."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)

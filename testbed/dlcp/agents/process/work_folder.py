"""A folder that an agent works in: its own while it lives, taken away by the next one when it could not do so itself.

A live process holds a lock on the folder; the kernel lets go of it whatever way a process ends. So what nobody holds is
nobody's. A folder that was made, but is not held yet, may be taken away in between: then its maker makes another.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from pathlib import Path

PREFIX = "dlcp-agent-"


def take_workplace(parent: Path | None = None) -> tuple[str, int]:
    """Make a folder and hold it until the process ends, or the descriptor is closed: its path and that descriptor.

    parent: where, and where to clear away what no living agent holds (None = the system's folder for such things).
    """
    parent = parent or Path(tempfile.gettempdir())
    clear_away(parent)
    while True:
        folder = tempfile.mkdtemp(prefix=PREFIX, dir=parent)
        held = _open(folder)
        if held is not None:
            fcntl.flock(held, fcntl.LOCK_EX)
            if os.path.isdir(folder):
                return folder, held
            os.close(held)


def clear_away(parent: Path) -> None:
    """Take away this user's folders that no living agent holds; another user's are left to that one."""
    for path in parent.glob(f"{PREFIX}*"):
        held = _open(str(path))
        if held is None:
            continue
        try:
            is_own = os.fstat(held).st_uid == os.geteuid()
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if is_own:
                    shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(held)


def _open(path: str) -> int | None:
    """A folder's descriptor, of no link; None when it is not there, or not for us."""
    with contextlib.suppress(OSError):
        return os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    return None

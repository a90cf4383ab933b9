"""A folder of a device that root alone may read and write, and files in it that are whole or not there.

Standard library alone, Python 3.8 or later, to run with any Python of a device; there its neighbours import it by
this name too, so Ansible's modules have it under no other.
"""

from __future__ import annotations

import os
import stat

MODE = 0o700


def make_private(folder: str) -> None:
    """Make a folder, and what is missing above it, for this user alone; one that is there is closed to all others.

    Raises OSError where it cannot be made, and PermissionError where it is a link, no folder, or somebody else's: what
    is read there may then be anybody's words.
    """
    missing: list[str] = []
    above = os.path.abspath(folder)
    while not os.path.lexists(above):
        missing.append(above)
        above = os.path.dirname(above)
    for one in reversed(missing):
        os.mkdir(one, MODE)
    found = os.lstat(folder)
    if not stat.S_ISDIR(found.st_mode):
        raise PermissionError(f"{folder} is a link or no folder: look who made it, and move it away")
    if found.st_uid != os.geteuid():
        raise PermissionError(f"{folder} belongs to user {found.st_uid}, not {os.geteuid()}: move it away")
    if stat.S_IMODE(found.st_mode) & ~MODE:
        os.chmod(folder, MODE)


def replace_file(path: str, content: bytes, mode: int = 0o600) -> None:
    """A file with this content, whole or as it was before, whatever happens meanwhile. Raises OSError (disk full)."""
    beside = path + ".new"
    try:
        descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW, mode)
        with open(descriptor, "wb") as file:
            os.fchmod(descriptor, mode)
            file.write(content)
            file.flush()
            os.fsync(descriptor)
        os.replace(beside, path)
    except OSError:
        if os.path.lexists(beside):
            os.remove(beside)  # on a full disk it is in the way
        raise

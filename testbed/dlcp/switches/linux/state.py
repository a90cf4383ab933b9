"""What a box remembers in a file: how everything was before anything of ours, what it was told, what is not confirmed.

It is written before the kernel is touched, so whatever ends an apply half-way, the next call knows what to mend. The
kernel is asked for all else.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TextIO

from pydantic import Field, ValidationError

from dlcp.errors import MachineCannot, Problem
from dlcp.model.base import Frozen
from dlcp.switches.private_folder import make_private, replace_file

STATE_VARIABLE = "DLCP_BOX_STATE"
STATE = Path("/var/lib/dlcp")
FOLDER = "box"
_FILE = "state.json"
_LOCK_WITHIN_S = 30.0
_LOCK_POLL_S = 0.05
KEPT_DEPLOYMENTS = 20
"""Whose findings are remembered."""


class Kept(Frozen):
    """A configuration in force. configuration: None = nothing of ours, and digest "". deployment: what brought it."""

    configuration: dict[str, Any] | None = None
    digest: str = ""
    intent: str = ""
    deployment: str = ""


class Original(Frozen):
    """A port before anything of ours. offloads: whether each was asked for, as ethtool names them. clsact: whether
    somebody had made the hooks."""

    offloads: dict[str, bool]
    clsact: bool


class Saved(Frozen):
    """What a deployment found. nothing_to_do: it was what the deployment wanted."""

    deployment: str
    before: Kept
    nothing_to_do: bool = False


class State(Frozen):
    """format: of this file. boot: of the machine and network namespace that it tells of. inner: port → the interface
    index of its inner end. changing: a change has begun and has not ended. pending: the deployment that waits to be
    confirmed. tags: of the programs as they were loaded, program: of which object."""

    format: int = 1
    boot: str = ""
    original: dict[str, Original] = Field(default_factory=dict)
    sysctls: dict[str, str] = Field(default_factory=dict)
    kept: Kept = Kept()
    inner: dict[str, int] = Field(default_factory=dict)
    tags: dict[str, str] = Field(default_factory=dict)
    program: str = ""
    changing: bool = False
    pending: str = ""
    saved: tuple[Saved, ...] = ()
    undone: tuple[str, ...] = ()
    """Deployments that were taken back before they came: whoever is slow does not apply them afterwards."""
    lost: Kept | None = None
    """What was in force before the box was started anew."""
    epoch: int = 0
    """Of the peaks: counts the resets."""

    def with_(self, **changes: Any) -> State:
        """A copy with some words changed."""
        return self.model_copy(update=changes)

    def before(self, deployment: str) -> Kept | None:
        """What a deployment found; "" = the last one. None when it never came here."""
        saved = self.saved_by(deployment)
        return saved.before if saved else None

    def saved_by(self, deployment: str) -> Saved | None:
        """The same, with all that is known of that deployment."""
        named = (saved for saved in reversed(self.saved) if not deployment or saved.deployment == deployment)
        return next(named, None)


class Store:
    """The folder of a box's state, locked as long as it is open: one verb at a time."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = State()
        self.goes_on = False
        self.unwritten: OSError | None = None
        """Why the file does not tell of the last change. With `goes_on` it is no reason to stop: a full disk must not
        keep a box from going back; else `write` raises it."""

    def load(self) -> State:
        """Read the file; without one, or of another boot, nothing is ours. Raises Problem when it is broken."""
        path, boot = self.folder / _FILE, this_boot()
        try:
            state = State.model_validate_json(path.read_bytes())
        except FileNotFoundError:
            state = State(boot=boot)
        except (ValidationError, OSError) as error:
            hint = f"look at it; `restore` with {path} moved away takes off what is found, by names alone"
            raise Problem(str(path), f"cannot be read: {error}", hint) from error
        if state.format != State().format:
            raise Problem(str(path), f"is of format {state.format}, this version reads {State().format}", "update dlcp")
        if state.boot != boot:
            in_force = state.kept if state.kept.configuration is not None else state.lost
            state = State(boot=boot, saved=state.saved, lost=in_force, epoch=state.epoch)
        self.state = state
        return state

    def write(self, **changes: Any) -> State:
        """Change the state, on disk before anything else happens. Raises OSError, unless it `goes_on`."""
        self.state = self.state.with_(**changes)
        try:
            replace_file(str(self.folder / _FILE), self.state.model_dump_json(indent=1).encode())
            self.unwritten = None
        except OSError as error:
            if not self.goes_on:
                raise
            self.unwritten = error
        return self.state


@contextmanager
def opened(folder: Path, within_s: float = _LOCK_WITHIN_S) -> Iterator[Store]:
    """The state, for one verb at a time, also where it can only be read. within_s: how long to wait for another; a
    timer's own restore waits for ever, as nobody would ask again. Raises MachineCannot when another one does not end in
    time, or the folder is not safe."""
    try:
        make_private(str(folder))
    except OSError as error:
        what = f"cannot be the box's state: {error.strerror or error}"
        raise MachineCannot(str(folder), what, f"name another: {STATE_VARIABLE}") from error
    with _lock_file(folder / "lock") as lock:
        deadline = time.monotonic() + within_s
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() > deadline:
                    what = f"another call has held the lock for {within_s:.0f} s"
                    raise MachineCannot(str(folder), what, "look for it: pgrep -af dlcp.switches.linux") from None
                time.sleep(_LOCK_POLL_S)
        store = Store(folder)
        store.load()
        yield store


def _lock_file(path: Path) -> TextIO:
    """Open, for writing where that can be: a lock needs neither."""
    try:
        return path.open("a")
    except OSError as error:
        if error.errno != errno.EROFS or not path.exists():
            raise MachineCannot(str(path), f"cannot be opened: {error.strerror}", "look at its file system") from error
        return path.open()


def this_boot() -> str:
    """Names this start of the machine and this network namespace: what both tell of goes away with either."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="utf-8").strip()
    return f"{boot} {os.readlink('/proc/self/ns/net')}"


def state_folder(argument: str | None) -> Path:
    """Where a box keeps its state: an argument, else the environment's, else /var/lib/dlcp."""
    return Path(argument or os.environ.get(STATE_VARIABLE) or STATE) / FOLDER


def to_json(value: Any) -> str:
    """For a person to compare."""
    return json.dumps(value, indent=2, sort_keys=True)

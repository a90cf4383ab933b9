"""What holds threads and sockets is closed when its process ends, and is left alone in a process forked from it."""

from __future__ import annotations

import atexit
import contextlib
import os
import weakref
from typing import Protocol


class Closable(Protocol):
    """Something that a process may leave open."""

    def abandon(self) -> None:
        """Close without waiting for long."""


_open: weakref.WeakSet[Closable] = weakref.WeakSet()


def close_at_exit(one: Closable) -> None:
    """Unless it is closed before. A process that ends still answers what its peers ask last."""
    _open.add(one)


def is_closed(one: Closable) -> None:
    """Nothing is left to do at exit."""
    _open.discard(one)


@atexit.register
def _close_all() -> None:
    for one in list(_open):
        with contextlib.suppress(Exception):  # the others must be closed too, and nobody is left to hear of it
            one.abandon()


os.register_at_fork(after_in_child=_open.clear)  # a child has none of the threads

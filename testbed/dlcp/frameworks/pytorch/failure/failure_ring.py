"""Connections on which ranks tell each other that one has failed or left, and see at once that one's process ended.

Each rank has a TCP connection to either neighbour in the ring of all ranks. Whatever a rank says is handed on both ways
round, so one rank that is gone keeps no news from any other. Nothing is sent while all is well.

The end of a connection is only a reason to ask: a rank is gone if its port refuses a new one, as the kernel of its host
does once the process has ended. A host that is gone refuses nothing; the silence on the data's own path tells of it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import selectors
import socket
import threading
import weakref
from collections.abc import Callable
from typing import Any

CONNECT_AT_MOST_S = 5.0
ASK_EVERY_S = 0.05
ASK_AT_MOST = 20
"""A process that ends closes its port within this second; one that still takes connections lives."""
LONGEST_LINE = 1 << 16
MEET_AT_MOST_S = 1.0
"""A rank's first news waits so long for the neighbour that has not said yet who it is."""
STRANGERS_AT_MOST = 16
"""Connections that have not said yet whose they are."""
Place = tuple[str, int]
Notice = dict[str, Any]
"""A message between ranks, a JSON object on a line. `rank`: the rank that it is about."""
log = logging.getLogger("dlcp.pytorch")
_not_forking = threading.Lock()


class WatchRing:
    """One rank's two connections and the thread that reads them.

    cookie: proves that a connection is of this job. hear: takes a notice; whether it was news, which is handed on.
    gone: told that a rank's process has ended. Both run in the thread.
    """

    def __init__(self, rank: int, size: int, address: str) -> None:
        self._rank = rank
        self._right, self._left = (rank + 1) % size, (rank - 1) % size
        self._cookie = 0
        self._places: list[Place] = []
        self._hear: Callable[[Notice], bool] = lambda _: False
        self._gone: Callable[[int], bool] = lambda _: False
        self._links: list[_Link] = []
        self._ending = threading.Event()
        self._met_left = threading.Event()
        self._lock = threading.Lock()  # of the links' list, and of what is written to them
        self._thread: threading.Thread | None = None
        self._listener = socket.create_server((address, 0), backlog=STRANGERS_AT_MOST)
        self._listener.setblocking(False)  # who connected may be gone again
        self._woken, self._waker = socket.socketpair()
        self.place: Place = self._listener.getsockname()[:2]
        _open_rings.add(self)

    def join(
        self, cookie: int, places: list[Place], hear: Callable[[Notice], bool], gone: Callable[[int], bool]
    ) -> None:
        """Connect to the neighbour on the right and begin to listen. places: of all ranks, by rank. gone: whether it
        matters: a rank that has left may end."""
        self._cookie, self._places, self._hear, self._gone = cookie, places, hear, gone
        try:
            connection = socket.create_connection(places[self._right], CONNECT_AT_MOST_S)
            self._add(connection, self._right)
            self._write(self._links[-1], {"cookie": cookie, "rank": self._rank})
        except OSError as error:
            where = "{}:{}".format(*places[self._right])
            log.warning(
                "rank %d cannot connect to rank %d at %s (%s): the end of a rank is noticed only by its silence. "
                "Let TCP pass between the ranks",
                self._rank,
                self._right,
                where,
                error,
            )
        self._thread = threading.Thread(target=self._run, daemon=True, name=f"dlcp-watch-{self._rank}")
        self._thread.start()

    def say(self, notice: Notice, heard_from: int | None = None) -> None:
        """Tell both neighbours, but not the one that it was heard from. This rank's own news waits for both, so
        that none sees this rank's end before it hears why."""
        if heard_from is None and threading.current_thread() is not self._thread:
            self._met_left.wait(MEET_AT_MOST_S)
        with self._lock:
            links = [link for link in self._links if link.peer not in (None, heard_from)]
        for link in links:
            self._write(link, notice)

    def close(self) -> None:
        """End the thread and the connections. Safe to call twice."""
        self._ending.set()
        with contextlib.suppress(OSError):
            self._waker.send(b"x")
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join()
        self.close_sockets()

    def close_sockets(self) -> None:
        """Give the files back; a child after a fork does so with its copies, which would keep the connections open."""
        for one in (self._listener, self._woken, self._waker, *(link.socket for link in self._links)):
            one.close()

    def _add(self, connection: socket.socket, peer: int | None) -> None:
        connection.settimeout(CONNECT_AT_MOST_S)
        with self._lock:
            self._links.append(_Link(connection, peer))

    def _write(self, link: _Link, notice: Notice) -> None:
        with self._lock, contextlib.suppress(OSError):  # its end is seen by the thread
            link.socket.sendall(json.dumps(notice).encode() + b"\n")

    def _run(self) -> None:
        while not self._ending.is_set():
            with selectors.PollSelector() as selector:
                selector.register(self._listener, selectors.EVENT_READ)
                selector.register(self._woken, selectors.EVENT_READ)
                for link in self._links:
                    selector.register(link.socket, selectors.EVENT_READ, link)
                ready = selector.select()
            for key, _ in ready:
                if self._ending.is_set():
                    return
                if key.fileobj is self._listener:
                    self._accept()
                elif isinstance(key.data, _Link):
                    self._read(key.data)

    def _accept(self) -> None:
        with _not_forking, contextlib.suppress(OSError):  # a child must not have one that it does not know of
            connection, _ = self._listener.accept()
            if sum(link.peer is None for link in self._links) >= STRANGERS_AT_MOST:
                connection.close()
            else:
                self._add(connection, None)

    def _read(self, link: _Link) -> None:
        """Take what came. What is not understood is a stranger's, or an attacker's: the connection ends."""
        data = b""
        with contextlib.suppress(OSError):
            data = link.socket.recv(LONGEST_LINE)
        *lines, link.begun = (link.begun + data).split(b"\n")
        try:
            for line in lines:
                self._take(link, json.loads(line))
            if len(link.begun) > LONGEST_LINE:
                raise ValueError("a line without an end")
        except (ValueError, KeyError, TypeError, OverflowError, RecursionError):  # Overflow: of a rank 1e999
            data = b""
        if not data:
            self._drop(link)

    def _take(self, link: _Link, notice: Notice) -> None:
        if link.peer is None:
            if (notice["cookie"], notice["rank"]) != (self._cookie, self._left):
                raise ValueError("not of this job")
            link.peer = self._left
            self._met_left.set()
        elif self._hear(notice):
            self.say(notice, heard_from=link.peer)

    def _drop(self, link: _Link) -> None:
        with self._lock:
            self._links.remove(link)
        link.socket.close()
        if link.peer is None:
            return
        if self._has_ended(link.peer):
            self._gone(link.peer)
        elif not self._ending.is_set():
            log.warning(
                "rank %d lost its connection to rank %d, but nothing says that its process has ended: from here on the "
                "end of a rank may be noticed only by its silence. Does something between the ranks close idle TCP "
                "connections?",
                self._rank,
                link.peer,
            )

    def _has_ended(self, peer: int) -> bool:
        """Whether a rank's process has ended: its port refuses connections."""
        for _ in range(ASK_AT_MOST):
            try:
                socket.create_connection(self._places[peer], ASK_EVERY_S).close()
            except ConnectionRefusedError:
                return True
            except OSError:
                pass  # no answer: only its silence tells
            if self._ending.wait(ASK_EVERY_S):
                return False
        return False


class _Link:
    """A connection. peer: the rank at its other end, None before it has said so; begun: a line that is not whole."""

    def __init__(self, connection: socket.socket, peer: int | None) -> None:
        self.socket = connection
        self.peer = peer
        self.begun = b""


_open_rings: weakref.WeakSet[WatchRing] = weakref.WeakSet()


def _close_copies() -> None:
    _not_forking.release()
    for ring in list(_open_rings):
        ring.close_sockets()


os.register_at_fork(before=_not_forking.acquire, after_in_parent=_not_forking.release, after_in_child=_close_copies)

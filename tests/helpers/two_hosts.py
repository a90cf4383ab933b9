"""Two hosts in network namespaces of their own, joined by a wire, in this process."""

from __future__ import annotations

import ctypes
import os
import subprocess
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import TypeVar

import pytest

WITHIN_S = 20.0
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces; run as root")

Result = TypeVar("Result")


class Host:
    """A thread with a network namespace of its own. What is opened there stays there."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(1)
        self.id = self.do(self._leave)

    @staticmethod
    def _leave() -> int:
        new_network = 0x40000000  # CLONE_NEWNET; os.unshare comes with Python 3.12
        if ctypes.CDLL(None, use_errno=True).unshare(new_network):
            raise OSError(ctypes.get_errno(), "unshare")
        return threading.get_native_id()

    def do(self, what: Callable[[], Result]) -> Result:
        return self._thread.submit(what).result(WITHIN_S)

    def ip(self, words: str) -> None:
        self.do(lambda: subprocess.run(["ip", *words.split()], check=True, timeout=WITHIN_S))

    def close(self) -> None:
        self._thread.shutdown()


@contextmanager
def hosts() -> Iterator[tuple[Host, Host]]:
    """198.18.0.1 and 198.18.0.2, joined by a pair of interfaces, each called wire0."""
    a, b = Host(), Host()
    try:
        a.ip(f"link add wire0 type veth peer name wire0 netns {b.id}")
        for host, address in ((a, "198.18.0.1/30"), (b, "198.18.0.2/30")):
            host.ip(f"address add {address} dev wire0")
            host.ip("link set wire0 up")
        yield a, b
    finally:
        a.close()
        b.close()

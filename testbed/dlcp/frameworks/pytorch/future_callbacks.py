"""Threads that complete futures, so that a user's callback holds up neither an all-reduce nor another callback."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable

IDLE_THREADS = 4
"""So many are kept for the next callbacks. More are started when all are held up, and end when they are not."""


class CallbackThreads:
    """Run each job in a thread that nothing else waits for. A callback may wait for another collective, whose callback
    may wait for the next: so there is no limit to how many are held up at once."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: deque[Callable[[], None]] = deque()
        self._idle = 0
        self._ending = False
        self._threads: set[threading.Thread] = set()
        self._changed = threading.Condition()

    def run(self, job: Callable[[], None]) -> None:
        """Have a job done at once; it must not raise. Also possible after close."""
        with self._changed:
            self._jobs.append(job)
            if self._idle >= len(self._jobs):
                self._changed.notify()
                return
            thread = threading.Thread(target=self._work, daemon=True, name=self._name)
            self._threads.add(thread)
        thread.start()

    def close(self, timeout_s: float) -> None:
        """End the threads after the jobs that they have. Waits for them, but not for one that a callback holds longer
        than this."""
        deadline_s = time.monotonic() + timeout_s
        with self._changed:
            self._ending = True
            self._changed.notify_all()
            threads = list(self._threads)
        for thread in threads:
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline_s - time.monotonic()))

    def _work(self) -> None:
        while (job := self._next()) is not None:
            job()
            del job  # it holds tensors

    def _next(self) -> Callable[[], None] | None:
        with self._changed:
            if not self._jobs and not self._ending and self._idle < IDLE_THREADS:
                self._idle += 1
                self._changed.wait_for(lambda: self._jobs or self._ending)
                self._idle -= 1
            if self._jobs:
                return self._jobs.popleft()
            self._threads.discard(threading.current_thread())
            return None

"""What a collective over DLCP returns: torch's Work, with an error that names rank and tensor."""

from __future__ import annotations

import threading
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from dlcp.frameworks.pytorch.future_callbacks import CallbackThreads
from dlcp.frameworks.pytorch.untraced import untraced_class


class Outcome:
    """The end of one operation, told once by the thread that sees it, awaited by any.

    future: completes with `value`, or with the error. Callbacks of it run in one of the callback threads, so a callback
    may wait for any other operation. Only who asks for the future pays for it.
    """

    def __init__(self, value: Any, callbacks: CallbackThreads) -> None:
        self.value = value
        self.error: Exception | None = None
        self.callbacks = callbacks
        self._over = threading.Event()
        self._lock = threading.Lock()
        self._watchers: list[Callable[[], None]] = []
        self._promise: torch.futures.Future[None] | None = None
        self._future: torch.futures.Future[Any] | None = None

    @property
    def future(self) -> torch.futures.Future[Any]:
        """The same future each time."""
        with self._lock:
            if self._future is None:
                self._promise = torch.futures.Future()
                # Only an error that leaves a callback is one for C++ too; set_exception's would be a value there.
                self._future = self._promise.then(self._value_or_error)
                if self._over.is_set():
                    self._promise.set_result(None)  # in this thread: nobody has added a callback yet
            return self._future

    def tell(self, error: Exception | None = None) -> None:
        """Set the end of the operation. Returns without having run a callback of the future."""
        with self._lock:
            self.error = error
            self._over.set()
            watchers, self._watchers = self._watchers, []
            promise = self._promise
        for watcher in watchers:
            watcher()
        if promise is not None:
            self.callbacks.run(lambda: promise.set_result(None))

    def when_over(self, watcher: Callable[[], None]) -> None:
        """Call a function of ours, which must not wait, in the thread that tells; at once if it has been told."""
        with self._lock:
            if not self._over.is_set():
                self._watchers.append(watcher)
                return
        watcher()

    def is_over(self) -> bool:
        """Whether it has been told."""
        return self._over.is_set()

    def wait(self, timeout_s: float | None) -> bool:
        """Wait; False when the time ran out. Raises the error."""
        if not self._over.wait(timeout_s):
            return False
        if self.error is not None:
            raise self.error
        return True

    def _value_or_error(self, _: object) -> Any:
        if self.error is not None:
            raise self.error
        return self.value


def all_of(outcomes: list[Outcome], value: Any, callbacks: CallbackThreads) -> Outcome:
    """Over when all are, with this value; its error is the first one's."""
    joint = Outcome(value, callbacks)
    lock, left = threading.Lock(), len(outcomes)

    def one_is_over() -> None:
        nonlocal left
        with lock:
            left -= 1
            is_last = left == 0
        if is_last:
            joint.tell(next((outcome.error for outcome in outcomes if outcome.error is not None), None))

    for outcome in outcomes:
        outcome.when_over(one_is_over)
    if not outcomes:
        joint.tell()
    return joint


@untraced_class
class DlcpWork(dist.Work):
    """One collective under way. wait raises TransportError when a rank is gone or the group's time is over."""

    def __init__(self, outcome: Outcome) -> None:
        super().__init__()
        self._outcome = outcome

    def wait(self, timeout: timedelta | None = None) -> bool:
        """Until the result is there. timeout: None or 0 for the group's own. TimeoutError when it ran out."""
        limit_s = timeout.total_seconds() if timeout else None
        if not self._outcome.wait(limit_s):
            raise TimeoutError(f"an all_reduce over DLCP did not end within {limit_s} s")
        return True

    def synchronize(self) -> None:
        """The same as wait: on a CPU there is no stream that could wait instead."""
        self.wait()

    def is_completed(self) -> bool:
        """Whether it is over, well or not."""
        return self._outcome.is_over()

    def is_success(self) -> bool:
        """Whether it is over and the result is there."""
        return self._outcome.is_over() and self._outcome.error is None

    def exception(self) -> Any:
        """Why it failed; None while it has not."""
        return self._outcome.error

    def result(self) -> Any:
        """The tensors."""
        self.wait()
        return self._outcome.value

    def get_future(self) -> Any:
        """Completes with the list of tensors."""
        return self._outcome.future

"""Work in a thread during a run; its failure is the run's."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from types import TracebackType
from typing import Self


class Beside(ABC):
    """Runs `_work` in a thread from __enter__ to __exit__; leaving the block waits for it, then calls `_put_right`.

    Raises at the block's end what went wrong in the thread, if nothing else did: a monitor that has died would
    otherwise say that all is well.
    """

    def __init__(self, name: str) -> None:
        self._over = threading.Event()
        self._error: Exception | None = None
        self._thread = threading.Thread(target=self._guarded, daemon=True, name=name)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        at: TracebackType | None = None,
    ) -> None:
        self._over.set()
        self._thread.join()
        self._put_right()
        if self._error is not None and error is None:
            raise self._error

    @abstractmethod
    def _work(self) -> None:
        """Until self._over is set."""

    def _put_right(self) -> None:  # noqa: B027 - a monitor changes nothing
        """Restore the state that the work has changed and that must not stay so."""

    def _guarded(self) -> None:
        try:
            self._work()
        except Exception as error:  # raised again where the block ends
            self._error = error

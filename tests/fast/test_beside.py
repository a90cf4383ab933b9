"""Work beside a run: its end, what it puts right, and that its failure is not silent."""

from __future__ import annotations

import pytest

from dlcp.agents.background_thread import Beside


class Steps(Beside):
    """Notes what happens; fails at once if it is told to."""

    def __init__(self, failure: Exception | None = None) -> None:
        super().__init__("steps")
        self.seen: list[str] = []
        self._failure = failure

    def _work(self) -> None:
        if self._failure is not None:
            raise self._failure
        self._over.wait()
        self.seen.append("worked to the end")

    def _put_right(self) -> None:
        self.seen.append("put right")


def test_the_block_ends_the_work_and_puts_right() -> None:
    with Steps() as steps:
        assert steps.seen == []
    assert steps.seen == ["worked to the end", "put right"]


def test_what_goes_wrong_in_the_thread_comes_out_where_the_block_ends() -> None:
    steps = Steps(OSError("no such counter"))
    with pytest.raises(OSError, match="no such counter"), steps:
        pass
    assert steps.seen == ["put right"]


def test_what_goes_wrong_in_the_block_comes_first() -> None:
    steps = Steps(OSError("no such counter"))
    with pytest.raises(KeyError), steps:
        raise KeyError("job")
    assert steps.seen == ["put right"]

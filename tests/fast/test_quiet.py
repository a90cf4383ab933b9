"""When a proof is inconclusive because the hypervisor gave this machine's CPU to others."""

from __future__ import annotations

import pytest
from quiet import ATTEMPTS, measured, skip_if_stolen


def test_all_suspect_runs_without_their_cpu_prove_nothing() -> None:
    with pytest.raises(pytest.skip.Exception, match="took CPU from all 2 suspect runs"):
        skip_if_stolen([["cpu_stolen"], ["timer_late_s", "cpu_stolen"]])


@pytest.mark.parametrize("objections", [[], [["timer_late_s"]], [["cpu_stolen"], ["core_wait"]]])
def test_one_that_had_its_cpu_is_reason_to_go_on(objections: list[list[str]]) -> None:
    skip_if_stolen(objections)


class Wrong:
    """A test that fails, after so many calls no more. taken_s: each look at the clock of theft finds a second more."""

    def __init__(self, fails: int) -> None:
        self.fails, self.calls, self.looks = fails, 0, 0

    def __call__(self) -> None:
        self.calls += 1
        assert self.calls > self.fails

    def taken_s(self) -> float:
        self.looks += 1
        return float(self.looks)


def test_two_failures_on_a_machine_that_had_its_cpu_count() -> None:
    wrong = Wrong(2)
    with pytest.raises(AssertionError):
        measured(wrong, lambda: 7.0)
    assert wrong.calls == 2


def test_what_fails_while_cpu_is_taken_is_measured_again() -> None:
    wrong = Wrong(ATTEMPTS - 1)
    measured(wrong, wrong.taken_s)
    assert wrong.calls == ATTEMPTS


def test_what_fails_each_time_while_cpu_is_taken_is_inconclusive() -> None:
    wrong = Wrong(ATTEMPTS)
    with pytest.raises(pytest.skip.Exception, match="inconclusive: the hypervisor took"):
        measured(wrong, wrong.taken_s)
    assert wrong.calls == ATTEMPTS

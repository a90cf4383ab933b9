"""When a proof is inconclusive because the hypervisor gave this machine's CPU to others."""

from __future__ import annotations

import pytest
from quiet import skip_if_stolen


def test_all_suspect_runs_without_their_cpu_prove_nothing() -> None:
    with pytest.raises(pytest.skip.Exception, match="took CPU from all 2 suspect runs"):
        skip_if_stolen([["cpu_stolen"], ["timer_late_s", "cpu_stolen"]])


@pytest.mark.parametrize("objections", [[], [["timer_late_s"]], [["cpu_stolen"], ["core_wait"]]])
def test_one_that_had_its_cpu_is_reason_to_go_on(objections: list[list[str]]) -> None:
    skip_if_stolen(objections)

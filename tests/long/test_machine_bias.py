"""The machine is not in the results: a run that its monitors believe has the JCT of a machine twice as fast.

The same experiment at its own time dilation and at twice that, and with planted busy loops; see
dlcp.runner.machine.invariance. What is proven is that no verdict "ok" is false, at the heaviest load that is admitted
here, for each way in which runs take CPU: the kernel's TCP, Python that schedules over it, DLCP's engine under two
controls.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from bias_sweep import judged
from quiet import require_quiet, skip_if_stolen

from dlcp.agents.machine_monitor import cores
from dlcp.model.loading.experiment_files import find_experiment
from dlcp.runner.machine.invariance import LARGEST_BIAS, Options
from dlcp.runner.planning.check import ready
from dlcp.runner.preview.outline import as_emulated

EXPERIMENT, JOB = "machine-bias", "resnet50"
TRANSPORTS = ("TCP tuned", "ByteScheduler", "DCTCP over UDP", "DLCP")
PLANTED = (0.1, 0.2, 0.4)
pytestmark = pytest.mark.long


def swept(options: Options) -> dict[str, Any]:
    """The summary of one sweep, or of two where the first has a false verdict or a reference that is not believed."""
    wanted, _ = as_emulated(ready(find_experiment(EXPERIMENT)))
    found, trials = judged(wanted, options, require_quiet)
    assert found["failed"] == 0, listing(found)
    if found["untrusted"]:
        references = [one for one in trials if one.dilation == options.reference and not one.planted]
        skip_if_stolen(one.objected for one in references if one.label in found["untrusted"])
    assert not found["untrusted"], f"suspect on a quiet machine, at twice the admitted dilation:\n{listing(found)}"
    return found


def listing(found: dict[str, Any]) -> str:
    """Every cell on a line, for a failure."""
    return "\n".join(
        f"{one['label']} × {one['dilation']:g}, busy loop {one['planted']:.0%}: bias {one['bias']} of {one['ok']} ok, "
        f"{one['suspect_bias']} of {one['suspect']} suspect {one['objected']}"
        for one in found["cells"]
    )


OPTIONS = Options(JOB, TRANSPORTS, dilations=(1.0, 2.0), repeats=2)


def test_a_run_that_is_ok_has_the_time_of_a_machine_twice_as_fast() -> None:
    found = swept(OPTIONS)
    assert found["false_ok"] == 0, f"believed with a bias beyond {LARGEST_BIAS:.0%}:\n{listing(found)}"
    assert found["false_suspect"] <= found["runs"] / 4, f"suspect without a bias, and undisturbed:\n{listing(found)}"


def test_planted_load_is_harmless_or_caught() -> None:
    found = swept(replace(OPTIONS, labels=("ByteScheduler", "DLCP"), planted=PLANTED))
    assert found["false_ok"] == 0, f"believed with a bias beyond {LARGEST_BIAS:.0%}:\n{listing(found)}"


def test_starvation_is_caught() -> None:
    """Two busy loops on every core are others' work that no run survives unseen."""
    found = swept(replace(OPTIONS, labels=("DLCP",), planted=(2.0 * cores(),), repeats=1))
    (starved,) = (one for one in found["cells"] if one["planted"])
    assert (starved["ok"], starved["failed"]) == (0, 0), listing(found)

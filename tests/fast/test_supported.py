"""What this machine's kernel cannot run is said with the reason, in plan, show and doctor; and the rest runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlcp import schemes
from dlcp.runner import catalogue
from dlcp.runner.machine import doctor, emulator_support
from dlcp.runner.planning.check import ready
from dlcp.runner.planning.plan import plan
from dlcp.substrates.emulate import capabilities
from dlcp.substrates.emulate.capabilities import probe_congestion_control

FINE = Path(__file__).parents[1] / "errors" / "fine.yaml"
WORKLOADS = FINE.parent / "workloads"


@pytest.fixture
def only_cubic(monkeypatch: pytest.MonkeyPatch) -> None:
    """A kernel that has no DCTCP, nor anything to load."""
    monkeypatch.setattr(capabilities, "_congestion_controls", lambda: ["reno", "cubic"])

    def refused(sock: object, *arguments: object) -> None:
        raise FileNotFoundError(2, "No such file or directory")

    monkeypatch.setattr("socket.socket.setsockopt", refused)


def test_a_congestion_control_that_no_kernel_has_is_not_found() -> None:
    found = probe_congestion_control("no-such-one")
    assert not found.ok
    assert "no TCP congestion control no-such-one, only" in found.detail
    assert probe_congestion_control("reno").ok, "every kernel has it"


def test_plan__a_scheme_without_its_kernel_module_is_unsupported_and_the_others_run(only_cubic: None) -> None:
    fine = ready(FINE, WORKLOADS)
    built = fine.schemes | {"kernel": schemes.scheme_class("dctcp")()}
    lacking = emulator_support.lacking(built)
    assert list(lacking) == ["kernel"]
    assert lacking["kernel"] == (
        "this kernel has no TCP congestion control dctcp, only reno, cubic: "
        "modprobe tcp_dctcp, or boot a kernel that has it"
    )
    label = next(iter(fine.schemes))
    planned = plan(fine, lacking={label: lacking["kernel"]})
    assert [(one.label, one.why) for one in planned.unsupported] == [(label, lacking["kernel"])]
    assert all(cell.run.scheme.label != label for cell in planned.cells)


def test_show__says_why_not_here(only_cubic: None) -> None:
    said = {row["name"]: row["substrates"] for row in catalogue.overview("schemes")}
    assert "unsupported here: this kernel has no TCP congestion control dctcp" in said["dctcp"]
    assert said["tcp"] == "emulate, lab"
    assert "unsupported here" in catalogue.details("schemes", "dctcp")["substrates"]


def test_doctor__tells_of_the_gap_without_calling_it_needed(only_cubic: None) -> None:
    checks = {check.name: check for check in doctor.tcp_controls()}
    assert set(checks) >= {"cubic", "dctcp"}
    assert checks["cubic"].ok
    assert "modprobe tcp_dctcp" in checks["dctcp"].remedy

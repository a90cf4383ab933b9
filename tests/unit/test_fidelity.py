"""The monitors: bounds in both directions, sentences, and a real sample of this machine."""

import time

import pytest

from dlcp.substrates.fidelity import MachineMonitor, judge, reasons


def test_values_inside_their_bounds_give_no_reason() -> None:
    judged = judge({"cpu_busy": 0.4, "unaccounted_packets": 0, "background_offered": 1.0})
    assert all(found["ok"] for found in judged.values())
    assert reasons(judged) == ""


def test_the_reason_names_monitor_value_and_bound() -> None:
    judged = judge({"cpu_busy": 0.97, "background_offered": 0.5, "rx_overflow": 0})
    assert [name for name, found in judged.items() if not found["ok"]] == ["cpu_busy", "background_offered"]
    assert "cpu_busy = 0.97 share (bound 0.85" in reasons(judged)


def test_a_monitor_without_a_bound_is_an_error() -> None:
    with pytest.raises(KeyError):
        judge({"luck": 1})


def test_the_machine_monitor_sees_a_busy_core() -> None:
    with MachineMonitor() as monitor:
        start_s = time.monotonic()
        while time.monotonic() < start_s + 0.8:
            pass
        end_s = time.monotonic()
    assert monitor.cpu_busy(start_s, end_s) > 0.1
    assert monitor.softnet_dropped() >= 0

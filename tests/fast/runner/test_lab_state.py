"""What is read of a lab: counters over a run, packets that are missing, settings of hosts that are otherwise."""

from __future__ import annotations

from typing import Any, cast

import pytest

from dlcp.errors import Problem
from dlcp.model.host_settings import HostSettings
from dlcp.model.lab.inventory import LabSwitch
from dlcp.model.result import TABLES
from dlcp.substrates.lab.ssh import Done, Remote
from dlcp.substrates.lab.state import (
    Boxes,
    Counted,
    HostState,
    _rto_min_s,
    box_command,
    device_losses,
    differences,
    lost_by_devices,
    require_undisturbed,
    rounded,
    unaccounted,
)


def row(port: str, queue: int = 0, **counted: int) -> dict[str, Any]:
    blank: dict[str, Any] = dict.fromkeys(TABLES["ports"], 0)
    known = {"switch": port.split("-")[0], "port": port, "queue": queue, "backlog_histogram": [0] * 16}
    return blank | known | counted


def test_a_run_counts_what_came_during_it_and_its_own_peak() -> None:
    before = [row("s1-h1", enqueued_packets=10, sent_packets=10, peak_backlog_bytes=9000, dropped_wred_bytes=5)]
    after = [row("s1-h1", enqueued_packets=25, sent_packets=24, peak_backlog_bytes=3000, dropped_wred_bytes=5)]
    before[0]["backlog_histogram"], after[0]["backlog_histogram"] = [3, 0], [10, 1]
    [found] = differences(before, after)
    assert (found["enqueued_packets"], found["sent_packets"], found["dropped_wred_bytes"]) == (15, 14, 0)
    assert (found["peak_backlog_bytes"], found["backlog_histogram"]) == (3000, [7, 1])
    assert (found["switch"], found["port"], found["queue"]) == ("s1", "s1-h1", 0)


def test_what_adds_up_is_not_told() -> None:
    rows = [
        row("s1-h1", received_packets=100, enqueued_packets=50, sent_packets=50, dropped_tail_packets=7),
        row("s1-h2", enqueued_packets=43, sent_packets=43),
    ]
    assert unaccounted(rows) == []


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"sent_packets": 49}, "s1-h1 queue 3 precedence 0: 50 packets enqueued, 49 sent"),
        ({"received_packets": 51}, "switch s1: 51 packets came in, 50 enqueued, 0 dropped"),
    ],
)
def test_a_packet_that_is_missing_is_told_where(change: dict[str, int], words: str) -> None:
    counted = {"received_packets": 50, "enqueued_packets": 50, "sent_packets": 50} | change
    assert unaccounted([row("s1-h1", 3, **counted)]) == [words]


def counted(load: int = 7, **behind: int) -> Counted:
    return Counted([], {"s1": load, "s2": 1}, {"s1-h1": {"tx_dropped": 0, "rx_dropped": 0} | behind})


def test_a_program_that_was_loaded_anew_during_a_run_says_nothing_of_it() -> None:
    require_undisturbed(counted(), counted())
    with pytest.raises(Problem, match=r"^s1: the program was loaded anew during the run"):
        require_undisturbed(counted(7), counted(8))


def test_what_a_switchs_device_lost_during_a_run_is_counted_and_told() -> None:
    lost = lost_by_devices(counted(tx_dropped=4, rx_errors=1), counted(tx_dropped=6, rx_errors=1))
    assert lost == {"s1-h1": {"tx_dropped": 2}}
    assert device_losses(lost) == (2, ["s1-h1: its device lost 2 tx_dropped beside the account"])
    assert device_losses(lost_by_devices(counted(tx_dropped=4), counted(tx_dropped=4))) == (0, [])


def test_frames_that_a_switch_has_no_use_for_are_told_but_are_no_loss() -> None:
    found, told = device_losses({"s1-h1": {"rx_dropped": 3, "rx_missed": 1}})
    assert found == 1
    assert told == ["s1-h1: its device lost 3 rx_dropped, 1 rx_missed beside the account"]


@pytest.mark.parametrize(
    ("state", "begins"), [(None, "/opt/python"), ("/srv/s1", "env DLCP_BOX_STATE=/srv/s1 /opt/python")]
)
def test_a_box_is_asked_about_the_state_that_its_deployments_keep(state: str | None, begins: str) -> None:
    switch = LabSwitch(None, None, {}, "/opt/python", state=state)  # type: ignore[arg-type]
    assert " ".join(box_command(switch, "dlcp.switches.linux", "read")) == f"{begins} -m dlcp.switches.linux read"


@pytest.mark.parametrize("answer", ["", "no JSON", "[]", "7", "[" * 100_000, '{"a":' * 500 + "1" + "}" * 500])
def test_an_answer_of_a_switch_that_is_none_is_told_with_its_place(answer: str) -> None:
    class Answering:
        where = "lab.yaml: s1"

        def run(self, words: list[str], **_: Any) -> Done:
            return Done(0, answer, "said on stderr")

    switch = LabSwitch(None, None, {}, "/opt/python")  # type: ignore[arg-type]
    boxes = Boxes({"s1": switch}, {"s1": cast("Remote", Answering())})
    with pytest.raises(Problem, match=r"expected one JSON object, received exit status 0: said on stderr") as caught:
        boxes.held()
    assert caught.value.where == "lab.yaml: s1"


@pytest.mark.parametrize(("shown", "floor_s"), [("5ms", 0.005), ("1s", 1.0), ("1.6s", 1.6)])
def test_a_routes_floor_is_read_as_ip_shows_it(shown: str, floor_s: float) -> None:
    assert _rto_min_s(f"198.18.0.0/15 via 198.18.1.1 rto_min lock {shown} congctl cubic") == pytest.approx(floor_s)


def test_a_host_that_is_otherwise_is_told_in_words() -> None:
    wanted = HostSettings(sysctls={"net.ipv4.tcp_sack": "1"}, rto_min_s=0.0049)
    assert HostState(sysctls={"net.ipv4.tcp_sack": "1"}, rto_min_s=0.005).misses(wanted) == []
    told = HostState(sysctls={"net.ipv4.tcp_sack": "0"}).misses(wanted)
    assert told[0] == "net.ipv4.tcp_sack is 0, not 1"
    assert "kernel's own, not 5 ms" in told[1]


def test_a_floor_that_another_scheme_has_left_is_seen() -> None:
    assert HostState(rto_min_s=0.005).misses(HostSettings()) != []
    assert (rounded(None), rounded(0.0001), rounded(0.2)) == (None, 0.001, 0.2)

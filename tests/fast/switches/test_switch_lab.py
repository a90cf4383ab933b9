"""The parts of rendering: the intents that ship, what a switch rounds, what is done instead."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlcp.errors import Problem, Problems
from dlcp.model.buffering import DEFAULT_ALPHA, DEFAULT_MINIMUM_BYTES
from dlcp.model.lab.device import Device
from dlcp.model.qos import CODEPOINTS, DropProfile, Pfc, QosIntent, QueueIntent
from dlcp.schemes.dlcp import Dlcp
from dlcp.schemes.tcp import Tcp
from dlcp.switches.bpf.aqm_words import render as render_aqm
from dlcp.switches.vendor.files import example_device, find_intent, intent_names, load_intent
from dlcp.switches.vendor.render import Rendered, ranges, render
from dlcp.switches.vendor.rounding import Ruler
from dlcp.switches.vendor.substitutes import MAKERS, substitute
from dlcp.switches.vendor.systems import load_system, system_names

SYSTEMS = {name: load_system(name) for name in system_names()}
STEP = DropProfile(minimum="100 kB", maximum="200 kB")


def intent(**more: Any) -> QosIntent:
    return QosIntent.model_validate({"name": "one", "port_buffer": "1 MB"} | more)


def device(name: str, **more: Any) -> Device:
    return example_device(load_system(name)).model_copy(update=more)


# The intents that ship.


def test_the_six_intents_ship_under_their_names() -> None:
    assert set(intent_names()) == {"dlcp-wred", "dlcp-ect", "dctcp", "pias", "roce-pfc", "droptail"}
    assert [load_intent(find_intent(name)).name for name in intent_names()] == intent_names()


OF_EVERY_QUEUE = {"alpha": DEFAULT_ALPHA, "minimum_bytes": DEFAULT_MINIMUM_BYTES}
"""What an experiment adds by default, whose switches these intents describe."""


def test_dlcp_wred_is_what_the_scheme_asks_of_a_port() -> None:
    scheme = Dlcp(spraying="source-ports").intent(1_000_000)
    shipped = load_intent(find_intent("dlcp-wred"))
    assert shipped.model_copy(update={"name": scheme.name}) == scheme.model_copy(update=OF_EVERY_QUEUE)


def test_dlcp_ect_is_what_the_scheme_asks_for_the_packets_that_it_sends() -> None:
    scheme = Dlcp(spraying="source-ports", selective_drop="ect").intent(1_000_000)
    shipped = load_intent(find_intent("dlcp-ect"))
    assert shipped.queue(7) == scheme.queue(7)
    for number in range(7):
        assert shipped.queue(number).profiles[0] == scheme.queue(number).profiles[0]


def test_droptail_is_what_tcp_asks_for() -> None:
    shipped = load_intent(find_intent("droptail")).model_copy(update={"name": "tcp"})
    assert shipped == Tcp().intent(1_000_000).model_copy(update=OF_EVERY_QUEUE)


def test_pfc_of_hardware_is_refused_by_the_emulated_switch() -> None:
    for more in ({"headroom": "64 kB"}, {"watchdog": 0.2}):
        pfc = Pfc(queues=(3,), xoff="20 kB", xon="10 kB", **more)
        with pytest.raises(Problem, match=f"the emulated switch has no pfc.{next(iter(more))}"):
            render_aqm(intent(pfc=pfc))
    with pytest.raises(Problem, match="the emulated switch has no dscp"):
        render_aqm(intent(dscp={46: {"queue": 6}}))


# Rounding.


def test_thresholds_fall_and_reserves_rise_to_whole_cells() -> None:
    found = render(
        intent(queues={3: QueueIntent(reserved="1001 B", profiles=(None, None, STEP))}), device("eos", cell_bytes=208)
    )
    profile = found.effective.queue(3).profiles[2]
    assert profile is not None
    assert (profile.minimum_bytes, profile.maximum_bytes) == (480 * 208, 961 * 208)
    assert found.effective.queue(3).reserved_bytes == 5 * 208
    assert {one.what for one in found.differences} >= {
        "queue 3: precedence 2 minimum",
        "queue 3: precedence 2 maximum",
        "queue 3: reserved",
    }


def test_what_a_switch_takes_as_it_is_is_no_difference() -> None:
    one = intent(port_buffer="4 MB", queues={3: QueueIntent(profiles=(STEP, STEP, STEP))})
    found = render(one, device("sonic", cell_bytes=1))
    assert found.differences == ()
    assert found.effective.queues == one.queues


@given(
    maximum=st.integers(20_000, 2_000_000),
    share=st.floats(0, 1),
    cell=st.integers(1, 512),
    system=st.sampled_from(["eos", "junos", "sonic", "srlinux"]),
)
def test_a_curve_is_never_later_than_intended_nor_early_by_more_than_a_unit_and_a_cell(
    maximum: int, share: float, cell: int, system: str
) -> None:
    minimum = int(share * maximum)
    on = device(system, cell_bytes=cell)
    ruler = Ruler("one", on, SYSTEMS[system])
    profile = DropProfile(minimum_bytes=minimum, maximum_bytes=maximum, probability=0.3)
    effective = ruler.effective(intent(queues={3: QueueIntent(profiles=(profile, None, None))})).queue(3).profiles[0]
    assert effective is not None
    units = SYSTEMS[system].capabilities.units.thresholds
    slack_bytes = ruler.thresholds_unit_bytes() * (1 + units.least_width) + cell
    assert minimum - slack_bytes <= effective.minimum_bytes <= minimum
    assert maximum - slack_bytes <= effective.maximum_bytes <= maximum
    assert effective.probability == pytest.approx(0.3)


def test_a_probability_never_rounds_to_nothing() -> None:
    faint = DropProfile(minimum="100 kB", maximum="200 kB", probability=0.001)
    found = render(intent(queues={3: QueueIntent(profiles=(faint,) * 3)}), device("eos"))
    assert "drop-probability 1\n" in found.configuration
    assert [d.effective for d in found.differences if "probability" in d.what] == ["1 %"]


@pytest.mark.parametrize("weights", [(1,), (1, 1, 1), (1, 2, 4), (1, 64), (64, 1, 1, 1, 1, 1, 1, 1)])
def test_weights_in_per_cent_add_up(weights: tuple[int, ...]) -> None:
    queues = {number: QueueIntent(weight=weight) for number, weight in enumerate(weights)}
    one = intent(queues=queues, control_plane="accept-starvation")
    shares = Ruler("one", device("eos"), SYSTEMS["eos"]).shares(one)
    assert sum(shares.values()) == 100
    for number, weight in enumerate(weights):
        assert abs(shares[number] - 100 * weight / sum(weights)) < 1.001


@pytest.mark.parametrize(("alpha", "power"), [(1, 0), (2, 1), (0.5, -1), (3, 2), (0.3, -2), (8, 3)])
def test_alphas_are_powers_of_two(alpha: float, power: int) -> None:
    assert Ruler("one", device("eos"), SYSTEMS["eos"]).alpha_power(alpha) == power


def test_xoff_by_alpha_is_where_a_queue_alone_stops() -> None:
    """Alone, a queue stops where it holds alpha times what it leaves free."""
    one = intent(pfc={"queues": [3], "xoff": "500 kB", "xon": "400 kB", "headroom": "64 kB"})
    found = render(one, device("sonic", cell_bytes=1, buffer_bytes=16_000_000))
    assert found.effective.pfc is not None
    xoff_bytes = found.effective.pfc.xoff_bytes
    assert xoff_bytes == pytest.approx((16_000_000 - xoff_bytes) / 32, abs=1)


def test_a_watchdogs_time_is_rounded_and_told() -> None:
    pfc = {"queues": [3], "xoff": "500 kB", "xon": "400 kB", "headroom": "64 kB", "watchdog": 0.1234}
    found = render(intent(pfc=pfc), device("sonic"))
    assert found.effective.pfc is not None
    assert found.effective.pfc.watchdog_s == pytest.approx(0.123)
    assert ("pfc: watchdog", "123.4 ms", "123 ms") in {(d.what, d.intended, d.effective) for d in found.differences}


# Any intent.

SIZES = st.integers(20_000, 1_900_000)


@st.composite
def profiles(draw: st.DrawFn) -> DropProfile | None:
    if draw(st.booleans()):
        return None
    minimum, maximum = sorted((draw(SIZES), draw(SIZES)))
    share = draw(st.floats(0, 1))
    return DropProfile(minimum_bytes=minimum, maximum_bytes=maximum, probability=share, mark=draw(st.booleans()))


@st.composite
def intents(draw: st.DrawFn) -> QosIntent:
    weighted = draw(st.sampled_from([0, 0, 3, 8]))
    queues = {}
    for number in set(draw(st.lists(st.integers(0, 7), max_size=4))) | set(range(weighted)):
        queues[number] = {
            "reserved_bytes": draw(st.sampled_from([0, 0, 1, 50_000])),
            "limit_bytes": draw(st.sampled_from([None, None, 300_001])),
            "profiles": draw(
                st.sampled_from([(None,) * 3, (draw(profiles()),) * 3, tuple(draw(profiles()) for _ in "012")])
            ),
            "averaging": draw(st.sampled_from([0, 0, 7])),
            "alpha": draw(st.sampled_from([1.0, 1.0, 0.01, 5.0, 128.0])),
            "weight": draw(st.integers(1, 64)) if number < weighted else None,
        }
    xon, xoff = sorted((draw(SIZES), draw(SIZES)))
    pfc = {
        "queues": draw(st.lists(st.integers(0, 7), min_size=1, max_size=2, unique=True)),
        "xoff": xoff,
        "xon": xon,
        "headroom": draw(st.sampled_from([None, 0, 64_000])),
        "watchdog": draw(st.sampled_from([None, 0.2, 0.123456, 0.001, 70.0])),
    }
    return QosIntent.model_validate(
        {
            "name": "any",
            "port_buffer": draw(st.integers(100_000, 10_000_000)),
            "queues": queues,
            "load_balancing": draw(st.sampled_from(["flow-hash", "per-packet", "round-robin", "flowlet"])),
            "pfc": draw(st.sampled_from([None, None, pfc])),
            "dscp": draw(
                st.sampled_from([{}, {46: {"queue": 6}}, {0: {"queue": 1}, 1: {"queue": 0, "precedence": 2}}])
            ),
            "control_plane": draw(st.sampled_from(["queue-7", "accept-starvation"])),
        }
    )


@settings(max_examples=150)
@given(one=intents(), name=st.sampled_from(sorted(system_names())))
def test_any_intent_is_rendered_or_refused_with_reasons(one: QosIntent, name: str) -> None:
    """Never anything else; and what is done by leave is told, or it would have been done without."""
    on = example_device(SYSTEMS[name])

    def outcome(leave: str) -> Rendered | Problem | Problems:
        try:
            return render(one.model_copy(update={"on_unsupported": leave}), on, system=SYSTEMS[name])
        except (Problem, Problems) as error:
            return error if "defect" not in str(error) else pytest.fail(str(error))

    strict, degraded = outcome("error"), outcome("degrade")
    if isinstance(strict, Rendered):
        assert isinstance(degraded, Rendered)
        assert (degraded.configuration, degraded.degradations) == (strict.configuration, strict.degradations)
        assert {lack.feature for lack in strict.degradations} <= {"alpha", "reserved", "queue-limit"}
    elif isinstance(degraded, Rendered):
        assert degraded.degradations


# Substitutes.


def leads(one: QosIntent) -> dict[int, tuple[int, bool]]:
    """DSCP → its queue, and whether its packets are dropped early there."""
    found = {}
    for dscp in range(CODEPOINTS):
        to = one.codepoint(dscp)
        found[dscp] = (to.queue, one.queue(to.queue).profiles[to.precedence] is not None)
    return found


def test_folding_keeps_the_order_and_who_is_dropped() -> None:
    before = load_intent(find_intent("dlcp-wred"))
    after, words = substitute("fold-precedences", before, (3, 4, 5), "leaf1")
    data = [dscp for dscp in range(CODEPOINTS) if before.codepoint(dscp).queue in (0, 3, 4, 5, 7)]
    old, new = leads(before), leads(after)
    for one in data:
        assert old[one][1] == new[one][1]
        for other in data:
            if old[one][0] > old[other][0]:
                assert new[one][0] > new[other][0]
    assert all(len(set(queue.profiles)) == 1 for queue in after.queues.values())
    assert new[48][0] == 7
    assert "queue 5 precedence 2 is queue 5" in words


def test_folding_one_queue_leaves_the_others_their_own() -> None:
    before = intent(queues={3: QueueIntent(profiles=(None, None, STEP))})
    after, _ = substitute("fold-precedences", before, (3,), "leaf1")
    assert [after.codepoint(queue << 3).queue for queue in range(8)] == [0, 0, 1, 3, 4, 5, 6, 7]
    assert after.codepoint(3 << 3 | 2 << 1).queue == 2
    assert after.queue(2).profiles == (STEP, STEP, STEP)


def test_folding_twice_changes_nothing() -> None:
    once, _ = substitute("fold-precedences", load_intent(find_intent("dlcp-wred")), (3, 4, 5), "leaf1")
    assert all(len(set(once.queue(number).profiles)) == 1 for number in range(8))
    twice, _ = substitute("fold-precedences", once, (), "leaf1")
    assert leads(twice) == leads(once)


def test_folding_leaves_a_lossless_queue_its_number_or_is_refused() -> None:
    pfc = {"queues": [3], "xoff": "90 kB", "xon": "80 kB"}
    below = intent(queues={2: QueueIntent(profiles=(None, None, STEP))}, pfc=pfc)
    after, _ = substitute("fold-precedences", below, (2,), "leaf1")
    assert after.pfc == below.pfc
    assert after.codepoint(3 << 3).queue == 3
    above = intent(queues={4: QueueIntent(profiles=(None, None, STEP))}, pfc=pfc)
    with pytest.raises(Problem, match="lossless queue 3 would become queue 2"):
        substitute("fold-precedences", above, (4,), "leaf1")


def test_a_substitute_for_one_switch_is_not_one_for_others() -> None:
    after, _ = substitute("flow-hash", intent(load_balancing="per-packet"), (), "leaf1")
    assert after.load_balancing == "per-packet"
    assert after.switch_load_balancing == {"leaf1": "flow-hash"}


def test_every_substitute_that_a_system_names_can_be_done() -> None:
    named = {
        verdict.substitute
        for system in SYSTEMS.values()
        for chip in system.capabilities.chips
        for feature in system.capabilities.features
        if (verdict := system.verdict(feature, chip)).support == "missing" and verdict.substitute
    }
    assert named <= set(MAKERS)
    assert set(MAKERS) <= named


def test_degrading_is_only_by_leave_and_is_told() -> None:
    one = load_intent(find_intent("dlcp-wred"))
    with pytest.raises(Problems):
        render(one, device("sonic"))
    found = render(one.model_copy(update={"on_unsupported": "degrade"}), device("sonic"))
    assert [lack.feature for lack in found.degradations] == ["dscp-to-precedence"]
    assert found.data()["degradations"][0]["source"]


@pytest.mark.parametrize("name", system_names())
def test_plain_drop_tail_is_rendered_by_every_system(name: str) -> None:
    """A system that cannot say the alpha and the minimum of all queues keeps its own, and says so."""
    rendered = render(load_intent(find_intent("droptail")), device(name))
    lacking = {"alpha", "reserved"} & {
        feature
        for feature in SYSTEMS[name].capabilities.features
        if SYSTEMS[name].verdict(feature, rendered.device.chip).support == "missing"
    }
    assert {lack.feature for lack in rendered.degradations} == lacking
    assert (rendered.effective.alpha is None) == ("alpha" in lacking)
    assert (rendered.effective.minimum_bytes == 0) == ("reserved" in lacking)


def test_a_queue_s_own_alpha_and_reservation_need_leave_and_are_named_alone() -> None:
    own = {3: QueueIntent(alpha=2.0), 7: QueueIntent(reserved="100 kB")}
    one = load_intent(find_intent("droptail")).model_copy(update={"queues": own})
    with pytest.raises(Problems) as caught:
        render(one, device("nxos"))
    assert [str(problem).partition(": no ")[0].rpartition(", ")[2] for problem in caught.value.problems] == [
        "queue 7",
        "queue 3",
    ]
    rendered = render(one.model_copy(update={"on_unsupported": "degrade"}), device("nxos"))
    assert {(lack.feature, lack.where) for lack in rendered.degradations} == {
        ("reserved", "queues 0, 1, 2, 3, 4, 5, 6"),
        ("reserved", "queue 7"),
        ("alpha", "queues 0, 1, 2, 4, 5, 6, 7"),
        ("alpha", "queue 3"),
    }


def test_the_pool_of_a_lossless_queue_needs_no_limit_of_the_system() -> None:
    pfc = Pfc(queues=(3,), xoff="500 kB", xon="400 kB")
    pool = QueueIntent(reserved="1 MB", limit="1 MB")
    one = QosIntent(name="pool", port_buffer="2 MB", pfc=pfc, queues={3: pool})
    assert [lack.feature for lack in render(one, device("cumulus")).degradations] == ["queue-limit"]
    with pytest.raises(Problems, match="no queue-limit"):
        render(one.model_copy(update={"queues": {2: pool, 3: pool}}), device("cumulus"))


# Folders.


@pytest.mark.parametrize("name", system_names())
def test_a_system_is_a_folder_with_its_example_and_counters(name: str) -> None:
    system = SYSTEMS[name]
    found = example_device(system)
    assert found.system == name
    assert found.chip in system.capabilities.chips
    assert system.counters


def test_a_system_says_something_of_every_feature(tmp_path: Any) -> None:
    text = (SYSTEMS["eos"].folder / "capabilities.yaml").read_text(encoding="utf-8")
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "capabilities.yaml").write_text(text.replace("  ecn: {", "  enc: {"), encoding="utf-8")
    (folder / "conflicts.yaml").write_text("conflicts: []\n", encoding="utf-8")
    assert system_names(tmp_path) == ["mine"]
    with pytest.raises(Problems, match=r"capabilities.yaml:\d+:\d+"):
        load_system("mine", tmp_path)


def test_a_template_that_names_what_is_not_there_fails(tmp_path: Any) -> None:
    """StrictUndefined: a misspelt word is an error, not an empty place in a configuration."""
    import jinja2

    folder = tmp_path / "mine"
    folder.mkdir()
    for file in filter(Path.is_file, SYSTEMS["eos"].folder.iterdir()):
        (folder / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "qos.j2").write_text("{{ intnet.name }}\n", encoding="utf-8")
    with pytest.raises(jinja2.UndefinedError, match="intnet"):
        render(intent(), device("eos", system="mine"), system=load_system("mine", tmp_path))


def test_a_template_that_names_a_management_interface_is_stopped(tmp_path: Any) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    for file in filter(Path.is_file, SYSTEMS["eos"].folder.iterdir()):
        (folder / file.name).write_text(file.read_text(encoding="utf-8"), encoding="utf-8")
    (folder / "qos.j2").write_text("interface Management1\n   shutdown\n", encoding="utf-8")
    with pytest.raises(Problem, match="names the management interface Management1"):
        render(intent(), device("eos", system="mine"), system=load_system("mine", tmp_path))


@pytest.mark.parametrize(("numbers", "text"), [([], ""), ([3], "3"), ([0, 1, 2, 5, 7, 8], "0-2,5,7-8")])
def test_ranges(numbers: list[int], text: str) -> None:
    assert ranges(numbers) == text

"""What a phase means for the whole fabric."""

from __future__ import annotations

from dlcp.runner.lab.phase_verdict import FELL_OUT, Ending, Switch, deviations, failed, not_as_before, turned_back

NEW, OLD = "new", "old"


def switch(name: str, **words: object) -> Switch:
    return Switch(**{"name": name, "present": True, "failures": {}, "wanted": NEW, **words})  # type: ignore[arg-type]


def test_who_says_nothing_has_failed() -> None:
    switches = [
        switch("fine"),
        switch("gone", present=False),
        switch("broken", failures={"apply": "no such port"}, present=False),
        switch("before", failures={"preflight": "was mended since"}),
    ]
    assert failed("apply", switches) == {"gone": FELL_OUT, "broken": "no such port"}


def test_what_was_read_back_must_be_what_was_rendered_and_what_it_was_told() -> None:
    switches = [
        switch("fine", found={"digest": NEW, "differences": []}),
        switch("silent"),
        switch("empty", found={"digest": "", "differences": []}),
        switch("other", found={"digest": OLD, "differences": []}),
        switch("drifted", found={"digest": NEW, "differences": ["eth1: no program", "eth2: no queues"]}),
    ]
    assert deviations(switches) == {
        "silent": "was not read back",
        "empty": "holds nothing of ours, not new",
        "other": "holds old, not new",
        "drifted": "differs from what it was told: eth1: no program; eth2: no queues",
    }
    assert list(deviations(switches, digests=False)) == ["silent", "drifted"]


def test_what_was_restored_must_be_what_was_there_before() -> None:
    found = {"digest": NEW, "differences": []}
    switches = [switch("back", found=found | {"digest": OLD}), switch("kept", found=found), switch("silent")]
    assert not_as_before(switches, {"back": OLD, "kept": "", "silent": OLD}) == {
        "kept": "holds new, not nothing of ours as before"
    }


def test_how_the_fabric_stands_after_it_was_turned_back() -> None:
    unreached = {"failures": {"restore": "no route"}, "unreached": ["restore"]}
    cut_off, timerless = switch("cut off", **unreached), switch("timerless", timed=False, **unreached)
    refused, earlier = switch("refused", failures={"restore": "disk"}), switch("earlier", unreached=["apply"])
    switches = [cut_off, timerless, refused, earlier, switch("fine")]

    def ending(*left: str, confirming: bool = False) -> Ending:
        return turned_back(dict.fromkeys(left, "why"), switches, confirming=confirming)

    assert ending() == ending(confirming=True) == Ending("restored")
    assert ending("cut off") == Ending("timers", waiting=("cut off",))
    assert ending("cut off", confirming=True) == Ending("mixed", stuck=("cut off",)), "its timer may be off"
    assert ending("timerless") == Ending("mixed", stuck=("timerless",)), "nothing brings it back by itself"
    assert ending("cut off", "refused", "earlier") == Ending(
        "mixed", waiting=("cut off",), stuck=("refused", "earlier")
    )

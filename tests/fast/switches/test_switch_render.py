"""Every intent on every switch system: the whole outcome is held by a file, to be read when it changes.

After a wanted change: make golden, then read the difference.
"""

from __future__ import annotations

import functools
import json
import os
import re
from pathlib import Path

import pytest
import yaml

from dlcp.errors import Problem, Problems
from dlcp.model.qos import QosIntent
from dlcp.switches.bpf.aqm_words import effective as aqm_words
from dlcp.switches.bpf.aqm_words import render as render_aqm
from dlcp.switches.linux.wanted import parse
from dlcp.switches.vendor.files import example_device, find_intent, intent_names, load_intent
from dlcp.switches.vendor.render import Rendered, effective_words, render
from dlcp.switches.vendor.systems import System, load_system, system_names

GOLDEN = Path(__file__).parents[2] / "golden"
INTENTS = {name: find_intent(name) for name in intent_names()}
MORE = {file.stem: file for file in sorted((GOLDEN / "intents").glob("*.yaml"))}
SYSTEMS = system_names()


@functools.cache
def system_of(name: str) -> System:
    """Read once for all tests."""
    return load_system(name)


TEXT_SYSTEMS = [name for name in SYSTEMS if system_of(name).capabilities.output == "text"]


def held(path: Path, text: str) -> None:
    """The text is that of the file, which DLCP_GOLDEN=write writes."""
    if os.environ.get("DLCP_GOLDEN") == "write":
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    assert text == path.read_text(encoding="utf-8")


def outcome(system: str, intent: QosIntent, *, degrade: bool) -> Rendered | str:
    """What comes out, or why nothing does."""
    found = system_of(system)
    wanted = intent.model_copy(update={"on_unsupported": "degrade" if degrade else "error"})
    try:
        return render(wanted, example_device(found), system=found)
    except (Problem, Problems) as error:
        return str(error)


def best(system: str, intent: QosIntent) -> Rendered | None:
    """What comes out, with substitutes where there is no other way; None where there is none at all."""
    strict = outcome(system, intent, degrade=False)
    found = outcome(system, intent, degrade=True) if isinstance(strict, str) else strict
    return None if isinstance(found, str) else found


def in_full(rendered: Rendered) -> str:
    """All of an outcome, to be read."""
    told = [f"degraded: {d.feature}: {d.where}: {d.instead}: {d.why} [{d.source}]" for d in rendered.degradations]
    told += [f"difference: {d.what}: {d.intended} is {d.effective} ({d.why})" for d in rendered.differences]
    told += [f"note: {note}" for note in rendered.notes]
    effective = yaml.safe_dump(effective_words(rendered), sort_keys=False, default_flow_style=None, width=200)
    facts = "\n".join([*told, "--- effective", effective])
    return f"{facts}--- configuration\n{rendered.configuration}--- rollback\n{rendered.rollback}"


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("name", [*INTENTS, *MORE])
def test_outcome(system: str, name: str) -> None:
    intent = load_intent((INTENTS | MORE)[name])
    strict = outcome(system, intent, degrade=False)
    if isinstance(strict, Rendered):
        text = in_full(strict)
    else:
        degraded = outcome(system, intent, degrade=True)
        text = f"--- refused\n{strict}\n--- with leave to degrade\n"
        text += in_full(degraded) if isinstance(degraded, Rendered) else f"{degraded}\n"
    held(GOLDEN / "switches" / system / f"{name}.txt", text)


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("name", [*INTENTS, *MORE])
def test_a_refusal_names_system_feature_source_and_way_out(system: str, name: str) -> None:
    strict = outcome(system, load_intent((INTENTS | MORE)[name]), degrade=False)
    if isinstance(strict, Rendered):
        assert {one.feature for one in strict.degradations} <= {"alpha", "reserved"}, "of all queues alike"
        return
    for first, hint in zip(*[iter(strict.splitlines())] * 2, strict=True):
        assert re.search(rf"\({system}, \w+\): QoS intent {name}.*: (no|not together:) .+: .+ \[.+\]$", first)
        assert re.match(r"    \w", hint)


@pytest.mark.parametrize("system", SYSTEMS)
def test_rendering_twice_gives_the_same(system: str) -> None:
    first, second = (best(system, load_intent(INTENTS["dlcp-wred"])) for _ in range(2))
    assert first is not None
    assert second is not None
    assert first == second
    assert first.digest == second.digest
    assert json.loads(json.dumps(first.data()))["effective"] == effective_words(first)


@pytest.mark.parametrize("system", SYSTEMS)
def test_another_intent_has_another_digest(system: str) -> None:
    found = [best(system, load_intent(path)) for path in INTENTS.values()]
    digests = [one.digest for one in found if one is not None]
    assert len(set(digests)) == len(digests) >= 5


@pytest.mark.parametrize("system", TEXT_SYSTEMS)
def test_every_line_is_one_that_the_sources_know(system: str) -> None:
    """The grammar of a system: one regular expression a line. None of them is idle."""
    file = GOLDEN / "grammar" / f"{system}.txt"
    rules = [re.compile(line) for line in file.read_text(encoding="utf-8").splitlines() if not line.startswith("##")]
    found = [best(system, load_intent(path)) for path in (INTENTS | MORE).values()]
    lines = {line for one in found if one for text in (one.configuration, one.rollback) for line in text.splitlines()}
    assert [line for line in sorted(lines) if not any(rule.fullmatch(line) for rule in rules)] == []
    assert [rule.pattern for rule in rules if not any(rule.fullmatch(line) for line in lines)] == []


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("name", [*INTENTS, *MORE])
def test_every_codepoint_is_told_once_and_as_intended(system: str, name: str) -> None:
    """Read back from the text, in each system's own words."""
    found = best(system, load_intent((INTENTS | MORE)[name]))
    if found is None or system == "linux":  # whose program has the codepoints compiled in
        return
    told = codepoints(system, found.configuration)
    queues = {dscp: found.effective.codepoint(dscp).queue for dscp in range(64)}
    unsaid = dict.fromkeys(range(64), 0) if system == "nxos" else {}  # class-default
    assert unsaid | told == queues


def codepoints(system: str, text: str) -> dict[int, int]:
    """DSCP → queue, as a configuration says it; fails where a DSCP is said twice."""
    pairs: list[tuple[str, str]] = []
    if system == "sonic":
        return {int(dscp): int(queue) for dscp, queue in json.loads(text)["DSCP_TO_TC_MAP"]["DLCP"].items()}
    if system == "junos":
        found = re.findall(r"forwarding-class dlcp(\d) loss-priority \S+ code-points (\d{6})$", text, re.M)
        pairs = [(str(int(bits, 2)), queue) for queue, bits in found]
    else:
        form = {
            "eos": r"^qos map dscp ([\d ]+) to traffic-class (\d)",
            "nxos": r"^class-map type qos match-any DLCP-(?P<q>\d)\n  match dscp (?P<d>[\d,]+)$",
            "cumulus": r"^nv set qos mapping DLCP dscp ([\d,]+) switch-priority (\d)$",
            "os10": r"^  qos-group (?P<q>\d) dscp (?P<d>[\d,-]+)$",
            "srlinux": r"dscp-policy DLCP dscp (\d+) forwarding-class fc(\d) ",
        }[system]
        for match in re.finditer(form, text, re.M):
            dscps, queue = (match["d"], match["q"]) if match.groupdict() else match.groups()
            for part in re.split(r"[ ,]", dscps):
                start, _, end = part.partition("-")
                pairs += [(str(dscp), queue) for dscp in range(int(start), int(end or start) + 1)]
    assert len({dscp for dscp, _ in pairs}) == len(pairs)
    return {int(dscp): int(queue) for dscp, queue in pairs}


@pytest.mark.parametrize("system", SYSTEMS)
@pytest.mark.parametrize("name", [*INTENTS, *MORE])
def test_a_rollback_undoes_what_was_made(system: str, name: str) -> None:
    """Each thing of ours that a configuration defines, the rollback takes away, and each port that it touches."""
    found = best(system, load_intent((INTENTS | MORE)[name]))
    if found is None:
        return
    if system_of(system).capabilities.output == "json":
        made, gone = json.loads(found.configuration), json.loads(found.rollback)
        if system == "sonic":
            assert merged(made, gone) == {table: {} for table in made} | {
                "PORT_QOS_MAP": {port: {} for port in found.device.ports},
                **({"SWITCH_HASH": {"GLOBAL": {}}} if "SWITCH_HASH" in made else {}),
            }
        else:
            assert set(gone["ports"]) == set(made["ports"])
        return
    names = set(re.findall(r"\b(?:DLCP(?:-\w+)*|dlcp\d)\b", found.configuration))
    defined = {
        name for name in names if re.search(rf"^(?:no|delete|nv unset) .*\b{name}(?![\w-])", found.rollback, re.M)
    }
    assert names == defined
    for port in found.device.ports:
        assert re.search(rf"(?<![\w/]){re.escape(port)}(?![\w/])", found.rollback)


def merged(target: dict[str, object], patch: dict[str, object]) -> dict[str, object]:
    """RFC 7396."""
    result = dict(target)
    for key, value in patch.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict):
            below = result.get(key)
            result[key] = merged(below if isinstance(below, dict) else {}, value)
        else:
            result[key] = value
    return result


@pytest.mark.parametrize("name", [*INTENTS, *MORE])
def test_linux_is_told_what_the_emulated_switch_is(name: str) -> None:
    """The same values of the program's map: one rule, one place."""
    intent = load_intent((INTENTS | MORE)[name])
    found = best("linux", intent)
    if found is None:
        assert intent.pfc or intent.dscp
        return
    told = json.loads(found.configuration)
    weights = {number: queue.weight for number, queue in intent.queues.items() if queue.weight is not None}
    assert told["aqm"] == aqm_words(render_aqm(intent)) == aqm_words(render_aqm(found.effective))
    assert told["switch"]["load_balancing"] == intent.load_balancing
    assert told["weights"] == {str(number): weight for number, weight in weights.items()}
    for port, rate_bps in found.device.ports.items():
        assert told["ports"][port] == {"rate_bps": rate_bps, "shaped_bps": 0.99 * rate_bps, "overhead_bytes": 24}
    wanted = parse(found.configuration)
    assert wanted is not None
    assert bytes(wanted.aqm_port()) == bytes(render_aqm(intent))
    assert parse(found.rollback) is None

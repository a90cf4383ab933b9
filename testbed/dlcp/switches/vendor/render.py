"""QoS intent + device → the device's configuration, the way back, and what the device makes of the intent.

Pure: reads the system's folder in switch_configs, touches no device. `dlcp.switches.bpf.aqm_words` is the emulated
switch's.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import jinja2
import yaml

from dlcp.errors import Problem
from dlcp.model.lab.device import Device
from dlcp.model.qos import CODEPOINTS, PRECEDENCES, QUEUES, ROUTING_DSCP, QosIntent
from dlcp.model.units import show_rate, show_size
from dlcp.switches.bpf.aqm_words import effective as aqm_words
from dlcp.switches.bpf.aqm_words import render as render_aqm
from dlcp.switches.vendor.features import Feature, balancing_of, needs
from dlcp.switches.vendor.rounding import Difference, Ruler, differences
from dlcp.switches.vendor.schema import violations
from dlcp.switches.vendor.settle import Degradation, Settled, check, settle
from dlcp.switches.vendor.systems import Line, Native, System, load_system

_DEFECT = "this is a defect; please report it"


@dataclass(frozen=True)
class Rendered:
    """What a switch is to be told, and what it then does.

    configuration, rollback: text, or JSON as text (a merge patch, RFC 7396). The rollback returns a switch that had no
    QoS of its own; a deployment restores what it saved instead. effective: the intent with every substitute and every
    rounding. left: words of the intent that the switch does in its own way, whatever `effective` says.
    """

    intended: QosIntent
    device: Device
    configuration: str
    rollback: str
    effective: QosIntent
    degradations: tuple[Degradation, ...]
    differences: tuple[Difference, ...]
    notes: tuple[str, ...]
    left: frozenset[Feature]

    @property
    def digest(self) -> str:
        """A hash of the intent and of what it became, to be kept on the device: another one means drift."""
        said = [self.intended.model_dump_json(), self.device.model_dump_json(), self.configuration]
        return hashlib.sha256("\n".join(said).encode()).hexdigest()[:16]

    def data(self) -> dict[str, Any]:
        """For JSON and for every result of a run on this switch."""
        return {
            "device": self.device.name,
            "system": self.device.system,
            "chip": self.device.chip,
            "intent": self.intended.name,
            "digest": self.digest,
            "configuration": self.configuration,
            "rollback": self.rollback,
            "intended": self.intended.model_dump(mode="json"),
            "effective": effective_words(self),
            "degradations": [asdict(one) for one in self.degradations],
            "differences": [asdict(one) for one in self.differences],
            "notes": list(self.notes),
        }


def render(intent: QosIntent, device: Device, *, system: System | None = None) -> Rendered:
    """What to tell a switch so that it does an intent.

    Raises Problems that name system, feature, reason, source and way out when the switch cannot and the intent does not
    let it do something else; Problem or Problems when intent or device is wrong. Nothing is made then.
    """
    system = system or load_system(device.system)
    check(intent, device, system)
    settled = settle(intent, device, system)
    ruler = Ruler(intent.name, device, system)
    effective = ruler.effective(settled.intent)
    told = [*differences(settled, effective, device, system), *_line_rates(device, system)]
    if not system.capabilities.settable_buffer:
        effective, fixed = _as_built(effective, device)
        told += fixed
    context = _context(settled, device, system, ruler)
    configuration, rollback = (_fill(system, name, context) for name in ("qos.j2", "rollback.j2"))
    _spare_management(device, configuration, rollback)
    return Rendered(
        intended=intent,
        device=device,
        configuration=configuration,
        rollback=rollback,
        effective=effective,
        degradations=settled.degradations,
        differences=tuple(told),
        notes=tuple(_notes(settled, device, system)),
        left=settled.left,
    )


_LEFT_WORDS: dict[Feature, tuple[str, ...]] = {
    "pfc-thresholds": ("xoff_bytes", "xon_bytes"),
    "pfc-headroom": ("headroom_bytes",),
    "pfc-watchdog-time": ("watchdog_s",),
}


def effective_words(rendered: Rendered) -> dict[str, Any]:
    """The effective intent for a person: what it says, and "as the system has it" for what is left to the switch."""
    words: dict[str, Any] = rendered.effective.model_dump(
        mode="json", exclude_defaults=True, exclude={"on_unsupported", "name"}
    )
    for feature in sorted(rendered.left):
        for word in _LEFT_WORDS.get(feature, ()):
            words["pfc"][word] = "as the system has it"
    return words


def _as_built(effective: QosIntent, device: Device) -> tuple[QosIntent, list[Difference]]:
    """A chip's buffer is what it is."""
    told = []
    if effective.port_buffer_bytes != device.port_buffer_bytes:
        sizes = show_size(effective.port_buffer_bytes), show_size(device.port_buffer_bytes)
        told.append(Difference("port buffer", *sizes, "the chip's, not to be set"))
    shared = effective.shared_buffer_bytes
    if shared is not None and shared != device.buffer_bytes:
        sizes = show_size(shared), show_size(device.buffer_bytes)
        told.append(Difference("shared buffer", *sizes, "the chip's, not to be set"))
    sizes_bytes = {"port_buffer_bytes": device.port_buffer_bytes, "shared_buffer_bytes": device.buffer_bytes}
    return effective.model_copy(update=sizes_bytes), told


def _line_rates(device: Device, system: System) -> Iterator[Difference]:
    """Rates that ports do not quite run at."""
    line = system.capabilities.chips[device.chip].line
    if line == Line():
        return
    for rate_bps in sorted(set(device.ports.values())):
        ports = ", ".join(port for port, rate in device.ports.items() if rate == rate_bps)
        effective = f"{show_rate(rate_bps * line.share)}, each frame and {line.overhead_bytes} B"
        yield Difference(f"rate of {ports}", show_rate(rate_bps), effective, line.why)


def _notes(settled: Settled, device: Device, system: System) -> list[str]:
    """What a person should know before trusting it."""
    notes = []
    if not system.capabilities.on_hardware:
        notes.append(f"{system.name} is unproven on hardware: {system.capabilities.proof}")
    asked = dict.fromkeys(need.feature for need in needs(settled.intent, device.name))
    for feature in asked:
        verdict = system.verdict(feature, device.chip)
        if isinstance(verdict, Native) and verdict.doubt and feature not in settled.left:
            notes.append(f"{feature}: {verdict.doubt}")
    unit = system.capabilities.units.thresholds
    if unit.doubt and asked.keys() & {"wred", "ecn", "queue-limit"}:
        notes.append(f"thresholds are written in {unit.write}: {unit.doubt}")
    routing = settled.intent.codepoint(ROUTING_DSCP).queue
    if routing != QUEUES - 1:
        notes.append(f"DSCP {ROUTING_DSCP} (CS6, what routing protocols send) leads to queue {routing}")
    if settled.intent.control_plane == "accept-starvation":
        notes.append("queue 7 is not kept for control: data may starve the control plane")
    return notes


def _context(settled: Settled, device: Device, system: System, ruler: Ruler) -> dict[str, Any]:
    """What a template can say; every name is used by at least one."""
    intent = settled.intent
    asked = {need.feature for need in needs(intent, device.name)} - settled.left
    queues = range(QUEUES)
    profiled = [n for n in queues if any(intent.queue(n).profiles)]

    def dscps(queue: int, precedence: int | None = None) -> list[int]:
        """Codepoints that lead to a queue, at a precedence or at any."""
        led = ((dscp, intent.codepoint(dscp)) for dscp in range(CODEPOINTS))
        return [d for d, to in led if to.queue == queue and precedence in (None, to.precedence)]

    def weights() -> dict[str, int]:
        """Of the weighted queues."""
        return {str(n): q.weight for n, q in sorted(intent.queues.items()) if q.weight is not None}

    def shaped(port: str) -> dict[str, float]:
        """How a Linux switch shapes a port."""
        line, rate_bps = system.capabilities.chips[device.chip].line, device.ports[port]
        return {"rate_bps": rate_bps, "shaped_bps": rate_bps * line.share, "overhead_bytes": line.overhead_bytes}

    def aqm() -> dict[str, Any]:
        """The eBPF program's port, in words."""
        return aqm_words(render_aqm(intent))

    functions: list[Callable[..., Any]] = [dscps, weights, shaped, aqm]
    return {
        "intent": intent,
        "device": device,
        "chip": system.capabilities.chips[device.chip].words,
        "ports": list(device.ports),
        "queues": list(queues),
        "profiled": profiled,
        "precedences": list(range(PRECEDENCES)),
        "lossless": sorted(intent.pfc.queues) if intent.pfc else [],
        "balancing": balancing_of(intent, device.name),
        "asks": asked.__contains__,
        "ruler": ruler,
        "shares": ruler.shares(intent) if "weighted-queues" in asked else {},
        **{function.__name__: function for function in functions},
    }


def _fill(system: System, name: str, context: dict[str, Any]) -> str:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(system.folder),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        autoescape=False,
    )
    environment.filters["ranges"] = ranges
    text = environment.get_template(name).render(context)
    if system.capabilities.output == "text":
        return text
    try:
        made = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise Problem(str(system.folder / name), f"makes no YAML: {error}", _DEFECT) from error
    if system.schema is not None and (wrong := violations(system.schema, made)):
        raise Problem(str(system.folder / name), f"makes what is not of the schema: {'; '.join(wrong)}", _DEFECT)
    return json.dumps(made, indent=2) + "\n"


def ranges(numbers: list[int], dash: str = "-", comma: str = ",") -> str:
    """[0, 1, 2, 5] → "0-2,5"."""
    runs: list[list[int]] = []
    for number in sorted(numbers):
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return comma.join(str(run[0]) if len(run) == 1 else f"{run[0]}{dash}{run[-1]}" for run in runs)


def _spare_management(device: Device, *texts: str) -> None:
    """The last gate: whatever a template says, it names no management interface."""
    for name in device.management:
        if any(re.search(rf"(?<![\w/.-]){re.escape(name)}(?![\w/.-])", text) for text in texts):
            raise Problem(device.name, f"the rendered configuration names the management interface {name}", _DEFECT)

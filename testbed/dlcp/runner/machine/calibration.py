"""Cost of a packet on this machine: measured once, stored with the machine's fingerprint, used by every plan.

It belongs to the machine, not to a person: only root can measure it, everybody may read it. So it lies in
/var/lib/dlcp, where sudo and root write the same file; $DLCP_STATE names another folder.
"""

from __future__ import annotations

import contextlib
import datetime
import hashlib
import json
import os
import platform
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pydantic import Field, ValidationError

from dlcp import __version__
from dlcp.agents.machine_monitor import cores
from dlcp.errors import needs_extra
from dlcp.files.atomic_file import write_whole
from dlcp.files.json_text import parse_json
from dlcp.model.base import Frozen, OnProgress
from dlcp.paths import sudo_command
from dlcp.switches.bpf.programs import OBJECT

if TYPE_CHECKING:
    from dlcp.substrates.emulate.measure_packet_cost import Measured

STATE = Path("/var/lib/dlcp")
FILE = "calibration.json"
BUSY_LIMIT = 0.10
"""Share of all cores that others may use while it is measured: more, and their work is in the figures."""
SPREAD_LIMIT = 0.35
"""Largest spread of a figure's rounds, quartile to quartile: on a quiet machine they were seen 0.02 to 0.15 apart."""
PLAUSIBLE_US = 1000.0
"""No machine that runs Python takes so long for a packet."""
_OBJECT_DIGITS = 16


class Fingerprint(Frozen):
    """Facts that the figures depend on: other values, other figures."""

    cpu: str
    cores: int
    kernel: str
    switch_sha256: str
    dlcp: str


class Calibration(Frozen):
    """The stored file. In µs of CPU time: bare_us of a packet over a bare veth pair, both ends; ends_us at the two
    hosts of a fabric; hop_us at each switch that it passes. late_us: 99th percentile of a wake-up's lateness under
    load. other_busy, spread: see substrates.emulate.measure_packet_cost.Measured. measured: UTC.
    """

    format: Literal[1]
    measured: str
    fingerprint: Fingerprint
    bare_us: float = Field(gt=0, lt=PLAUSIBLE_US)
    ends_us: float = Field(gt=0, lt=PLAUSIBLE_US)
    hop_us: float = Field(gt=0, lt=PLAUSIBLE_US)
    late_us: float = Field(ge=0)
    other_busy: float
    spread: float

    @property
    def spoiled(self) -> str:
        """Why it should not be used, in words; empty when nothing speaks against it."""
        if self.other_busy > BUSY_LIMIT:
            return f"others' work took {self.other_busy:.0%} of the machine meanwhile (at most {BUSY_LIMIT:.0%})"
        if self.spread > SPREAD_LIMIT:
            return f"its rounds differ by {self.spread:.0%} of their median (at most {SPREAD_LIMIT:.0%})"
        return ""


@dataclass(frozen=True)
class Costs:
    """CPU seconds of a packet: at its two hosts, and at each switch that it passes. source: where they are from.
    others_share: of all cores, what others' work took while they were measured."""

    ends_s: float
    hop_s: float
    source: str
    measured: bool
    others_share: float = 0.0


@dataclass(frozen=True)
class Stored:
    """calibration: that of this machine as it is; None when there is none, and then why tells the reason."""

    calibration: Calibration | None
    why: str = ""


DEFAULT = Costs(26.6e-6, 6.0e-6, "defaults measured on another machine", measured=False)
"""By `dlcp doctor --calibrate` on two quiet cores of a virtual machine of 2024. Most of it is waking: a flood that
never sleeps was measured to take 5.4 µs at its ends and 1.87 µs a switch."""


def costs() -> Costs:
    """Those of this machine if they are known, else DEFAULT with the reason; `command` measures them."""
    stored = load()
    if stored.calibration is None:
        return Costs(DEFAULT.ends_s, DEFAULT.hop_s, f"{DEFAULT.source}, for {stored.why}", measured=False)
    return costs_of(stored.calibration)


def costs_of(calibration: Calibration) -> Costs:
    """Return what a calibration says, with the doubt that it is under.

    One that others' work has spoiled makes no packet cheaper than DEFAULT: what they took while nothing was sent is
    subtracted, and they may have taken less of it later (a packet was measured at half of its cost so).
    """
    spoiled = calibration.spoiled
    ends_s, hop_s = calibration.ends_us / 1e6, calibration.hop_us / 1e6
    if spoiled:
        ends_s, hop_s = max(ends_s, DEFAULT.ends_s), max(hop_s, DEFAULT.hop_s)
    doubt = f", but {spoiled}: measure it again when it is quiet, with {command()}" if spoiled else ""
    return Costs(
        ends_s,
        hop_s,
        f"measured here on {calibration.measured[:10]}{doubt}",
        measured=True,
        others_share=calibration.other_busy,
    )


def command() -> str:
    """Command that measures the calibration."""
    return f"{sudo_command()} doctor --calibrate" if os.geteuid() else "dlcp doctor --calibrate"


def path() -> Path:
    """Where the calibration lies."""
    return Path(os.environ.get("DLCP_STATE") or STATE) / FILE


def fingerprint() -> Fingerprint:
    """Fingerprint of this machine and this version."""
    return Fingerprint(
        cpu=_cpu_model(),
        cores=cores(),
        kernel=platform.release(),
        dlcp=__version__,
        switch_sha256=hashlib.sha256(OBJECT.read_bytes()).hexdigest()[:_OBJECT_DIGITS],
    )


def load() -> Stored:
    """Return the stored calibration. Never raises: a file that cannot be used is no calibration, and `why` says so."""
    file = path()
    try:
        calibration = Calibration.model_validate(parse_json(file.read_text(encoding="utf-8")))
    except FileNotFoundError:
        return Stored(None, "this machine is not calibrated")
    except OSError as error:
        return Stored(None, f"{file} cannot be read ({error.strerror})")
    except ValidationError as error:
        first = error.errors()[0]
        return Stored(None, f"{file} is damaged ({'.'.join(map(str, first['loc'])) or 'it'}: {first['msg']})")
    except ValueError as error:
        return Stored(None, f"{file} is damaged ({error})")
    current = fingerprint()
    differs = [
        f"{name} was {was!r} and is {now!r}"
        for (name, was), now in zip(calibration.fingerprint, dict(current).values(), strict=True)
        if was != now
    ]
    if differs:
        return Stored(
            None,
            f"the calibration of {calibration.measured[:10]} is of another machine or version: " + ", ".join(differs),
        )
    return Stored(calibration)


def measure(on_progress: OnProgress) -> Calibration:
    """Measure, in about 20 s. Raises MachineCannot without root or Mininet, or when the figures make no
    sense together."""
    with needs_extra("emulate", "calibration"):
        from dlcp.substrates.emulate import measure_packet_cost

    return of(measure_packet_cost.measure(on_progress))


def of(measured: Measured) -> Calibration:
    """Calibration to store, from a measurement."""
    return Calibration(
        format=1,
        measured=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        fingerprint=fingerprint(),
        bare_us=round(measured.bare_s * 1e6, 3),
        ends_us=round(measured.ends_s * 1e6, 3),
        hop_us=round(measured.hop_s * 1e6, 3),
        late_us=round(measured.late_s * 1e6, 1),
        other_busy=round(measured.other_busy, 3),
        spread=round(measured.spread, 3),
    )


def store(calibration: Calibration) -> Path:
    """Write it whole or not at all, readable to everybody; returns where it lies. OSError when it cannot be written."""
    file = path()
    file.parent.mkdir(parents=True, exist_ok=True)
    content = json.dumps(calibration.model_dump(mode="json"), indent=2) + "\n"
    write_whole(file, content.encode(), mode=0o644, durable=True, contended=True)
    return file


def _cpu_model() -> str:
    """As the kernel names it; the architecture where it does not."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
            name, _, value = line.partition(":")
            if name.strip() in ("model name", "Model"):
                return value.strip()
    return platform.machine()

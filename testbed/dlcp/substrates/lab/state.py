"""What a lab's switches and hosts hold, read over SSH; and what they count, of systems that count exactly."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from dlcp.errors import ExitCode, Problem, decode_problem
from dlcp.files.json_text import parse_json
from dlcp.model.host_settings import HostSettings
from dlcp.model.lab.inventory import LabHost, LabSwitch
from dlcp.model.result import DROP_CAUSES
from dlcp.schemes.tcp import CONTROL_SYSCTL
from dlcp.substrates.lab.ssh import SHOWN, Done, Remote
from dlcp.switches.linux.state import STATE_VARIABLE

BOX = "linux"
"""The system whose switches run our own program: it reads back and counts exactly."""
COMMAND_TIMEOUT_S = 30.0
DRAIN_S = 2.0
"""Longest wait for queues to run empty after a job; a full port buffer drains in milliseconds."""
DRAIN_EVERY_S = 0.1
_AT_A_TIME = 16
_RTO_MIN = re.compile(r"\brto_min (?:lock )?(\d+(?:\.\d+)?)(ms|s)\b")
_CONTROL = re.compile(r"\bcongctl (?:lock )?(\S+)")
_UNITS_S = {"ms": 1e-3, "s": 1.0}
_KEPT = ("switch", "port", "queue", "precedence", "peak_backlog_bytes", "backlog_histogram")
"""Columns of the table `ports` that are no growing counters; a histogram's buckets are."""

MAYBE_FOREIGN = "rx_dropped"
"""A device's counter of frames for which its machine has no use, of which a rack has many that are no experiment's."""

Rows = list[dict[str, Any]]


@dataclass(frozen=True)
class Counted:
    """What boxes counted since some beginning. rows: of the table `ports`, ports named SWITCH-NEIGHBOUR. loads: switch
    → the program whose counts they are. behind: port → what its device itself lost, before or behind the account."""

    rows: Rows
    loads: dict[str, int]
    behind: dict[str, dict[str, int]]


@dataclass(frozen=True)
class Held:
    """What a switch holds: the digest of what it was told ("" = nothing of ours) and where it has drifted from that."""

    digest: str
    differences: tuple[str, ...] = ()
    intent: str = ""


class Boxes:
    """Linux switches and connections to them, by name."""

    def __init__(self, switches: Mapping[str, LabSwitch], remotes: Mapping[str, Remote]) -> None:
        self._switches = dict(switches)
        self._remotes = remotes

    @property
    def names(self) -> tuple[str, ...]:
        """All of them."""
        return tuple(self._switches)

    def held(self) -> dict[str, Held]:
        """What each holds."""
        found = self._each("read")
        return {
            name: Held(said["digest"], tuple(said["differences"]), said.get("intent", ""))
            for name, said in found.items()
        }

    def reset(self) -> None:
        """Let the peaks of their backlogs begin anew."""
        self._each("reset")

    def counted(self) -> Counted:
        """What each has counted at its ports to nodes of the lab."""
        found = Counted([], {}, {})
        for name, said in self._each("counters").items():
            ports = {port: f"{name}-{other}" for port, other in self._switches[name].wiring.items()}
            found.loads[name] = said["load"]
            found.rows.extend(
                {**row, "switch": name, "port": ports[row["port"]]} for row in said["rows"] if row["port"] in ports
            )
            found.behind.update({ports[port]: lost for port, lost in said["behind"].items() if port in ports})
        return found

    def counted_at_rest(self) -> Counted:
        """The same once nothing waits in a queue, or after a while."""
        until_s = time.monotonic() + DRAIN_S
        while True:
            found = self.counted()
            at_rest = all(row["enqueued_packets"] == row["sent_packets"] for row in found.rows)
            if at_rest or time.monotonic() > until_s:
                return found
            time.sleep(DRAIN_EVERY_S)

    def _each(self, verb: str) -> dict[str, dict[str, Any]]:
        return at_all(self._switches, lambda name: self._ask(name, verb))

    def _ask(self, name: str, verb: str) -> dict[str, Any]:
        words = box_command(self._switches[name], "dlcp.switches.linux", verb)
        done = self._remotes[name].run(words, timeout_s=COMMAND_TIMEOUT_S, stdin="{}")
        try:
            answer = parse_json(done.stdout)
        except ValueError:
            answer = None
        if not isinstance(answer, dict):
            raise _unexpected(self._remotes[name], words, "one JSON object", done)
        if problem := answer.get("problem"):
            raise decode_problem(problem, at=name, exit_code=ExitCode.MACHINE_CANNOT)
        return answer


def box_command(switch: LabSwitch, module: str, *words: str) -> list[str]:
    """How a module of ours is started on a Linux switch: by its own Python, on the state that its deployments keep."""
    state = [] if switch.state is None else ["env", f"{STATE_VARIABLE}={switch.state}"]
    return [*state, switch.python, "-m", module, *words]


def require_undisturbed(before: Counted, after: Counted) -> None:
    """Raises Problem when a switch's program was loaded anew in between."""
    anew = [name for name, load in after.loads.items() if load != before.loads[name]]
    if anew:
        what = (
            "the program was loaded anew during the run: what was in force meanwhile and what was counted is not known"
        )
        hint = "see who deploys there by hand, past the lab's lock, or whether it came up anew; then run again"
        raise Problem(", ".join(anew), what, hint, exit_code=ExitCode.RUN_FAILED)


def lost_by_devices(before: Counted, after: Counted) -> dict[str, dict[str, int]]:
    """Port → what its device lost in between, by the name of its counter, where it lost any."""
    lost = {
        port: {name: count - before.behind[port].get(name, 0) for name, count in found.items()}
        for port, found in after.behind.items()
        if port in before.behind
    }
    return {port: some for port, found in lost.items() if (some := {name: n for name, n in found.items() if n})}


def device_losses(lost: Mapping[str, Mapping[str, int]]) -> tuple[int, list[str]]:
    """Packets of a run that devices lost, and where, in words. What a device received and nobody wanted (MAYBE_FOREIGN)
    is told but not counted: LLDP, say."""
    told = [f"{port}: its device lost {show_counts(found)} beside the account" for port, found in lost.items()]
    return sum(n for found in lost.values() for name, n in found.items() if name != MAYBE_FOREIGN), told


def differences(before: Rows, after: Rows) -> Rows:
    """What was counted in between, of the ports that are in both; peaks as they are after."""
    earlier = {(row["port"], row["queue"], row["precedence"]): row for row in before}
    found = []
    for row in after:
        was = earlier[row["port"], row["queue"], row["precedence"]]
        histogram = row["backlog_histogram"]
        found.append(
            {name: value if name in _KEPT else value - was[name] for name, value in row.items()}
            | {"backlog_histogram": [a - b for a, b in zip(histogram, was["backlog_histogram"], strict=True)]}
        )
    return found


def unaccounted(rows: Rows) -> list[str]:
    """Where what came into a queue did not leave it; where what came into a switch neither."""
    told = [
        f"{row['port']} queue {row['queue']} precedence {row['precedence']}: {row['enqueued_packets']} packets "
        f"enqueued, {row['sent_packets']} sent"
        for row in rows
        if row["enqueued_packets"] != row["sent_packets"]
    ]
    for switch in dict.fromkeys(row["switch"] for row in rows):
        mine = [row for row in rows if row["switch"] == switch]
        received = sum(row["received_packets"] for row in mine)
        dropped = sum(row[f"dropped_{cause}_packets"] for row in mine for cause in DROP_CAUSES)
        enqueued = sum(row["enqueued_packets"] for row in mine)
        if received != enqueued + dropped:
            told.append(f"switch {switch}: {received} packets came in, {enqueued} enqueued, {dropped} dropped")
    return told


@dataclass(frozen=True)
class HostState:
    """A host's network stack as it is: sysctls by name (that of the congestion control: what its fabric's routes say,
    where they say any), the floor of the retransmission timer on these routes (None = the kernel's own)."""

    sysctls: dict[str, str] = field(default_factory=dict)
    rto_min_s: float | None = None

    def misses(self, wanted: HostSettings) -> list[str]:
        """Where it is not what is wanted, in words."""
        told = [
            f"{name} is {self.sysctls.get(name)}, not {value}"
            for name, value in wanted.sysctls.items()
            if self.sysctls.get(name) != value
        ]
        if self.rto_min_s != rounded(wanted.rto_min_s):
            told.append(f"rto_min of its routes is {_floor(self.rto_min_s)}, not {_floor(rounded(wanted.rto_min_s))}")
        return told


def rounded(floor_s: float | None) -> float | None:
    """A floor as the kernel keeps it: whole milliseconds, at least one."""
    return None if floor_s is None else max(1, round(floor_s * 1000)) / 1000


def host_states(
    hosts: Mapping[str, LabHost], remotes: Mapping[str, Remote], sysctls: Iterable[str]
) -> dict[str, HostState]:
    """Of each host; sysctls: those to read."""
    names = list(sysctls)

    def read(name: str) -> HostState:
        values: dict[str, str] = {}
        if names:
            files = [f"/proc/sys/{one.replace('.', '/')}" for one in names]
            lines = _run(remotes[name], ["cat", *files]).splitlines()
            values = {one: " ".join(line.split()) for one, line in zip(names, lines, strict=True)}
        routes = _run(remotes[name], ["ip", "-4", "route", "show", "dev", hosts[name].interface]).splitlines()
        floors = {_rto_min_s(route) for route in routes if route.strip()}
        controls = {match[1] if (match := _CONTROL.search(route)) else "" for route in routes if route.strip()}
        if len(floors) > 1 or len(controls) > 1:
            shown = "; ".join(route.strip() for route in routes)
            what = f"routes on {hosts[name].interface} tell TCP different things: {shown}"
            raise Problem(remotes[name].where, what, "give all the same rto_min and congctl, or none")
        if CONTROL_SYSCTL in values and (control := "".join(controls)):
            values[CONTROL_SYSCTL] = control
        return HostState(values, floors.pop() if floors else None)

    return at_all(hosts, read)


def at_all(names: Iterable[str], work: Callable[[str], Any]) -> dict[str, Any]:
    """Do something at each device, some at a time: most of it is waiting. Raises what went wrong at the first."""
    listed = list(names)
    with ThreadPoolExecutor(_AT_A_TIME) as pool:
        return dict(zip(listed, pool.map(work, listed), strict=True))


def _run(remote: Remote, words: list[str]) -> str:
    done = remote.run(words, timeout_s=COMMAND_TIMEOUT_S)
    if done.status:
        raise _unexpected(remote, words, "exit status 0", done)
    return done.stdout


def _rto_min_s(route: str) -> float | None:
    match = _RTO_MIN.search(route)
    return float(match[1]) * _UNITS_S[match[2]] if match else None


def show_counts(found: Mapping[str, int]) -> str:
    """ "3 tx_dropped, 1 rx_errors"."""
    return ", ".join(f"{count} {name}" for name, count in found.items())


def _floor(floor_s: float | None) -> str:
    return "the kernel's own" if floor_s is None else f"{floor_s * 1000:g} ms"


def _unexpected(remote: Remote, words: list[str], expected: str, done: Done) -> Problem:
    said = (done.stderr or done.stdout).strip()[-SHOWN:]
    what = f"`{' '.join(words)}`: expected {expected}, received exit status {done.status}: {said}"
    return Problem(remote.where, what, exit_code=ExitCode.MACHINE_CANNOT)

"""EOS switches over SSH, as far as a deployment of QoS speaks to one: sessions, their differences, commit, timers,
abort, show, and the grammar of the lines. Many switches in one process; each has a port, a configuration and a history.

The running configuration is printed as EOS prints it, not as it was typed: a DSCP that is where it is by default is not
shown, those that go the same way share a line.
"""

from __future__ import annotations

import base64
import difflib
import json
import re
import socket
import threading
import time
from dataclasses import dataclass, field
from pathlib import Path

import paramiko

Lines = dict[str, "Lines"]
"""A configuration: line → the lines below it. Maps of DSCPs are kept one codepoint a line."""

ENTERS = {
    "": r"qos profile \S+|interface (Ethernet|Management)\d+(/\d+)*|platform trident mmu queue profile [^ ]+",
    "qos profile": r"(uc-)?tx-queue [0-7]",
}
"""Mode (what the line that entered it begins with) → lines that enter a mode below it."""
CURVE = r"minimum-threshold \d+ kbytes maximum-threshold \d+ kbytes"
SAYS = {
    "": r"hostname \S+|qos map dscp [\d ]+ to traffic-class [0-7]( drop-precedence [0-2])?"
    r"|qos map traffic-class [0-7] to (uc-)?tx-queue [0-7]|platform trident mmu queue profile \S+ apply"
    r"|priority-flow-control pause watchdog (action drop|default (timeout|recovery-time|polling-interval) [\d.]+)"
    r"|ip hardware fib load-balance distribution dynamic|alias \w+ .+|vlan \d+",
    "qos profile": r"qos trust dscp|priority-flow-control (on|pause watchdog|priority [0-7] no-drop)",
    "tx-queue": rf"(no )?priority( strict)?|bandwidth percent \d+|random-detect drop (drop-precedence [0-2] )?{CURVE} "
    rf"drop-probability \d+( weight \d+)?|random-detect ecn {CURVE} max-mark-probability \d+( weight \d+)?",
    "interface": r"service-profile \S+|description .+|speed \S+|ip address \S+",
    "platform": r"egress unicast queue [0-7] (reserved bytes \d+|threshold (1/)?\d+)",
}
SLOTS = {
    "": r"hostname|alias \w+|qos map traffic-class \d|priority-flow-control pause watchdog (action|default \S+)"
    r"|ip hardware fib load-balance distribution|platform trident mmu queue profile \S+ apply|vlan \d+",
    "qos profile": r"qos trust|priority-flow-control (on|pause watchdog|priority \d)",
    "tx-queue": r"(no )?priority|bandwidth|random-detect drop( drop-precedence \d)?|random-detect ecn",
    "interface": r"service-profile|description|speed|ip address",
    "platform": r"egress unicast queue \d (reserved|threshold)",
}
"""Mode → what a line sets there, when another of its kind takes its place, and what `no` takes off."""
DSCP = re.compile(r"qos map dscp ([\d ]+?)( to traffic-class (\d)( drop-precedence \d)?)?")


class RejectedError(Exception):
    """What the switch says to a line that it does not take."""


def mode_of(path: list[str]) -> str:
    """The mode that the last line of a path entered."""
    if not path:
        return ""
    return next(name for name in ("qos profile", "interface", "platform", "tx-queue") if name in path[-1])


def slot(mode: str, line: str) -> str:
    """What a line sets; "" where this mode knows of no such thing."""
    match = re.match(SLOTS[mode], line)
    return match[0].removeprefix("no ") if match else ""


def at(lines: Lines, path: list[str]) -> Lines:
    """The lines below a path."""
    for step in path:
        lines = lines[step]
    return lines


def put(config: Lines, path: list[str], line: str) -> list[str]:
    """Take one line of a session; → the path afterwards. RejectedError where no mode from here upwards takes it."""
    while True:
        mode = mode_of(path)
        negated = line.startswith("no ") and not (mode == "tx-queue" and line == "no priority")
        body = line[3:] if negated else line
        below = at(config, path)
        if re.fullmatch(ENTERS.get(mode, "(?!)"), body):
            if not negated:
                below.setdefault(body, {})
                return [*path, body]
            below.pop(body, None)
            return path
        if negated and _removed(mode, body, below):
            return path
        if not negated and re.fullmatch(SAYS[mode], body):
            _set(mode, body, below)
            return path
        if not path:
            raise RejectedError(f"% Invalid input (at token 0: '{line.split()[0]}')")
        path = path[:-1]


def _set(mode: str, line: str, below: Lines) -> None:
    if match := DSCP.fullmatch(line):
        for dscp in map(int, match[1].split()):
            if dscp > 63:
                raise RejectedError(f"% Invalid input (at token 3: '{dscp}')")
            below.pop(f"qos map dscp {dscp}", None)
            if match[2] != f" to traffic-class {dscp // 8}":
                below[f"qos map dscp {dscp}"] = {match[2]: {}}
        return
    for other in [other for other in below if slot(mode, other) == slot(mode, line)]:
        del below[other]
    below[line] = {}


def _removed(mode: str, line: str, below: Lines) -> bool:
    """Whether a `no` means something here; what it means may be absent already."""
    if mode == "" and (match := DSCP.fullmatch(line)):
        for dscp in match[1].split():
            below.pop(f"qos map dscp {dscp}", None)
        return True
    kind = slot(mode, line)
    for other in [other for other in below if kind and slot(mode, other) == kind]:
        del below[other]
    return bool(kind)


def printed(config: Lines) -> list[str]:
    """As `show running-config` prints it."""
    ways: dict[str, list[int]] = {}
    for line, below in config.items():
        if line.startswith("qos map dscp "):
            ways.setdefault(next(iter(below)), []).append(int(line.split()[3]))
    out = [f"qos map dscp {' '.join(map(str, sorted(ways[way])))}{way}" for way in sorted(ways)]
    others = {line: below for line, below in config.items() if not line.startswith("qos map dscp ")}
    for line in sorted(others, key=lambda one: (bool(others[one]), one)):
        out += ["!", line] if others[line] else [line]
        out += _printed(others[line], 1)
    return out


def _printed(lines: Lines, depth: int) -> list[str]:
    return [
        text for line, below in sorted(lines.items()) for text in ["   " * depth + line, *_printed(below, depth + 1)]
    ]


def copied(lines: Lines) -> Lines:
    """Apart from the other."""
    return {line: copied(below) for line, below in lines.items()}


@dataclass
class Pending:
    """A session that a commit timer waits for. until_s: of the monotonic clock."""

    session: str
    before: Lines
    until_s: float


@dataclass
class EosSwitch:
    """One switch. refuses: a line that it will not take, though the grammar has it. history: what it was told."""

    name: str
    running: Lines = field(default_factory=dict)
    sessions: dict[str, Lines] = field(default_factory=dict)
    pending: Pending | None = None
    refuses: str = ""
    history: list[str] = field(default_factory=list)
    lock: threading.RLock = field(default_factory=threading.RLock)

    def load(self, text: str) -> None:
        """Take a configuration as it is."""
        path: list[str] = []
        for line in text.splitlines():
            if line.strip():
                path = put(self.running, path[: (len(line) - len(line.lstrip())) // 3], line.strip())

    def text(self) -> str:
        """The running configuration; a commit timer that has run out has taken its session back."""
        with self.lock:
            if self.pending and time.monotonic() > self.pending.until_s:
                self.running, self.pending = self.pending.before, None
            return "\n".join(printed(self.running))

    def drop_timer(self) -> None:
        """Let the commit timer run out."""
        assert self.pending
        self.pending.until_s = time.monotonic() - 1


class Shell:
    """One person's session at a switch's prompt."""

    def __init__(self, switch: EosSwitch) -> None:
        self.switch, self.session, self.path = switch, "", list[str]()

    def prompt(self) -> str:
        inside = f"(config-s-{self.session[:6]}{'-' + mode_of(self.path).replace(' ', '-') if self.path else ''})"
        return f"{self.switch.name}{inside if self.session else ''}#"

    def answer(self, line: str) -> str:
        """What is printed for a line."""
        with self.switch.lock:
            self.switch.text()
            self.switch.history.append(line)
            if not line:
                return ""
            if self.switch.refuses and line == self.switch.refuses:
                return "% Invalid input"
            try:
                return self._in_session(line) if self.session else self._in_exec(line)
            except RejectedError as error:
                return str(error)

    def _in_session(self, line: str) -> str:
        switch = self.switch
        if line.startswith("show session-config diffs"):
            before, after = printed(switch.running), printed(switch.sessions[self.session])
            names = "system:/running-config", f"session:/{self.session}-session-config"
            return "\n".join(difflib.unified_diff(before, after, *names, lineterm=""))
        if line == "abort":
            del switch.sessions[self.session]
            self._leave()
        elif line in ("end", "exit"):
            self._leave()
        elif match := re.fullmatch(r"commit( timer (\d\d):(\d\d):(\d\d))?", line):
            if match[1]:
                if switch.pending:
                    raise RejectedError("% Error: another session waits for its commit timer")
                after_s = sum(int(match[n]) * 60 ** (4 - n) for n in (2, 3, 4))
                switch.pending = Pending(self.session, switch.running, time.monotonic() + after_s)
            switch.running = switch.sessions.pop(self.session)
            self._leave()
        else:
            self.path = put(switch.sessions[self.session], self.path, line)
        return ""

    def _leave(self) -> None:
        self.session, self.path = "", []

    def _in_exec(self, line: str) -> str:
        switch = self.switch
        if line.startswith("show running-config"):
            return f"! Command: {line}\n! device: {switch.name}\n" + switch.text() + "\n!\nend"
        if line == "show version | json":
            return json.dumps({"modelName": "DCS-7060CX-32S", "version": "4.33.0F"})
        if line == "show hostname | json":
            return json.dumps({"hostname": switch.name, "fqdn": switch.name})
        if line == "show configuration sessions detail | json":
            told = {name: {"state": "pending"} for name in switch.sessions}
            if switch.pending:
                told[switch.pending.session] = {"state": "pendingCommitTimer"}
            return json.dumps({"sessions": told})
        if line.startswith("show interfaces counters queue"):
            return "Port TxQ Counter/pkts"
        if match := re.fullmatch(r"configure session (\S+)( (commit|abort))?", line):
            return self._about(match[1], match[3])
        if re.match(r"terminal (length|width) \d+|enable$|bash timeout 5 cat /mnt/flash/boot-config|show ", line):
            return ""
        raise RejectedError("% Invalid input")

    def _about(self, name: str, what: str | None) -> str:
        switch = self.switch
        waits = switch.pending is not None and switch.pending.session == name
        if what is None:
            switch.sessions.setdefault(name, copied(switch.running))
            self.session = name
        elif waits and switch.pending:
            switch.running = switch.pending.before if what == "abort" else switch.running
            switch.pending = None
        elif name not in switch.sessions:
            raise RejectedError(f"% Error: session {name} does not exist")
        elif what == "abort":
            del switch.sessions[name]
        else:
            switch.running = switch.sessions.pop(name)
        return ""


class _Keys(paramiko.ServerInterface):
    """Lets one key in."""

    def __init__(self, key: paramiko.PKey) -> None:
        self.key = key

    def check_auth_publickey(self, username: str, key: paramiko.PKey) -> int:
        return paramiko.AUTH_SUCCESSFUL if key == self.key else paramiko.AUTH_FAILED

    def get_allowed_auths(self, username: str) -> str:
        return "publickey"

    def check_channel_request(self, kind: str, chanid: int) -> int:
        return paramiko.OPEN_SUCCEEDED

    def check_channel_shell_request(self, channel: paramiko.Channel) -> bool:
        return True

    def check_channel_pty_request(self, *_: object) -> bool:
        return True


class EosServer:
    """Switches on ports of 127.0.0.1, until closed. hostkey: a private key's file; client: a public key's file."""

    def __init__(self, switches: list[EosSwitch], hostkey: Path, client: Path) -> None:
        self.key = paramiko.Ed25519Key.from_private_key_file(str(hostkey))
        self.client = paramiko.PKey.from_type_string(*_public(client))
        self.ports: dict[str, int] = {}
        self._sockets = []
        for switch in switches:
            listening = socket.create_server(("127.0.0.1", 0), backlog=8)
            self._sockets.append(listening)
            self.ports[switch.name] = listening.getsockname()[1]
            threading.Thread(target=self._accept, args=(listening, switch), daemon=True).start()

    def close(self) -> None:
        """No one new is let in."""
        for listening in self._sockets:
            listening.close()

    def _accept(self, listening: socket.socket, switch: EosSwitch) -> None:
        while True:
            try:
                stream, _ = listening.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(stream, switch), daemon=True).start()

    def _serve(self, stream: socket.socket, switch: EosSwitch) -> None:
        transport = paramiko.Transport(stream)
        transport.add_server_key(self.key)
        try:
            transport.start_server(server=_Keys(self.client))
        except (paramiko.SSHException, EOFError, OSError):
            return
        channel = transport.accept(30)
        if channel is None:
            return
        shell, held = Shell(switch), b""
        channel.sendall(shell.prompt().encode())
        while data := channel.recv(65536):
            held += data
            while match := re.search(rb"[\r\n]", held):
                line, held = held[: match.start()].decode().strip(), held[match.end() :]
                said = shell.answer(line)
                shown = said.replace("\n", "\r\n") + "\r\n" if said else ""
                channel.sendall(f"{line}\r\n{shown}{shell.prompt()}".encode())


def _public(file: Path) -> tuple[str, bytes]:
    kind, key, *_ = file.read_text().split()
    return kind, base64.b64decode(key)

"""What this machine can emulate, tried rather than read from configuration files, in throw-away private namespaces."""

from __future__ import annotations

import importlib.util
import json
import os
import platform
import shutil
import socket
import subprocess
from collections.abc import Callable
from ctypes import CDLL
from dataclasses import asdict, dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from dlcp.errors import MachineCannot, Problem
from dlcp.isolation.private_namespaces import BPF_PINS, WHY_ROOT, start_private
from dlcp.paths import install_command, sudo_command

_PROBE_LIMIT_S = 20
_DEVICE = "probe0"


@dataclass(frozen=True)
class Check:
    """One thing that a run needs. detail: what was found; remedy: one command that mends it, "" when ok.

    tried: False when something else must be mended before this can be known.
    """

    name: str
    ok: bool
    detail: str
    remedy: str = ""
    tried: bool = True


_PROGRAMS = {
    "mnexec": "apt-get install --no-install-recommends mininet",
    "tc": "apt-get install iproute2",
    "ip": "apt-get install iproute2",
    "ethtool": "apt-get install ethtool",
    "setpriv": "apt-get install util-linux",
    "unshare": "apt-get install util-linux",
}

_FEATURES = ("veth", "htb", "tbf", "bfifo", "clsact", "eBPF program", "cls_bpf", "cubic", "host namespace")


def probe() -> list[Check]:
    """Every check, in the order in which gaps should be mended. Needs about 0.2 s; changes nothing on the machine."""
    checks = [_root(), *(_program(name, remedy) for name, remedy in _PROGRAMS.items()), _libbpf(), _mininet()]
    if all(check.ok for check in checks):
        return [*checks, *_inside()]
    return [*checks, *(Check(name, False, "not tried: mend the above first", tried=False) for name in _FEATURES)]


def probe_congestion_control(name: str) -> Check:
    """Whether this machine's kernel runs TCP with a congestion control; a module that is there is loaded, as root."""
    known = _congestion_controls()
    if name in known:
        return Check(name, True, "in the kernel")
    with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as sock:
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
        except OSError:
            has = f"this kernel has no TCP congestion control {name}, only {', '.join(known)}"
            return Check(name, False, has, f"modprobe tcp_{name}, or boot a kernel that has it")
    return Check(name, True, "loaded")


def probe_delays() -> Check:
    """Whether links can have a delay here: what a fabric without delays does not need. As probe(), about 0.2 s."""
    if not _root().ok:
        return Check("netem", False, "not tried: needs root", f"run it as root: {sudo_command()} …", tried=False)
    return _inside("netem")[-1]


def machine_facts() -> dict[str, Any]:
    """What a result should say about the machine that made it: kernel, cores, memory, versions."""
    return {
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cores": len(os.sched_getaffinity(0)),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "python": platform.python_version(),
        "mininet": _installed("mininet"),
        "iproute2": _first_line(["ip", "-V"]),
    }


def main(arguments: list[str]) -> int:
    """Entry point inside the namespaces: one JSON list of checks on stdout; "netem" as argument: of that alone."""
    found = [_netem()] if arguments == ["netem"] else _try_features()
    print(json.dumps([asdict(check) for check in found]))
    return 0


def _root() -> Check:
    if os.geteuid() == 0:
        return Check("root", True, "effective user 0")
    return Check(
        "root",
        False,
        f"effective user {os.geteuid()}; emulation needs root: {WHY_ROOT}",
        f"run it as root: {sudo_command()} …",
    )


def _program(name: str, remedy: str) -> Check:
    path = shutil.which(name)
    return Check(name, True, path) if path else Check(name, False, "not on the PATH", remedy)


def _libbpf() -> Check:
    try:
        CDLL("libbpf.so.1")
    except OSError as error:
        return Check("libbpf", False, str(error), "apt-get install libbpf1")
    return Check("libbpf", True, "libbpf.so.1")


def _mininet() -> Check:
    if importlib.util.find_spec("mininet") is None:
        return Check("Mininet", False, "not in this Python", install_command("emulate"))
    return Check("Mininet", True, str(_installed("mininet")))


def _inside(*arguments: str) -> list[Check]:
    """The kernel's part, tried where nothing remains of it."""
    try:
        process = start_private(f"{__name__}:main", arguments, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    except MachineCannot as problem:
        return [Check("private namespaces", False, problem.what, problem.hint)]
    try:
        out, err = process.communicate(timeout=_PROBE_LIMIT_S)
    except subprocess.TimeoutExpired:
        return [Check("private namespaces", False, f"the probe did not end within {_PROBE_LIMIT_S} s", "try again")]
    finally:
        process.stop()
    if process.returncode:
        return [Check("private namespaces", False, err.decode(errors="replace").strip(), "dlcp doctor, as root")]
    return [Check("private namespaces", True, "unshare"), *(Check(**check) for check in json.loads(out))]


def _try_features() -> list[Check]:
    device = _DEVICE
    tried: list[tuple[str, Callable[[], str], str]] = [
        (name, partial(_run, command), remedy)
        for name, command, remedy in (
            (
                "veth",
                f"ip link add name {device} index 100 numtxqueues 1 type veth peer name probe1 index 101"
                f" && ip link set dev {device} up",
                "modprobe veth",
            ),
            (
                "tbf",
                f"tc qdisc replace dev {device} root handle 2: tbf rate 10mbit burst 3028 limit 9000",
                "modprobe sch_tbf",
            ),
            ("htb", f"tc qdisc replace dev {device} root handle 1: htb default 10", "modprobe sch_htb"),
            (
                "bfifo",
                f"tc class add dev {device} parent 1: classid 1:10 htb rate 10mbit"
                f" && tc qdisc add dev {device} parent 1:10 handle 10: bfifo limit 9000",
                "modprobe sch_htb",
            ),
            ("clsact", f"tc qdisc add dev {device} clsact", "modprobe sch_ingress"),
        )
    ]
    attach = f"tc filter add dev {device} ingress bpf da pinned {BPF_PINS / 'switch_ingress'}"
    tried += [
        ("eBPF program", _load, "boot a kernel from Linux 5.13 on, with CONFIG_BPF_SYSCALL"),
        ("cls_bpf", partial(_run, attach), "modprobe cls_bpf"),
        ("cubic", _cubic, "modprobe tcp_cubic"),
        ("host namespace", partial(_run, "mnexec -n true"), "apt-get install --no-install-recommends mininet"),
    ]
    return [_tried(name, attempt, remedy) for name, attempt, remedy in tried]


def _netem() -> Check:
    _run(f"ip link add name {_DEVICE} type veth peer name probe1")
    command = f"tc qdisc add dev {_DEVICE} root netem delay 1ms limit 1000"
    return _tried("netem", partial(_run, command), "modprobe sch_netem")


def _tried(name: str, attempt: Callable[[], str], remedy: str) -> Check:
    try:
        return Check(name, True, attempt() or "works")
    except Problem as problem:
        return Check(name, False, problem.what, remedy)


def _run(command: str) -> str:
    done = subprocess.run(command, shell=True, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Problem("", f"`{command}`: {done.stderr.strip()}")
    return ""


def _load() -> str:
    from dlcp.switches.bpf.programs import SwitchProgram

    program = SwitchProgram(ports=102, switches=1, routes=1, pins=BPF_PINS)
    program.close()
    return f"{len(program.ids)} programs"


def _congestion_controls() -> list[str]:
    with open("/proc/sys/net/ipv4/tcp_available_congestion_control", encoding="utf-8") as file:
        return file.read().split()


def _cubic() -> str:
    known = _congestion_controls()
    if "cubic" not in known:
        raise Problem("", f"this kernel has only {', '.join(known)}")
    return ", ".join(known)


def _installed(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _first_line(command: list[str]) -> str | None:
    if shutil.which(command[0]) is None:
        return None
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()

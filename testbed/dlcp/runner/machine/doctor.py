"""Checks of this machine, each with the one command that fixes its gap."""

from __future__ import annotations

import importlib
import importlib.util
import os
import shutil
import sys
from dataclasses import dataclass
from pathlib import Path

from dlcp.datasets import fashion_mnist, kjv
from dlcp.errors import MachineCannot
from dlcp.model.units import show_size
from dlcp.paths import REPOSITORY, install_command, sshd
from dlcp.runner.machine import calibration
from dlcp.runner.machine.emulator_support import ANY_SCALING
from dlcp.schemes import names, scheme_class
from dlcp.schemes.tcp import CONTROL_SYSCTL
from dlcp.substrates.emulate.capabilities import Check, probe, probe_congestion_control, probe_delays

MIN_CORES = 2
MIN_MEMORY_BYTES = 4 * 2**30
"""Eight trainers that share one preloaded torch, the fabric and a report (measured: below 2 GiB together)."""
MIN_DISK_BYTES = 500 * 10**6
"""Room for the results of a few experiments: a run of the quickstart takes about 1 MB."""


@dataclass(frozen=True)
class Group:
    """Checks that serve one purpose. needed: a gap here stops `dlcp run` of some experiment."""

    title: str
    checks: tuple[Check, ...]
    needed: bool = True


def examine(results: Path) -> list[Group]:
    """All checks by purpose. results: where results are to be written. Takes about a second; changes nothing."""
    reports = tuple(_module(name, "report") for name in ("pandas", "seaborn", "matplotlib", "scipy", "jinja2"))
    notebooks = tuple(_module(name, "notebooks") for name in ("nbconvert", "ipykernel"))
    return [
        Group("machine", (_cores(), _memory(), room(results, MIN_DISK_BYTES))),
        emulation(),
        Group("link delays", (probe_delays(),), needed=False),
        Group("TCP of schemes", tcp_controls(), needed=False),
        native_core(),
        training_jobs(),
        lab(),
        lab_demo(),
        Group("reports", reports),
        Group("calibration", (_calibration(),), needed=False),
        Group("notebooks", notebooks, needed=False),
    ]


def emulation() -> Group:
    """Parts of the substrate `emulate`, each tried."""
    return Group("emulation", tuple(probe()))


def tcp_controls() -> tuple[Check, ...]:
    """Congestion controls of the kernel that some scheme is made of."""
    controls = {kind().hosts(ANY_SCALING).sysctls.get(CONTROL_SYSCTL) for kind in map(scheme_class, names())}
    return tuple(probe_congestion_control(control) for control in sorted(filter(None, controls)))


def native_core() -> Group:
    """DLCP itself."""
    return Group("DLCP's native core", (_native(),))


def training_jobs() -> Group:
    """Needs of real training jobs, in addition to the network."""
    return Group("training jobs", (_module("torch", "train"), _data(), _text()))


def lab() -> Group:
    """Needs of commands that reach a lab's switches and hosts: `dlcp switch`, and runs `--on lab`."""
    modules = tuple(_module(name, "lab") for name in ("ansible", "ansible_runner", "fabric", "jsonpatch"))
    return Group("lab", (*modules, _ssh()), needed=False)


def lab_demo() -> Group:
    """Needs of a lab of namespaces on this machine, in addition to an emulation: `make lab-demo`, `dlcp lab`."""
    ssh_server = sshd()
    remedy = _unless(ssh_server is not None, f"make -C {REPOSITORY} setup")
    server = Check("sshd", ssh_server is not None, str(ssh_server or "none here"), remedy)
    return Group("lab of namespaces", (server,), needed=False)


def gaps(groups: list[Group]) -> list[Check]:
    """Missing parts of the needed ones, as far as they could be tried."""
    return [check for group in groups if group.needed for check in group.checks if check.tried and not check.ok]


def _cores() -> Check:
    cores = len(os.sched_getaffinity(0))
    return Check(
        "cores",
        cores >= MIN_CORES,
        f"{cores} (at least {MIN_CORES})",
        _unless(cores >= MIN_CORES, "give this machine or container more CPUs"),
    )


def _memory() -> Check:
    size_bytes = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    enough = size_bytes >= MIN_MEMORY_BYTES
    shown = f"{size_bytes / 2**30:.1f} GiB (at least {MIN_MEMORY_BYTES / 2**30:g})"
    return Check("memory", enough, shown, _unless(enough, "give this machine or container more memory"))


def room(results: Path, needed_bytes: int) -> Check:
    """Check that results can be written to their folder, and that this many bytes fit. Changes nothing."""
    place = next(path for path in (results.absolute(), *results.absolute().parents) if path.exists())
    if not place.is_dir():
        return Check("disk", False, f"{place} is a file", "name a folder: --results")
    if not os.access(place, os.W_OK | os.X_OK):
        return Check("disk", False, f"{place} cannot be written to", "name another folder: --results")
    free_bytes = shutil.disk_usage(place).free
    enough = free_bytes >= needed_bytes
    shown = f"{show_size(free_bytes)} free at {place} (at least {show_size(needed_bytes)})"
    return Check(
        "disk", enough, shown, _unless(enough, "dlcp clean --results --yes, or name another folder: --results")
    )


def _calibration() -> Check:
    stored = calibration.load()
    if stored.calibration is None:
        return Check("packet cost", False, f"{stored.why}; plans use defaults", calibration.command())
    kept = stored.calibration
    shown = f"{kept.ends_us:.2f} µs at the hosts, {kept.hop_us:.2f} µs a switch; measured {kept.measured}"
    if kept.spoiled:
        return Check("packet cost", False, f"{shown}, but {kept.spoiled}", calibration.command())
    return Check("packet cost", True, shown)


def _native() -> Check:
    name = "dlcp.transport._native"
    try:
        importlib.import_module(name)
    except ImportError as error:
        return Check("C core", False, str(error), f"{sys.executable} -m pip install --editable {REPOSITORY}")
    return Check("C core", True, "compiled")


def _module(name: str, extra: str) -> Check:
    if importlib.util.find_spec(name) is None:
        return Check(name, False, "not in this Python", install_command(extra))
    return Check(name, True, "installed")


def _ssh() -> Check:
    path = shutil.which("ssh")
    return Check(
        "ssh",
        path is not None,
        path or "not on the PATH",
        _unless(path is not None, "apt-get install --no-install-recommends openssh-client"),
    )


def _data() -> Check:
    folder = fashion_mnist.folder()
    absent = [name for name in fashion_mnist.FILES if not (folder / name).is_file()]
    if not absent:
        return Check("Fashion-MNIST", True, str(folder))
    remedy = fashion_mnist.INSTALL
    if "DLCP_DATA" in os.environ:
        remedy = "put the four files there, or unset DLCP_DATA"
    return Check("Fashion-MNIST", False, f"{folder} lacks {', '.join(absent)}", remedy)


def _text() -> Check:
    try:
        kjv.text("test")
    except MachineCannot as problem:
        return Check("King James Bible", False, f"{problem.where}: {problem.what}", problem.hint)
    return Check("King James Bible", True, " ".join(kjv.COMMAND))


def _unless(fine: bool, remedy: str) -> str:
    return "" if fine else remedy

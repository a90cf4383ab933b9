"""kill -9 at fifty moments, drawn from a seed, of a fabric's life and of a whole run: nothing is ever left."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from functools import partial
from pathlib import Path

import pytest
import yaml
from footprint import changes, footprint, program_is_loaded
from test_isolation import KINDS, descendants, left_behind, namespaces_of, now_ticks
from traffic import pace, plain, star, together, udp
from waits import in_time

SEED = 20
FABRIC_KILLS, RUN_KILLS = 40, 10
FABRIC_LIFE_S, RUN_LIFE_S = 2.5, 7.0
"""From the command to its end on this kind of machine, roughly: moments are drawn from all of it."""

PARENT = """
import sys
from dlcp.isolation.private_namespaces import run_private
sys.exit(run_private("test_killed_often:lifetime", sys.argv[1:]))
"""

TINY = {
    "format": 1,
    "name": "tiny",
    "description": "one short run, to be killed",
    "seed": 5,
    "repeats": 1,
    "time_limit": "30 s",
    "topology": {"kind": "star", "hosts": 3, "rate": "50 Mbit/s"},
    "port_buffer": "40 kB",
    "scaling": {"lab_rate": "10 Gbit/s", "byte_scale": 200},
    "jobs": {
        "one": {"workload": "resnet50", "workers": ["h1", "h2"], "servers": ["h3"], "iterations": 4, "bucket": "60 kB"}
    },
    "schemes": [{"scheme": "dlcp", "label": "DLCP"}],
}


def lifetime(arguments: list[str]) -> int:
    """Inside: bring-up, half a second of overload with a detached child at a host, an orderly tear-down."""
    with star([100, 100, 20], plain()) as fabric:
        subprocess.Popen(["mnexec", "-da", str(fabric.pids()["h1"]), "sleep", "1000"])
        names = {os.readlink(f"/proc/{pid}/ns/{kind}") for pid in ("self", *fabric.pids().values()) for kind in KINDS}
        told = {"namespaces": sorted(names), "programs": [int(name) for name in program_ids()]}
        written = Path(arguments[0] + ".part")
        written.write_text(json.dumps(told), encoding="ascii")
        written.rename(arguments[0])
        senders = [udp(fabric, host) for host in ("h1", "h2")]
        to = (fabric.address("h3"), 9)
        together(*(partial(pace, sender, to, rate_mbit=15, seconds=0.5) for sender in senders))
    return 0


def program_ids() -> list[str]:
    """Of the eBPF programs at this namespace's devices, as tc shows them."""
    shown = subprocess.run(
        ["tc", "filter", "show", "dev", "s1-h1", "ingress"], capture_output=True, text=True, check=True
    )
    words = shown.stdout.split()
    return [words[at + 1] for at, word in enumerate(words) if word == "id"]


def kill_after(process: subprocess.Popen[bytes], after_s: float, told: Path) -> tuple[dict[int, str], list[int]]:
    """Kill a process after a while: what of its processes and namespaces is left, and the programs that it had."""
    known: dict[str, list[str]] = {"namespaces": [], "programs": []}
    try:
        time.sleep(after_s)
        pids = descendants(process.pid)
        own = {os.readlink(f"/proc/self/ns/{kind}") for kind in KINDS}
        names = {name for pid in pids for name in namespaces_of(pid)} - own
        if told.exists():
            known = json.loads(told.read_text(encoding="ascii"))
            names |= set(known["namespaces"])
    finally:
        moment = now_ticks()
        process.kill()
        process.wait()
    return left_behind(pids, names, moment), [int(program) for program in known["programs"]]


def programs_left(programs: list[int]) -> list[int]:
    """Those that the kernel still has after a while: it frees them with the links, in the background."""
    in_time(lambda: not any(map(program_is_loaded, programs)), 5, every_s=0.05)
    return [one for one in programs if program_is_loaded(one)]


@pytest.mark.long
def test_fifty_kills_leave_nothing(tmp_path: Path) -> None:
    draw = random.Random(SEED)
    before = footprint()
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(TINY))
    came_up = 0
    for kill in range(FABRIC_KILLS + RUN_KILLS):
        is_run = kill % (FABRIC_KILLS // RUN_KILLS + 1) == 0
        after_s = draw.uniform(0, RUN_LIFE_S if is_run else FABRIC_LIFE_S)
        told = tmp_path / f"told-{kill}"
        command = (
            [sys.executable, "-m", "dlcp.cli.main", "run", "tiny.yaml", "--results", f"results-{kill}"]
            if is_run
            else [sys.executable, "-c", PARENT, str(told)]
        )
        print(f"kill {kill}: {'run' if is_run else 'fabric'} after {after_s:.3f} s", flush=True)
        with (tmp_path / f"output-{kill}").open("wb") as output:
            process = subprocess.Popen(command, cwd=tmp_path, env=environment, stdout=output, stderr=output)
        left, programs = kill_after(process, after_s, told)
        came_up += bool(programs)
        assert left == {}, f"kill {kill} after {after_s:.3f} s"
        assert programs_left(programs) == [], f"kill {kill} after {after_s:.3f} s"
        for path in (tmp_path / f"results-{kill}").glob("tiny/*"):
            if path.is_dir() and not path.name.endswith(".tmp"):  # beside the runs is the report
                assert json.loads((path / "result.json").read_text())["run_id"] == path.name
    assert changes(before, footprint()) == {}
    assert 0 < came_up < FABRIC_KILLS, "moments before and after bring-up were both among them"


@pytest.mark.long
def test_what_is_left_would_be_seen() -> None:
    """A process outside of the private world, started as the run's child, does not end with it."""
    stray = subprocess.Popen(["sleep", "100"])
    try:
        assert set(left_behind({stray.pid}, set(), now_ticks())) == {stray.pid}
    finally:
        stray.kill()
        stray.wait()

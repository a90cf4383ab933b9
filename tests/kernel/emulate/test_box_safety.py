"""A Linux box as a switch: what is refused, what is mended, and that everything comes back as it was."""

from __future__ import annotations

import itertools
import json
import os
import re
import resource
import signal
import socket
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from boxes import MANAGEMENT, STATE, World, box, changed, command, picture, run
from timers import run_out
from waits import in_time, wait_until

from dlcp.model.qos import DropProfile, QosIntent, QueueIntent
from dlcp.paths import SWITCH_CONFIGS
from dlcp.switches import rollback_timer
from dlcp.switches.bpf import programs
from dlcp.switches.linux import hooks, install, state
from dlcp.switches.linux.links import inner_name
from dlcp.switches.linux.program import BoxProgram

DEPLOYMENT = "20261121T205000Z-1"


def intent(name: str, **more: Any) -> QosIntent:
    return QosIntent.model_validate({"name": name, "port_buffer": "500 kB", **more})


def words(found: dict[str, Any]) -> str:
    """Of all problems of an answer."""
    told = found.get("problems", [found["problem"]] if "problem" in found else [])
    return " | ".join(" ".join(one.values()) for one in told)


def touched() -> dict[str, Any]:
    """A whole life, with two watchers of every change that the kernel tells."""
    world = World()
    tag = {"management": [MANAGEMENT]}
    before = picture(world.ports)
    with Path("/run/dlcp/events").open("w") as events:
        watchers = [subprocess.Popen(one, stdout=events) for one in (["ip", "monitor", "all"], ["tc", "monitor"])]
        time.sleep(0.1)
        ping = ["ping", "-q", "-i", "0.02", "-c", "60", "-W", "1", "10.9.9.1"]
        with world.hosts["manager"].entered():
            pinging = subprocess.Popen(ping, stdout=subprocess.PIPE, text=True)
        asked = world.configuration(intent("first", load_balancing="per-packet"))
        found: dict[str, Any] = {"facts": command("facts", {"ports": world.ports})["ports"]["eth1"]["driver"]}
        found["diff"] = command("diff", asked)
        untouched = changed(before, picture(world.ports))
        found["apply"] = command("apply", asked | {"deployment": DEPLOYMENT, "restore_after_s": 60})
        found["again"] = command("apply", asked | {"deployment": DEPLOYMENT, "restore_after_s": 60})
        found["read"] = command("read")
        while_on = changed(before, picture(world.ports))
        found["confirm"] = [command("confirm", {"deployment": DEPLOYMENT})["changed"] for _ in range(2)]
        found["second"] = box("apply", world.configuration(intent("second")) | {"deployment": "d2"})
        found["diff of first"] = box("diff", asked)["diff"]
        found["back"] = [box("restore", {"deployment": "d2"}), box("read")["intent"]]
        found["unknown"] = box("restore", {"deployment": "never-here"})
        found["restore"] = [box("restore", {"deployment": DEPLOYMENT})["changed"] for _ in range(2)]
        found["rollback"] = box("apply", tag | {"configuration": {"program": None}, "deployment": "d3"})
        found["answered"] = pinging.communicate()[0].count(" 60 received")
        for watcher in watchers:
            watcher.terminate()
            watcher.wait()
    told = Path("/run/dlcp/events").read_text()
    return found | {
        "untouched": untouched,
        "while on": sorted(while_on),
        "left": changed(before, picture(world.ports)),
        "of the ports": told.count("eth1"),
        "of management": [
            line
            for line in told.splitlines()
            if MANAGEMENT in line
            and "STALE" not in line
            and "REACHABLE" not in line
            and "DELAY" not in line
            and "PROBE" not in line
        ],
    }


def test_a_life_leaves_nothing_and_never_touches_the_management(inside: Callable[..., Any]) -> None:
    found = inside(touched)
    assert found["facts"] == "veth"
    assert found["diff"]["changed"]
    assert '+  "intent": "first"' in found["diff"]["diff"]
    assert found["untouched"] == {}, "facts and diff only look"
    assert found["apply"]["changed"]
    assert found["again"] == {"changed": False, "digest": found["apply"]["digest"]}
    assert found["read"]["differences"] == []
    assert found["read"]["digest"] == found["apply"]["digest"]
    assert 50 < found["read"]["pending"]["until_s"] <= 60
    assert found["confirm"] == [True, False]
    assert found["second"]["changed"]
    assert '-  "intent": "second"' in found["diff of first"]
    assert found["back"] == [{"changed": True, "digest": found["apply"]["digest"]}, "first"]
    assert found["unknown"]["changed"] is False
    assert found["restore"] == [True, False]
    assert found["rollback"] == {"changed": False, "digest": ""}
    assert found["left"] == {}
    assert found["answered"] == 1
    assert found["of the ports"] > 0, "the watchers see"
    assert found["of management"] == []
    assert not any(MANAGEMENT in name for name in found["while on"])
    assert {"queues", "sysctls", "egress of eth1", "offloads of eth1"} <= set(found["while on"])


def timed() -> dict[str, Any]:
    world = World()
    before = picture(world.ports)
    asked = world.configuration(intent("first"), chip="cpu")  # below the line's rate, with its overhead
    found: dict[str, Any] = {"armed": box("apply", asked | {"deployment": "d0", "restore_after_s": 600})["changed"]}
    found["differences"] = box("read")["differences"]
    found["shaped"] = run("tc", "-details", "class", "show", "dev", inner_name(box("read")["state"]["inner"]["eth1"]))
    found["other"] = words(box("apply", asked | {"deployment": "d2", "restore_after_s": 1}))
    found["undone"] = [box("restore", {"deployment": "d0"})["changed"], box("read")["pending"]]
    box("apply", asked | {"deployment": "d1", "restore_after_s": 600})
    run_out(STATE / "box")
    in_time(lambda: not box("read")["intent"], every_s=0.1)
    found["restored"] = changed(before, picture(world.ports))
    found["late"] = words(box("confirm", {"deployment": "d1"}))
    found["killed"] = killed_at(12, "apply", asked | {"deployment": "d2", "restore_after_s": 600})
    found["half done"] = sorted(changed(before, picture(world.ports)))
    run_out(STATE / "box")
    in_time(lambda: not changed(before, picture(world.ports)), every_s=0.1)
    found["healed"] = changed(before, picture(world.ports))
    box("apply", asked | {"deployment": "d4", "restore_after_s": 600})
    found["cut short"] = killed_at(1, "confirm", {"deployment": "d4"})  # it is written down; the timer still runs
    finished = STATE / "box" / "timed.json"
    finished.unlink()  # an earlier timer's
    run_out(STATE / "box")
    wait_until(finished.exists, "the timer has ended")
    found["confirmed"] = [json.loads(finished.read_bytes())["changed"], box("confirm", {"deployment": "d4"})["changed"]]
    found["kept"] = box("read")["intent"]
    box("restore", {"to": "original"})
    box("apply", asked | {"deployment": "d5", "restore_after_s": 600})
    found["cut short too"] = killed_at(3, "restore", {"deployment": "d5"})
    run_out(STATE / "box")
    in_time(lambda: not changed(before, picture(world.ports)), every_s=0.1)
    found["healed too"] = changed(before, picture(world.ports))
    box("apply", asked | {"deployment": "d3", "restore_after_s": 600})
    sleepers = ("pgrep", "-f", "restore --state /run/dlcp/state --timed d3")
    found["sleepers"] = len(run(*sleepers).split())
    box("confirm", {"deployment": "d3"})
    in_time(lambda: not run(*sleepers, check=False))
    found["after confirm"] = run(*sleepers, check=False).split()
    found["reboot"] = rebooted()
    return found


def full_disk() -> dict[str, Any]:
    """A restore that can write nothing down; before it an apply that cannot; a folder that others could write in."""
    world = World()
    before = picture(world.ports)
    asked = world.configuration(intent("first"))
    found: dict[str, Any] = {}
    box("reset")  # makes the folder
    os.chmod(STATE / "box", 0o777)
    with no_room():
        found["refused"] = words(box("apply", asked | {"deployment": "d1", "restore_after_s": 600}))
    found["untouched"] = changed(before, picture(world.ports))
    found["timers"] = (STATE / "box" / "timer.json").exists()
    found["mode"] = oct((STATE / "box").stat().st_mode & 0o777)
    box("apply", asked | {"deployment": "d1", "restore_after_s": 600})
    with no_room():
        found["said"] = words(box("restore", {"deployment": "d1"}))
    found["restored"] = changed(before, picture(world.ports))
    found["again"] = [box("restore", {"deployment": "d1"}).get("code"), box("read")["differences"]]
    (STATE / "box").rename(STATE / "moved")
    (STATE / "box").symlink_to(STATE / "moved")
    found["link"] = words(box("read"))
    (STATE / "box").unlink()
    (STATE / "moved").rename(STATE / "box")
    os.chown(STATE / "box", 65534, 65534)
    found["stranger"] = words(box("read"))
    return found


@contextmanager
def no_room() -> Iterator[None]:
    """No file of more than 0 B can be written: as on a full disk, but for the words of the error."""
    kept = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, kept[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, kept)
        signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk_keeps_nothing_from_going_back_and_a_folder_of_others_is_not_believed(
    inside: Callable[..., Any],
) -> None:
    found = inside(full_disk)
    assert "File too large" in found["refused"]
    assert found["untouched"] == {}, "what cannot be written down is not begun"
    assert not found["timers"]
    assert found["mode"] == "0o700"
    assert "is as it was, but that could not be written down" in found["said"]
    assert found["restored"] == {}
    assert found["again"] == [None, []]
    assert "is a link or no folder" in found["link"]
    assert "belongs to user 65534" in found["stranger"]


def rebooted() -> dict[str, Any]:
    """What a box says whose state is of another start."""
    file = STATE / "box" / "state.json"
    file.write_text(file.read_text().replace('"boot":"', '"boot":"another ').replace('"boot": "', '"boot": "another '))
    return box("read")


def test_an_apply_that_nobody_confirms_is_undone_by_the_box_itself(inside: Callable[..., Any]) -> None:
    found = inside(timed)
    assert found["armed"]
    assert found["differences"] == []
    assert found["shaped"].count("rate 99Mbit overhead 24") == 1
    assert "deployment d0 waits to be confirmed" in found["other"]
    assert found["undone"] == [True, None]
    assert found["restored"] == {}
    assert "not in force" in found["late"]
    assert found["killed"]
    assert "links" in found["half done"]
    assert found["healed"] == {}, "the timer mends what a kill has left"
    assert found["cut short"]
    assert found["confirmed"] == [False, False], "what is confirmed stays, though its timer was not stopped"
    assert found["kept"] == "first"
    assert found["cut short too"]
    assert found["healed too"] == {}, "a timer is there until all is as it was"
    assert found["sleepers"] == 1
    assert found["after confirm"] == []
    assert found["reboot"]["digest"] == ""
    assert "started anew since deployment d3" in found["reboot"]["differences"][0]


DRIFTS = {
    "class": "tc class change dev {inner} parent 1:1 classid 1:13 htb rate 8bit ceil 1mbit prio 4 quantum 1514",
    "leaf": "tc qdisc change dev {inner} parent 1:15 handle 15: bfifo limit 3000",
    "root": "tc qdisc del dev {inner} root",
    "filter": "tc filter del dev eth1 egress",
    "hooks": "tc qdisc del dev eth2 clsact",
    "offload": "ethtool -K eth1 gro on",
    "pair": "ip link del {inner}",
    "down": "ip link set dev {inner} down",
    "mtu": "ip link set dev eth1 mtu 1400",
    "sysctl": "sysctl -q net.ipv4.fib_multipath_hash_policy=0",
}


def drifted() -> dict[str, Any]:
    world = World()
    before = picture(world.ports)
    profile = DropProfile(minimum="20 kB", maximum="60 kB")
    asked = world.configuration(intent("first", queues={1: QueueIntent(profiles=(None, None, profile))}))
    box("apply", asked)
    found = {}
    for name, line in DRIFTS.items():
        inner = inner_name(box("read")["state"]["inner"]["eth1"])
        run(*line.format(inner=inner).split())
        told = box("read")["differences"]
        diff = box("diff", asked)["changed"]
        mended = box("apply", asked)
        found[name] = [told, diff, mended.get("changed", mended), box("read")["differences"]]
    run("ip", "link", "set", "dev", "eth2", "down")
    found["no link"] = [box("read")[what] for what in ("differences", "remarks")]
    run("ip", "link", "set", "dev", "eth2", "up")
    bare = {name: text for name, text in before.items() if "eth2" in name}
    found["fewer"] = [
        box("apply", world.configuration(intent("one"), ports=["eth1"]))["changed"],
        box("read")["differences"],
        changed(bare, picture(world.ports)),
    ]
    box("apply", asked | {"deployment": "d1"})
    box("apply", world.configuration(intent("two")) | {"deployment": "d2"})
    run("ip", "link", "del", "eth2")
    found["back"] = [words(box("restore", {"deployment": "d2"})), box("read")["intent"]]
    found["port"] = [box("read")["differences"], words(box("apply", asked))]
    found["restore"] = [box("restore", {"to": "original"}), box("read")["differences"]]
    return found


def test_drift_is_told_and_mended(inside: Callable[..., Any]) -> None:
    found = inside(drifted)
    for name in DRIFTS:
        told, diff, mended, after = found[name]
        assert told, f"{name} is not seen"
        assert diff, f"{name}: diff says that there is nothing to do"
        assert (mended, after) == (True, []), name
    assert found["no link"][0] == []
    assert "eth2 has no link" in found["no link"][1][0]
    assert found["fewer"] == [True, [], {}], "a port that is no longer named is as it was"
    assert "as it was but for eth2" in found["back"][0]
    assert found["back"][1] == "first"
    assert "eth2: there is no such interface" in found["port"][0]
    assert "eth2 there is no such interface" in found["port"][1]
    assert found["restore"] == [{"changed": True, "digest": ""}, []]


def by_hand() -> dict[str, Any]:
    """The commands of the README, with this scenario's folder."""
    world = World()
    before = picture(world.ports)
    box("apply", world.configuration(intent("first")) | {"deployment": "d1", "restore_after_s": 600})
    text = (SWITCH_CONFIGS / "linux" / "README.md").read_text(encoding="utf-8")
    (commands,) = re.findall(r"```bash\n(.*?)```", text, re.DOTALL)
    done = subprocess.run(
        ["bash", "-e", "-c", commands.replace("/var/lib/dlcp", str(STATE))], capture_output=True, text=True, check=False
    )
    after = changed(before, picture(world.ports))
    return {
        "code": done.returncode,
        "said": done.stdout,
        "complained": done.stderr,
        "read": box("read")["differences"],
        "timers": run("pgrep", "-f", "[-]-timed d1", check=False),
        "left": after,
    }


def test_the_way_back_by_hand_leads_back(inside: Callable[..., Any]) -> None:
    found = inside(by_hand)
    assert (found["code"], found["complained"]) == (0, "")
    assert '"offloads"' in found["said"]
    assert found["timers"] == ""
    assert found["read"] == []
    assert {name for name in found["left"] if not name.startswith("offloads")} == set()


class Stopped:
    """Kills this process as it is about to change something for the nth time."""

    def __init__(self, at: int) -> None:
        self._left = at

    def before(self, function: Callable[..., Any]) -> Callable[..., Any]:
        def called(*arguments: Any, **options: Any) -> Any:
            self._left -= 1
            if self._left < 0:
                os.kill(os.getpid(), signal.SIGKILL)
            return function(*arguments, **options)

        return called


def killed_at(step: int, verb: str, request: dict[str, Any]) -> bool:
    """True when the verb was killed there; False when it ended before."""
    child = os.fork()
    if child == 0:
        stopped = Stopped(step)
        for module, name in (
            (install, "run"),
            (install, "write_sysctl"),
            (install.hooks, "attach"),
            (install.hooks, "detach"),
            (install.hooks, "add_clsact"),
            (install.hooks, "delete_clsact"),
            (state, "replace_file"),
            (rollback_timer, "stop"),
        ):
            setattr(module, name, stopped.before(getattr(module, name)))
        box(verb, request)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL


def killed(every: int) -> dict[str, Any]:
    """Kill an apply before each of its changes, mend by another apply or by restore, in turn; then a restore."""
    world = World()
    before = picture(world.ports)
    asked = world.configuration(intent("first"))
    found: dict[str, Any] = {"left": {}, "mended": [], "steps": 0}
    for step in itertools.count(0, every):
        if not killed_at(step, "apply", asked | {"deployment": f"d{step}"}):
            break
        found["steps"] += 1
        if step // every % 2:
            box("apply", asked | {"deployment": f"d{step}"})
            found["mended"].append(box("read")["differences"])
        box("restore", {"to": "original"})
        found["left"] |= changed(before, picture(world.ports))
    box("restore", {"to": "original"})
    for step in itertools.count(0, every):
        box("apply", asked)
        if not killed_at(step, "restore", {"to": "original"}):
            break
        found["steps"] += 1
        box("restore", {"to": "original"})
        found["left"] |= changed(before, picture(world.ports))
    return found


@pytest.mark.long
def test_killed_before_any_change_it_is_mended_by_the_next_call(inside: Callable[..., Any]) -> None:
    found = inside(killed, every=4, within_s=60)
    assert found["steps"] >= 6
    assert found["left"] == {}
    assert all(told == [] for told in found["mended"])


@pytest.mark.long
def test_killed_before_every_change_it_is_mended_by_the_next_call(inside: Callable[..., Any]) -> None:
    found = inside(killed, every=1, within_s=240)
    assert found["steps"] >= 24
    assert found["left"] == {}
    assert all(told == [] for told in found["mended"])


@contextmanager
def by_tcx(device: str) -> Iterator[bool]:
    """A program of somebody else (any will do) at a device's egress, as a link of the kernel's; False before Linux 6.6,
    which has no tcx."""
    egress = hooks._TCX_POINTS["egress"]
    with BoxProgram(pairs=1, highest=2) as program:
        options = (program.programs[hooks.EGRESS], socket.if_nametoindex(device), egress, None)
        link = programs.libbpf().bpf_link_create(*options)
        yield link >= 0
        if link >= 0:
            os.close(link)


def refused() -> dict[str, Any]:
    world = World()
    asked = world.configuration(intent("first"))
    before = picture(world.ports)
    found: dict[str, Any] = {}

    def asking(name: str, **changes: Any) -> None:
        found[name] = words(box("apply", asked | changes))

    asking("unknown port", **world.configuration(intent("x"), ports=["eth1", "eth9"]))
    asking("management", management=["eth1"])
    asking("nothing", configuration=None)
    asking("no json", configuration="{")
    asking("words", configuration={"program": "box.bpf.o", "ports": {}})
    asking("request", colour="red")
    found["ssh"] = words(command("apply", asked, environment={"SSH_CONNECTION": "198.18.1.2 1 198.18.1.1 22"}))
    # Of root's rights the one to read is left: others may not enter a clone in root's own folder.
    may_read = ["--inh-caps", "+dac_read_search", "--ambient-caps", "+dac_read_search"]
    found["user"] = command("apply", asked, "setpriv", "--reuid", "65534", "--clear-groups", *may_read)
    run("ip", "link", "add", "br0", "type", "bridge")
    run("ip", "link", "set", "eth2", "master", "br0")
    asking("bridged")
    asking("virtual", **world.configuration(intent("x"), ports=["eth1", "br0"]))
    run("ip", "link", "del", "br0")
    Path("/proc/sys/net/ipv4/conf/eth2/forwarding").write_text("0")
    asking("no router")
    Path("/proc/sys/net/ipv4/conf/eth2/forwarding").write_text("1")
    run("tc", "qdisc", "add", "dev", "eth2", "clsact")
    classifier = "u32 match u32 0 0 flowid 1:1"
    run(*f"tc filter add dev eth2 egress pref 7 protocol ip {classifier}".split())
    asking("filter")
    run("tc", "qdisc", "del", "dev", "eth2", "clsact")
    run("tc", "qdisc", "add", "dev", "eth2", "ingress")
    asking("ingress")
    run("tc", "qdisc", "del", "dev", "eth2", "ingress")
    with by_tcx("eth2") as found["has tcx"]:
        if found["has tcx"]:
            asking("tcx")
    found["counters"] = words(box("counters"))
    found["untouched"] = changed(before, picture(world.ports))
    box("apply", asked)
    file = STATE / "box" / "state.json"
    kept = file.read_text()
    file.write_text(kept.replace(box("read")["state"]["program"], "0123456789abcdef"))
    found["version"] = [box("read")["differences"], box("apply", asked)["changed"], box("read")["differences"]]
    file.write_text("{")
    found["broken"] = words(box("read"))
    file.unlink()
    found["lost"] = [words(box("apply", asked)), words(box("restore", {"to": "original"}))]
    found["gone"] = [box("restore", {"to": "original"})["changed"], box("read")["differences"]]
    return found


def test_what_cannot_be_is_refused_with_its_reason(inside: Callable[..., Any]) -> None:
    found = inside(refused)
    for name, said in {
        "unknown port": "eth9 there is no such interface",
        "management": "eth1 is never touched: the inventory names it",
        "nothing": "has no configuration",
        "virtual": "br0 is no virtual link, but is to be shaped as one",
        "no json": "is no JSON",
        "words": "configuration intent: Field required",
        "request": "colour: Extra inputs",
        "ssh": "eth1 is never touched: the SSH session that asks comes in there (198.18.1.1)",
        "bridged": "eth2 belongs to br0",
        "no router": "eth2 does not forward IPv4",
        "filter": "eth2 u32",
        "ingress": "eth2 has an ingress qdisc",
        **({"tcx": "eth2 1 program(s) of somebody else run at its egress by tcx"} if found["has tcx"] else {}),
        "counters": "no configuration is in force",
        "broken": "cannot be read",
    }.items():
        assert said in found[name], name
    assert found["user"]["code"] == 3
    assert "needs root" in words(found["user"])
    assert found["untouched"] == {}
    assert "another version of dlcp" in found["version"][0][0]
    assert found["version"][1:] == [True, []]
    assert "eth1, eth2 has programs of ours, and what was written down of it is lost" in found["lost"][0]
    assert "all of ours is off, but whether eth1, eth2 had offloads" in found["lost"][1]
    assert found["gone"] == [False, []]

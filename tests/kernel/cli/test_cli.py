"""The `dlcp` command as a shell sees it: output, exit codes, what it imports. Nothing here starts a run."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
from command import dlcp
from extras import needs
from yaml import safe_dump

from dlcp.cli.main import _dispatch
from dlcp.errors import ExitCode
from dlcp.paths import EXPERIMENTS, REPOSITORY
from dlcp.runner.machine.calibration import Calibration, fingerprint
from dlcp.substrates.emulate.capabilities import probe_delays
from experiments import LIGHT, document


def real_job(**changes: object) -> dict[str, object]:
    """An experiment that uses a workload of the repository."""
    job = {"workload": "resnet50", "workers": ["h1", "h2"], "servers": ["h4"], "iterations": 3, "bucket": "60 kB"}
    return document(**{"jobs": {"one": job}, "name": "mine", **LIGHT, **changes})


def write(folder: Path, **changes: object) -> str:
    (folder / "mine.yaml").write_text(safe_dump(real_job(**changes), sort_keys=False))
    return "mine.yaml"


ENTERED_BY_ALL = all(folder.stat().st_mode & 0o001 for folder in (REPOSITORY, *REPOSITORY.parents))


def becomes_nobody(test: Callable[..., None]) -> Callable[..., None]:
    """Skips a test that lays root's rights down and then reads the workloads, where either cannot be done."""
    needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="lays root's rights down, so it needs them; run as root")
    why = "only root may enter the folder of this clone; put the clone where other users may read it"
    return needs_root(pytest.mark.skipif(not ENTERED_BY_ALL, reason=why)(test))


LOADED_BY_HELP = """
import contextlib, io, json, sys
from cyclopts import App

empty = App(name="empty", version="1")
with contextlib.redirect_stdout(io.StringIO()):
    command, bound, _ = empty.parse_args(["--help"])
    command(*bound.args, **bound.kwargs)
before = set(sys.modules)
from dlcp.cli.main import _dispatch
assert _dispatch(["--help"]) == 0
print(json.dumps(sorted(set(sys.modules) - before)), file=sys.stderr)
"""


def test_help_loads_no_more_than_an_empty_command_of_the_same_library() -> None:
    """So it is as quick as that library allows, on any machine."""
    done = subprocess.run([sys.executable, "-c", LOADED_BY_HELP], capture_output=True, text=True, check=True)
    parse = [
        "dlcp.cli",
        *(f"dlcp.cli.{group}" for group in ("bench", "hosts", "lab", "main", "paper", "switch", "tune", "verify")),
    ]
    assert json.loads(done.stderr) == ["dlcp", *parse, "dlcp.errors", "dlcp.paths"]
    for command in (
        "doctor",
        "show",
        "check",
        "plan",
        "run",
        "tune",
        "status",
        "report",
        "shell",
        "bench",
        "switch",
        "hosts",
        "lab",
        "clean",
    ):
        assert command in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["bogus"], "bogus"),
        (["check"], "--experiment"),
        (["check", "quickstart", "--bogus"], "--bogus"),
        (["check", "quickstrat"], "did you mean `quickstart`"),
        (["plan", "quickstart", "--on", "emulat"], "did you mean `emulate`"),
        (["show", "scheme"], "schemes"),
        (["show", "schemes", "dlpc"], "did you mean `dlcp`"),
        (["status", "nowhere"], "no such results directory"),
        pytest.param(["report", "nowhere"], "no such results directory", marks=needs("pandas")),
        (["shell", "quickstart", "--scheme", "tpc"], "known: TCP"),
        (["switch", "verify", "quickstart", "--scheme", "tpc"], "known: TCP"),
        (["switch", "verify", "quickstart", "--on", "inprocess"], "inprocess has no switches to probe"),
        (["switch", "verify", "quickstart", "--on", "emulat"], "did you mean `emulate`"),
        (["switch", "verify", "quickstart", "--plot", "curves.txt"], "end it in .png, .svg or .pdf"),
        (["bench", "capacity", "--plot", "frontier.txt"], "end it in .png, .svg or .pdf"),
        (["bench", "capacity", "--plot", "nowhere/frontier.png"], "nowhere is not a folder"),
        (["tune", "quickstart"], "no scheme here has a `search`"),
        (["doctor", "--even-if-busy"], "dlcp doctor --calibrate --even-if-busy"),
        (["lab", "shell", "leaf-spin-4"], "did you mean `leaf-spine-4`"),
        (["lab", "shell", "-c", " "], "the command is empty"),
        (["hosts", "apply", "nowhere.yaml"], "no such file"),
        (["hosts", "restore", "--lab", "nowhere.yaml"], "no such inventory"),
        (["switch", "render", "dlcp-wred"], "say for which switch system"),
        (["switch", "render", "dlcp-wred", "--os", "eso"], "did you mean `eos`"),
        (["switch", "render", "dlcp-werd", "--os", "eos"], "did you mean `dlcp-wred`"),
        (["switch", "render", "dlcp-wred", "--os", "sonic"], "no dscp-to-precedence"),
        (["switch", "render", "dlcp-wred", "--device", "leaf1.yaml"], "cannot be read"),
    ],
)
def test_wrong_arguments_end_with_2_and_say_what_is_right(arguments: list[str], words: str, tmp_path: Path) -> None:
    done = dlcp(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert words in done.stderr + done.stdout
    assert "Traceback" not in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_broken_file_shows_every_problem_and_starts_nothing(tmp_path: Path) -> None:
    name = write(tmp_path, repeats="many", port_buffer="40 kb", expect=[{"job": "one"}])
    for command in ("check", "plan", "run", "shell"):
        done = dlcp(command, name, cwd=tmp_path)
        assert done.returncode == 2
        for line in ("mine.yaml:5:10: `repeats`", "mine.yaml:11:14: `port_buffer`", "`relation` is missing"):
            assert line in done.stderr, command
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


def test_a_load_too_heavy_ends_with_3_and_starts_nothing(tmp_path: Path) -> None:
    topology = {"kind": "star", "hosts": 4, "rate": "100 Gbit/s"}
    name = write(tmp_path, topology=topology, scaling={"lab_rate": "100 Gbit/s"})
    for command in ("plan", "run"):
        done = dlcp(command, name, cwd=tmp_path)
        assert done.returncode == 3
        assert "time_dilation 150 with links of 666.7 Mbit/s fits: --scale-down does that" in done.stderr
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


def test_with_leave_a_load_too_heavy_is_scaled_down_and_says_so(tmp_path: Path) -> None:
    topology = {"kind": "star", "hosts": 4, "rate": "10 Gbit/s"}
    name = write(tmp_path, topology=topology, scaling={"lab_rate": "100 Gbit/s", "byte_scale": 10})
    assert dlcp("plan", name, cwd=tmp_path).returncode == 3
    text = dlcp("plan", name, "--scale-down", cwd=tmp_path)
    data = json.loads(dlcp("plan", name, "--scale-down", "--json", cwd=tmp_path).stdout)
    assert text.returncode == 0
    assert data["scaled"] in text.stdout
    assert data["dilated_by"] > 1
    assert data["regime"]["one"]["lab_rate_bps"] == pytest.approx(100e9)
    assert data["packet_cost"]["measured"] is False
    assert "doctor --calibrate" in text.stdout


def calibrated(folder: Path, ends_us: float) -> dict[str, str]:
    """An environment in which this machine is calibrated to a cost of a packet."""
    figures = {
        "format": 1,
        "measured": "2024-06-07T08:00:00+00:00",
        "fingerprint": fingerprint(),
        "bare_us": 2.0,
        "ends_us": ends_us,
        "hop_us": 1.0,
        "late_us": 80.0,
        "other_busy": 0.01,
        "spread": 0.05,
    }
    text = Calibration.model_validate(figures).model_dump_json()
    (folder / "state").mkdir(exist_ok=True)
    (folder / "state" / "calibration.json").write_text(text)
    return os.environ | {"DLCP_STATE": str(folder / "state")}


def test_a_plan_rests_on_the_calibration(tmp_path: Path) -> None:
    name = write(tmp_path)
    for ends_us, code in ((4.0, 0), (400.0, 3)):
        done = dlcp("plan", name, cwd=tmp_path, env=calibrated(tmp_path, ends_us))
        assert done.returncode == code
        assert "measured here on 2024-06-07" in done.stdout + done.stderr


@becomes_nobody
def test_without_root_a_plan_rests_on_what_root_has_measured(tmp_path: Path) -> None:
    name = write(tmp_path)
    environment = calibrated(tmp_path, 4.0)
    code = (
        "import os, sys, dlcp.runner.preview.outline, dlcp.cli.show.common\nfrom dlcp.cli.main import _dispatch\n"
        "os.setgid(65534); os.setuid(65534); sys.exit(_dispatch(['plan', sys.argv[1], '--results', '/proc/none']))"
    )
    for folder in (tmp_path, *tmp_path.parents[:3]):
        folder.chmod(0o755)
    command = [sys.executable, "-c", code, str(tmp_path / name)]
    done = subprocess.run(command, cwd="/", env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    assert "measured here on 2024-06-07" in done.stdout


def test_doctor_shows_the_calibration_and_what_is_wrong_with_it(tmp_path: Path) -> None:
    environment = calibrated(tmp_path, 4.0)

    def packet_cost() -> str:
        done = dlcp("doctor", cwd=tmp_path, env=environment)
        return next(line for line in done.stdout.splitlines() if "packet cost" in line)

    assert "ok" in packet_cost()
    assert "4.00 µs at the hosts" in packet_cost()
    (tmp_path / "state" / "calibration.json").write_text("{")
    assert "is damaged" in packet_cost()


@becomes_nobody
def test_without_root_a_run_ends_with_3_and_starts_nothing(tmp_path: Path) -> None:
    """The rights are laid down when all is imported, for another user may not be allowed to read this Python."""
    name = write(tmp_path)
    code = (
        "import os, sys, dlcp.runner.preview.preflight, dlcp.runner.running.execute, dlcp.cli.show.common\n"
        "import dlcp.cli.show.progress\n"
        "from dlcp.cli.main import _dispatch\nfrom dlcp.runner.machine import doctor\n"
        "doctor.emulation(); doctor.native_core()\n"
        "os.setgid(65534); os.setuid(65534); sys.exit(_dispatch(['run', sys.argv[1], '--results', '/proc/none']))"
    )
    for folder in (tmp_path, *tmp_path.parents[:3]):  # one more where tests run in parallel
        folder.chmod(0o755)
    command = [sys.executable, "-c", code, str(tmp_path / name)]
    done = subprocess.run(command, cwd="/", capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 3, done.stderr
    why = "emulation needs root: it makes network namespaces and loads eBPF programs"
    assert f"root: effective user 65534; {why}\n    run it as root: sudo /" in done.stderr
    assert "not tried" not in done.stderr, "what was not tried is not known to be missing"


def test_check_of_every_experiment_in_the_repository(tmp_path: Path) -> None:
    """Nothing is said of any, but that knobs are to be searched for, which is done where the runs are made."""
    for path in EXPERIMENTS.glob("*.yaml"):
        done = dlcp("check", path.stem, "--json", cwd=tmp_path)
        assert done.returncode == 0
        found = json.loads(done.stdout)
        searches = [one for one in found["warnings"] if one["hint"].endswith(f"dlcp tune {path.stem}")]
        assert found == {"problems": [], "warnings": searches}


def test_plan(tmp_path: Path) -> None:
    name = write(tmp_path)
    data = json.loads(dlcp("plan", name, "--json", cwd=tmp_path).stdout)
    assert len(data["runs"]) == 15
    text = dlcp("plan", name, cwd=tmp_path)
    assert text.returncode == 0
    for words in ("15 runs on emulate", "stand for 10 Gbit/s", "RTO floor", data["runs"][0]["id"]):
        assert words in text.stdout
    assert [path.name for path in tmp_path.iterdir()] == ["mine.yaml"]


@needs("mininet")
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may ask the kernel for netem; run as root")
def test_link_delays_are_supported_or_said_to_be_unsupported(tmp_path: Path) -> None:
    name = write(tmp_path, topology={"kind": "star", "hosts": 4, "rate": "25 Mbit/s", "delay": "1 ms"})
    if probe_delays().ok:
        assert dlcp("plan", name, cwd=tmp_path).returncode == 0
        return
    for command in ("plan", "run", "shell"):
        done = dlcp(command, name, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (3, "")
        assert "unsupported: its delay of 1 ms needs the kernel's netem" in done.stderr
        assert "modprobe sch_netem" in done.stderr


def test_pfc_is_experimental_and_for_slow_links(tmp_path: Path) -> None:
    pfc = {"queues": [0], "xoff": "20 kB", "xon": "10 kB"}
    slow = dlcp("plan", write(tmp_path, pfc=pfc), cwd=tmp_path)
    assert slow.returncode == 0
    assert "warning: mine.yaml" in slow.stderr
    assert "PFC is experimental" in slow.stderr
    fast = {"topology": {"kind": "star", "hosts": 4, "rate": "101 Mbit/s"}, "scaling": {"lab_rate": "101 Mbit/s"}}
    refused = dlcp("plan", write(tmp_path, pfc=pfc, **fast), cwd=tmp_path)
    assert (refused.returncode, refused.stdout) == (3, "")
    assert "unsupported: PFC is emulated by a loop of about a millisecond" in refused.stderr


@pytest.mark.skipif(os.geteuid() != 0, reason="becomes nobody for a moment; run as root")
def test_delays_may_be_planned_without_root(tmp_path: Path) -> None:
    name = write(tmp_path, topology={"kind": "star", "hosts": 4, "rate": "25 Mbit/s", "delay": "1 ms"})
    command = ["unshare", "--user", sys.executable, "-m", "dlcp.cli.main", "plan", name]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "link delays of up to 1 ms" in done.stdout


@pytest.mark.parametrize("kind", ["schemes", "workloads", "switches", "topologies"])
def test_show(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """In this process: it is asked for each of them."""

    def shown(*arguments: str) -> str:
        assert _dispatch(["show", kind, *arguments]) == ExitCode.FINE
        return capsys.readouterr().out

    listed = shown()
    for row in json.loads(shown("--json")):
        assert row["name"] in listed
        assert row["name"] in shown(row["name"])
        assert json.loads(shown(row["name"], "--json"))["name"] == row["name"]


def test_show_switches_says_what_each_can_do_and_which_are_unproven(tmp_path: Path) -> None:
    text = dlcp("show", "switches", cwd=tmp_path).stdout
    rows = {row["name"]: row for row in json.loads(dlcp("show", "switches", "--json", cwd=tmp_path).stdout)}
    assert {"emulated", "eos", "sonic", "junos", "nxos", "cumulus", "linux", "srlinux", "os10"} <= set(rows)
    assert "unproven on hardware" in rows["eos"]["status"]
    assert "dscp-to-precedence" in rows["sonic"]["lacks"]
    assert re.search(r"^dscp-to-precedence +instead +yes ", text, re.M)  # cumulus, eos
    assert "docs.nvidia.com" in text
    sonic = json.loads(dlcp("show", "switches", "sonic", "--json", cwd=tmp_path).stdout)
    lack = next(one for one in sonic["features"] if one["feature"] == "dscp-to-precedence")
    assert "sonic-buildimage#7773" in lack["source"]
    assert "fold-precedences" in lack["doubt_or_way_out"]


def test_a_rendered_configuration_is_all_that_goes_to_standard_output(tmp_path: Path) -> None:
    done = dlcp("switch", "render", "dlcp-wred", "--os", "sonic", "--degrade", cwd=tmp_path)
    back = dlcp("switch", "render", "dlcp-wred", "--os", "sonic", "--degrade", "--rollback", cwd=tmp_path)
    whole = json.loads(
        dlcp("switch", "render", "dlcp-wred", "--os", "sonic", "--degrade", "--json", cwd=tmp_path).stdout
    )
    assert done.returncode == 0
    assert (done.stdout, back.stdout) == (whole["configuration"], whole["rollback"])
    assert "PORT_QOS_MAP" in json.loads(done.stdout)
    assert "degraded: dscp-to-precedence" in done.stderr
    assert "unproven on hardware" in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_device_of_ones_own_is_rendered_for(tmp_path: Path) -> None:
    device = {
        "name": "spine7",
        "system": "eos",
        "chip": "jericho",
        "ports": {"Ethernet9": "400 Gbit/s"},
        "management": ["Management0"],
        "buffer": "8 GB",
        "port_buffer": "100 MB",
        "queue": "50 MB",
    }
    (tmp_path / "spine7.yaml").write_text(safe_dump(device))
    refused = dlcp("switch", "render", "dlcp-wred", "--device", "spine7.yaml", cwd=tmp_path)
    assert refused.returncode == 2
    assert "queue 7: no reserved (bytes of the buffer kept for a queue)" in refused.stderr
    done = dlcp("switch", "render", "pias", "--device", "spine7.yaml", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "degraded: alpha: queues 0, 1, 2, 3, 4, 5, 6, 7: the queue's dynamic threshold is" in done.stderr
    assert "interface Ethernet9\n" in done.stdout
    assert "\n   tx-queue 3\n" in done.stdout
    other = dlcp("switch", "render", "pias", "--device", "spine7.yaml", "--os", "sonic", cwd=tmp_path)
    assert other.returncode == 2
    assert "device spine7: runs eos, not sonic" in other.stderr


def test_show_lists_everything_when_it_is_not_told_what(tmp_path: Path) -> None:
    every = json.loads(dlcp("show", "--json", cwd=tmp_path).stdout)
    assert list(every) == ["schemes", "workloads", "switches", "topologies"]
    listed = dlcp("show", cwd=tmp_path).stdout
    for kind, rows in every.items():
        assert kind in listed
        assert all(row["name"] in listed for row in rows)


def test_show_tells_every_knob_its_default_and_meaning(tmp_path: Path) -> None:
    knobs = json.loads(dlcp("show", "schemes", "dlcp", "--json", cwd=tmp_path).stdout)["knobs"]
    assert {"loss_bound", "stop", "selective_drop"} <= {knob["knob"] for knob in knobs}
    assert all(knob["meaning"] for knob in knobs)


def test_doctor_names_a_remedy_for_each_gap(tmp_path: Path) -> None:
    environment = os.environ | {"DLCP_DATA": str(tmp_path)}
    done = dlcp("doctor", "--json", cwd=tmp_path, env=environment)
    assert done.returncode == 3
    checks = [check for group in json.loads(done.stdout) for check in group["checks"]]
    missing = {check["name"]: check for check in checks if not check["ok"]}
    assert "train-images-idx3-ubyte.gz" in missing["Fashion-MNIST"]["detail"]
    assert all(check["remedy"] for check in checks if check["name"] == "Fashion-MNIST")
    text = dlcp("doctor", cwd=tmp_path, env=environment)
    assert f"fix it: {missing['Fashion-MNIST']['remedy']}" in text.stdout


@pytest.mark.skipif(os.geteuid() != 0, reason="a file system of its own takes root; run as root")
@pytest.mark.parametrize(
    ("options", "words"),
    [("size=60k", "kB free at"), ("ro", "cannot be written to")],
)
def test_a_run_without_room_ends_with_3_and_starts_nothing(options: str, words: str, tmp_path: Path) -> None:
    name = write(tmp_path)
    (tmp_path / "results").mkdir()
    script = (
        f'mount -t tmpfs -o {options} none results && "$0" -m dlcp.cli.main run {name}; code=$?; '
        "ls -A results; exit $code"
    )
    command = ["unshare", "--mount", "sh", "-c", script, sys.executable]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout) == (3, ""), done.stderr
    assert words in done.stderr
    assert "--results" in done.stderr
    assert "Traceback" not in done.stderr


def test_a_file_in_the_way_of_results_ends_with_3(tmp_path: Path) -> None:
    name = write(tmp_path)
    (tmp_path / "taken").touch()
    done = dlcp("run", name, "--results", "taken", cwd=tmp_path)
    assert done.returncode == 3
    assert "taken is a file" in done.stderr


@pytest.mark.parametrize(
    ("trouble", "words"),
    [("ENOSPC", "free some space"), ("EROFS", "name a folder"), ("EACCES", "work as its owner")],
)
def test_a_file_system_that_refuses_in_the_middle_is_explained(trouble: str, words: str, tmp_path: Path) -> None:
    code = (
        "import errno, os, sys\nfrom dlcp.cli import main\n"
        f"def fail(*_): raise OSError(errno.{trouble}, os.strerror(errno.{trouble}), 'results/x')\n"
        "sys.exit(main._call(fail, (), {}))"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 3
    assert done.stderr.startswith("results/x: ")
    assert words in done.stderr


@needs("mininet")
@pytest.mark.skipif(os.geteuid() != 0, reason="is refused for want of root before the program is missed; run as root")
@pytest.mark.parametrize("command", [["run"], ["shell", "-c", "net"]])
def test_a_missing_program_is_named_alone_and_nothing_starts(command: list[str], tmp_path: Path) -> None:
    """A PATH with every program but mnexec."""
    name = write(tmp_path)
    programs = tmp_path / "bin"
    programs.mkdir()
    for program in ("tc", "ip", "ethtool", "setpriv", "unshare", "mount"):
        (programs / program).symlink_to(shutil.which(program) or "")
    arguments = [sys.executable, "-m", "dlcp.cli.main", command[0], name, *command[1:]]
    environment = os.environ | {"PATH": str(programs)}
    done = subprocess.run(
        arguments, cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 3
    assert done.stderr == "mnexec: not on the PATH\n    apt-get install --no-install-recommends mininet\n"
    assert not (tmp_path / "results").exists()


def test_clean_of_nothing(tmp_path: Path) -> None:
    done = dlcp("clean", "--yes", cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, "nothing to remove\n")


def test_a_reader_that_stops_early_is_no_error(tmp_path: Path) -> None:
    done = subprocess.run(
        f"{sys.executable} -m dlcp.cli.main plan quickstart | head -n 1; exit ${{PIPESTATUS[0]}}",
        shell=True,
        executable="/bin/bash",
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize("arguments", [["--version"], ["check", "quickstart"], ["check", "quickstrat"]])
def test_a_command_started_from_nothing_says_the_same(arguments: list[str], tmp_path: Path) -> None:
    """The other tests here fork from a process that has everything imported."""
    command = [sys.executable, "-m", "dlcp.cli.main", *arguments]
    fresh = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)
    forked = dlcp(*arguments, cwd=tmp_path)
    assert (fresh.returncode, fresh.stdout, fresh.stderr) == (forked.returncode, forked.stdout, forked.stderr)


def test_version(tmp_path: Path) -> None:
    assert dlcp("--version", cwd=tmp_path).stdout.strip() in (REPOSITORY / "pyproject.toml").read_text()

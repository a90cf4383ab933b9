"""The package and the agent's units on a host of a lab, by the playbooks: installed offline, taken off without a trace.

The wheel is one of a few bytes, named dlcp; systemctl is a stub that says what it is told, for no systemd runs in a lab
of namespaces.
"""

from __future__ import annotations

import base64
import hashlib
import json
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
from running_lab import RunningLab

PLAYBOOKS = Path(__file__).parents[2] / "playbooks"
PYTHON = "/opt/dlcp-test/bin/python"
FILES = {
    "dlcp/__init__.py": "",
    "dlcp-9.9.dist-info/METADATA": "Metadata-Version: 2.1\nName: dlcp\nVersion: 9.9\n",
    "dlcp-9.9.dist-info/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
}
LEFT = "ls -d /opt/dlcp-test /etc/systemd/system/dlcp* 2>/dev/null; id dlcp 2>/dev/null; true"


def make_wheel(folder: Path) -> None:
    folder.mkdir()
    record = ""
    with zipfile.ZipFile(folder / "dlcp-9.9-py3-none-any.whl", "w") as wheel:
        for name, text in FILES.items():
            digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
            record += f"{name},sha256={digest},{len(text)}\n"
            wheel.writestr(name, text)
        wheel.writestr("dlcp-9.9.dist-info/RECORD", record + "dlcp-9.9.dist-info/RECORD,,\n")


@pytest.mark.long
def test_package_and_units_come_and_go(make_lab: Callable[..., RunningLab], tmp_path: Path) -> None:
    lab = make_lab({"kind": "star", "hosts": 2, "rate": "100 Mbit/s"})
    make_wheel(tmp_path / "wheels")
    for host in ("h1", "h2"):
        assert lab.on(host, LEFT) == ""
        lab.on(host, "mkdir -p /run/systemd/system")
        lab.on(host, "printf '#!/bin/sh\\necho $* >> /run/told\\n' > /usr/local/sbin/systemctl")
        lab.on(host, "chmod 755 /usr/local/sbin/systemctl; useradd lab")
    words = ["ansible-playbook", "-i", lab.path, "-e", "yes=true", "-e", f"dlcp_python={PYTHON}"]
    words += ["-e", f"dlcp_host_wheels={tmp_path / 'wheels'}", "-e", "dlcp_agent=unit"]
    words += ["-e", json.dumps({"dlcp_host_callers": ["root", "lab"]})]

    def play(name: str) -> str:
        done = lab.run([*words, name], within_s=120, cwd=PLAYBOOKS)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    assert "2 of 2 hosts changed" in play("hosts.yml")
    assert lab.on("h1", f"{PYTHON} -I -c 'import dlcp; print(dlcp.__file__)'").startswith("/opt/dlcp-test/lib")
    assert lab.on("h1", "id -nG lab").split() == ["lab", "dlcp"]
    assert "enable --now dlcp-agent.socket" in lab.on("h1", "cat /run/told")
    assert f"ExecStart={PYTHON} -m dlcp.agents.process.stdio" in lab.on(
        "h2", "cat /etc/systemd/system/dlcp-agent@.service"
    )
    assert "every host is as it is to be" in play("hosts.yml")
    manifests = sorted((lab.folder / "deployments" / "nslab").glob("*/hosts.json"))
    rows = json.loads(manifests[-1].read_text())["hosts"]["h1"]["rows"]
    assert {row["name"]: row["status"] for row in rows if row["name"] != "clock"} == {
        "package in /opt/dlcp-test": "same",
        "agent's units": "same",
    }
    assert "2 of 2 hosts changed" in play("host_restore.yml")
    assert lab.on("h1", LEFT) == ""
    assert "disable --now dlcp-agent.socket" in lab.on("h1", "cat /run/told")

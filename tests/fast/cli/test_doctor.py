"""What `dlcp doctor` says of a lab's needs; the other groups are tried in test_cli.py by running it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from dlcp.runner.machine import doctor


def test_a_lab_without_ssh_is_told_the_package(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    [ssh] = [check for check in doctor.lab().checks if check.name == "ssh"]
    assert not ssh.ok
    assert ssh.remedy == "apt-get install --no-install-recommends openssh-client"


def test_what_is_not_in_this_python_is_told_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "fabric", raising=False)
    monkeypatch.setattr(sys, "meta_path", [])
    absent = {check.name: check.remedy for check in doctor.lab().checks if not check.ok}
    assert "[lab]" in absent["fabric"]


def test_a_lab_of_namespaces_takes_the_machines_sshd_or_that_of_the_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(sys, "prefix", str(tmp_path))
    [server] = doctor.lab_demo().checks
    if server.ok:
        assert server.detail in ("/usr/sbin/sshd", "/usr/bin/sshd")
        return
    assert "make -C" in server.remedy
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "sshd").touch()
    assert doctor.lab_demo().checks[0].detail == str(tmp_path / "bin" / "sshd")


def test_a_gap_of_a_lab_stops_no_emulation(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor.gaps([doctor.lab()]) == []

"""How many cores may be used: by affinity, and by quotas of control groups of both versions, wherever they are set."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dlcp.agents.cpu_quota import usable_cores

ALL = float(len(os.sched_getaffinity(0)))
MOUNT_1 = "36 25 0:31 {root} {mount} rw,relatime - cgroup cgroup rw,cpu,cpuacct\n"
MOUNT_2 = "37 25 0:32 {root} {mount} rw,relatime - cgroup2 cgroup2 rw\n"


def machine(folder: Path, own: str, mounts: str) -> Path:
    """A made-up /proc/self."""
    proc = folder / "self"
    proc.mkdir()
    (proc / "cgroup").write_text(own)
    (proc / "mountinfo").write_text("20 1 0:1 / / rw - ext4 /dev/root rw\n" + mounts)
    return proc


def group(folder: Path, **files: object) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        (folder / name.replace("cpu_", "cpu.", 1)).write_text(f"{content}\n")
    return folder


@pytest.mark.parametrize(("text", "cores"), [("50000 100000", 0.5), ("max 100000", ALL), ("1 x", ALL), ("", ALL)])
def test_version_2(text: str, cores: float, tmp_path: Path) -> None:
    group(tmp_path / "mnt" / "box", cpu_max=text)
    proc = machine(tmp_path, "0::/box\n", MOUNT_2.format(root="/", mount=tmp_path / "mnt"))
    assert usable_cores(proc) == cores


@pytest.mark.parametrize(("quota", "cores"), [(25_000, 0.25), (-1, ALL), (10**9, ALL)])
def test_version_1(quota: int, cores: float, tmp_path: Path) -> None:
    group(tmp_path / "mnt" / "box", cpu_cfs_quota_us=quota, cpu_cfs_period_us=100_000)
    proc = machine(tmp_path, "4:cpu,cpuacct:/box\n2:memory:/other\n", MOUNT_1.format(root="/", mount=tmp_path / "mnt"))
    assert usable_cores(proc) == cores


def test_a_group_above_limits_those_below(tmp_path: Path) -> None:
    group(tmp_path / "mnt" / "service", cpu_max="30000 100000")
    group(tmp_path / "mnt" / "service" / "job", cpu_max="90000 100000")
    proc = machine(tmp_path, "0::/service/job\n", MOUNT_2.format(root="/", mount=tmp_path / "mnt"))
    assert usable_cores(proc) == pytest.approx(0.3)


def test_a_container_sees_its_own_group_as_the_root(tmp_path: Path) -> None:
    """What is mounted is a group below the root; paths in /proc count from the root."""
    group(tmp_path / "mnt", cpu_max="40000 100000")
    group(tmp_path / "mnt" / "inner", cpu_max="max 100000")
    proc = machine(tmp_path, "0::/pod/inner\n", MOUNT_2.format(root="/pod", mount=tmp_path / "mnt"))
    assert usable_cores(proc) == pytest.approx(0.4)


def test_a_group_outside_of_what_is_mounted_limits_nothing_that_can_be_read(tmp_path: Path) -> None:
    group(tmp_path / "mnt", cpu_max="40000 100000")
    proc = machine(tmp_path, "0::/elsewhere\n", MOUNT_2.format(root="/pod", mount=tmp_path / "mnt"))
    assert usable_cores(proc) == ALL


def test_without_control_groups_affinity_counts(tmp_path: Path) -> None:
    assert usable_cores(tmp_path / "nothing") == ALL
    one = {min(os.sched_getaffinity(0))}
    every = os.sched_getaffinity(0)
    os.sched_setaffinity(0, one)
    try:
        assert usable_cores(tmp_path / "nothing") == 1.0
    finally:
        os.sched_setaffinity(0, every)

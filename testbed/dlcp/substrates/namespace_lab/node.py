"""One node of a namespace lab: a machine of its own in all but the kernel.

It has network, processes, host name and file systems of its own. Its files are the machine's, copied as it writes them
(an overlay): packages, users and units that are set up on a node stay there and go away with it. /var/lib/dlcp is its
own, and so are /run, /dev/shm, /sys/fs/bpf. sshd is its first process.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

from dlcp.errors import MachineCannot, Problem
from dlcp.isolation.netns import Namespace
from dlcp.paths import REPOSITORY

_UNSHARE = ["unshare", "--net", "--mount", "--uts", "--ipc", "--pid", "--fork", "--kill-child"]
_MADE_ANEW = ("/proc", "/sys", "/dev", "/run")
"""Folders with what is mounted there that a node does not take over."""
_HOME = "/home/root"
"""Empty at first: what the machine's root has in .bashrc is not for every command over SSH."""
_READY, _GO = b"ready\n", b"go\n"

_FURNISH = r"""
base=$1 name=$2 sshd=$3 home=$4; shift 4
mkdir -p "$base/upper" "$base/work" "$base/root" "$base/state"
mount -t overlay -o "lowerdir=/,upperdir=$base/upper,workdir=$base/work" overlay "$base/root"
cd "$base/root"
for place; do mount --bind -o ro "$place" ".$place"; done
mount -t proc proc proc
mount -t sysfs sysfs sys
mount -t bpf bpf sys/fs/bpf
mount --rbind /dev dev
mount -t tmpfs -o mode=1777 shm dev/shm
mount -t tmpfs -o mode=755 run run
mkdir -p run/sshd run/lock ".$home" etc/ssh var/lib/dlcp
mount --bind "$base/state" var/lib/dlcp
cp "$base/host_key" "$base/authorized_keys" "$base/sshd_config" etc/ssh/
sed -i 's|^\(root:.*:\)[^:]*:\([^:]*\)$|\1'"$home"':\2|' etc/passwd
grep -q '^sshd:' etc/passwd || echo 'sshd:x:74:65534::/run/sshd:/usr/sbin/nologin' >> etc/passwd
echo "$name" > etc/hostname
echo "$name" > proc/sys/kernel/hostname
pivot_root . .
umount -l .
cd /
echo ready
read -r go
exec "$sshd" -D -e -f /etc/ssh/sshd_config
"""
"""Runs in the new namespaces, and becomes sshd when it is told that the network is there."""

_SSHD_CONFIG = """\
ListenAddress {address}
HostKey /etc/ssh/host_key
AuthorizedKeysFile /etc/ssh/authorized_keys
PidFile none
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
UseDNS no
MaxSessions 64
MaxStartups 64
Subsystem sftp internal-sftp
SetEnv PYTHONPATH={package}
"""


class Node:
    """A node that runs. pid: of a process in its namespaces, as this process numbers them."""

    def __init__(self, name: str, address: str, base: Path, sshd: Path, keys: tuple[str, str], log: Path) -> None:
        """Start it; its network is still empty, and sshd waits. address: where sshd will listen.

        base: an empty folder for its files, on a file system that may be an overlay's upper one. keys: the host's
        private key, the public key that may log in. log: a file for what sshd says.
        """
        self.name = name
        self._log = log
        base.mkdir(parents=True)
        config = _SSHD_CONFIG.format(address=address, package=REPOSITORY / "testbed")
        for file, text in (("host_key", keys[0]), ("authorized_keys", keys[1]), ("sshd_config", config)):
            (base / file).write_text(text)
            (base / file).chmod(0o600)
        command = [*_UNSHARE, "sh", "-euc", _FURNISH, "sh", str(base), name, str(sshd), _HOME, *_mounts()]
        with log.open("ab") as said:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=said)
        self.pid = self._process.pid

    def furnished(self) -> Namespace:
        """Wait until its namespaces are there; its network, which the caller closes. MachineCannot when they fail."""
        assert self._process.stdout is not None
        if self._process.stdout.readline() != _READY:
            self._process.wait()
            said = self._log.read_text(errors="replace").strip().splitlines() or ["(nothing said)"]
            what = f"no machine of its own could be made here: {said[-1]}"
            raise MachineCannot(self.name, what, "it needs overlay, sysfs and bpf mounts; in a container: --privileged")
        return Namespace(self.name, self.pid)

    def serve(self) -> None:
        """Its network is ready: let sshd begin."""
        assert self._process.stdin is not None
        self._process.stdin.write(_GO)
        self._process.stdin.flush()

    def require_alive(self) -> None:
        """Raises Problem with sshd's last words when it has ended."""
        if self._process.poll() is not None:
            said = self._log.read_text(errors="replace").strip()
            raise Problem(self.name, f"sshd has ended: {said[-400:]}", f"all it said is in {self._log}")

    def inside(self, command: Sequence[str]) -> list[str]:
        """A command line that runs `command` as a process of this node, not over SSH."""
        return inside(self.pid, command)

    def stop(self) -> None:
        """As if its power was cut."""
        self._process.kill()
        self._process.wait()
        for stream in (self._process.stdin, self._process.stdout):
            assert stream is not None
            stream.close()


def inside(pid: int, command: Sequence[str]) -> list[str]:
    """A command line that runs `command` in the namespaces of the node whose pid this is."""
    join = ["nsenter", "--target", str(pid), "--net", "--mount", "--uts", "--ipc"]
    home = {"HOME": _HOME, "PYTHONPATH": str(REPOSITORY / "testbed")}
    words = [f"{name}={value}" for name, value in home.items()]
    return [*join, f"--pid=/proc/{pid}/ns/pid_for_children", "--wd=/", "env", *words, *command]


def _mounts() -> list[str]:
    """Other file systems than the root's, which an overlay of the root does not hold; the outermost ones."""
    found: list[str] = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        place = line.split()[4].encode().decode("unicode_escape")
        if place != "/" and not any(_lies_in(place, other) for other in (*_MADE_ANEW, "/etc", *found)):
            found = [*(other for other in found if not _lies_in(other, place)), place]
    return [place for place in found if os.path.exists(place)]


def _lies_in(place: str, folder: str) -> bool:
    return place == folder or place.startswith(f"{folder}/")

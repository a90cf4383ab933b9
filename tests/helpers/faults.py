"""Real failures of a switch in a namespace lab, at a chosen call of the program that a deployment talks to there.

A file on the node makes every Python there look, when it starts, whether it is that call. Nothing of the deployment's
own code is replaced: the program dies, or the node is cut off, or its kernel is changed behind its back.
"""

from __future__ import annotations

import sysconfig
from pathlib import Path

from running_lab import RunningLab

_HOOK = "import os; exec(open('/run/fault.py').read(), {}) if os.path.exists('/run/fault.py') else None\n"

_FAULT = """
import os, subprocess, sys
verb, calls, kind = {verb!r}, {calls!r}, {kind!r}
words = sys.orig_argv
here = "dlcp.switches.linux" in words and words[-1] == verb and "FAULT_OFF" not in os.environ
if here and not hasattr(sys, "faulty"):  # a Python may read its site twice
    sys.faulty = True
    with open("/run/fault.calls", "a") as file:
        file.write(verb + "\\n")
    if calls[0] <= sum(1 for line in open("/run/fault.calls")) <= calls[1]:
        def do_it():
            told = sys.stdin.buffer.read()
            subprocess.run(words, input=told, env=dict(os.environ, FAULT_OFF="1"), stdout=subprocess.DEVNULL)
        def cut_off():
            os.rename("/etc/ssh/authorized_keys", "/etc/ssh/authorized_keys.away")
            for pid in map(int, filter(str.isdigit, os.listdir("/proc"))):
                if pid != 1 and open(f"/proc/{{pid}}/comm").read().startswith("sshd"):
                    os.kill(pid, 9)
        if kind == "exits":
            os._exit(1)
        if kind == "killed":
            os.kill(os.getpid(), 9)
        if kind == "cut off before":
            cut_off()
        if kind == "cut off after":
            do_it()
            cut_off()
        if kind == "cannot write":
            subprocess.run(["mount", "-o", "remount,bind,ro", "/var/lib/dlcp"], check=True)
        if kind == "slow":
            import time
            until = time.monotonic() + 30
            while os.path.exists("/run/fault.py") and time.monotonic() < until:
                time.sleep(0.05)
        if kind == "meddled with":
            subprocess.run(["tc", "qdisc", "del", "dev", "eth1", "clsact"], check=True)
        if kind.startswith("cut off"):
            os._exit(1)
"""

ALWAYS = (1, 1_000)


def plant(lab: RunningLab, node: str, verb: str, kind: str, calls: tuple[int, int] = (1, 1)) -> None:
    """The first to the last of these times that `verb` is asked of this node's program, it fails so.

    exits, killed: the program. cut off: no SSH leads to the node any more, before or after the program has done what it
    was asked. cannot write: its state's folder is read-only. meddled with: somebody takes a port's program off.
    slow: it waits until it is mended.
    """
    mend(lab, node)
    text = _FAULT.format(verb=verb, calls=calls, kind=kind)
    hook = Path(sysconfig.get_paths()["purelib"], "fault.pth")
    _write(lab, node, "/run/fault.py", text)
    _write(lab, node, str(hook), _HOOK)


def asked(lab: RunningLab, node: str) -> int:
    """How often the verb of a planted failure was asked."""
    return len(lab.on(node, "cat /run/fault.calls 2>/dev/null || true").split())


def mend(lab: RunningLab, node: str) -> None:
    """Take a planted failure away, and let SSH in again."""
    lab.on(
        node,
        "rm -f /run/fault.py /run/fault.calls; cd /etc/ssh; "
        "test ! -e authorized_keys.away || mv authorized_keys.away authorized_keys; "
        "mount -o remount,bind,rw /var/lib/dlcp",
    )


def _write(lab: RunningLab, node: str, path: str, text: str) -> None:
    lab.on(node, f"cat > '{path}' <<'END_OF_FAULT'\n{text}\nEND_OF_FAULT")

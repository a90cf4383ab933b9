"""An agent over stdin and stdout, for a host that is reached by a remote shell: python -m dlcp.agents.process.stdio

It works in a folder of its own, which goes away with it (after a kill: when the next one comes), and ends when its
stdin does, or when nothing has come for SILENCE_S: a caller that died, and a machine that vanished with it, leave no
agent behind.
"""

import os
import shutil
import sys

from dlcp.agents.process.agent import serve
from dlcp.agents.process.work_folder import take_workplace

SILENCE_S = 60.0
"""A caller says an empty line more often, whatever it waits for."""


def main() -> None:
    """Serve until the caller is gone."""
    replies = os.dup(1)
    os.dup2(2, 1)  # stdout carries only the protocol: whatever else prints goes to stderr
    folder, _ = take_workplace()
    os.chdir(folder)
    try:
        serve(
            sys.stdin.fileno(), replies, silence_s=SILENCE_S, on_end=lambda: shutil.rmtree(folder, ignore_errors=True)
        )
    finally:  # such as an interrupt from a terminal
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    main()

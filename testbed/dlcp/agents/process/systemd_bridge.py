"""The bridge to an agent that a host's systemd starts: python -m dlcp.agents.process.systemd_bridge
/run/dlcp/agent.sock

Bytes pass between stdin and stdout and the socket until either side ends. When the caller's side ends the agent is
notified, and has END_S to do the same: then the agent is gone when the bridge is. Status 1, and the reason on
stderr, when there is no agent or when it ends before its caller.
"""

from __future__ import annotations

import contextlib
import os
import socket
import sys
import threading
import time

END_S = 2.0
_READ_BYTES = 65_536
_STDIN, _STDOUT = 0, 1


def main(arguments: list[str]) -> int:
    """Pass bytes until either side ends."""
    [path] = arguments
    with socket.socket(socket.AF_UNIX) as channel:
        try:
            channel.connect(path)
        except OSError as error:
            print(f"no agent at {path}: {error.strerror or error}", file=sys.stderr)
            return 1
        caller_ended = threading.Event()
        threading.Thread(target=_pass_down, args=(channel, caller_ended), daemon=True).start()
        try:
            while part := channel.recv(_READ_BYTES):
                _write_all(part)
        except BrokenPipeError:
            return 0
        except ConnectionResetError:
            pass
        if caller_ended.is_set():
            return 0
        print(f"the agent behind {path} ended: `journalctl -u 'dlcp-agent@*'` says why", file=sys.stderr)
        return 1


def _pass_down(channel: socket.socket, caller_ended: threading.Event) -> None:
    with contextlib.suppress(OSError):
        while part := os.read(_STDIN, _READ_BYTES):
            channel.sendall(part)
        caller_ended.set()
        channel.shutdown(socket.SHUT_WR)
        time.sleep(END_S)
        os._exit(0)  # whatever the other direction waits for


def _write_all(data: bytes) -> None:
    view = memoryview(data)
    while view:
        view = view[os.write(_STDOUT, view) :]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

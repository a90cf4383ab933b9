"""A child process of a bench: serves commands from its control channel, and dies with its parent."""

from __future__ import annotations

import ctypes
import signal
import socket
import sys
from collections.abc import Callable
from typing import Any

from dlcp.bench.channel import Channel, ChannelClosed

Commands = dict[str, Callable[..., dict[str, Any]]]
IDLE_LIMIT_S = 3600.0
"""A child whose coordinator says nothing for so long gives up."""
_PR_SET_PDEATHSIG = 1
"""prctl(2)."""


def serve(channel: Channel, commands: Commands) -> str:
    """Answer commands until the coordinator hangs up; returns how the channel ended. What goes wrong here is told
    there. Ends with `close`."""
    try:
        while True:
            message = channel.receive(IDLE_LIMIT_S)
            try:
                answer = commands[message.pop("do")](**message)
            except Exception as error:  # the coordinator's to act on
                answer = {"error": f"{type(error).__name__}: {error}"}
            channel.send(answer)
    except ChannelClosed as end:
        return end.what
    finally:
        commands["close"]()


def serve_child(make: Callable[[Channel], Commands]) -> None:
    """Entry point of a child: the control channel is the descriptor that its first argument names."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the coordinator's; it hangs up
    channel = Channel(socket.socket(fileno=int(sys.argv[1])), "the bench's coordinator")
    serve(channel, make(channel))

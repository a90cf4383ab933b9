"""Two hosts: one listens and receives, the other connects and sends. No listening port without a key."""

from __future__ import annotations

import os
import socket
from pathlib import Path
from typing import Any

from dlcp.bench.channel import Channel, WrongKey, new_key
from dlcp.bench.child import serve
from dlcp.bench.in_namespaces import Say
from dlcp.bench.transport.benchmark import between_hosts
from dlcp.bench.transport.endpoint_placement import World
from dlcp.bench.transport.endpoint_process import End
from dlcp.bench.transport.options import TransportOptions
from dlcp.errors import ExitCode, MachineCannot, Problem

PORT = 5810
KEY_VARIABLE = "DLCP_BENCH_KEY"
_CONNECT_WITHIN_S = 10.0
_LEAST_KEY_CHARACTERS = 16
_MOST_WRONG = 100
"""Connections without the key after which a listener gives up: somebody is guessing."""


def listen(where: str, key_file: Path | None, say: Say, *, once: bool) -> int:
    """Serve benches, one at a time, to whoever proves the key. Returns an exit code; once: after the first one.

    The key is that of DLCP_BENCH_KEY or of the file; made here, and told through `say`, when there is neither.
    """
    address, port = parse_address(where, "--listen")
    key = _key(key_file)
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((address, port))
        except OSError as error:
            what = f"cannot be listened at: {error.strerror}"
            raise MachineCannot(f"{address}:{port}", what, "name an address of this host and a free port") from error
        listener.listen(4)
        if key is None:
            key = new_key()
            at = f"{address}:{listener.getsockname()[1]}"
            say(f"on the other host:  {KEY_VARIABLE}={key} dlcp bench transport --connect {at}")
        else:
            say(f"listening at {address}:{listener.getsockname()[1]}, with the key that was given")
        wrong = 0
        while True:
            sock, (peer, _) = listener.accept()
            with sock:
                try:
                    channel = Channel.accepted(sock, key.encode(), peer)
                except WrongKey as problem:
                    say(str(problem))
                    wrong += 1
                    if wrong >= _MOST_WRONG:
                        raise Problem(
                            f"{address}:{port}",
                            f"{wrong} connections without the key; giving up",
                            exit_code=ExitCode.RUN_FAILED,
                        ) from problem
                    continue
                say(f"{peer} has begun")
                end = serve(channel, End(channel, bind=sock.getsockname()[0]).commands())
                say(f"{peer} {end}")
                if once:
                    return ExitCode.FINE


def connect(where: str, key_file: Path | None, options: TransportOptions, say: Say) -> dict[str, Any]:
    """Run a bench against a listener. Returns Report.data(). WrongKey when the keys differ."""
    options.check()
    _no_network_of_ours(options)
    address, port = parse_address(where, "--connect")
    key = _key(key_file)
    if key is None:
        raise Problem(
            "--connect", "no key is given", f"set {KEY_VARIABLE}, as the listener's line says, or use --key-file"
        )
    try:
        sock = socket.create_connection((address, port), _CONNECT_WITHIN_S)
    except OSError as error:
        what = f"cannot be connected to: {error.strerror or error}"
        hint = "start dlcp bench transport --listen there first"
        raise Problem(f"{address}:{port}", what, hint, exit_code=ExitCode.RUN_FAILED) from error
    world = World()
    with sock:
        remote = Channel.connected(sock, key.encode(), f"{address}:{port}")
        try:
            addresses = {"sender": sock.getsockname()[0], "receiver": address}
            return between_hosts(world.start("sender"), remote, addresses, options, say)
        finally:
            world.close()


def parse_address(text: str, option: str) -> tuple[str, int]:
    """ "10.0.0.1:5810" → ("10.0.0.1", 5810); the port may be left out. Problem names the option."""
    address, _, port = text.partition(":")
    try:
        socket.inet_aton(address)
        if address.count(".") != 3:
            raise OSError
        number = int(port) if port else PORT
    except (OSError, ValueError) as error:
        raise Problem(option, f"{text!r} is not an IPv4 address and a port", f"such as 10.0.0.1:{PORT}") from error
    if not 0 <= number < 65536:
        raise Problem(option, f"port {number} does not exist", "0 (any) to 65535")
    return address, number


def _key(key_file: Path | None) -> str | None:
    if key_file is not None:
        where = str(key_file)
        try:
            text = key_file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = (error.strerror or str(error)) if isinstance(error, OSError) else "it is not ASCII"
            raise Problem(where, f"the key cannot be read: {reason}", "name a file that holds the key alone") from error
    else:
        text, where = os.environ.get(KEY_VARIABLE, ""), KEY_VARIABLE
    if key_file is None and not text:
        return None
    if len(text) < _LEAST_KEY_CHARACTERS:
        what = f"holds a key of {len(text)} characters"
        raise Problem(where, what, f"{_LEAST_KEY_CHARACTERS} or more, from a random source: openssl rand -hex 16")
    return text


def _no_network_of_ours(options: TransportOptions) -> None:
    wrong = options.namespaces or options.loss or options.loss_back or options.shaped or options.senders > 1
    if wrong:
        what = "unsupported: the network between two hosts is not this command's to shape, nor to make lossy"
        raise Problem("--connect", what, "leave out --namespaces, --loss, --senders and --buffer")

"""`dlcp bench transport`, small: on loopback, between a listener and a client, in namespaces. Nothing is timed."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from bench_command import COMMAND, bench, figure, report

from dlcp.bench.channel import Channel, ChannelClosed, WrongKey

QUICK = ("transport", "--count", "6", "--repeats", "2")
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="makes network namespaces; run as root")


def test_loopback_delivers_everything_and_tells_cpu_of_both_ends() -> None:
    found = report(*QUICK, "--size", "100kB", "--size", "30kB")
    assert found["where"] == "loopback"
    assert figure(found, "delivered")["values"] == [100, 100]
    assert figure(found, "goodput")["best"] > 0
    for run in found["runs"]:
        assert run["receiver"]["bytes"] == run["receiver"]["delivered_bytes"] == 3 * (100_000 + 30_000)
        assert run["receiver"]["counters"]["data_packets_received"] >= 3 * (70 + 21)
        assert run["sender"]["cpu_s"] > 0
        assert run["receiver"]["cpu_s"] > 0


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_other_dtypes_arrive_as_they_were(dtype: str) -> None:
    found = report(*QUICK, "--size", "100kB", "--dtype", dtype)  # the bench itself compares the values
    assert figure(found, "delivered")["values"] == [100, 100]


def test_a_percentile_of_too_few_samples_is_refused() -> None:
    found = report(*QUICK, "--size", "20kB")
    assert figure(found, "message completion, p99")["why"] == "p99 needs 1000 samples, there are 6"


def test_the_python_reference_moves_the_same_packets() -> None:
    found = report(*QUICK, "--size", "400kB", "--against", "python")
    python = [run for run in found["runs"] if run["variant"] == "python"]
    assert len(python) == 2
    for run in python:
        assert run["receiver"]["packets"] == run["sender"]["packets"] == 100 * 278
    assert figure(found, "CPU a packet: pure Python ÷ DLCP")["repeats"] == 2


def test_text_says_what_json_says() -> None:
    done = bench(*QUICK, "--size", "20kB")
    assert done.returncode == 0, done.stderr
    for words in ("goodput of that limit", "p99 needs 1000 samples", "packets lost", "load average"):
        assert words in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (("--size", "10"), 2, "--size"),
        (("--size", "3 B"), 2, "whole number of float32"),
        (("--in-flight", "0", "--senders", "0"), 2, "--senders: 0 senders"),
        (("--rate", "1 gigabit"), 2, "--rate"),
        (("--bound", "110 %"), 2, "--bound"),
        (("--against", "reliable"), 2, "add --bound"),
        (("--against", "python", "--dtype", "float16"), 2, "float32 only"),
        (("--energy-bound", "2"), 2, "--energy-bound"),
        (("--queue", "7"), 2, "queue 7"),
        (("--stop", "soon"), 2, "--stop"),
        (("--loss", "1 %"), 3, "unsupported on loopback"),
        (("--senders", "4"), 3, "unsupported on loopback"),
        (("--congestion-control", "reno"), 1, "reno"),
        (("--connect", "127.0.0.1:1"), 2, "no key is given"),
        (("--connect", "127.0.0.1:1", "--listen", "127.0.0.1:0"), 2, "one end"),
        (("--connect", "nowhere"), 2, "not an IPv4 address"),
    ],
)
def test_what_cannot_be_done_is_said_with_its_exit_code(arguments: tuple[str, ...], code: int, words: str) -> None:
    done = bench(*QUICK, *arguments)
    assert done.returncode == code, done.stderr
    assert words in done.stderr + done.stdout
    assert "Traceback" not in done.stderr


class Listener:
    """A `dlcp bench transport --listen` of its own."""

    def __init__(self, *arguments: str, key: str = "") -> None:
        self.process = subprocess.Popen(
            [*COMMAND, "transport", "--listen", "127.0.0.1:0", *arguments],
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, "DLCP_BENCH_KEY": key},
        )
        assert self.process.stderr is not None
        self.line = self.process.stderr.readline()
        words = self.line.replace(",", " ").split()
        self.at = next(word for word in words if word.startswith("127.0.0.1:"))
        self.key = next((word.partition("=")[2] for word in words if word.startswith("DLCP_BENCH_KEY=")), key)


@pytest.fixture
def listener() -> Iterator[Listener]:
    one = Listener("--once")
    yield one
    one.process.kill()
    one.process.communicate()


def test_two_hosts_with_the_key_that_the_listener_shows(listener: Listener, tmp_path: Path) -> None:
    assert len(listener.key) == 32
    (tmp_path / "key").write_text(listener.key + "\n")
    found = report(
        *QUICK, "--connect", listener.at, "--key-file", str(tmp_path / "key"), "--size", "50kB", "--against", "python"
    )
    assert found["where"] == "hosts"
    assert figure(found, "delivered")["values"] == [100, 100]
    assert listener.process.wait(10) == 0


def test_a_wrong_key_is_refused_and_the_listener_goes_on(listener: Listener) -> None:
    done = bench(*QUICK, "--connect", listener.at, key="0123456789abcdef0123456789abcdef")
    assert done.returncode == 1
    assert "key is wrong" in done.stderr
    assert "Traceback" not in done.stderr
    assert report(*QUICK, "--connect", listener.at, "--size", "50kB", key=listener.key)["where"] == "hosts"


def test_a_stranger_that_hangs_up_is_told_of_and_the_listener_goes_on(listener: Listener) -> None:
    address, _, port = listener.at.partition(":")
    socket.create_connection((address, int(port)), 5).close()
    assert report(*QUICK, "--connect", listener.at, "--size", "50kB", key=listener.key)["where"] == "hosts"
    assert listener.process.wait(10) == 0


def test_a_key_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    done = bench("transport", "--listen", "127.0.0.1:0", "--key-file", str(tmp_path / "nowhere"))
    assert done.returncode == 2
    assert "nowhere: the key cannot be read: No such file" in " ".join(done.stderr.split())
    assert "Traceback" not in done.stderr


def test_a_short_key_is_not_taken() -> None:
    done = bench("transport", "--listen", "127.0.0.1:0", key="secret")
    assert done.returncode == 2
    assert "6 characters" in done.stderr


KEY, OTHER = b"k" * 32, b"o" * 32


def keyed(ours: bytes, theirs: bytes) -> tuple[Channel, Channel]:
    """(listening, connecting) over a socket pair."""
    a, b = socket.socketpair()
    found: list[Channel | Exception] = []

    def accept() -> None:
        try:
            found.append(Channel.accepted(a, ours, "client"))
        except WrongKey as error:
            a.close()
            found.append(error)

    thread = threading.Thread(target=accept)
    thread.start()
    try:
        connected = Channel.connected(b, theirs, "server")
    finally:
        thread.join()
    assert isinstance(found[0], Channel)
    return found[0], connected


def test_a_channel_carries_messages_both_ways() -> None:
    server, client = keyed(KEY, KEY)
    for number in range(3):
        client.send({"number": number})
        assert server.receive(5) == {"number": number}
        server.send({"answer": number})
        assert client.receive(5) == {"answer": number}


def test_another_key_opens_no_channel() -> None:
    with pytest.raises(WrongKey):
        keyed(KEY, OTHER)


@pytest.mark.parametrize("change", ["flip", "replay", "echo"])
def test_a_frame_that_was_touched_is_not_taken(change: str) -> None:
    server, client = keyed(KEY, KEY)
    client.send({"do": "open"})
    frame = server.sock.recv(4096)
    if change == "flip":
        client.sock.sendall(frame[:-1] + bytes([frame[-1] ^ 1]))
    elif change == "replay":
        client.sock.sendall(frame)
        assert server.receive(5) == {"do": "open"}
        client.sock.sendall(frame)
    else:
        server.sock.sendall(frame)
        with pytest.raises(ChannelClosed, match="tag"):
            client.receive(5)
        return
    with pytest.raises(ChannelClosed, match="tag"):
        server.receive(5)


@pytest.mark.root
@needs_root
def test_namespaces_lose_what_they_are_told_and_the_bound_spares_sending_again() -> None:
    found = report(
        *QUICK,
        "--namespaces",
        "--size",
        "1MB",
        "--rate",
        "1Gbit/s",
        "--loss",
        "5 %",
        "--bound",
        "20 %",
        "--against",
        "reliable",
    )
    assert found["where"] == "namespaces"
    for run in found["runs"]:
        lost, sent = run["network_drops"]["random, to receiver"], run["sender"]["counters"]["data_packets_sent"]
        assert 0.02 < lost / sent < 0.09  # 5 % of about 4900 packets: 5 standard deviations are 1.6 %
    bounded, reliable = ([run for run in found["runs"] if run["variant"] == name] for name in ("dlcp", "reliable"))
    assert all(run["receiver"]["lost_bytes"] == 0 and run["sender"]["resent_bytes"] > 0 for run in reliable)
    assert all(run["receiver"]["lost_bytes"] > 0 and run["sender"]["resent_bytes"] == 0 for run in bounded)
    assert all(0.01 < run["receiver"]["lost_energy_share"] < 0.2 for run in bounded)


@pytest.mark.root
@needs_root
def test_an_incast_goes_through_a_shaped_port() -> None:
    found = report(*QUICK, "--namespaces", "--size", "100kB", "--rate", "500Mbit/s", "--senders", "4")
    assert "one bandwidth-delay product" in " ".join(found["notes"])
    assert figure(found, "delivered")["values"] == [100, 100]
    assert figure(found, "goodput of that limit")["best"] <= 101


@pytest.mark.root
@needs_root
def test_a_killed_bench_leaves_no_process() -> None:
    arguments = ("--namespaces", "--count", "100000", "--rate", "100Mbit/s")
    process = subprocess.Popen([*COMMAND, "transport", *arguments], stderr=subprocess.PIPE, text=True)
    assert process.stderr is not None
    assert "repeat 1" in process.stderr.readline()
    process.kill()
    assert process.wait(10) != 0
    process.stderr.read()  # ends when the last process that holds it is gone
    process.stderr.close()

"""Ranks of a real process group: one process each, forked from a server that has torch loaded, over loopback."""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import subprocess
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import timedelta
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from waits import wait_until

import dlcp.frameworks.pytorch as dlcp
from dlcp.agents.process.fork_server import enter_network_namespace

TIMEOUT_S = 90.0
"""Of a whole test on a busy machine; a test that is well takes a few seconds."""
RANDOM_DROP = "6,48 0 0 23,21 0 3 17,32 0 0 4294963256,37 1 0 {keep_above},6 0 0 2,6 0 0 0"
"""Classic BPF for tc's direct action: of UDP packets (byte 23 of the frame is 17), drop a random share."""


def ranks(
    size: int, work: Callable[..., Any], *arguments: Any, namespace: str | None = None, dies: tuple[int, ...] = ()
) -> list[Any]:
    """Run work(store, rank, size, *arguments) as `size` processes; their results, by rank.

    The store lives here, as torchrun's does, so that any rank may die. namespace: a network namespace to enter. dies:
    ranks that are to end without a result. Fails with the traceback of the first rank that raises.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["torch_ranks", "torch._dynamo"])  # the latter is imported by the first optimizer
    meeting = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False) if namespace is None else None
    place = str(meeting.port) if meeting else f"{os.environ.get('TMPDIR', '/tmp')}/store-{os.getpid()}-{time.time_ns()}"
    children, pipes = [], {}
    for rank in range(size):
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(
            target=_rank, args=(theirs, place, namespace, rank, size, work, arguments), daemon=False
        )
        child.start()
        theirs.close()
        children.append(child)
        pipes[ours] = rank
    results: dict[int, Any] = {}
    deadline_s = time.monotonic() + TIMEOUT_S
    try:
        while pipes:
            ready = wait(list(pipes), max(0.0, deadline_s - time.monotonic()))
            if not ready:
                pytest.fail(f"ranks {sorted(pipes.values())} did not end within {TIMEOUT_S:g} s")
            for pipe in ready:
                assert isinstance(pipe, Connection)
                rank = pipes.pop(pipe)
                with contextlib.suppress(EOFError):
                    results[rank] = pipe.recv()
        for rank, found in results.items():
            if isinstance(found, str) and found.startswith("Traceback"):
                pytest.fail(f"rank {rank}: {found}")
        missing = set(range(size)) - set(results) - set(dies)
        assert not missing, f"ranks {missing} ended without a result"
        return [results.get(rank) for rank in range(size)]
    finally:
        for child in children:
            child.join(10.0)
            if child.is_alive():
                child.kill()
                child.join()
        Path(place).unlink(missing_ok=True)


def _rank(pipe: Connection, place: str, namespace: str | None, rank: int, size: int, work: Any, arguments: Any) -> None:
    torch.set_num_threads(1)
    if namespace is None:
        store: Any = dist.TCPStore("127.0.0.1", int(place), is_master=False)
    else:
        with open(namespace, "rb") as file:
            enter_network_namespace(file.fileno())
        store = dist.FileStore(place, size)
    try:
        result = work(store, rank, size, *arguments)
    except BaseException:
        result = traceback.format_exc()
    pipe.send(result)
    pipe.close()
    with contextlib.suppress(Exception):
        if dist.is_initialized():
            dist.destroy_process_group()


def open_group(
    store: Any, rank: int, size: int, backend: str = "dlcp", *, timeout_s: float = 60.0, **options: Any
) -> dist.ProcessGroup:
    """The default group, with DlcpOptions if it is dlcp's."""
    given = dlcp.DlcpOptions(**options) if backend == "dlcp" else None
    dist.init_process_group(
        backend, store=store, rank=rank, world_size=size, timeout=timedelta(seconds=timeout_s), pg_options=given
    )
    assert dist.group.WORLD is not None
    return dist.group.WORLD


@contextlib.contextmanager
def lossy_loopback(share: float) -> Iterator[str]:
    """The path of a network namespace whose loopback drops this share of UDP packets, each alone. Needs root."""
    holder = subprocess.Popen(["unshare", "--net", "sleep", "300"])
    path = f"/proc/{holder.pid}/ns/net"
    try:
        own = os.stat("/proc/self/ns/net").st_ino
        wait_until(lambda: os.stat(path).st_ino != own, "unshare has made a namespace")
        program = RANDOM_DROP.format(keep_above=round(share * 2**32))
        for command in (
            "ip link set lo up",
            "ethtool -K lo tso off gso off gro off tx-udp-segmentation off",
            "tc qdisc add dev lo clsact",
            f"tc filter add dev lo egress bpf da bytecode '{program}'",
        ):
            subprocess.run(["nsenter", f"--net={path}", "sh", "-c", command], check=True, capture_output=True)
        yield path
    finally:
        holder.kill()
        holder.wait()


def fingerprint(model: torch.nn.Module) -> bytes:
    """All bits of a model's parameters."""
    return b"".join(p.detach().numpy().tobytes() for p in model.parameters())


def small_model(seed: int = 0) -> torch.nn.Sequential:
    """About 400,000 parameters in three layers; the same at every rank."""
    torch.manual_seed(seed)
    return torch.nn.Sequential(
        torch.nn.Linear(100, 1000),
        torch.nn.ReLU(),
        torch.nn.Linear(1000, 300),
        torch.nn.ReLU(),
        torch.nn.Linear(300, 10),
    )


def batch(step: int, rank: int, size: int = 16) -> tuple[torch.Tensor, torch.Tensor]:
    """Inputs and labels that a linear rule of a fixed seed made: something that can be learnt."""
    rule = torch.randn(100, 10, generator=torch.Generator().manual_seed(99))
    inputs = torch.randn(size, 100, generator=torch.Generator().manual_seed(1000 * step + rank))
    return inputs, (inputs @ rule).argmax(1)


def train(model: torch.nn.Module, rank: int, steps: int) -> list[float]:
    """Train a small model (such as one in DDP) on this rank's batches; the loss of each step."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    losses = []
    for step in range(steps):
        inputs, labels = batch(step, rank)
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses

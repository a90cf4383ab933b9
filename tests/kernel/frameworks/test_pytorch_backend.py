"""torch.distributed's backend `dlcp`, with real ranks over loopback."""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from datetime import timedelta
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch_ranks import batch, fingerprint, lossy_loopback, open_group, ranks, small_model, train
from waits import settled

import dlcp.frameworks.pytorch as dlcp

STEPS = 6


def small_ddp() -> DistributedDataParallel:
    """With buckets so small that there are several from the second step on."""
    return DistributedDataParallel(small_model(), bucket_cap_mb=0.3)


def _ddp(store: Any, rank: int, size: int, backend: str) -> Any:
    group = open_group(store, rank, size, backend)
    model = small_ddp()
    losses = train(model, rank, STEPS)
    found = dlcp.statistics(group) if backend == "dlcp" else None
    return losses, fingerprint(model), found, sum(p.numel() for p in model.parameters())


def test_ddp__gives_gloos_losses_and_its_gradients_went_over_dlcp() -> None:
    expected = ranks(3, _ddp, "gloo")
    found = ranks(3, _ddp, "dlcp")
    for (losses, _, _, _), (theirs, _, statistics, parameters) in zip(expected, found, strict=True):
        assert theirs == pytest.approx(losses, abs=1e-5)
        # The first step reduces one bucket, the later ones the buckets that DDP makes anew after it.
        assert statistics.dlcp["all_reduce"].bytes == STEPS * parameters * 4
        assert statistics.dlcp["all_reduce"].calls == 1 + 2 * (STEPS - 1)
        engine = next(iter(statistics.engine.values()))
        assert engine["data_bytes_sent"] - engine["bytes_resent"] == pytest.approx(
            statistics.dlcp["all_reduce"].bytes * 4 / 3, rel=0.02
        ), "2 (n - 1) / n of the bytes leave every rank of a ring"
        assert set(statistics.gloo) == {"broadcast", "all_gather"}
        assert "all_reduce" not in " ".join(statistics.gloo)
        assert statistics.lost_bytes == 0
    assert len({bits for _, bits, _, _ in found}) == 1, "replicas are identical"


def _operations(store: Any, rank: int, size: int) -> Any:
    group = open_group(store, rank, size, strict=True)
    found: list[tuple[str, bool]] = []

    def check(name: str, tensor: torch.Tensor, expected: torch.Tensor, **named: Any) -> None:
        dist.all_reduce(tensor, **named)
        found.append((name, torch.equal(tensor, expected)))

    n = 5000
    values = torch.arange(n) % 8  # sums that bfloat16 holds exactly
    for dtype in (torch.float32, torch.float16, torch.bfloat16):
        mine, total = values.to(dtype) * (rank + 1), (values * sum(range(1, size + 1))).to(dtype)
        check(f"{dtype} default", mine.clone(), total)
        check(f"{dtype} sum", mine.clone(), total, op=dist.ReduceOp.SUM)
        check(f"{dtype} avg", mine.clone(), (total.float() / size).to(dtype), op=dist.ReduceOp.AVG)
        check(f"{dtype} wrapped", mine.clone(), total, op=dist.ReduceOp(dist.ReduceOp.SUM))
    matrix = torch.arange(6000.0).reshape(60, 100).t()
    check("not contiguous", matrix * (rank + 1), matrix * sum(range(1, size + 1)))
    last = torch.nn.Conv2d(3, 8, 3).weight.detach().clone().to(memory_format=torch.channels_last).fill_(1.0)
    check("channels last", last, torch.full_like(last, size))
    check("one number", torch.tensor(1.5), torch.tensor(1.5 * size))
    check("empty", torch.empty(0), torch.empty(0))
    part = torch.ones(100, 100)
    check("a view", part[20:40], torch.full((20, 100), float(size)))
    found.append(("around the view", bool((part[:20] == 1).all() and (part[40:] == 1).all())))
    several = [torch.ones(3000) * rank, torch.ones(10)]
    dist.all_reduce_coalesced(several)
    found.append(("coalesced", several[0][0].item() == sum(range(size)) and several[1][9].item() == size))
    statistics = dlcp.statistics(group)
    return found, statistics.dlcp["all_reduce"].calls, statistics.gloo


@pytest.mark.parametrize("size", [1, 2, 4])
def test_all_reduce__is_right_and_none_of_it_went_over_gloo(size: int) -> None:
    for found, calls, gloo in ranks(size, _operations):
        assert [name for name, is_right in found if not is_right] == []
        assert calls == 12 + 4 + 2, "all but the empty tensor"
        assert gloo == {}


def test_reduce_op__compares_by_its_kind_only() -> None:
    """The trap that the backend must not fall into: were this False here too, ReduceOp.SUM would need no unwrapping."""
    given = dist.AllreduceOptions().reduceOp
    assert given not in (dist.ReduceOp.MAX, dist.ReduceOp.SUM)
    assert given.op in (dist.ReduceOp.RedOpType.MAX, dist.ReduceOp.RedOpType.SUM)  # type: ignore[attr-defined]


def _elsewhere(store: Any, rank: int, size: int) -> Any:
    heard: list[str] = []
    handler = logging.Handler()
    handler.emit = lambda record: heard.append(record.getMessage())  # type: ignore[method-assign]
    logging.getLogger("dlcp.pytorch").addHandler(handler)
    logging.getLogger("dlcp.pytorch").setLevel(logging.INFO)
    group = open_group(store, rank, size)
    for _ in range(2):
        for tensor, op in (
            (torch.ones(3, dtype=torch.int64), dist.ReduceOp.SUM),
            (torch.ones(3, dtype=torch.float64), dist.ReduceOp.SUM),
            (torch.ones(3), dist.ReduceOp.MAX),
        ):
            dist.all_reduce(tensor, op=op)
            assert tensor[0] == (1 if op == dist.ReduceOp.MAX else size)
    everyone = [torch.empty(2) for _ in range(size)]
    dist.all_gather(everyone, torch.full((2,), float(rank)))
    assert [one[0].item() for one in everyone] == list(range(size))
    dist.broadcast(everyone[0], 0)
    dist.barrier()
    mine = torch.zeros(1)
    dist.reduce_scatter(mine, [torch.ones(1) * i for i in range(size)])
    assert mine.item() == rank * size
    out = torch.empty(size)
    dist.all_to_all_single(out, torch.full((size,), float(rank)))
    assert out.tolist() == list(range(size))
    together = torch.empty(size)
    dist.all_gather_single(together, torch.tensor([float(rank)]))
    assert together.tolist() == list(range(size))
    objects: list[Any] = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    assert objects == [{"rank": one} for one in range(size)]
    if rank < 2:
        (dist.send if rank == 0 else dist.recv)(mine, 1 - rank)
        assert mine.item() == 0
    return dlcp.statistics(group), heard


def test_other_collectives__go_over_gloo_counted_and_said_once() -> None:
    for rank, (statistics, heard) in enumerate(ranks(2, _elsewhere)):
        assert statistics.dlcp == {}
        counted = statistics.gloo
        assert (counted["all_reduce of int64"].calls, counted["all_reduce of int64"].bytes) == (2, 48)
        assert (counted["all_reduce of float64"].calls, counted["all_reduce by max"].calls) == (2, 2)
        wanted = {"all_gather", "broadcast", "barrier", "reduce_scatter", "all_to_all_single", "all_gather_single"}
        assert wanted | {"send" if rank == 0 else "recv"} <= set(counted)
        said = Counter(text.split(" goes over gloo")[0] for text in heard if "goes over gloo" in text)
        assert set(said) == set(counted)
        assert set(said.values()) == {1}


def _strict(store: Any, rank: int, size: int) -> Any:
    open_group(store, rank, size, strict=True)
    dist.all_reduce(torch.ones(3), op=dist.ReduceOp.MAX)  # nobody expects this of DLCP
    with pytest.raises(ValueError, match="all_reduce of float64 cannot go over DLCP"):
        dist.all_reduce(torch.ones(3, dtype=torch.float64))


def test_strict__floats_that_cannot_go_over_dlcp_are_an_error() -> None:
    ranks(1, _strict)


def _asynchronous(store: Any, rank: int, size: int) -> Any:
    group = open_group(store, rank, size)
    tensors = [torch.full((20_000,), float(i)) for i in range(20)]  # of one shape, more than there are slots
    works = [dist.all_reduce(tensor, async_op=True) for tensor in tensors]
    last = works[-1].get_future().then(lambda done: done.value()[0].sum().item())
    results = [work.get_future().wait()[0] for work in works]
    assert all(result is tensor for result, tensor in zip(results, tensors, strict=True))
    assert [tensor[-1].item() for tensor in tensors] == [i * size for i in range(20)]
    assert last.wait() == 19 * size * 20_000
    assert all(work.wait() and work.is_completed() and work.is_success() for work in works)
    assert {work.exception() for work in works} == {None}
    elsewhere: list[float] = []

    def in_a_thread() -> None:
        tensor = torch.ones(5000)
        dist.all_reduce(tensor)
        elsewhere.append(tensor[0].item())

    thread = threading.Thread(target=in_a_thread)
    thread.start()
    thread.join()
    assert elsewhere == [size]
    return dlcp.statistics(group).dlcp["all_reduce"].calls


def test_async__works_futures_and_threads() -> None:
    assert ranks(3, _asynchronous) == [21] * 3


def _subgroups(store: Any, rank: int, size: int) -> Any:
    open_group(store, rank, size)
    groups = [dist.new_group([0, 2]), dist.new_group([1, 2, 3], pg_options=dlcp.DlcpOptions(loss_bound=0.5))]
    found = []
    for group, members in zip(groups, ([0, 2], [1, 2, 3]), strict=True):
        if rank in members:
            tensor = torch.full((10_000,), float(rank))
            dist.all_reduce(tensor, group=group)
            found.append((tensor[0].item(), dlcp.statistics(group).dlcp["all_reduce"].calls))
    return found


def test_sub_groups__each_has_its_own_ring() -> None:
    assert ranks(4, _subgroups) == [[(2.0, 1)], [(6.0, 1)], [(2.0, 1), (6.0, 1)], [(6.0, 1)]]


def _differently(store: Any, rank: int, size: int) -> Any:
    with pytest.raises(RuntimeError) as caught:
        open_group(store, rank, size, loss_bound=0.1 * rank, queues=5)
    return str(caught.value)


def test_ranks_that_are_set_differently__say_what_differs() -> None:
    for text in ranks(2, _differently):
        assert "rank 0 and rank 1 are set differently: loss_bound is 0.0 and 0.1" in text
        assert "queues" not in text


def _alone(store: Any, rank: int, size: int) -> Any:
    if rank == 1:
        return ""
    with pytest.raises(RuntimeError) as caught:
        open_group(store, rank, size, timeout_s=2.0)
    return str(caught.value)


def test_a_rank_that_does_not_come__is_named() -> None:
    assert "rank 1 did not come within 2 s" in ranks(2, _alone)[0]


def _killed(store: Any, rank: int, size: int, victim: int) -> Any:
    open_group(store, rank, size, silence_s=2.0)
    dist.all_reduce(torch.ones(50_000))
    if rank == victim:
        threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGKILL)).start()
    error = ""
    for _ in range(100_000):
        try:
            work = dist.all_reduce(torch.ones(500_000), async_op=True)
            work.wait()
        except RuntimeError as caught:
            error = str(caught)
            break
    again = ""
    try:
        dist.all_reduce(torch.ones(50_000))
    except RuntimeError as caught:
        again = str(caught)
    return error, again, str(work.exception())


@pytest.mark.parametrize("victim", [0, 1])
def test_a_rank_that_is_killed__is_named_by_all_others_in_bounded_time(victim: int) -> None:
    """In seconds, by silence_s; not in gloo's half hour, for which `ranks` would not wait."""
    found = ranks(4, _killed, victim, dies=(victim,))
    for rank, result in enumerate(found):
        if rank != victim:
            error, again, kept = result
            assert f"rank {victim}" in error
            assert "all_reduce" in error
            assert "500000 × float32" in error
            assert kept == error
            assert "this DLCP group cannot be used any more" in again
            assert f"rank {victim}" in again


def _ddp_killed(store: Any, rank: int, size: int) -> Any:
    open_group(store, rank, size, silence_s=2.0)
    model = DistributedDataParallel(small_model())
    for step in range(100_000):
        if rank == 1 and step == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        inputs, labels = batch(step, rank)
        try:
            torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        except RuntimeError as error:
            return str(error)
    return "no error"


def test_ddp__a_rank_that_is_killed_is_named_in_backwards_error() -> None:
    error = ranks(2, _ddp_killed, dies=(1,))[0]
    assert "rank 1" in error
    assert "all_reduce" in error


def _absent(store: Any, rank: int, size: int) -> Any:
    open_group(store, rank, size, timeout_s=2.0)
    if rank == 1:
        store.wait(["over"], timedelta(seconds=60))  # it lives, but takes no part
        return ""
    with pytest.raises(RuntimeError) as caught:
        dist.all_reduce(torch.ones(50_000))
    store.set("over", "")
    return str(caught.value)


def test_a_rank_that_takes_no_part__ends_in_the_groups_timeout() -> None:
    text = ranks(2, _absent)[0]
    assert "all_reduce 1 (50000 × float32)" in text
    assert "did not end within 2 s" in text
    assert "from rank 1" in text


def _resources() -> tuple[int, int]:
    links = [os.readlink(f"/proc/self/fd/{fd}") for fd in os.listdir("/proc/self/fd") if fd.isdigit() and _is_open(fd)]
    return len(os.listdir("/proc/self/task")), sum(link.startswith("socket:") for link in links)


def _is_open(fd: str) -> bool:
    return os.path.islink(f"/proc/self/fd/{fd}")


def _again_and_again(store: Any, rank: int, size: int) -> Any:
    found = []
    for _ in range(4):
        group = open_group(store, rank, size)
        tensor = torch.ones(50_000)
        pending = dist.all_reduce(tensor, async_op=True)
        dist.destroy_process_group()  # finishes what is under way first
        assert pending.is_success()
        assert tensor[0] == size
        with pytest.raises(RuntimeError, match="destroyed"):
            group.allreduce([tensor])
        assert dlcp.statistics(group).engine[rank]["data_bytes_sent"] > 0, "counters outlive the group"
        del group, pending
        found.append(settled(_resources))
    return found


def test_destroy_process_group__leaves_no_thread_and_no_socket() -> None:
    for found in ranks(2, _again_and_again):
        assert len(set(found)) == 1, found


def _forks(store: Any, rank: int, size: int) -> Any:
    group = open_group(store, rank, size)
    dist.all_reduce(torch.ones(5000))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            group.allreduce([torch.ones(5000)])
        except RuntimeError as error:
            code = 0 if "forked" in str(error) else 2
        group.shutdown()  # type: ignore[no-untyped-call]
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    tensor = torch.ones(5000)
    dist.all_reduce(tensor)
    return tensor[0].item()


def test_fork__the_child_is_told_and_the_parent_goes_on() -> None:
    assert ranks(2, _forks) == [2.0, 2.0]


def test_import__changes_nothing_of_torch_but_the_backends() -> None:
    program = """
import torch
def state():
    return (torch.get_num_threads(), torch.get_num_interop_threads(), torch.get_default_dtype(),
            torch.is_grad_enabled(), torch.initial_seed(), torch.get_rng_state().tolist(),
            torch.are_deterministic_algorithms_enabled())
torch.set_num_threads(2)
before = state()
import dlcp.frameworks.pytorch
assert state() == before
assert torch.distributed.Backend.default_device_backend_map["cpu"] == "gloo"
assert "dlcp" in torch.distributed.Backend.backend_list
import sys
assert "torch._dynamo" not in sys.modules  # 1.4 s
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)


def _lossy(store: Any, rank: int, size: int, bound: float, steps: int) -> Any:
    group = open_group(store, rank, size, loss_bound=bound)
    model = small_ddp()
    losses = train(model, rank, steps)
    inputs, labels = batch(10_000, 0, 4000)
    with torch.no_grad():
        accuracy = (model.module(inputs).argmax(1) == labels).float().mean().item()
    return losses, fingerprint(model), accuracy, dlcp.statistics(group)


needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="a lossy network namespace needs root; run as root")


@needs_root
@pytest.mark.root
def test_loss__within_the_bound_keeps_replicas_identical_and_accuracy() -> None:
    steps = 120
    with lossy_loopback(0.01) as namespace:
        lossy = ranks(2, _lossy, 0.10, steps, namespace=namespace)
        exact = ranks(2, _lossy, 0.0, steps, namespace=namespace)
    assert len({bits for _, bits, _, _ in lossy}) == 1
    assert len({bits for _, bits, _, _ in exact}) == 1
    for _, _, accuracy, statistics in lossy:
        assert statistics.lost_bytes > 0, "the network lost packets, and they were not sent again"
        assert statistics.lost_bytes < 0.10 * statistics.dlcp["all_reduce"].bytes
        assert 0 < statistics.lost_energy_share < 0.10
        assert accuracy == pytest.approx(exact[0][2], abs=0.05)
        assert accuracy > 0.5, "chance is 0.1"
    for _, _, _, statistics in exact:
        assert statistics.lost_bytes == 0
    assert sum(statistics.resent_bytes for _, _, _, statistics in exact) > 0, "the network lost packets here too"

"""DlcpOptimizer: parameter servers inside a real job, with real ranks over loopback."""

from __future__ import annotations

import copy
import os
import signal
import threading
from typing import Any, ClassVar

import pytest
import torch
from torch_ranks import batch, fingerprint, lossy_loopback, open_group, ranks, small_model
from waits import settled

import dlcp.frameworks.pytorch as dlcp

STEPS = 8
BUCKET_BYTES = 200_000
EXACT = {"loss_bound": 0.0}
MAKERS: dict[str, Any] = {
    "sgd": lambda params: torch.optim.SGD(params, lr=0.05, momentum=0.9, weight_decay=1e-4),
    "adamw": lambda params: torch.optim.AdamW(params, lr=0.003),
    "groups": lambda params: torch.optim.SGD(
        [
            {"params": [p for p in params if p.ndim > 1], "weight_decay": 0.1},
            {"params": [p for p in params if p.ndim == 1]},
        ],
        lr=0.05,
    ),
}


def loss_of(model: torch.nn.Module, step: int, rank: int) -> torch.Tensor:
    inputs, labels = batch(step, rank)
    return torch.nn.functional.cross_entropy(model(inputs), labels)


def reference(maker: Any, size: int, steps: int = STEPS) -> torch.nn.Module:
    """The same training in one process: the ranks' gradients summed in their order, then divided."""
    model = small_model()
    optimizer = maker(list(model.parameters()))
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    for step in range(steps):
        totals: list[torch.Tensor] = []
        for rank in range(size):
            gradients = torch.autograd.grad(loss_of(model, step, rank), list(model.parameters()))
            totals = [a + b for a, b in zip(totals, gradients, strict=True)] if totals else list(gradients)
        for parameter, total in zip(model.parameters(), totals, strict=True):
            parameter.grad = total / size
        optimizer.step()
        schedule.step()
    return model


def _train(store: Any, rank: int, size: int, name: str, servers: list[int] | None) -> Any:
    open_group(store, rank, size, "gloo")
    model = small_model(seed=rank)  # rank 0's is given to all
    optimizer = dlcp.DlcpOptimizer(
        model, MAKERS[name], servers=servers, bucket_bytes=BUCKET_BYTES, options=dlcp.DlcpOptions(**EXACT)
    )
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 3, 0.5)
    for step in range(STEPS):
        optimizer.zero_grad()
        loss_of(model, step, rank).backward()
        optimizer.step()
        schedule.step()
    optimizer.close()
    expected = reference(MAKERS[name], size)
    return fingerprint(model), fingerprint(expected), optimizer.statistics()


@pytest.mark.parametrize(("name", "servers"), [("sgd", None), ("adamw", [1]), ("groups", [0, 0, 2])])
def test_training__equals_one_process_bit_by_bit(name: str, servers: list[int] | None) -> None:
    size = 3
    total = sum(p.numel() for p in small_model().parameters()) * 4
    found = ranks(size, _train, name, servers)
    for bits, expected, statistics in found:
        assert bits == expected
        assert statistics.dlcp["push"].bytes == STEPS * total
        assert statistics.lost_bytes == 0
    pulled = [statistics.dlcp["pull"].bytes if "pull" in statistics.dlcp else 0 for _, _, statistics in found]
    assert sum(pulled) == STEPS * total * size
    assert [pull > 0 for pull in pulled] == [rank in (servers or range(size)) for rank in range(size)]


class _Held(torch.optim.SGD):
    """SGD whose update of the last layer waits until the next forward has passed the first layer."""

    passed = threading.Event()
    waited: ClassVar[list[bool]] = []

    def step(self, closure: Any = None) -> Any:
        if any(p.shape == (10,) for group in self.param_groups for p in group["params"]):
            self.waited.append(self.passed.wait(20.0))
        return super().step(closure)


def _overlaps(store: Any, rank: int, size: int) -> Any:
    open_group(store, rank, size, "gloo")
    model = torch.nn.Sequential(torch.nn.Linear(100, 100), torch.nn.ReLU(), torch.nn.Linear(100, 10))
    optimizer = dlcp.DlcpOptimizer(
        model,
        lambda params: _Held(params, lr=0.05),
        servers=[0, 0, 0],
        bucket_bytes=20_000,
        options=dlcp.DlcpOptions(**EXACT),
    )
    *front, last = optimizer._tensors
    assert last.server not in [tensor.server for tensor in front], "the server that is held holds nothing of the front"
    model[0].register_forward_hook(lambda *_: _Held.passed.set())
    loss = loss_of(model, 0, 0)
    _Held.passed.clear()
    loss.backward()
    optimizer.step()
    loss_of(model, 1, 0).backward()
    optimizer.step()
    optimizer.close()
    return _Held.waited


def test_overlap__the_first_layer_waits_only_for_its_own_tensors() -> None:
    """The last layer's server does not answer before forward has passed the first layer: a forward that waited for all
    parameters would make it wait in vain."""
    assert ranks(1, _overlaps) == [[True, True]]


def _accumulates(store: Any, rank: int, size: int) -> Any:
    open_group(store, rank, size, "gloo")
    maker = MAKERS["sgd"]
    model, expected = small_model(), small_model()
    optimizer = dlcp.DlcpOptimizer(model, maker, bucket_bytes=BUCKET_BYTES, options=dlcp.DlcpOptions(**EXACT))
    plain = maker(list(expected.parameters()))
    for step in range(3):
        with optimizer.no_sync():
            loss_of(model, 10 * step, rank).backward()
        loss_of(model, 10 * step + 1, rank).backward()
        optimizer.step()
        plain.zero_grad()
        for micro in range(2):
            loss_of(expected, 10 * step + micro, rank).backward()
        plain.step()
    loss_of(model, 99, rank).backward()
    with pytest.raises(RuntimeError, match=r"second backward\(\) before step\(\).*no_sync"):
        loss_of(model, 99, rank).backward()
    optimizer.step()
    with pytest.raises(RuntimeError, match=r"without a backward\(\)"):
        optimizer.step()
    loss_of(expected, 99, rank).backward()
    optimizer.close()
    plain.zero_grad()
    loss_of(expected, 99, rank).backward()
    plain.step()
    return max((a - b).abs().max().item() for a, b in zip(model.parameters(), expected.parameters(), strict=True))


def test_no_sync__adds_up_gradients_and_wrong_orders_are_errors() -> None:
    assert ranks(1, _accumulates)[0] < 1e-6


class _TwoHeads(torch.nn.Module):
    """One head is never used; attention reads its output projection without that module's forward."""

    def __init__(self) -> None:
        super().__init__()
        self.attention = torch.nn.MultiheadAttention(32, 4, batch_first=True)
        self.used, self.unused = torch.nn.Linear(32, 5), torch.nn.Linear(32, 5)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        attended, _ = self.attention(inputs, inputs, inputs)
        return self.used(attended.mean(1))  # type: ignore[no-any-return]


def _unused(store: Any, rank: int, size: int) -> Any:
    open_group(store, rank, size, "gloo")
    torch.manual_seed(0)
    model = _TwoHeads()
    expected = copy.deepcopy(model)
    optimizer = dlcp.DlcpOptimizer(
        model, lambda params: torch.optim.SGD(params, lr=0.1), bucket_bytes=2_000, options=dlcp.DlcpOptions(**EXACT)
    )
    plain = torch.optim.SGD(expected.parameters(), lr=0.1)
    for step in range(4):
        inputs = [torch.randn(4, 6, 32, generator=torch.Generator().manual_seed(10 * step + k)) for k in range(size)]
        model(inputs[rank]).square().mean().backward()
        optimizer.step()
        plain.zero_grad()
        for one in inputs:
            (expected(one).square().mean() / size).backward()
        plain.step()
    optimizer.synchronize()
    difference = max((a - b).abs().max().item() for a, b in zip(model.parameters(), expected.parameters(), strict=True))
    optimizer.close()
    return difference


def test_unused_parameters_and_borrowed_ones__are_handled() -> None:
    assert max(ranks(2, _unused)) < 1e-6


def _checkpoint(store: Any, rank: int, size: int, path: str) -> Any:
    open_group(store, rank, size, "gloo")
    maker = MAKERS["adamw"]

    def make(model: torch.nn.Module) -> Any:
        options = dlcp.DlcpOptions(**EXACT)
        return dlcp.DlcpOptimizer(model, maker, bucket_bytes=BUCKET_BYTES, servers=[0, 1], options=options)

    model = small_model()
    first = make(model)
    for step in range(6):
        if step == 3:
            # No synchronize() here: saving is to see complete parameters by itself.
            saved = copy.deepcopy(model.state_dict()), first.state_dict()
        loss_of(model, step, rank).backward()
        first.step()
    with torch.no_grad():
        evaluated = model(batch(0, 0)[0])  # evaluation too
    first.close()
    assert torch.equal(evaluated, model(batch(0, 0)[0]))
    again = small_model(seed=5)
    second = make(again)
    loss_of(again, 77, rank).backward()
    second.step()
    again.load_state_dict(saved[0])
    with pytest.raises(RuntimeError, match="load the state of this DlcpOptimizer too"):
        loss_of(again, 3, rank).backward()
    second.zero_grad()
    second.load_state_dict(saved[1])
    for step in range(3, 6):
        loss_of(again, step, rank).backward()
        second.step()
    second.close()
    return fingerprint(model) == fingerprint(again)


def test_checkpoint__goes_on_as_if_it_had_not_stopped() -> None:
    assert ranks(2, _checkpoint, "") == [True, True]


def _lossy(store: Any, rank: int, size: int) -> Any:
    open_group(store, rank, size, "gloo")
    model = small_model()
    optimizer = dlcp.DlcpOptimizer(model, MAKERS["sgd"], bucket_bytes=BUCKET_BYTES)
    for step in range(60):
        loss_of(model, step, rank).backward()
        optimizer.step()
    optimizer.close()
    return fingerprint(model), optimizer.statistics()


@pytest.mark.root
@pytest.mark.skipif(os.geteuid() != 0, reason="a lossy network namespace needs root; run as root")
def test_loss__of_gradients_only_and_replicas_stay_identical() -> None:
    with lossy_loopback(0.01) as namespace:
        found = ranks(2, _lossy, namespace=namespace)
    assert len({bits for bits, _ in found}) == 1
    lost = sum(statistics.lost_bytes for _, statistics in found)
    assert 0 < lost < 0.10 * sum(statistics.dlcp["push"].bytes for _, statistics in found)


def _killed(store: Any, rank: int, size: int) -> Any:
    open_group(store, rank, size, "gloo")
    model = small_model()
    optimizer = dlcp.DlcpOptimizer(
        model, MAKERS["sgd"], servers=[1], bucket_bytes=BUCKET_BYTES, options=dlcp.DlcpOptions(silence_s=2.0)
    )
    for step in range(100_000):
        if rank == 2 and step == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            loss_of(model, step, rank).backward()
            optimizer.step()
        except RuntimeError as error:
            return str(error)
    return None


def test_a_worker_that_is_killed__is_named_by_all_others_in_bounded_time() -> None:
    """Rank 0 never talks to rank 2: it hears of it from the server. `ranks` waits for no rank for ever."""
    for error in ranks(3, _killed, dies=(2,))[:2]:
        assert "rank 2" in error


def _resources(store: Any, rank: int, size: int) -> Any:
    open_group(store, rank, size, "gloo")
    found = []
    for _ in range(3):
        model = small_model()
        optimizer = dlcp.DlcpOptimizer(model, MAKERS["sgd"])
        loss_of(model, 0, rank).backward()
        optimizer.step()
        optimizer.close()
        found.append(settled(lambda: (len(os.listdir("/proc/self/task")), len(os.listdir("/proc/self/fd")))))
    return found


def test_close__leaves_no_thread_and_no_socket() -> None:
    for found in ranks(2, _resources):
        assert len(set(found)) == 1, found

"""DDP's communication hook over DLCP, with real ranks over loopback."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.nn.parallel import DistributedDataParallel
from torch_ranks import batch, fingerprint, open_group, ranks, small_model, train

import dlcp.frameworks.pytorch as dlcp
from dlcp.frameworks.pytorch.ddp_hook import DlcpState

STEPS = 5


class _Watched(DlcpState):
    """Notes the queues that each bucket was cut into."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.seen: list[tuple[int, tuple[Any, ...]]] = []

    def _spans(self, bucket: Any) -> Any:
        spans = super()._spans(bucket)
        self.seen.append((bucket.index(), spans))
        return spans


def _train(store: Any, rank: int, size: int, hooked: bool, backend: str) -> Any:
    open_group(store, rank, size, backend)
    model = DistributedDataParallel(small_model(), bucket_cap_mb=0.3)
    state = None
    if hooked:
        state = _Watched(model, dlcp.DlcpOptions(loss_bound=0.0))
        model.register_comm_hook(state, dlcp.dlcp_hook)
    losses = train(model, rank, STEPS)
    elements = sum(p.numel() for p in model.parameters())
    if state is None:
        return losses, fingerprint(model), elements, None, None
    state.close()
    with pytest.raises(RuntimeError, match="cannot be used any more"):
        model(batch(0, rank)[0]).sum().backward()
    return losses, fingerprint(model), elements, state.statistics(), state.seen


@pytest.mark.parametrize("backend", ["gloo", "dlcp"])
def test_hook__averages_as_gloo_does_whatever_buckets_ddp_makes(backend: str) -> None:
    expected = ranks(2, _train, False, "gloo")
    found = ranks(2, _train, True, backend)
    for (losses, _, _, _, _), (theirs, _, elements, statistics, seen) in zip(expected, found, strict=True):
        assert theirs == pytest.approx(losses, abs=1e-5)
        assert statistics.dlcp["gradients"].bytes == STEPS * elements * 4
        assert statistics.lost_bytes == 0
        engine = next(iter(statistics.engine.values()))
        assert engine["data_bytes_sent"] >= statistics.dlcp["gradients"].bytes, "2 (n - 1) / n of the bytes, n = 2"
        first = seen[0][1]
        assert first[-1].stop == elements, "the first step's only bucket holds all parameters, front first"
        queues = [span.queue for span in first]
        assert queues == sorted(queues, reverse=True)
        assert len(set(queues)) > 1, "front layers travel in higher queues"
        assert not first[-1].droppable, "the last layers are protected"
        assert first[0].droppable
        later = [spans for _, spans in seen[2:]]
        assert all(spans[0].queue <= spans[-1].queue for spans in later), "rebuilt buckets begin at the back"
        assert len({spans for _, spans in seen}) > 2
    assert len({bits for _, bits, _, _, _ in found}) == 1


def _refuses(store: Any, rank: int, size: int) -> Any:
    open_group(store, rank, size, "gloo")
    model = DistributedDataParallel(torch.nn.Linear(10, 10).double())
    model.register_comm_hook(dlcp.DlcpState(model), dlcp.dlcp_hook)
    with pytest.raises(ValueError, match=r"DLCP carries no gradients of torch\.float64"):
        model(torch.ones(1, 10, dtype=torch.float64)).sum().backward()


def test_hook__refuses_what_dlcp_cannot_carry() -> None:
    ranks(1, _refuses)


def _halves(store: Any, rank: int, size: int, dtype: Any) -> Any:
    open_group(store, rank, size, "gloo")
    model = DistributedDataParallel(torch.nn.Linear(100, 100, bias=False).to(dtype))
    model.register_comm_hook(dlcp.DlcpState(model), dlcp.dlcp_hook)
    model(torch.full((1, 100), float(rank + 1), dtype=dtype)).sum().backward()
    gradient = model.module.weight.grad
    return gradient.dtype == dtype, gradient.unique().tolist()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_hook__takes_models_of_half_precision(dtype: Any) -> None:
    assert ranks(2, _halves, dtype) == [(True, [1.5])] * 2

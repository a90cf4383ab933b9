"""DDP's gradients over DLCP by a communication hook, for jobs that keep their backend.

    state = DlcpState(ddp)
    ddp.register_comm_hook(state, dlcp_hook)

The layers' queues follow the place of each parameter in its bucket, whatever DDP puts into one: after the first
iteration it makes other buckets.
"""

import os
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import GradBucket
from torch.distributed.distributed_c10d import default_pg_timeout
from torch.nn.parallel import DistributedDataParallel

from dlcp.frameworks.pytorch.close_at_exit import close_at_exit, is_closed
from dlcp.frameworks.pytorch.options import GRADIENT_LOSS_BOUND, DlcpOptions
from dlcp.frameworks.pytorch.reducer import DTYPES, Span, Spans
from dlcp.frameworks.pytorch.ring_group import RingGroup, store_of
from dlcp.frameworks.pytorch.statistics import Counter, Statistics
from dlcp.frameworks.pytorch.untraced import untraced, untraced_class
from dlcp.transport.contract.tensors import front_layers, map_queues


@untraced_class
class DlcpState:
    """What the hook needs of a DDP model: its ring, and the layers' queues. Every rank makes one, at the same place.

    timeout: how long one bucket may take. Raises RendezvousError when the ranks do not find together.
    """

    def __init__(
        self,
        ddp: DistributedDataParallel,
        options: DlcpOptions | None = None,
        *,
        timeout: timedelta = default_pg_timeout,
    ) -> None:
        options = options or DlcpOptions()
        settings = options.settings(GRADIENT_LOSS_BOUND)
        group: dist.ProcessGroup = ddp.process_group
        self._parameters = [p for p in ddp.module.parameters() if p.requires_grad]
        sizes = [p.numel() * p.element_size() for p in self._parameters]
        queues = map_queues(sizes, settings.priority_queues, settings.layer_map) if sizes else []
        protected_from = front_layers(len(sizes), settings)
        self._tags = {
            id(parameter): (queue, place < protected_from)
            for place, (parameter, queue) in enumerate(zip(self._parameters, queues, strict=True))
        }
        self._ring = RingGroup(
            store_of(group, "dlcp-hook"),
            group.rank(),
            group.size(),
            options,
            default_loss=GRADIENT_LOSS_BOUND,
            average=True,
            timeout=timeout,
            purpose="gradients",
        )
        self._process = os.getpid()
        close_at_exit(self)

    def reduce(self, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
        """The mean of a bucket over all ranks, in place. ValueError for a type of element that DLCP does not carry."""
        if os.getpid() != self._process:
            raise RuntimeError("this DlcpState belongs to the process that this one was forked from")
        buffer = bucket.buffer()
        if buffer.dtype not in DTYPES:
            raise ValueError(f"DLCP carries no gradients of {buffer.dtype}")
        return self._ring.start("gradients", buffer, self._spans(bucket)).future

    def statistics(self) -> Statistics:
        """What this rank carried."""
        return self._ring.statistics(Counter())

    def close(self) -> None:
        """Give the thread and the socket back; the hook cannot be used any more. Safe to call twice."""
        if os.getpid() == self._process:
            self._ring.close(drain=True)
            is_closed(self)

    def abandon(self) -> None:
        """The same without waiting for what is under way."""
        if os.getpid() == self._process:
            self._ring.close(drain=False)
            is_closed(self)

    def _spans(self, bucket: GradBucket) -> Spans:
        """The queue of each part of a bucket; neighbours of the same queue are one part."""
        spans: list[Span] = []
        stop = 0
        for parameter, gradient in zip(bucket.parameters(), bucket.gradients(), strict=True):
            stop += gradient.numel()
            queue, droppable = self._tags[id(parameter)]
            if spans and spans[-1][1:] == (queue, droppable):
                spans.pop()
            spans.append(Span(stop, queue, droppable))
        return tuple(spans)


@untraced
def dlcp_hook(state: DlcpState, bucket: GradBucket) -> torch.futures.Future[torch.Tensor]:
    """What DistributedDataParallel.register_comm_hook takes. It reads the argument's name, and its type, which must not
    be the name of one: so this file does without `from __future__ import annotations`."""
    return state.reduce(bucket)

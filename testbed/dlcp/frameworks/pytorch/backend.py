"""torch.distributed's backend `dlcp`: all_reduce of floats over a DLCP ring, everything else over an inner gloo.

After `import dlcp.frameworks.pytorch`, `init_process_group("dlcp")` is all that a job needs. What goes over gloo is
counted, and said in the log once.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from dlcp.frameworks.pytorch.close_at_exit import close_at_exit, is_closed
from dlcp.frameworks.pytorch.options import DlcpOptions
from dlcp.frameworks.pytorch.reducer import DTYPES, Span
from dlcp.frameworks.pytorch.ring_group import RingGroup
from dlcp.frameworks.pytorch.statistics import Counter, Statistics
from dlcp.frameworks.pytorch.untraced import untraced_class
from dlcp.frameworks.pytorch.work import DlcpWork, all_of

BACKEND_LOSS_BOUND = 0.0
"""A drop-in backend also carries metrics: it loses nothing unless it is asked to."""
QUEUE = 3
"""Of everything: a backend does not know of which layers a tensor is."""
_SUM: Any = dist.ReduceOp.RedOpType.SUM  # type: ignore[attr-defined]
_AVG: Any = dist.ReduceOp.RedOpType.AVG  # type: ignore[attr-defined]
log = logging.getLogger("dlcp.pytorch")


def register() -> None:
    """Make `dlcp` known to torch.distributed, for CPU tensors."""
    dist.Backend.register_backend("dlcp", _create, extended_api=True, devices=["cpu"])


def _create(given: Any, options: object) -> DlcpGroup:
    """What torch calls for init_process_group and new_group; options: their pg_options."""
    if options is not None and not isinstance(options, DlcpOptions):
        raise TypeError(f"the backend dlcp takes DlcpOptions as pg_options, not {type(options).__name__}")
    return DlcpGroup(given.store, given.group_rank, given.group_size, given.timeout, options or DlcpOptions())


def statistics(group: dist.ProcessGroup | None = None) -> Statistics:
    """What a group of the backend `dlcp` carried; None: the default group. TypeError for another backend's group."""
    found = group or dist.group.WORLD
    if not isinstance(found, DlcpGroup):
        raise TypeError(
            f"this is a group of {found.name() if found else 'no backend'}, not of dlcp: it has no statistics"
        )
    return found.statistics()


def _over_gloo(collective: str, given: int = 0) -> Any:
    """A method that hands a collective on. given: which argument holds the tensors that this rank contributes."""

    def call(self: DlcpGroup, *arguments: Any, **named: Any) -> Any:
        return self.hand_on(collective, arguments[given] if len(arguments) > given else None, *arguments, **named)

    return call


@untraced_class
class DlcpGroup(dist.ProcessGroup):
    """One rank of a process group. Collectives as torch.distributed calls them; see there."""

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta, options: DlcpOptions) -> None:
        super().__init__(rank, size)  # type: ignore[call-arg]
        self._options = options
        self._process = os.getpid()
        self._store = store
        self._elsewhere = Counter()
        self._name = ""
        self._description = "undefined"  # torch's own default
        self._ring = RingGroup(
            store,
            rank,
            size,
            options,
            default_loss=BACKEND_LOSS_BOUND,
            average=False,
            timeout=timeout,
            purpose="all_reduce",
        )
        try:
            self._gloo: Any = _inner_gloo(self._ring.store, rank, size, timeout, self._ring.link.address)
        except BaseException:
            self._ring.close(drain=False)
            raise
        close_at_exit(self)

    def get_group_store(self) -> Store:
        """This group's part of the store."""
        return self._store

    def getBackendName(self) -> str:  # noqa: N802 - torch's name
        """What torch calls this backend."""
        return "dlcp"

    def getGroupName(self) -> str:  # noqa: N802 - torch's name
        """Return the name under which torch finds the group again: DeviceMesh, FSDP2 and functional collectives do."""
        return self._name

    def setGroupName(self, name: str) -> None:  # noqa: N802 - torch's name
        """Take the name that torch gives the group."""
        self._name = name

    def getGroupDesc(self) -> str:  # noqa: N802 - torch's name
        """Return what the group is for, in the words of the code that made it."""
        return self._description

    def setGroupDesc(self, description: str) -> None:  # noqa: N802 - torch's name
        """Take the description that torch gives the group."""
        self._description = description

    def allreduce(self, tensors: Any, opts: Any = None) -> Any:  # type: ignore[override]
        """Each tensor reduced in place; over DLCP where it can be. ValueError if strict and it cannot."""
        self._check_usable()
        wanted = [tensors] if isinstance(tensors, torch.Tensor) else list(tensors)
        operation = _operation(opts)
        reason = self._why_not(wanted, operation)
        if reason is not None:
            self._object(wanted, operation, reason)
            return self.hand_on("allreduce", wanted, wanted, opts, reason=f" {reason}")
        return self._reduce(wanted, average=operation == _AVG)

    def allreduce_coalesced(self, tensors: Any, opts: Any = None) -> Any:
        """The same as one all-reduce of each."""
        self._check_usable()
        operation = _operation(opts)
        reason = self._why_not(list(tensors), operation)
        if reason is not None:
            self._object(list(tensors), operation, reason)
            return self.hand_on("allreduce_coalesced", tensors, tensors, opts, reason=f" {reason}")
        return self._reduce(list(tensors), average=operation == _AVG)

    broadcast: Any = _over_gloo("broadcast")
    reduce: Any = _over_gloo("reduce")
    allgather: Any = _over_gloo("allgather", 1)
    _allgather_base: Any = _over_gloo("_allgather_base", 1)
    all_gather_single: Any = _over_gloo("all_gather_single", 1)
    allgather_coalesced: Any = _over_gloo("allgather_coalesced", 1)
    allgather_into_tensor_coalesced: Any = _over_gloo("allgather_into_tensor_coalesced", 1)
    gather: Any = _over_gloo("gather", 1)
    scatter: Any = _over_gloo("scatter", 1)
    reduce_scatter: Any = _over_gloo("reduce_scatter", 1)
    _reduce_scatter_base: Any = _over_gloo("_reduce_scatter_base", 1)
    reduce_scatter_single: Any = _over_gloo("reduce_scatter_single", 1)
    reduce_scatter_tensor_coalesced: Any = _over_gloo("reduce_scatter_tensor_coalesced", 1)
    alltoall: Any = _over_gloo("alltoall", 1)
    alltoall_base: Any = _over_gloo("alltoall_base", 1)
    all_to_all_single: Any = _over_gloo("all_to_all_single", 1)
    barrier: Any = _over_gloo("barrier")
    monitored_barrier: Any = _over_gloo("monitored_barrier")
    send: Any = _over_gloo("send")
    recv: Any = _over_gloo("recv")
    recv_anysource: Any = _over_gloo("recv_anysource")

    def statistics(self) -> Statistics:
        """See statistics(). Once the group is destroyed, as of then."""
        return self._ring.statistics(self._elsewhere)

    def shutdown(self) -> None:
        """Wait for what is under way, then give threads and sockets back. Safe to call twice, and after a fork."""
        self._close(drain=True)

    def abort(self) -> None:
        """The same without waiting: what is under way fails."""
        self._close(drain=False)

    def abandon(self) -> None:
        """For a process that ends."""
        self._close(drain=False)

    def _close(self, *, drain: bool) -> None:
        if os.getpid() != self._process:
            return  # a forked child has no thread that could end, and must not touch its parent's sockets
        self._ring.close(drain=drain)
        self._gloo = None
        is_closed(self)

    def hand_on(self, collective: str, given: object, *arguments: Any, reason: str = "", **named: Any) -> Any:
        """Do a collective over gloo, counted; the first of its kind is said in the log. reason: more of its name."""
        self._check_usable()
        name = _PUBLIC.get(collective, collective) + reason
        if self._elsewhere.note(name, given):
            level = logging.WARNING if self.rank() == 0 else logging.INFO
            log.log(level, "%s goes over gloo; over DLCP go all_reduce by sum and avg of %s", name, _KINDS)
        given_on = list(arguments)
        while given_on and given_on[-1] is None:  # torch's own default, which gloo's signature does not know
            given_on.pop()
        return getattr(self._gloo, collective)(*given_on, **named)

    def _reduce(self, tensors: list[torch.Tensor], *, average: bool) -> DlcpWork:
        outcomes = []
        for tensor in tensors:
            if tensor.numel():
                flat = tensor.detach().resolve_neg().contiguous().view(-1)
                finish = self._finisher(tensor, flat, average)
                outcomes.append(self._ring.start("all_reduce", flat, _spans(tensor), finish))
        return DlcpWork(all_of(outcomes, tensors, self._ring.reducer.callbacks))

    def _finisher(self, tensor: torch.Tensor, flat: torch.Tensor, average: bool) -> Callable[[], None]:
        """What is left to do with a sum: every rank does the same to the same bits."""

        def finish() -> None:
            if average:
                flat.div_(self.size())
            if flat.data_ptr() != tensor.data_ptr():
                _copy_back(tensor.detach(), flat)

        return finish

    def _why_not(self, tensors: list[torch.Tensor], operation: Any) -> str | None:
        """Why an all-reduce cannot go over DLCP; None when it can."""
        if operation not in (_SUM, _AVG):
            return f"by {operation.name.lower()}"
        for tensor in tensors:
            if tensor.device.type != "cpu":
                raise ValueError(f"the backend dlcp carries CPU tensors, not one on {tensor.device}")
            if tensor.dtype not in DTYPES:
                return f"of {str(tensor.dtype).removeprefix('torch.')}"
            if tensor.layout != torch.strided:
                return "of sparse tensors"
            if tensor.numel() and not self._ring.reducer.has_room(tensor.numel(), tensor.dtype, _spans(tensor)):
                return "of more different sizes than DLCP has numbers for"
        return None

    def _object(self, tensors: list[torch.Tensor], operation: Any, reason: str) -> None:
        """ValueError if the user wants to hear of floats that do not go over DLCP."""
        adds = operation in (_SUM, _AVG)
        if self._options.strict and adds and any(tensor.is_floating_point() for tensor in tensors):
            raise ValueError(f"strict: an all_reduce {reason} cannot go over DLCP, which carries {_KINDS}")

    def _check_usable(self) -> None:
        if os.getpid() != self._process:
            raise RuntimeError("this DLCP group belongs to the process that this one was forked from")
        if self._gloo is None:
            raise RuntimeError("this DLCP group was destroyed")


_KINDS = "float32, float16 and bfloat16"


def _spans(tensor: torch.Tensor) -> tuple[Span, ...]:
    return (Span(tensor.numel(), QUEUE, True),)


def _copy_back(tensor: torch.Tensor, flat: torch.Tensor) -> None:
    """Write the sums to a tensor that is not contiguous. Elements of an expanded tensor that share memory have equal
    sums, so one of each is written."""
    values = flat.view(tensor.shape)
    for dimension, stride in enumerate(tensor.stride()):
        if stride == 0:
            tensor, values = tensor.narrow(dimension, 0, 1), values.narrow(dimension, 0, 1)
    tensor.copy_(values)


def _operation(options: Any) -> Any:
    """The kind of a reduction. ReduceOp wraps a RedOpType; only the latter compares by `in`."""
    found = dist.ReduceOp.SUM if options is None else options.reduceOp
    return getattr(found, "op", found)


_PUBLIC = {
    "allreduce": "all_reduce",
    "allreduce_coalesced": "all_reduce",
    "allgather": "all_gather",
    "_allgather_base": "all_gather_single",
    "_reduce_scatter_base": "reduce_scatter_single",
    "alltoall": "all_to_all",
    "alltoall_base": "all_to_all_single",
}
"""torch's method → its public function."""


def _inner_gloo(store: Store, rank: int, size: int, timeout: timedelta, address: str) -> Any:
    """A process group over the same link as DLCP, unless the user has told gloo otherwise."""
    gloo: Any = dist.ProcessGroupGloo
    options = gloo._Options()
    options._timeout = timeout
    told = [name for name in os.environ.get("GLOO_SOCKET_IFNAME", "").split(",") if name]
    options._devices = [gloo.create_device(interface=name) for name in told] or [gloo.create_device(hostname=address)]
    inner_store = PrefixStore("gloo", store)
    inner = dist.ProcessGroup(inner_store, rank, size)
    inner._set_default_backend(dist.ProcessGroup.BackendType.GLOO)
    backend = gloo(inner_store, rank, size, options)
    inner._register_backend(torch.device("cpu"), dist.ProcessGroup.BackendType.GLOO, backend)
    return inner

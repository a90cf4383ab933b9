"""Parameter-server training for any model: gradients leave while backward runs, forward waits layer by layer.

    optimizer = DlcpOptimizer(model, lambda params: torch.optim.SGD(params, lr=0.1, momentum=0.9))
    for inputs, labels in batches:
        loss(model(inputs), labels).backward()
        optimizer.step()
    optimizer.close()

DDP waits for all gradients at the end of backward and only then may forward begin; here the first layers' parameters
come back first, and forward begins with them while the rest is under way.
"""

from __future__ import annotations

import contextlib
import logging
import os
import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import default_pg_timeout

from dlcp.frameworks.pytorch.flat import Entry, FlatModel, pieces
from dlcp.frameworks.pytorch.opened import close_at_exit, is_closed
from dlcp.frameworks.pytorch.options import GRADIENT_LOSS_BOUND, DlcpOptions
from dlcp.frameworks.pytorch.rendezvous import meet
from dlcp.frameworks.pytorch.ring_group import DRAIN_AT_MOST_S, store_of
from dlcp.frameworks.pytorch.shard import Hyperparameters, MakeOptimizer, Shard, TorchUpdate, hyperparameters
from dlcp.frameworks.pytorch.traffic import Carried, Statistics
from dlcp.frameworks.pytorch.watch import Alarm, WatchedEndpoint
from dlcp.transport.endpoint import Completion, Leg, TransportError
from dlcp.transport.parameter_server import Worker, declare
from dlcp.transport.tagging import plan_tensors

BUCKET_BYTES = 1_000_000
"""Small layers travel together up to about this size, bigger ones are cut: under a millisecond at 10 Gbit/s."""
SNAPSHOTS_KEPT = 4
"""No server is more than two iterations behind its own worker: a push is over before the next of its tensor."""
log = logging.getLogger("dlcp.pytorch")


class DlcpOptimizer(torch.optim.Optimizer):
    """Every rank of the group makes one, with the same model and arguments, at the same place.

    make: parameters → any of torch's optimizers that treats elements alike (SGD, Adam, AdamW, …), also with parameter
    groups. It runs at the servers, on parts of the model: of a layer bigger than bucket_bytes, on 1-D ranges.
    group: its store and broadcast are used; None: the default group, of any backend. servers: the ranks that hold the
    parameters, balanced by bytes; a rank may be named twice; None: all. timeout: how long a wait may take.
    Rank 0's parameters and buffers are given to all at the start; afterwards each rank keeps its own buffers.

    * The gradient of a parameter is gone (None) once it was sent, so nothing can clip or log it after backward.
    * param_groups are the user's and a learning-rate scheduler may change them, the same at every rank, between step()
      and the next backward(): an iteration uses what they are when its first gradient appears.
    * Parameters are complete in forward, in any module's forward without gradients, in state_dict(), and after
      synchronize(). Whoever reads them elsewhere calls synchronize() before.
    * Several backwards for one step: all but the last in no_sync(), as with DDP.
    * A parameter without a gradient in an iteration counts as one with a gradient of zero; the log says so once.

    Raises RendezvousError when the ranks do not find together, ValueError for a model that is not float32 on the CPU;
    while training, TransportError when a rank is gone.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        make: MakeOptimizer,
        *,
        group: dist.ProcessGroup | None = None,
        servers: list[int] | None = None,
        bucket_bytes: int = BUCKET_BYTES,
        options: DlcpOptions | None = None,
        timeout: timedelta = default_pg_timeout,
    ) -> None:
        options = options or DlcpOptions()
        found = group or dist.group.WORLD
        if found is None:
            raise RuntimeError("init_process_group comes before DlcpOptimizer")
        self._group = found
        self._process = os.getpid()
        self._is_closed = False
        self._keeps = False
        self._was_complete = True
        self._was_loaded = False
        self._told_of_unused = False
        self._model = model
        self._flat = FlatModel(model)
        self._template = make([entry.parameter for entry in self._flat.entries])
        super().__init__(self._template.param_groups, self._template.defaults)
        self._give_all_the_same()
        self._flat.bind()
        self._start(make, servers, bucket_bytes, options, timeout)
        self._hang_hooks()
        close_at_exit(self)

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """The end of an iteration: what backward has not sent is sent. Does not wait. RuntimeError without backward."""
        if closure is not None:
            raise ValueError("gradients are sent while backward runs: DlcpOptimizer.step takes no closure")
        self._check_usable()
        left = [entry for entry in self._flat.entries if entry.parameter not in self._sent]
        if not self._sent and all(entry.parameter.grad is None for entry in left):
            raise RuntimeError("step() came without a backward() since the last one")
        for entry in left:
            if entry.parameter.grad is None and not self._told_of_unused:
                self._told_of_unused = True
                log.warning("%s got no gradient in iteration %d: counted as zero", entry.name, self._iteration)
            self._send(entry)
        self._iteration += 1
        self._sent.clear()
        self._ran.clear()
        self._was_complete = False
        self._tally(self._worker.completions)
        self._worker.completions.clear()

    def synchronize(self) -> None:
        """Wait until every parameter is what the last step made it."""
        self._check_usable()
        self._worker.await_parameters(range(len(self._tensors)))
        self._was_complete = self._was_complete or not self._sent

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of a backward in here are kept and added up; the next one outside sends the sums."""
        before, self._keeps = self._keeps, True
        try:
            yield
        finally:
            self._keeps = before

    def state_dict(self) -> dict[str, Any]:
        """The servers' states and the hyperparameters, of all ranks, at every rank: all ranks call it."""
        self.synchronize()
        own = {number: part.optimizer.state_dict()["state"] for number, part in self._parts().items()}
        gathered: list[Any] = [None] * self._group.size()
        dist.all_gather_object(gathered, own, group=self._group)
        return {
            "iteration": self._iteration,
            "param_groups": hyperparameters(self),
            "tensors": [(tensor.start, tensor.stop) for tensor in self._tensors],
            "state": {number: state for part in gathered for number, state in part.items()},
        }

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Resume: all ranks load the model, then this, from the same checkpoint. The number of ranks and servers may
        differ from then, bucket_bytes may not: ValueError. The servers take the parameters from rank 0's model."""
        cut = [(tensor.start, tensor.stop) for tensor in self._tensors]
        if cut != [tuple(place) for place in state_dict["tensors"]]:
            raise ValueError("the checkpoint is of another model, or was made with another bucket_bytes")
        self._settle()
        for group, saved in zip(self.param_groups, state_dict["param_groups"], strict=True):
            group.update(saved)
        self._give_all_the_same()
        self._was_loaded = False
        for shard in self._shards:
            shard.load(self._flat.values)
        for number, part in self._parts().items():
            part.optimizer.load_state_dict({**part.optimizer.state_dict(), "state": state_dict["state"][number]})

    def add_param_group(self, param_group: dict[str, Any]) -> None:
        """Only make's own groups: what is trained is agreed at the start. RuntimeError afterwards."""
        if hasattr(self, "_worker"):
            raise RuntimeError("the parameters of a DlcpOptimizer are agreed at the start: no group can be added")
        super().add_param_group(param_group)

    def statistics(self) -> Statistics:
        """What this rank sent: as worker gradients (push), as server parameters (pull). lost_bytes: of the gradients on
        their way to its servers."""
        with self._lock:
            return Statistics(
                dlcp={name: Carried(found.calls, found.bytes) for name, found in self._carried.items()},
                gloo={},
                lost_bytes=self._lost_bytes,
                lost_energy_share=self._lost_energy / max(1, self._received_bytes),
                resent_bytes=self._resent_bytes,
                link_rate_bps=self._link.rate_bps,
                link_rate_from=self._link.rate_from,
                engine={number: endpoint.statistics() for number, endpoint in self._endpoints.items()},
            )

    def close(self) -> None:
        """Finish what is under way, for other ranks too, then give threads and sockets back; the model keeps its
        parameters. Safe to call twice. TransportError when a rank is gone before its time."""
        if os.getpid() != self._process or self._is_closed:
            return
        try:
            self._settle()
        finally:
            self._end()

    def abandon(self) -> None:
        """For a process that ends."""
        if os.getpid() == self._process and not self._is_closed:
            self._worker.patience.stall_timeout_s = DRAIN_AT_MOST_S
            with contextlib.suppress(TransportError):
                if not self._sent:  # in the middle of an iteration others wait for what will not come
                    self._settle()
            self._end()

    def _start(
        self,
        make: MakeOptimizer,
        servers: list[int] | None,
        bucket_bytes: int,
        options: DlcpOptions,
        timeout: timedelta,
    ) -> None:
        """Plan the tensors, meet the other ranks, begin to serve."""
        rank, size = self._group.rank(), self._group.size()
        homes = list(range(size)) if servers is None else servers
        if not homes or not all(0 <= home < size for home in homes):
            raise ValueError(f"servers are ranks from 0 to {size - 1}, not {homes}")
        settings = options.settings(GRADIENT_LOSS_BOUND)
        self._tensors = plan_tensors(self._flat.layers, bucket_bytes, len(homes), settings)
        self._pieces = {one.parameter: pieces(self._tensors, one.start, one.stop) for one in self._flat.entries}
        workers, server_numbers = list(range(size)), list(range(size, size + len(homes)))
        own = [number for number, home in zip(server_numbers, homes, strict=True) if home == rank]
        meeting = meet(
            store_of(self._group, "dlcp-optimizer"), rank, size, options, settings,
            endpoints={rank: set(server_numbers), **{number: set(workers) for number in own}},
            agreed={"servers": homes, "bucket_bytes": bucket_bytes, "layers": self._flat.layers}, timeout=timeout,
        )  # fmt: skip
        self._alarm = alarm = Alarm(meeting.store, rank)
        self._link = meeting.link
        self._endpoints = {number: WatchedEndpoint(one, alarm) for number, one in meeting.endpoints.items()}
        self._lock = threading.Lock()
        self._carried: dict[str, Carried] = {}
        self._lost_bytes = self._resent_bytes = self._received_bytes = 0
        self._lost_energy = 0.0
        self._iteration = 0
        self._snapshots: dict[int, Hyperparameters] = {}
        for endpoint in self._endpoints.values():
            declare(endpoint, self._tensors, settings)
        self._worker = Worker(
            self._endpoints[rank], self._tensors, server_numbers, self._flat.values,
            stall_timeout_s=timeout.total_seconds(),
        )  # fmt: skip
        self._shards = [
            Shard(
                self._endpoints[number], alarm, self._tensors, number - size, workers, self._flat.values,
                TorchUpdate(make, self._template, self._tensors, self._flat.entries, self._snapshots.__getitem__),
                self._tally, options.holes,
            )
            for number in own
        ]  # fmt: skip
        dist.barrier(self._group)  # nobody pushes before every server expects it

    def _hang_hooks(self) -> None:
        self._sent: set[torch.nn.Parameter] = set()
        self._ran: set[torch.nn.Module] = set()
        self._without_forward: set[torch.nn.Parameter] = set()
        self._missing = [tensor.elements for tensor in self._tensors]
        needed: dict[torch.nn.Module, set[int]] = {}
        self._removable: list[Any] = []
        for entry in self._flat.entries:
            for module in entry.modules:
                needed.setdefault(module, set()).update(self._tensors_of(entry))
            hook = entry.parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                lambda _, entry=entry: self._on_gradient(entry)
            )
            self._removable.append(hook)
        for module in self._model.modules():
            before_forward = self._forward_hook(sorted(needed.get(module, ())))
            self._removable += [
                module.register_forward_pre_hook(before_forward, prepend=True),
                module.register_state_dict_pre_hook(self._before_saving),  # type: ignore[no-untyped-call]
                module.register_load_state_dict_pre_hook(self._before_loading),  # type: ignore[no-untyped-call]
            ]

    def _before_saving(self, *_: object) -> None:
        self.synchronize()

    def _before_loading(self, *_: object) -> None:
        self.synchronize()
        self._was_loaded = True

    def _forward_hook(self, needed: list[int]) -> Callable[[torch.nn.Module, object], None]:
        def wait(module: torch.nn.Module, _: object) -> None:
            if not torch.is_grad_enabled():
                self.synchronize()
                return
            self._ran.add(module)
            if needed:
                self._worker.await_parameters(needed)
            if module is self._model and self._without_forward:
                self._worker.await_parameters(self._tensors_without_forward())

        return wait

    def _on_gradient(self, entry: Entry) -> None:
        """Autograd has a parameter's gradient whole."""
        self._check_usable()
        if entry.parameter in self._sent:
            entry.parameter.grad = None
            raise RuntimeError(
                f"a second backward() before step() made a gradient of {entry.name}, whose first is sent already: "
                "run all but the last in no_sync()"
            )
        if self._was_loaded:
            raise RuntimeError(
                "the model was loaded, but its parameters live at the servers: load the state of this DlcpOptimizer "
                "too, or make it after the model is loaded"
            )
        self._check_forward(entry)
        if not self._keeps:
            self._send(entry)

    def _check_forward(self, entry: Entry) -> None:
        """Whether forward waited for this parameter. Some are used without their module's forward (attention reads its
        output projection so); they are found out when all were complete, as in the first iteration."""
        ran = bool(self._ran.intersection(entry.modules))
        if self._was_complete:
            if not ran:
                self._without_forward.add(entry.parameter)
        elif not ran and not (entry.parameter in self._without_forward and self._model in self._ran):
            raise RuntimeError(
                f"{entry.name} was used without the forward() of its module, and may have been incomplete: "
                "call synchronize() before the model is used"
            )

    def _send(self, entry: Entry) -> None:
        """Copy a gradient out, and push every tensor that is whole by that."""
        if self._iteration not in self._snapshots:
            self._snapshots[self._iteration] = hyperparameters(self)
            self._snapshots.pop(self._iteration - SNAPSHOTS_KEPT, None)
        gradient = entry.parameter.grad
        if gradient is not None and gradient.layout != torch.strided:
            raise ValueError(f"the gradient of {entry.name} is sparse: DlcpOptimizer sends dense ones")
        flat = None if gradient is None else gradient.detach().reshape(-1).numpy()
        for piece in self._pieces[entry.parameter]:
            slot = self._worker.gradient_slot(piece.tensor)
            place = slice(piece.offset, piece.offset + piece.stop - piece.start)
            slot[place] = 0.0 if flat is None else flat[piece.start : piece.stop]
            self._missing[piece.tensor] -= piece.stop - piece.start
            if self._missing[piece.tensor] == 0:
                self._missing[piece.tensor] = self._tensors[piece.tensor].elements
                self._worker.push(self._iteration, piece.tensor)
        entry.parameter.grad = None
        self._sent.add(entry.parameter)

    def _give_all_the_same(self) -> None:
        """Rank 0's parameters and buffers to every rank, as DDP does."""
        self._flat.read()
        flat = torch.from_numpy(self._flat.values)
        for values in (flat, *self._model.buffers()):
            if values.numel():
                dist.broadcast(values, group=self._group, group_src=0)

    def _settle(self) -> None:
        """Wait until nothing is under way at this rank, nor from its servers to others."""
        self._check_usable()
        self._worker.finish()
        for shard in self._shards:
            if not shard.wait_until_served(self._iteration, DRAIN_AT_MOST_S):
                raise TransportError(f"not every rank took its parameters: {shard.error or 'time ran out'}")
        self._was_complete = True

    def _end(self) -> None:
        self._is_closed = True
        self._tally(self._worker.completions)
        for hook in self._removable:
            hook.remove()
        for shard in self._shards:
            shard.close()
        for endpoint in self._endpoints.values():
            endpoint.close()
        self._alarm.close()
        is_closed(self)

    def _parts(self) -> dict[int, Any]:
        return {number: part for shard in self._shards for number, part in shard.update.parts.items()}

    def _tensors_of(self, entry: Entry) -> list[int]:
        return [piece.tensor for piece in self._pieces[entry.parameter]]

    def _tensors_without_forward(self) -> list[int]:
        entries = [entry for entry in self._flat.entries if entry.parameter in self._without_forward]
        return sorted({tensor for entry in entries for tensor in self._tensors_of(entry)})

    def _tally(self, completions: list[Completion]) -> None:
        with self._lock:
            for one in completions:
                if not one.received:
                    found = self._carried.setdefault("push" if one.key.leg is Leg.PUSH else "pull", Carried())
                    found.calls += 1
                    found.bytes += one.bytes
                    self._resent_bytes += one.resent_bytes
                else:
                    self._lost_bytes += one.lost_bytes
                    self._received_bytes += one.bytes
                    self._lost_energy += one.lost_energy_share * one.bytes

    def _check_usable(self) -> None:
        if os.getpid() != self._process:
            raise RuntimeError("this DlcpOptimizer belongs to the process that this one was forked from")
        if self._is_closed:
            raise RuntimeError("this DlcpOptimizer is closed")

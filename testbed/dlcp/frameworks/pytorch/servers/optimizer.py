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
import os
from collections.abc import Callable, Iterator
from datetime import timedelta
from typing import Any, Literal

import torch
import torch.distributed as dist
from torch.distributed.distributed_c10d import default_pg_timeout

from dlcp.frameworks.pytorch.close_at_exit import close_at_exit, is_closed
from dlcp.frameworks.pytorch.failure.peer_failure import WatchedEndpoint
from dlcp.frameworks.pytorch.options import GRADIENT_LOSS_BOUND, DlcpOptions
from dlcp.frameworks.pytorch.rendezvous import Meeting, meet
from dlcp.frameworks.pytorch.ring_group import DRAIN_AT_MOST_S, store_of
from dlcp.frameworks.pytorch.servers.autograd_hooks import Hooks
from dlcp.frameworks.pytorch.servers.flat_parameters import FlatModel
from dlcp.frameworks.pytorch.servers.shard import Hyperparameters, MakeOptimizer, Shard, TorchUpdate, hyperparameters
from dlcp.frameworks.pytorch.servers.watched_worker import WatchedWorker, rank_names
from dlcp.frameworks.pytorch.statistics import Counter, Losses, Statistics, statistics_of
from dlcp.model.transport.settings import TransportSettings
from dlcp.patterns.base import Traffic
from dlcp.patterns.parameter_server import ParameterServer
from dlcp.transport.contract.declarations import declare_all
from dlcp.transport.contract.endpoint import Completion, Leg, TransportError
from dlcp.transport.contract.mailbox import Mailbox
from dlcp.transport.contract.tensors import plan_tensors

BUCKET_BYTES = 1_000_000
"""Small layers travel together up to about this size, bigger ones are cut: under a millisecond at 10 Gbit/s."""
ENDLESS = 0
"""Iterations, to a plan: nobody knows how many will come. No bound of these options changes with them."""
SNAPSHOTS_KEPT = 4
"""No server is more than two iterations behind its own worker: a push is over before the next of its tensor."""


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
        self._counter = Counter()
        self._losses = Losses()
        self._snapshots: dict[int, Hyperparameters] = {}
        self._model = model
        self._flat = FlatModel(model)
        self._template = make([entry.parameter for entry in self._flat.entries])
        super().__init__(self._template.param_groups, self._template.defaults)
        self._give_all_the_same()
        self._flat.bind()
        self._start(make, servers, bucket_bytes, options, timeout)
        self._hooks = Hooks(model, self._flat, self._tensors, self._worker, self._begin, self._check_usable)
        self._alarm.wanted = lambda: self._hooks.iteration
        close_at_exit(self)

    def step(self, closure: Callable[[], float] | None = None) -> None:  # type: ignore[override]
        """The end of an iteration: what backward has not sent is sent. Does not wait. RuntimeError without backward."""
        if closure is not None:
            raise ValueError("gradients are sent while backward runs: DlcpOptimizer.step takes no closure")
        self._check_usable()
        self._hooks.end_iteration()
        self._tally(self._worker.completions)
        self._worker.completions.clear()

    def synchronize(self) -> None:
        """Wait until every parameter is what the last step made it."""
        self._hooks.synchronize()

    @contextlib.contextmanager
    def no_sync(self) -> Iterator[None]:
        """Gradients of a backward in here are kept and added up; the next one outside sends the sums."""
        before, self._hooks.keeps = self._hooks.keeps, True
        try:
            yield
        finally:
            self._hooks.keeps = before

    def state_dict(self) -> dict[str, Any]:
        """The servers' states and the hyperparameters, of all ranks, at every rank: all ranks call it."""
        self.synchronize()
        own = {number: part.optimizer.state_dict()["state"] for number, part in self._parts().items()}
        gathered: list[Any] = [None] * self._group.size()
        dist.all_gather_object(gathered, own, group=self._group)
        return {
            "iteration": self._hooks.iteration,
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
        self._hooks.was_loaded = False
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
        engine = {number: endpoint.statistics() for number, endpoint in self._endpoints.items()}
        return statistics_of(self._counter, Counter(), self._losses, self._link, engine)

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
                if not self._hooks.sent:  # in the middle of an iteration others wait for what will not come
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
        workers, server_numbers = list(range(size)), list(range(size, size + len(homes)))
        own = [number for number, home in zip(server_numbers, homes, strict=True) if home == rank]
        meeting = meet(
            store_of(self._group, "dlcp-optimizer"),
            rank,
            size,
            options,
            settings,
            endpoints={rank: set(server_numbers), **{number: set(workers) for number in own}},
            agreed={"servers": homes, "bucket_bytes": bucket_bytes, "layers": self._flat.layers},
            progress="iteration",
            timeout=timeout,
        )
        self._link = meeting.link
        self._shards: list[Shard] = []
        try:
            self._serve(meeting, make, settings, homes, own, options.holes, timeout)
        except BaseException:
            for shard in self._shards:
                shard.close()
            meeting.close()
            raise
        dist.barrier(self._group)  # nobody pushes before every server expects it

    def _serve(
        self,
        meeting: Meeting,
        make: MakeOptimizer,
        settings: TransportSettings,
        homes: list[int],
        own: list[int],
        holes: Literal["zero", "rescale"],
        timeout: timedelta,
    ) -> None:
        """This rank's worker, and its servers. homes: the ranks of all; own: the numbers of those here."""
        rank, size = self._group.rank(), self._group.size()
        self._alarm = meeting.alarm
        name = rank_names(size, homes)
        self._endpoints = {number: WatchedEndpoint(one, self._alarm, name) for number, one in meeting.endpoints.items()}
        traffic = Traffic(size, len(homes), self._tensors, settings, iterations=ENDLESS)
        declarations = ParameterServer("parameter server").declarations(traffic)
        for endpoint in self._endpoints.values():
            declare_all(endpoint, declarations)
        self._worker = WatchedWorker(
            Mailbox(self._endpoints[rank]),
            self._tensors,
            list(range(size, size + len(homes))),
            self._flat.values,
            stall_timeout_s=timeout.total_seconds(),
            alarm=self._alarm,
            name=name,
        )
        for number in own:
            update = TorchUpdate(make, self._template, self._tensors, self._flat.entries, self._snapshots.__getitem__)
            self._shards.append(
                Shard(
                    self._endpoints[number],
                    self._alarm,
                    self._tensors,
                    number - size,
                    list(range(size)),
                    self._flat.values,
                    update,
                    self._tally,
                    holes,
                )
            )

    def _begin(self, iteration: int) -> None:
        """Keep what an iteration's hyperparameters are for this rank's servers, which may come to it later."""
        if iteration not in self._snapshots:
            self._snapshots[iteration] = hyperparameters(self)
            self._snapshots.pop(iteration - SNAPSHOTS_KEPT, None)

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
            if not shard.wait_until_served(self._hooks.iteration, DRAIN_AT_MOST_S):
                raise TransportError(f"not every rank took its parameters: {shard.error or 'time ran out'}")
        self._hooks.was_complete = True

    def _end(self) -> None:
        self._is_closed = True
        self._tally(self._worker.completions)
        self._alarm.leave(self._hooks.iteration)
        self._hooks.remove()
        for shard in self._shards:
            shard.close()
        for endpoint in self._endpoints.values():
            endpoint.close()
        self._alarm.close()
        is_closed(self)

    def _parts(self) -> dict[int, Any]:
        return {number: part for shard in self._shards for number, part in shard.update.parts.items()}

    def _tally(self, completions: list[Completion]) -> None:
        for one in completions:
            if one.received:
                self._losses.add(one.bytes, one.lost_bytes, one.lost_energy_share, 0)
            else:
                self._counter.add("push" if one.key.leg is Leg.PUSH else "pull", one.bytes)
                self._losses.add(0, 0, 0.0, one.resent_bytes)

    def _check_usable(self) -> None:
        if os.getpid() != self._process:
            raise RuntimeError("this DlcpOptimizer belongs to the process that this one was forked from")
        if self._is_closed:
            raise RuntimeError("this DlcpOptimizer is closed")

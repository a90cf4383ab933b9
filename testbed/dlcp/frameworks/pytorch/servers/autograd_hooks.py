"""The hooks of a model that trains with parameter servers: gradients leave as autograd makes them, modules wait for
the parameters that they compute with."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any

import torch

from dlcp.frameworks.pytorch.servers.flat_parameters import Entry, FlatModel, pieces
from dlcp.frameworks.pytorch.servers.gradient_pusher import Pusher
from dlcp.transport.aggregation.parameter_server import Worker
from dlcp.transport.contract.tensors import Tensor

log = logging.getLogger("dlcp.pytorch")


class Hooks:
    """What a DlcpOptimizer hangs into its model, and what of an iteration has left by it.

    flat: the model's parameters, bound. begin: told of an iteration before its first gradient leaves. check_usable:
    raises when the optimizer cannot be used any more.
    iteration: the one whose gradients leave. sent: its parameters whose gradients have left. keeps: gradients stay with
    the model (no_sync). was_complete: every parameter was there when the iteration began. was_loaded: the model's
    parameters were overwritten behind the servers' back.
    """

    def __init__(
        self,
        model: torch.nn.Module,
        flat: FlatModel,
        tensors: list[Tensor],
        worker: Worker,
        begin: Callable[[int], None],
        check_usable: Callable[[], None],
    ) -> None:
        self.iteration = 0
        self.sent: set[torch.nn.Parameter] = set()
        self.keeps = False
        self.was_loaded = False
        self.was_complete = True
        self._told_of_unused = False
        self._model = model
        self._entries = flat.entries
        self._tensors = tensors
        self._worker = worker
        self._begin = begin
        self._check_usable = check_usable
        self._pieces = {one.parameter: pieces(tensors, one.start, one.stop) for one in flat.entries}
        self._pusher = Pusher(worker, tensors)
        self._ran: set[torch.nn.Module] = set()
        self._without_forward: set[torch.nn.Parameter] = set()
        self._hung: list[Any] = []
        self._hang()

    def remove(self) -> None:
        """Take all of them out of the model."""
        for hook in self._hung:
            hook.remove()

    def synchronize(self) -> None:
        """Wait until every parameter is what the last iteration made it."""
        self._check_usable()
        self._worker.await_parameters(range(len(self._tensors)))
        self.was_complete = self.was_complete or not self.sent

    def end_iteration(self) -> None:
        """Send what backward has not sent. RuntimeError when there was no backward."""
        left = [entry for entry in self._entries if entry.parameter not in self.sent]
        if not self.sent and all(entry.parameter.grad is None for entry in left):
            raise RuntimeError("step() came without a backward() since the last one")
        for entry in left:
            if entry.parameter.grad is None and not self._told_of_unused:
                self._told_of_unused = True
                log.warning("%s got no gradient in iteration %d: counted as zero", entry.name, self.iteration)
            self._send(entry)
        self.iteration += 1
        self.sent.clear()
        self._ran.clear()
        self.was_complete = False

    def _hang(self) -> None:
        needed: dict[torch.nn.Module, set[int]] = {}
        for entry in self._entries:
            for module in entry.modules:
                needed.setdefault(module, set()).update(self._tensors_of(entry))
            hook = entry.parameter.register_post_accumulate_grad_hook(  # type: ignore[no-untyped-call]
                lambda _, entry=entry: self._on_gradient(entry)
            )
            self._hung.append(hook)
        for module in self._model.modules():
            before_forward = self._forward_hook(sorted(needed.get(module, ())))
            self._hung += [
                module.register_forward_pre_hook(before_forward, prepend=True),
                module.register_state_dict_pre_hook(self._before_saving),  # type: ignore[no-untyped-call]
                module.register_load_state_dict_pre_hook(self._before_loading),  # type: ignore[no-untyped-call]
            ]

    def _before_saving(self, *_: object) -> None:
        self.synchronize()

    def _before_loading(self, *_: object) -> None:
        self.synchronize()
        self.was_loaded = True

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
        if entry.parameter in self.sent:
            entry.parameter.grad = None
            raise RuntimeError(
                f"a second backward() before step() made a gradient of {entry.name}, whose first is sent already: "
                "run all but the last in no_sync()"
            )
        if self.was_loaded:
            raise RuntimeError(
                "the model was loaded, but its parameters live at the servers: load the state of this DlcpOptimizer "
                "too, or make it after the model is loaded"
            )
        self._check_forward(entry)
        if not self.keeps:
            self._send(entry)

    def _check_forward(self, entry: Entry) -> None:
        """Whether forward waited for this parameter. Some are used without their module's forward (attention reads its
        output projection so); they are found out when all were complete, as in the first iteration."""
        ran = bool(self._ran.intersection(entry.modules))
        if self.was_complete:
            if not ran:
                self._without_forward.add(entry.parameter)
        elif not ran and not (entry.parameter in self._without_forward and self._model in self._ran):
            raise RuntimeError(
                f"{entry.name} was used without the forward() of its module, and may have been incomplete: "
                "call synchronize() before the model is used"
            )

    def _send(self, entry: Entry) -> None:
        """Copy a gradient out, and push every tensor that is whole by that."""
        self._begin(self.iteration)
        gradient = entry.parameter.grad
        if gradient is not None and gradient.layout != torch.strided:
            raise ValueError(f"the gradient of {entry.name} is sparse: DlcpOptimizer sends dense ones")
        flat = None if gradient is None else gradient.detach().reshape(-1).numpy()
        self._pusher.put(self.iteration, self._pieces[entry.parameter], flat)
        entry.parameter.grad = None
        self.sent.add(entry.parameter)

    def _tensors_of(self, entry: Entry) -> list[int]:
        return [piece.tensor for piece in self._pieces[entry.parameter]]

    def _tensors_without_forward(self) -> list[int]:
        entries = [entry for entry in self._entries if entry.parameter in self._without_forward]
        return sorted({tensor for entry in entries for tensor in self._tensors_of(entry)})

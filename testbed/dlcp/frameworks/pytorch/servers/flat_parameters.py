"""A model's parameters as one flat vector, and where each lies in the tensors that travel."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from dlcp.transport.contract.endpoint import Floats
from dlcp.transport.contract.tensors import Tensor


@dataclass(frozen=True)
class Piece:
    """Part of one parameter in one tensor: elements [start, stop) of the parameter are at `offset`."""

    tensor: int
    start: int
    stop: int
    offset: int


def pieces(tensors: list[Tensor], start: int, stop: int) -> list[Piece]:
    """Where the parameter at [start, stop) of the flat vector is, last tensor first as backward makes them."""
    found = []
    for number, tensor in enumerate(tensors):
        first, last = max(start, tensor.start), min(stop, tensor.stop)
        if first < last:
            found.append(Piece(number, first - start, last - start, first - tensor.start))
    return found[::-1]


@dataclass(frozen=True)
class Entry:
    """A parameter's place: elements [start, stop) of the flat vector. modules: those that own it directly."""

    name: str
    parameter: torch.nn.Parameter
    start: int
    stop: int
    modules: tuple[torch.nn.Module, ...]


class FlatModel:
    """A model's trainable parameters in the order of its modules, which is taken for the order of its layers.

    values: the flat vector, a copy until bind() makes the model's own parameters views of it. layers: (name, elements)
    of every module with parameters of its own. ValueError unless all are float32 on the CPU.
    """

    def __init__(self, model: torch.nn.Module) -> None:
        owners: dict[torch.nn.Parameter, list[torch.nn.Module]] = {}
        names: dict[torch.nn.Parameter, str] = {}
        self.layers: list[tuple[str, int]] = []
        for name, module in model.named_modules():
            own = [(key, p) for key, p in module.named_parameters(recurse=False) if p.requires_grad]
            fresh = sum(p.numel() for _, p in own if p not in owners)
            for key, parameter in own:
                owners.setdefault(parameter, []).append(module)
                names.setdefault(parameter, f"{name}.{key}" if name else key)
            if fresh:
                self.layers.append((name or type(module).__name__, fresh))
        if not self.layers:
            raise ValueError("the model has no parameter that is trained")
        self.entries: list[Entry] = []
        start = 0
        for parameter, modules in owners.items():
            if parameter.dtype != torch.float32 or parameter.device.type != "cpu":
                what = f"{names[parameter]} is {parameter.dtype} on {parameter.device}"
                raise ValueError(f"parameter servers hold float32 on the CPU, but {what}")
            stop = start + parameter.numel()
            self.entries.append(Entry(names[parameter], parameter, start, stop, tuple(modules)))
            start = stop
        self.values: Floats = np.empty(start, np.float32)
        self.read()

    def read(self) -> None:
        """Take the model's parameters into the flat vector."""
        for entry in self.entries:
            self.values[entry.start : entry.stop] = entry.parameter.detach().reshape(-1).numpy()

    def bind(self) -> None:
        """From here on the model computes with the flat vector itself."""
        for entry in self.entries:
            entry.parameter.data = torch.from_numpy(self.values[entry.start : entry.stop]).view(entry.parameter.shape)

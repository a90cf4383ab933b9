"""Keep torch.compile out of code that moves tensors between ranks.

A compiled program calls a process group from C++, in the middle of its run. Dynamo would then try to trace the group's
Python methods. It cannot: they talk to sockets and threads.
"""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any, TypeVar

from torch._C._dynamo import eval_frame

_Class = TypeVar("_Class", bound=type)
_Function = TypeVar("_Function", bound=Callable[..., Any])
_SKIP = eval_frame._FrameExecStrategy(eval_frame._FrameAction.SKIP, eval_frame._FrameAction.SKIP)
"""Neither the function itself nor what it calls is traced. Set on the code, it needs no import of torch._dynamo, which
takes 1.4 s."""


def untraced(function: _Function) -> _Function:
    """Make Dynamo run a function as it is."""
    assert isinstance(function, FunctionType)
    eval_frame.set_code_exec_strategy(function.__code__, _SKIP)
    return function


def untraced_class(cls: _Class) -> _Class:
    """Do the same for every method that a class defines itself."""
    for member in vars(cls).values():
        if isinstance(member, FunctionType):
            untraced(member)
    return cls

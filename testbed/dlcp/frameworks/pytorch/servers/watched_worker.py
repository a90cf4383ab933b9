"""A worker of parameter servers whose errors reach all ranks, and name ranks and not endpoints."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

from dlcp.frameworks.pytorch.failure.peer_failure import Alarm
from dlcp.transport.aggregation.parameter_server import Worker
from dlcp.transport.contract.endpoint import TransportError

_RANK = re.compile(r"\brank (\d+)\b")


def rank_names(size: int, homes: list[int]) -> Callable[[str], str]:
    """Return what turns a text about endpoints into one about ranks. Workers have the numbers of their ranks; server i,
    which runs at rank homes[i], has number size + i."""

    def name(found: re.Match[str]) -> str:
        server = int(found[1]) - size
        return f"rank {homes[server]} (its parameter server)" if 0 <= server < len(homes) else found[0]

    return lambda text: _RANK.sub(name, text)


class WatchedWorker(Worker):
    """A worker that tells all ranks when it gives up. name: see rank_names."""

    def __init__(self, *arguments: Any, alarm: Alarm, name: Callable[[str], str], **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._alarm = alarm
        self._name = name

    def _wait_until(self, done: Callable[[], bool], missing: Callable[[], list[str]]) -> None:
        try:
            super()._wait_until(done, missing)
        except TransportError as error:
            raise TransportError(self._alarm.sound(self._name(str(error)))) from None

"""Ansible's `linear`, but a device that cannot be reached has failed like any other, and stays in the play.

Ansible drops an unreachable host out of a play; taken back in (meta: clear_host_errors) it runs behind all others.

Whoever decides for a whole fabric must hear of each device in each phase, and try to restore each: so `rescue` has to
run for those that are unreachable too. Their result says so: dlcp_unreached.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from ansible.plugins.strategy.linear import StrategyModule as Linear

DOCUMENTATION = """
name: dlcp_together
short_description: linear, but an unreachable host has failed and stays in the play
description: See the file.
author: dlcp
"""


class _Results(deque[Any]):
    """Results of tasks as they come from the workers."""

    def append(self, result: Any) -> None:
        """One that was not reached becomes one that failed."""
        data = getattr(result, "_return_data", None)
        if data is None:  # before ansible-core 2.19
            data = result._result
        if data.get("unreachable"):
            data.update(unreachable=False, failed=True, dlcp_unreached=True)
        super().append(result)


class StrategyModule(Linear):  # type: ignore[misc]
    """See the file's docstring."""

    def __init__(self, tqm: Any) -> None:
        super().__init__(tqm)
        with self._results_lock:
            self._results = _Results(self._results)

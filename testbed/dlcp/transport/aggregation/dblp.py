"""DBLP: servers watch the gradient's norm, and tell their workers how much the next pushes may lose.

Each server judges the gradients that it owns. Every `check_every` iterations it compares their norm with that of the
check before and announces a bound, which holds from the second iteration after the check on: by then every worker has
it, so both ends of a message say the same. An announcement is a reliable message of one number.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from dlcp.model.transport.loss import PhaseBound
from dlcp.transport.aggregation.parameter_server import Server, Worker
from dlcp.transport.contract.endpoint import Bound, Completion, Floats, Leg, MessageKey, Placement
from dlcp.transport.contract.mailbox import Mailbox
from dlcp.transport.contract.tensors import Tensor

PPM = 1_000_000
"""What an announced bound is counted in: whole numbers up to it are exact in float32."""


class Phase:
    """Which bound a rule asks for: critical until the second check, and whenever the norm has dropped far enough."""

    def __init__(self, rule: PhaseBound) -> None:
        self._rule = rule
        self._before: float | None = None
        self.bound = rule.critical

    def check(self, norm: float) -> float:
        """The bound from here on, now that the norm of the gradients since the check before is known."""
        before, self._before = self._before, norm
        fell = before is None or (before - norm >= self._rule.drop * before)
        self.bound = self._rule.critical if fell else self._rule.relaxed
        return self.bound


class _Schedule:
    """By iteration, the bound of pushes to one server. Iterations before the first check took effect are critical."""

    def __init__(self, rule: PhaseBound) -> None:
        self._rule = rule
        self._by_check: dict[int, float] = {0: rule.critical}

    def check_of(self, iteration: int) -> int:
        """The check whose bound holds in an iteration; 0: none yet."""
        return max(0, (iteration - 1) // self._rule.check_every)

    def announce(self, check: int, ppm: float) -> None:
        self._by_check[check] = ppm / PPM

    def knows(self, iteration: int) -> bool:
        return self.check_of(iteration) in self._by_check

    def bound(self, iteration: int) -> Bound:
        return Bound(self._by_check[self.check_of(iteration)])


def announcement_number(tensors: list[Tensor], server: int) -> int:
    """Return the endpoint's tensor under which a server announces: those behind the job's, one for each server."""
    return len(tensors) + server


def announced_checks(rule: PhaseBound, iterations: int) -> list[int]:
    """Return the checks after which servers announce a bound: an announcement's iteration is its check."""
    return [check for check in range(1, iterations) if _takes_effect(check, rule.check_every, iterations)]


class PhaseWorker(Worker):
    """A worker that is told what its pushes may lose. rule: by which its servers judge. iterations: the
    job's. Otherwise as Worker."""

    def __init__(
        self,
        mailbox: Mailbox,
        tensors: list[Tensor],
        servers: list[int],
        parameters: Floats,
        rule: PhaseBound,
        iterations: int,
        **more: Any,
    ) -> None:
        super().__init__(mailbox, tensors, servers, parameters, **more)
        self._every, self._iterations = rule.check_every, iterations
        self._schedules = [_Schedule(rule) for _ in servers]
        self._announced: dict[tuple[int, int], Floats] = {}

    def push(self, iteration: int, tensor: int) -> float:
        """As Worker's; waits until the bound that holds is known, and expects the next one."""
        server = self._tensors[tensor].server
        schedule = self._schedules[server]
        self._wait_until(
            lambda: schedule.knows(iteration),
            lambda: [f"the bound of iteration {iteration} from rank {self._servers[server]}"],
        )
        check = (iteration + 1) // self._every
        due = (iteration + 1) % self._every == 0 and _takes_effect(check, self._every, self._iterations)
        if due and (check, server) not in self._announced:
            buffer = self._announced[check, server] = np.zeros(1, np.float32)
            key = MessageKey(check, announcement_number(self._tensors, server), Leg.PULL)
            self._mailbox.expect(self._servers[server], key, buffer, placement=Placement.KEEP)
        return super().push(iteration, tensor)

    def _push_bound(self, iteration: int, tensor: int) -> Bound | None:
        return self._schedules[self._tensors[tensor].server].bound(iteration)

    def _take(self, completions: list[Completion]) -> bool:
        for done in completions:
            server = done.key.tensor - len(self._tensors)
            if server >= 0:
                announced = self._announced[done.key.iteration, server]
                self._schedules[server].announce(done.key.iteration, float(announced[0]))
        super()._take([done for done in completions if done.key.tensor < len(self._tensors)])
        return bool(completions)


class PhaseServer(Server):
    """A server that tells its workers what their pushes may lose, by a rule. Otherwise as Server.

    phases: check → the bound that followed, check 0 before any.
    """

    def __init__(
        self,
        mailbox: Mailbox,
        tensors: list[Tensor],
        index: int,
        workers: list[int],
        parameters: Floats,
        optimizer: Any,
        rule: PhaseBound,
        iterations: int,
        **more: Any,
    ) -> None:
        super().__init__(mailbox, tensors, index, workers, parameters, optimizer, **more)
        self.phases = {0: rule.critical}
        self._index, self._every, self._iterations = index, rule.check_every, iterations
        self._phase, self._schedule = Phase(rule), _Schedule(rule)
        self._summed: dict[int, list[float]] = {}
        self._kept: list[Floats] = []

    def extra(self) -> dict[str, Any]:
        """See Rank: the bounds that it announced."""
        return {"phases": {str(iteration): bound for iteration, bound in self.told().items()}}

    def told(self) -> dict[int, float]:
        """Iteration → what pushes to it may lose from there on, as all its workers know."""
        return {
            check * self._every + 1 if check else 0: bound
            for check, bound in self.phases.items()
            if not check or _takes_effect(check, self._every, self._iterations)
        }

    def _averaged(self, iteration: int, tensor: int, mean: Floats) -> None:
        """The mean gradient of one tensor: the last one of the last iteration before a check decides."""
        squares = self._summed.setdefault(iteration, [])
        squares.append(float(np.dot(mean, mean)))
        check = (iteration + 1) // self._every
        if len(squares) < len(self._own) or (iteration + 1) % self._every:
            return
        norm = math.sqrt(sum(map(sum, self._summed.values())) / self._every)
        self._summed.clear()
        ppm = round(self._phase.check(norm) * PPM)
        self._schedule.announce(check, ppm)
        self.phases[check] = ppm / PPM
        if not _takes_effect(check, self._every, self._iterations):
            return
        self._kept.append(np.array([ppm], np.float32))
        key = MessageKey(check, announcement_number(self._tensors, self._index), Leg.PULL)
        for worker in self._workers:
            self._mailbox.send(worker, key, self._kept[-1])

    def _push_bound(self, iteration: int, tensor: int) -> Bound | None:
        return self._schedule.bound(iteration)

    def _take(self, completions: list[Completion]) -> bool:
        super()._take([done for done in completions if done.key.tensor < len(self._tensors)])
        return bool(completions)


def _takes_effect(check: int, every: int, iterations: int) -> bool:
    """Whether any iteration is left in which a check's bound would hold."""
    return check * every + 1 < iterations

"""One rank of a group whose all-reduces go over DLCP: what the backend and the hook share."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import PrefixStore, Store

from dlcp.frameworks.pytorch.failure.peer_failure import WatchedEndpoint
from dlcp.frameworks.pytorch.options import DlcpOptions
from dlcp.frameworks.pytorch.reducer import Reducer, Spans
from dlcp.frameworks.pytorch.rendezvous import meet
from dlcp.frameworks.pytorch.statistics import Counter, Statistics, statistics_of
from dlcp.frameworks.pytorch.work import Outcome
from dlcp.transport.aggregation.ring import neighbours

DRAIN_AT_MOST_S = 60.0
"""How long an orderly end waits for what is under way."""


class RingGroup:
    """Every rank of the group makes one, at the same place; see meet for the errors.

    store: of this group and this purpose alone. default_loss: the loss bound where the options leave it open. average:
    the mean instead of the sum. timeout: of the rendezvous, and of each all-reduce. The attribute `store` is a part
    that only this meeting uses: a group that is made again on the same store finds nothing old there.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        options: DlcpOptions,
        *,
        default_loss: float,
        average: bool,
        timeout: timedelta,
        purpose: str,
    ) -> None:
        settings = options.settings(default_loss)
        meeting = meet(
            store,
            rank,
            size,
            options,
            settings,
            endpoints={rank: set(neighbours(rank, size))},
            agreed={"size": size, "purpose": purpose},
            progress="all_reduce",
            timeout=timeout,
        )
        self.link = meeting.link
        self.store = meeting.store
        self._rank = rank
        self._counter = Counter()
        try:
            self._alarm = meeting.alarm
            self._endpoint = WatchedEndpoint(meeting.endpoints[rank], self._alarm)
            self.reducer = Reducer(
                self._endpoint,
                rank,
                size,
                bound=options.bound(default_loss),
                holes=options.holes,
                average=average,
                must_arrive_below_packets=settings.must_arrive_below_packets,
                timeout_s=timeout.total_seconds(),
                name=f"{purpose}-{rank}",
            )
        except BaseException:
            meeting.close()
            raise

    def start(
        self, collective: str, tensor: torch.Tensor, spans: Spans, finish: Callable[[], None] = lambda: None
    ) -> Outcome:
        """Reducer.start, counted."""
        outcome = self.reducer.start(tensor, spans, finish)
        self._counter.note(collective, tensor)
        return outcome

    def statistics(self, gloo: Counter) -> Statistics:
        """What this rank carried; the engine's counters are the last ones once it is closed."""
        engine = {self._rank: self._endpoint.statistics()}
        return statistics_of(self._counter, gloo, self.reducer.losses, self.link, engine)

    def close(self, *, drain: bool) -> None:
        """Give the thread and the socket back; with drain, after what is under way. Safe to call twice."""
        if drain:
            self.reducer.drain(DRAIN_AT_MOST_S)
        self._alarm.leave(self.reducer.calls_done())
        self.reducer.close()
        self._alarm.close()


def store_of(group: dist.ProcessGroup, purpose: str) -> Store:
    """The part of a group's store for one purpose."""
    return PrefixStore(purpose, group.get_group_store())

"""How the ranks of a group find each other: over torch's store, which torch itself made reliable.

Rank 0 draws the job's cookie; every rank opens its endpoints and publishes where they are and what it was set to; a
difference is an error that says what differs. Nothing of this goes over DLCP.
"""

from __future__ import annotations

import json
import logging
import os
import secrets
import socket
import time
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any

from torch._C._distributed_c10d import PrefixStore, Store, TCPStore

from dlcp.frameworks.pytorch.address import Link, find_link
from dlcp.frameworks.pytorch.failure.peer_failure import Alarm
from dlcp.frameworks.pytorch.options import DlcpOptions
from dlcp.model.transport.settings import TransportSettings
from dlcp.transport.contract.endpoint import TransportError
from dlcp.transport.dlcp_endpoint import DlcpEndpoint

_LOOK_EVERY_S = 1.0
"""How often a rank that waits for another looks whether some rank has failed."""
log = logging.getLogger("dlcp.pytorch")


class RendezvousError(RuntimeError):
    """The ranks did not find together. The text names the rank, and what it did not say or said otherwise."""


@dataclass(frozen=True)
class Meeting:
    """A rank's share of a group after the rendezvous: its endpoints, by their number, its link, and its alarm."""

    endpoints: dict[int, DlcpEndpoint]
    link: Link
    store: Store
    alarm: Alarm

    def close(self) -> None:
        """Close the endpoints and the alarm."""
        self.alarm.close()
        for endpoint in self.endpoints.values():
            endpoint.close()


def meet(
    store: Store,
    rank: int,
    size: int,
    options: DlcpOptions,
    settings: TransportSettings,
    *,
    endpoints: dict[int, set[int]],
    agreed: dict[str, Any],
    progress: str,
    timeout: timedelta,
) -> Meeting:
    """Open this rank's endpoints and introduce them to their peers; every rank of the group calls it.

    store: of this group alone. endpoints: this rank's endpoint numbers → the numbers of their peers, which other
    ranks, or this one, own. agreed: what else must be the same at every rank. progress: see Alarm. RendezvousError
    when a rank does not come in time, cannot open its endpoints, or was set otherwise.
    """
    generation = store.add(f"dlcp/came/{rank}", 1)  # the same group may meet again on the same store
    board = _Board(PrefixStore(f"dlcp/{generation}", store), rank, size, timeout)
    if rank == 0:
        board.post("cookie", secrets.randbelow(2**32 - 1) + 1)
    try:
        link = find_link(_store_host(store), options.address, options.link_rate_bps)
        cookie = int(board.read("cookie", 0))
        with ExitStack() as opened:
            alarm = Alarm(rank, size, link.address, progress)
            opened.callback(alarm.close)
            own = {
                number: opened.enter_context(
                    DlcpEndpoint(
                        number,
                        link.address,
                        0,
                        {},
                        settings,
                        job_cookie=cookie,
                        link_rate_bps=link.rate_bps,
                        silence_s=options.silence_s,
                        first_contact_s=options.silence_s,
                        source_ports=options.source_ports,
                    )
                )
                for number in endpoints
            }
            at = {str(number): [link.address, one.port, one.source_ports] for number, one in own.items()}
            board.post(
                "card", {"host": _host(), "at": at, "watch": alarm.place, "agreed": {**options.agreed(), **agreed}}
            )
            cards = board.read_all("card")
            _check(cards, link)
            where = {int(number): tuple(place) for card in cards for number, place in card["at"].items()}
            for number, endpoint in own.items():
                for peer in sorted(endpoints[number]):
                    endpoint.add_peer(peer, *where[peer])
            alarm.join(cookie, [tuple(card["watch"] or ()) for card in cards])
            board.post("ready", True)
            board.read_all("ready")  # from here on nobody is a stranger to anybody
            opened.pop_all()
    except (ValueError, TransportError) as error:
        board.post("failure", f"rank {rank}: {error}")
        raise RendezvousError(f"rank {rank}: {error}") from error
    _tell(rank, link, is_first=rank == [card["host"] for card in cards].index(_host()))
    return Meeting(own, link, board.store, alarm)


class _Board:
    """Where ranks post what the others read; JSON by key and rank."""

    def __init__(self, store: Store, rank: int, size: int, timeout: timedelta) -> None:
        self.store = store
        self._rank = rank
        self._size = size
        self._timeout = timeout

    def post(self, key: str, value: object) -> None:
        """Under this rank's name."""
        name = key if key == "failure" else f"{key}/{self._rank}"
        self.store.set(name, json.dumps(value))

    def read(self, key: str, rank: int) -> Any:
        """What a rank posted; waits for it. RendezvousError when it does not come, or some rank failed."""
        name = f"{key}/{rank}"
        deadline_s = time.monotonic() + self._timeout.total_seconds()
        while True:
            left_s = deadline_s - time.monotonic()
            try:
                self.store.wait([name], timedelta(seconds=max(0.001, min(_LOOK_EVERY_S, left_s))))
                return json.loads(self.store.get(name))
            except RuntimeError as error:  # DistStoreError: the time is over
                if self.store.check(["failure"]):
                    raise RendezvousError(str(json.loads(self.store.get("failure")))) from None
                if time.monotonic() >= deadline_s:
                    what = f"rank {self._rank}: rank {rank} did not come within {self._timeout.total_seconds():g} s"
                    raise RendezvousError(f"{what} ({error})") from None

    def read_all(self, key: str) -> list[Any]:
        """What every rank posted, by rank."""
        return [self.read(key, rank) for rank in range(self._size)]


def _check(cards: list[dict[str, Any]], link: Link) -> None:
    """ValueError when ranks were set differently, or cannot reach each other."""
    first = cards[0]["agreed"]
    for rank, card in enumerate(cards):
        theirs = card["agreed"]
        names = [name for name in sorted(first.keys() | theirs.keys()) if first.get(name) != theirs.get(name)]
        if names:
            said = ", ".join(f"{name} is {first.get(name)!r} and {theirs.get(name)!r}" for name in names)
            raise ValueError(f"rank 0 and rank {rank} are set differently: {said}")
    hosts = {card["host"] for card in cards}
    if len(hosts) > 1 and link.is_loopback:
        raise ValueError(
            f"the ranks are on {len(hosts)} hosts, but this one is at {link.address}, which no other host reaches: "
            "set DLCP_ADDRESS to the address of this host's link"
        )


def _store_host(store: Store) -> str | None:
    """Where the store is, if it is on a network."""
    inner = store
    while isinstance(inner, PrefixStore):
        inner = inner.underlying_store
    if isinstance(inner, TCPStore):
        return str(inner.host)
    return os.environ.get("MASTER_ADDR")


def _host() -> str:
    """What two processes share that reach each other over loopback: the machine, and its network namespace."""
    boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    return f"{socket.gethostname()} {boot} {os.stat('/proc/self/ns/net').st_ino}"


def _tell(rank: int, link: Link, *, is_first: bool) -> None:
    """Say at what rate this rank sends; a rate that nobody knows is warned of, once a host, by its first rank."""
    level = logging.WARNING if link.rate_is_assumed and is_first else logging.INFO
    hint = "; set DLCP_LINK_RATE where that is wrong" if link.rate_is_assumed else ""
    rate = f"{link.rate_bps / 1e9:g} Gbit/s ({link.rate_from}{hint})"
    log.log(level, "rank %d sends over DLCP from %s at up to %s", rank, link.address, rate)

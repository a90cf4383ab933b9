"""The account of every packet in a fabric: nothing may be lost but where a counter says so."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from dlcp.switches.bpf.snapshot import Counts, Snapshot

_DROPS = ("dropped_wred", "dropped_tail", "dropped_shared", "dropped_loss", "dropped_down", "dropped_unrouted")


def violations(now: Snapshot, names: Mapping[int, str], switch_of: Mapping[int, str]) -> list[str]:
    """Return the sums that do not agree, in words.

    names: ifindex → port or host. switch_of: ifindex → switch, for switches' ports.

    At every end of a link what was enqueued must have been sent, queue by queue and precedence by precedence; in every
    switch what came in (what the far ends sent) must have been enqueued or dropped.
    """
    enqueued, sent = now.tally("enqueued"), now.tally("sent")
    problems = []
    for ifindex, (row,) in ((ifindex, now.rows([ifindex])) for ifindex in names):
        for queue, precedence in np.argwhere((enqueued[row] != sent[row]).any(axis=-1)).tolist():
            put, taken = (_words(tally[row, queue, precedence]) for tally in (enqueued, sent))
            problems.append(f"{names[ifindex]} queue {queue} precedence {precedence}: {put} enqueued, {taken} sent")
    dropped = sum((now.tally(name) for name in _DROPS), np.zeros_like(sent))
    severed = now.tally("severed")
    for switch in sorted(set(switch_of.values())):
        ports = [ifindex for ifindex, owner in switch_of.items() if owner == switch]
        port_rows, far_rows = now.rows(ports), now.rows(ifindex ^ 1 for ifindex in ports)
        came_in = _total(sent[far_rows])
        accounted = _total(enqueued[port_rows]) + _total(dropped[port_rows]) + _total(severed[far_rows])
        if (came_in != accounted).any():
            problems.append(f"switch {switch}: {_words(came_in)} came in, {_words(accounted)} enqueued or dropped")
    return problems


def _total(tally: Counts) -> Counts:
    total: Counts = tally.sum(axis=(0, 1, 2))
    return total


def _words(tally: Counts) -> str:
    return f"{tally[0]} packets ({tally[1]} B)"

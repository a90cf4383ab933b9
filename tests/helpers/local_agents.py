"""Agents on loopback: all in this process's own network namespace, so that no privilege is needed."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from loopback import COOKIE, LINK_RATE_BPS, address

from dlcp.agents.control.handles import AgentHandle, Zygote
from dlcp.agents.control.session import JobSession
from dlcp.agents.job_spec import JobSpec
from dlcp.model.transport.settings import TransportSettings


@contextmanager
def agents(zygote: Zygote, names: tuple[str, ...], logs: Path | None = None) -> Iterator[dict[str, AgentHandle]]:
    started = zygote.start(dict.fromkeys(names, os.getpid()), logs)
    try:
        yield started
    finally:
        for handle in started.values():
            handle.close()


def session(
    started: dict[str, AgentHandle], spec: JobSpec, settings: TransportSettings, directory: Path, limit_s: float = 30.0
) -> JobSession:
    addresses = {host: address(rank) for rank, host in enumerate(spec.hosts)}
    return JobSession(
        started,
        spec,
        settings,
        addresses,
        cookie=COOKIE,
        link_rates_bps=dict.fromkeys(spec.hosts, LINK_RATE_BPS),
        directory=directory,
        time_limit_s=limit_s,
    )

"""Where the parts of a checkout are: experiments, topologies, workloads."""

from __future__ import annotations

from pathlib import Path

REPOSITORY = Path(__file__).resolve().parents[2]
EXPERIMENTS = REPOSITORY / "testbed" / "experiments"
TOPOLOGIES = REPOSITORY / "testbed" / "topologies"
WORKLOADS = REPOSITORY / "workloads"

"""How large a job's messages are on the emulated wire, and when loss tolerance has nothing left to act on."""

from __future__ import annotations

from dataclasses import dataclass

from dlcp.model.experiment import Scaling
from dlcp.model.frames import PAYLOAD_BYTES
from dlcp.model.units import show_size
from dlcp.model.workload import Job, Profile, Workload

MIN_BUCKET_PACKETS = 10
"""Packets of the smallest bucket of which DLCP's usual bound of 10 % lets one be lost. Measured, a job ends earlier
with messages of 15 packets than with 30 (experiments/message-size.yaml).
"""


@dataclass(frozen=True)
class SmallBucket:
    """A bucket that is too small. what: how small, and why; hint: how small it may be. of_workload: the model is
    smaller than the bucket.
    """

    what: str
    hint: str
    of_workload: bool


def small_bucket(job: Job, workload: Workload | None, scaling: Scaling | None, pieces: int) -> SmallBucket | None:
    """Return None when a job's messages hold MIN_BUCKET_PACKETS or more. Without a workload or a scaling the bucket
    counts. pieces: into how many messages the job's pattern cuts a bucket."""
    size, why, of_workload = float(job.bucket_bytes), "bucket", False
    if isinstance(workload, Profile) and scaling is not None:
        scale = job.scale(scaling.byte_scale)
        share = workload.parameters * 4 / scale / max(1, len(job.servers))
        shared = f", shared by {len(job.servers)} server(s)," if job.servers else ""
        if share < size:
            size, why, of_workload = share, f"{workload.name} at byte_scale {scale:g}{shared} is", True
    if pieces > 1:
        size, why = size / pieces, f"{why} in {pieces} chunks, each"
    packets = size / PAYLOAD_BYTES
    if packets >= MIN_BUCKET_PACKETS:
        return None
    enough = show_size(MIN_BUCKET_PACKETS * PAYLOAD_BYTES)
    return SmallBucket(
        f"{why} {show_size(size)}, {packets:.0f} packets: loss tolerance has little to act on",
        f"{MIN_BUCKET_PACKETS} packets ({enough}) or more: a larger bucket, or a smaller byte_scale",
        of_workload,
    )

"""A host's clock: looked at, never set. Times of several hosts are compared, so chrony must have them together."""

from __future__ import annotations

from typing import Any

from ansible.module_utils.dlcp_host_part import Absent, Refused, tool

_OFFSET, _LEAP = 4, 13
"""Fields of `chronyc -c tracking`: the offset from the estimated true time, in seconds; whether it is followed."""


def clock(within_s: float | None) -> dict[str, Any]:
    """A row of the manifest. Raises Refused when chrony runs and the clock is further off, or follows nothing."""
    text = tool(["chronyc", "-c", "tracking"])
    if isinstance(text, Absent):
        return {"name": "clock", "status": "skipped", "reason": text.reason}
    fields = text.strip().split(",")
    if len(fields) <= _LEAP:
        return {"name": "clock", "status": "skipped", "reason": f"chronyc says {text.strip()!r}"}
    offset_s, leap = abs(float(fields[_OFFSET])), fields[_LEAP]
    found = f"{offset_s:.9f} s off, {leap}"
    if leap != "Normal":
        raise Refused(f"the clock follows nothing: chrony says {leap}")
    if within_s is not None and offset_s > within_s:
        raise Refused(f"the clock is {offset_s:.6f} s off; at most {within_s:.6f} s is asked for")
    return {"name": "clock", "status": "same", "found": found}

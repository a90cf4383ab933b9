"""Filters: what deployments before kept on the controller of a device that has no room of its own for it.

A deployment's folder, named by its time, holds a folder a device: `rendered.json` (what was deployed) and
`before.json` (what the device had: {"digest": …, "text": …}). folder: of the deployment that runs.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleFilterError

BEFORE, RENDERED = "before.json", "rendered.json"


def _newest(folder: str, device: str, name: str) -> list[dict[str, Any]]:
    """What all deployments of the lab kept of a device under that name, the newest first."""
    files = sorted(Path(folder).parent.glob(f"*/{device}/{name}"), reverse=True)
    return [json.loads(file.read_text(encoding="utf-8")) for file in files]


def rendered_of(digest: str, folder: str, device: str) -> dict[str, Any]:
    """What was rendered with that digest; {} where this controller never deployed it."""
    return next((one for one in _newest(folder, device, RENDERED) if one["digest"] == digest), {})


def before(folder: str, device: str, deployment: str | None, restore_to: str = "previous") -> str:
    """The text that a device had before a deployment, or before anything of ours; "" where the deployment never came as
    far as to save it."""
    if restore_to == "original":
        texts = [one["text"] for one in _newest(folder, device, BEFORE) if not one["digest"]]
        if not texts and _newest(folder, device, BEFORE):
            raise AnsibleFilterError(
                f"{device}: no deployment in {Path(folder).parent} found it without anything of ours"
            )
        return texts[0] if texts else ""
    file = Path(folder).parent / str(deployment) / device / BEFORE
    return json.loads(file.read_text(encoding="utf-8"))["text"] if file.is_file() else ""


class FilterModule:
    """For Ansible."""

    def filters(self) -> dict[str, Any]:
        """By name."""
        return {"dlcp_rendered_of": rendered_of, "dlcp_before": before}

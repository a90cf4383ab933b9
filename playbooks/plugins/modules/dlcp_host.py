#!/usr/bin/python
"""The settings of one host as a desired state."""

from __future__ import annotations

DOCUMENTATION = r"""
module: dlcp_host
short_description: Bring a host's network settings to a desired state, and back
description:
  - Saves each value that it is about to change, sets it, reads it back. The values saved first are those that
    C(state=restored) puts back, however often the host was set up in between.
  - A tool or a feature that the host lacks is a row with status C(skipped) and the reason, never an error.
  - A value that the host refuses is an error; what the call had changed is then put back.
options:
  state:
    description: applied, restored (as before this module's first change), undone (before its last call).
    type: str
    choices: [applied, restored, undone]
    default: applied
  interface:
    description: The interface on the fabric.
    type: str
    required: true
  settings:
    description:
      - sysctls {name, value}, rto_min_ms and congestion_control (both of the interface's routes), mtu, rings,
        coalescing, offloads (as ethtool names them), trust (dscp, pcp), dscp_prio {dscp, priority}, prio_tc {priority,
        class}, tc_order, pfc [priorities], clock_within_s.
    type: dict
    default: {}
  layer:
    description: Whose settings they are. A scheme's win; what it no longer asks for is the host's again.
    type: str
    choices: [host, scheme]
    default: host
  saved:
    description: The file on the host that keeps old values.
    type: path
    default: /var/lib/dlcp/host.json
author: dlcp
"""

EXAMPLES = r"""
- name: DCTCP's hosts
  dlcp_host:
    interface: eth1
    settings: {sysctls: {net.ipv4.tcp_ecn: 1}, rto_min_ms: 5, rings: {rx: max}}
"""

RETURN = r"""
rows:
  description: "One of each setting: name, status (same, changed, skipped), was, wanted, reason."
  type: list
  returned: always
"""

from pathlib import Path
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.dlcp_host_clock import clock
from ansible.module_utils.dlcp_host_dcb import (
    ClassOrder,
    DscpPriorities,
    FlowControl,
    PriorityClasses,
    Trust,
)
from ansible.module_utils.dlcp_host_kernel import Mtu, Routes, Sysctls
from ansible.module_utils.dlcp_host_nic import Coalescing, Offloads, Rings
from ansible.module_utils.dlcp_host_part import Part, Refused
from ansible.module_utils.dlcp_host_state import LAYERS, Failed, Store, apply, put_back

PARTS: list[type[Part]] = [
    Rings,
    Coalescing,
    Offloads,
    Trust,
    DscpPriorities,
    PriorityClasses,
    ClassOrder,
    FlowControl,
    Mtu,
    Sysctls,
    Routes,
]
"""In the order of writing: what may take the link down for a moment comes first."""
OTHER_WORDS = {"clock_within_s"}
WORDS = OTHER_WORDS | {
    "rings",
    "coalescing",
    "offloads",
    "trust",
    "dscp_prio",
    "prio_tc",
    "tc_order",
    "pfc",
    "mtu",
    "sysctls",
    "rto_min_ms",
    "congestion_control",
}
WHICH = {"restored": "first", "undone": "last"}


def main() -> None:
    """Entry point on the managed host."""
    module = AnsibleModule(
        {
            "state": {"type": "str", "choices": ["applied", "restored", "undone"], "default": "applied"},
            "interface": {"type": "str", "required": True},
            "settings": {"type": "dict", "default": {}},
            "layer": {"type": "str", "choices": list(LAYERS), "default": LAYERS[0]},
            "saved": {"type": "path", "default": "/var/lib/dlcp/host.json"},
        },
        supports_check_mode=True,
    )
    rows: list[dict[str, Any]] = []
    try:
        rows = _done(module.params, check=module.check_mode)
    except (Failed, Refused) as error:
        module.fail_json(msg=str(error), rows=rows)
    differing = [row for row in rows if row["status"] == "changed"]
    diff = {
        side: "".join("{} = {}\n".format(row["name"], row[key]) for row in differing)
        for side, key in (("before", "was"), ("after", "wanted"))
    }
    module.exit_json(changed=bool(differing), rows=rows, diff=diff)


def _done(params: dict[str, Any], *, check: bool) -> list[dict[str, Any]]:
    parts = [kind(params["interface"]) for kind in PARTS]
    store = Store(Path(params["saved"]))
    if params["state"] in WHICH:
        return put_back(parts, store, WHICH[params["state"]], check=check)
    settings = params["settings"]
    if unknown := sorted(set(settings) - WORDS):
        raise Failed("unknown settings: {}; known: {}".format(", ".join(unknown), ", ".join(sorted(WORDS))))
    row = clock(settings.get("clock_within_s"))
    return [row, *apply(parts, settings, store, layer=params["layer"], check=check)]


if __name__ == "__main__":
    main()

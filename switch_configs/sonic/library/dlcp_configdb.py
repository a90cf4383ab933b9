#!/usr/bin/python
"""Ansible module: the QoS of one SONiC switch, as a whole."""

from __future__ import annotations

DOCUMENTATION = """
module: dlcp_configdb
short_description: Bring the QoS tables of SONiC's CONFIG_DB to a rendered intent, with a timer that takes it back
description:
  - Reads CONFIG_DB, works out the exact operations from what is there, and has them done by the Generic Config Updater
    (C(config checkpoint), C(config apply-patch)), or by one redis transaction.
  - Rows named DLCP, rows of the ports' queues and the QoS fields of the ports are set; nothing else is touched.
options:
  phase:
    description:
      - What to do. C(look) finds what a switch has and lacks, what is deployed, and what a configuration would change.
        It serves three phases of a deployment, because on a switch most of a run is the start of Python.
    choices: [look, apply, read, confirm, restore]
    required: true
    type: str
  configuration:
    description: The merge patch (RFC 7396) that was rendered, as text.
    type: str
  digest:
    description: Of the intent and what it became; kept on the switch.
    type: str
  deployment:
    description: Id of the deployment.
    type: str
  ports:
    description: The ports of the deployment; others are never touched.
    required: true
    type: list
    elements: str
  restore_after_s:
    description: Seconds until what is not confirmed is taken back.
    type: float
  restore_to:
    description: What the deployment found, or what was there before anything of ours.
    choices: [previous, original]
    default: previous
    type: str
  writer:
    description: The Generic Config Updater, or one redis transaction, which no model of the switch's checks.
    choices: [gcu, direct]
    default: gcu
    type: str
  folder:
    description: Where the switch keeps what was deployed and what was there before.
    default: /var/lib/dlcp/configdb
    type: str
  socket:
    description: Redis' socket.
    default: /var/run/redis/redis.sock
    type: str
  database:
    description: Number of CONFIG_DB.
    default: 4
    type: int
  config_command:
    description: SONiC's C(config), as a shell would take it.
    default: config
    type: str
author: DLCP testbed
"""
EXAMPLES = """
- name: Apply
  dlcp_configdb:
    phase: apply
    configuration: "{{ dlcp_rendered.configuration }}"
    digest: "{{ dlcp_rendered.digest }}"
    deployment: "{{ dlcp_deployment }}"
    ports: "{{ dlcp_ports.keys() | list }}"
    restore_after_s: "{{ dlcp_confirm_within_s }}"
"""
RETURN = """
backup:
  description: All of CONFIG_DB, as text. Of phase look.
  type: str
  returned: success
pending:
  description: The deployment that is not confirmed yet, and the seconds that it has. Of look and read.
  type: dict
  returned: success
"""

import json
from typing import Any

from ansible.module_utils.basic import AnsibleModule
from ansible.module_utils.dlcp_redis import RedisError
from ansible.module_utils.dlcp_sonic import RefusedError, Switch


def main() -> None:
    """Do one phase."""
    module = AnsibleModule(
        argument_spec={
            "phase": {
                "choices": ["look", "apply", "read", "confirm", "restore"],
                "required": True,
            },
            "configuration": {"type": "str"},
            "digest": {"type": "str"},
            "deployment": {"type": "str"},
            "ports": {"type": "list", "elements": "str", "required": True},
            "restore_after_s": {"type": "float"},
            "restore_to": {"choices": ["previous", "original"], "default": "previous"},
            "writer": {"choices": ["gcu", "direct"], "default": "gcu"},
            "folder": {"default": "/var/lib/dlcp/configdb"},
            "socket": {"default": "/var/run/redis/redis.sock"},
            "database": {"type": "int", "default": 4},
            "config_command": {"default": "config"},
        },
        required_if=[
            ("phase", "apply", ["configuration", "digest", "deployment", "restore_after_s"]),
            ("phase", "confirm", ["deployment"]),
            ("phase", "restore", ["deployment"]),
        ],
        supports_check_mode=True,
    )
    words = module.params
    if module.check_mode and words["phase"] in ("apply", "confirm", "restore"):
        module.fail_json(msg=f"phase {words['phase']} changes the switch; look is what a check asks for")
    try:
        module.exit_json(**done(Switch(words), words))
    except (RefusedError, RedisError, OSError, ValueError) as error:
        module.fail_json(msg=str(error))


def done(switch: Switch, words: dict[str, Any]) -> dict[str, Any]:
    """One phase, and what Ansible is told of it."""
    phase, patch = words["phase"], json.loads(words["configuration"] or "{}")
    if phase == "look":
        switch.check(patch)
        facts: dict[str, Any] = {"dlcp_found": found_on(switch)}
        if patch:
            facts["dlcp_diff"] = switch.diff(patch, words["digest"])
        backup = json.dumps(switch.live(), indent=1, sort_keys=True)
        return {"changed": False, "backup": backup, "pending": switch.pending(), "ansible_facts": facts}
    if phase == "apply":
        return {"changed": switch.apply(patch, words["digest"], words["deployment"], words["restore_after_s"])}
    if phase == "confirm":
        return {"changed": switch.confirm(words["deployment"])}
    if phase == "restore":
        return {"changed": switch.restore(words["deployment"], original=words["restore_to"] == "original")}
    return {"changed": False, "ansible_facts": {"dlcp_found": found_on(switch)}, "pending": switch.pending()}


def found_on(switch: Switch) -> dict[str, Any]:
    """What is deployed, and what differs from it."""
    return {"digest": (switch.kept() or {}).get("digest", ""), "differences": switch.differences()}


if __name__ == "__main__":
    main()

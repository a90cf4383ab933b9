"""Runs module dlcp_host's own work on the host it is called on, without Ansible around it: STATE LAYER SETTINGS(JSON).

Prints the rows as JSON; with status 1, why it failed.
"""

from __future__ import annotations

import importlib
import json
import sys
from pathlib import Path

import ansible.module_utils

PLUGINS = Path(__file__).parents[2] / "playbooks" / "plugins"
ansible.module_utils.__path__.append(str(PLUGINS / "module_utils"))
sys.path.append(str(PLUGINS / "modules"))


def main(state: str, layer: str, settings: str) -> int:
    """See the module's docstring."""
    module = importlib.import_module("dlcp_host")
    said = {"state": state, "layer": layer, "settings": json.loads(settings), "interface": "eth1"}
    try:
        rows = module._done({**said, "saved": "/var/lib/dlcp/host.json"}, check=False)
    except (module.Failed, module.Refused) as error:
        print(error)
        return 1
    print(json.dumps(rows))
    return 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

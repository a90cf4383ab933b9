"""What Ansible carries to a device, importable here as it is there."""

from __future__ import annotations

import ansible.module_utils

from dlcp.paths import REPOSITORY

for folder in ("playbooks/plugins", "switch_configs/sonic"):
    ansible.module_utils.__path__.append(str(REPOSITORY / folder / "module_utils"))

from ansible.module_utils import dlcp_redis, dlcp_sonic, dlcp_tables, dlcp_timer  # noqa: E402

__all__ = ["dlcp_redis", "dlcp_sonic", "dlcp_tables", "dlcp_timer"]

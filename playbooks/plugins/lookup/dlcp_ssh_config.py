"""Lookup: an ssh configuration for libssh that takes host keys from the lab's known_hosts alone.

`network_cli` and `netconf` do not look at ansible_ssh_common_args; a configuration file is the one way to name a
known_hosts. Written beside the lab's other private files; the same text is written once.
"""

from __future__ import annotations

import hashlib
import os
import tempfile
from pathlib import Path
from typing import Any

from ansible.errors import AnsibleError
from ansible.plugins.lookup import LookupBase

DOCUMENTATION = """
name: dlcp_ssh_config
short_description: Path of an ssh configuration that trusts one known_hosts
description: Written when it is not there yet.
options:
  _terms:
    description: The known_hosts file, absolute.
    required: true
"""


class LookupModule(LookupBase):  # type: ignore[misc]
    """lookup('dlcp_ssh_config', known_hosts) → path."""

    def run(self, terms: list[str], variables: Any = None, **_: Any) -> list[str]:
        """One path for each known_hosts. AnsibleError when there is none: nothing is trusted then."""
        return [str(_written(Path(term))) for term in terms]


def _written(known_hosts: Path) -> Path:
    if not known_hosts.is_file():
        raise AnsibleError(
            f"{known_hosts}: no such file; the host keys of the lab's devices belong there (ssh-keyscan)"
        )
    text = (
        f"Host *\n  UserKnownHostsFile {known_hosts}\n  GlobalKnownHostsFile /dev/null\n  StrictHostKeyChecking yes\n"
    )
    name = f"dlcp-ssh-config-{os.getuid()}-{hashlib.sha256(text.encode()).hexdigest()[:16]}"
    path = Path(tempfile.gettempdir()) / name
    if path.is_file() and path.stat().st_uid == os.getuid() and path.read_text(encoding="utf-8") == text:
        return path
    file, made = tempfile.mkstemp(prefix=name)
    with os.fdopen(file, "w", encoding="utf-8") as stream:
        stream.write(text)
    os.replace(made, path)
    return path

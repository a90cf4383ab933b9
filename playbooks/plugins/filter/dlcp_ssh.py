"""Filter: a path as ssh takes it in an option."""

from __future__ import annotations

from typing import Any

from ansible.errors import AnsibleFilterError

from dlcp.model.lab.ssh_words import ssh_path


def quoted(path: str) -> str:
    """The path in the quotes of ssh's configuration. AnsibleFilterError when ssh cannot be given it."""
    try:
        return ssh_path(path)
    except ValueError as error:
        raise AnsibleFilterError(f"{error}: rename the lab's folder or the file") from error


class FilterModule:
    """For Ansible."""

    def filters(self) -> dict[str, Any]:
        """By name."""
        return {"dlcp_ssh_path": quoted}

"""Connection: `ansible.netcommon.network_cli`, which takes host keys from the lab's known_hosts alone.

The collection's own reads ~/.ssh/known_hosts and has no option for another file: neither over paramiko, nor over
ansible-pylibssh 1.4, which does not read the configuration file that it is given. A collection of our own holds this,
because the actions of vendors' collections look at the last word of the connection's name.
"""

from __future__ import annotations

from typing import Any

import paramiko
from ansible.errors import AnsibleConnectionFailure
from ansible_collections.ansible.netcommon.plugins.connection import network_cli

OPTION = """
  known_hosts:
    description: The one file of host keys that are trusted.
    type: path
    required: true
    vars: [{name: ansible_lab_known_hosts}]
"""
# Ansible reads a plugin's options from this name: all of the collection's, and one more.
globals()["DOCUMENTATION"] = network_cli.DOCUMENTATION.rstrip() + OPTION


class Connection(network_cli.Connection):  # type: ignore[misc]
    """The collection's, but for the host keys."""

    transport = "dlcp.lab.network_cli"

    def set_options(self, task_keys: Any = None, var_options: Any = None, direct: Any = None) -> None:
        """Take options, but never one that trusts an unknown host key, wherever it is said."""
        super().set_options(task_keys=task_keys, var_options=var_options, direct=direct)
        for plugin in (self, self.ssh_type_conn):
            plugin.set_option("host_key_checking", True)
            plugin.set_option("host_key_auto_add", False)

    def _connect(self) -> Any:
        """Connect. AnsibleConnectionFailure when the file is not there: nothing is trusted then."""
        trusted = self.get_option("known_hosts")
        of_system = paramiko.SSHClient.load_system_host_keys

        def of_lab(client: paramiko.SSHClient, filename: str | None = None) -> None:
            client.load_host_keys(trusted)

        paramiko.SSHClient.load_system_host_keys = of_lab
        try:
            return super()._connect()
        except FileNotFoundError as error:
            raise AnsibleConnectionFailure(f"{error}; the host keys of the lab belong there (ssh-keyscan)") from error
        finally:
            paramiko.SSHClient.load_system_host_keys = of_system

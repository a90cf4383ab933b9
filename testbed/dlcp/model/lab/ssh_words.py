"""Words of a lab's inventory that ssh and Ansible read: paths, and those that decide how a device is reached."""

from __future__ import annotations

import getopt
import re
import shlex

_UNUSABLE = re.compile(r"""["\\$%\x00-\x1f\x7f]""")
"""In a value of ssh's configuration: quotes and escapes that versions of ssh read differently, and the beginnings of
environment variables and of tokens such as %h."""

ALLOWED_SSH_WORDS = frozenset(
    {
        "ansible_ssh_private_key_file",
        "ansible_ssh_extra_args",
        "ansible_ssh_retries",
        "ansible_ssh_timeout",
        "ansible_ssh_pipelining",
        "ansible_ssh_transfer_method",
        "ansible_ssh_use_tty",
    }
)
"""Words of ssh's connection that an inventory may say. ansible_ssh_extra_args stands behind the playbooks' own options,
of which ssh takes the first; refused_ssh_options says which it may not have."""

EXTRA_ARGS = "ansible_ssh_extra_args"
_SSH_FLAGS = "1246ab:c:e:fgi:kl:m:no:p:qstvxAB:CD:E:F:GI:J:KL:MNO:P:Q:R:S:TVw:W:XYy"
"""ssh's command line in the words of getopt(3) (OpenSSH 9.4)."""
_REFUSED_FLAGS = frozenset({"-F", "-p", "-S"})
"""A configuration file and an open connection (ssh takes the last of these, not the first), and a port."""
_REFUSED_OPTIONS = frozenset({"hostkeyalias", "hostname", "port", "controlpath"})

_CONNECTION_WORD = re.compile(
    r"ansible_(connection|host_key_checking|lab_known_hosts|control_path|private_key\w*|pkcs11_provider"
    r"|(ssh|sftp|scp|paramiko|libssh|netconf)_\w+|network_cli_ssh_type)|dlcp_known_hosts_path"
)


def ssh_path(path: str) -> str:
    """Return a path as a value of ssh's configuration, in quotes, so that spaces stay in it.

    ValueError when the path has a character that cannot be quoted there.
    """
    unusable = _UNUSABLE.search(path)
    if unusable:
        raise ValueError(f"{path!r}: ssh cannot be given a path with {unusable.group()!r}")
    return f'"{path}"'


def is_connection_word(word: str) -> bool:
    """Return whether a variable of Ansible would change how devices are reached or whose host keys count. That is the
    playbooks' to say (playbooks/vars/connection.yml), never an inventory's."""
    return _CONNECTION_WORD.fullmatch(word) is not None and word not in ALLOWED_SSH_WORDS


def refused_ssh_options(arguments: str) -> list[str]:
    """Return the options of ansible_ssh_extra_args that would lead to another device, or to another key for it.

    A word that is no option would be taken for the device's name, and what ssh itself does not understand is refused.
    """
    try:
        options, names = getopt.getopt(shlex.split(arguments), _SSH_FLAGS)
    except (ValueError, getopt.GetoptError) as error:
        return [f"{arguments} ({error})"]
    refused = [f"{flag} {value}" for flag, value in options if flag in _REFUSED_FLAGS]
    # ssh takes `Name=value`, `Name value` and `Name = "value"`, and letters of either case.
    settings = [value for flag, value in options if flag == "-o"]
    refused += [
        f"-o {setting}" for setting in settings if re.split(r"[\s=]", setting.strip())[0].lower() in _REFUSED_OPTIONS
    ]
    return refused + names

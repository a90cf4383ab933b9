"""systemd's units of the agent: started at a connection to a socket that only its group may open, with a user of its
own, whose group lends access to the socket and to nothing else: what an agent writes is readable to that user alone.

CAP_NET_ADMIN: for socket buffers above the sysctl's limit (SO_SNDBUFFORCE). CAP_SYS_NICE: for real-time priority of the
transport's engine, and for the sampler of the machine, which must not be late itself. Nothing else; no port is listened
on but what a run asks for.
"""

from __future__ import annotations

USER = "dlcp"
HEAD = "# Written by dlcp's role dlcp_host, and removed by it."
SOCKET, SERVICE = "dlcp-agent.socket", "dlcp-agent@.service"


def units(python: str) -> dict[str, str]:
    """File name → text. python: that has dlcp, an absolute path."""
    return {
        SOCKET: f"{HEAD}\n{_SOCKET.format(group=USER)}",
        SERVICE: f"{HEAD}\n{_SERVICE.format(python=python, user=USER)}",
    }


_SOCKET = """\
[Unit]
Description=DLCP agents, one a connection

[Socket]
ListenStream=/run/dlcp/agent.sock
SocketGroup={group}
SocketMode=0660
Accept=yes
MaxConnections=64

[Install]
WantedBy=sockets.target
"""

_SERVICE = """\
[Unit]
Description=A DLCP agent
CollectMode=inactive-or-failed

[Service]
User={user}
Group={user}
UMask=0077
Environment=OMP_NUM_THREADS=1 MKL_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1
ExecStart={python} -m dlcp.agents.process.stdio
StandardInput=socket
StandardOutput=socket
StandardError=journal
AmbientCapabilities=CAP_NET_ADMIN CAP_SYS_NICE
CapabilityBoundingSet=CAP_NET_ADMIN CAP_SYS_NICE
NoNewPrivileges=yes
ProtectSystem=strict
ProtectHome=yes
PrivateTmp=yes
PrivateDevices=yes
ProtectKernelTunables=yes
ProtectKernelModules=yes
ProtectControlGroups=yes
RestrictAddressFamilies=AF_INET AF_UNIX
RestrictNamespaces=yes
LockPersonality=yes
SystemCallArchitectures=native
"""

"""A real redis as one SONiC switch's CONFIG_DB, with what a switch has before us: ports, pools, other people's rows."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import redis
from waits import in_time, wait_until

from dlcp.paths import REPOSITORY

PORTS = ("Ethernet0", "Ethernet4", "Ethernet8")
"""Of the switch; a deployment has the first two."""
AS_SHIPPED: dict[str, dict[str, dict[str, Any]]] = {
    "PORT": {port: {"lanes": f"{4 * n},{4 * n + 1}", "speed": "100000"} for n, port in enumerate(PORTS)},
    "BUFFER_POOL": {
        name: {"type": kind, "mode": "dynamic", "size": "12000000"}
        for name, kind in (("ingress_lossless_pool", "ingress"), ("egress_lossy_pool", "egress"))
    },
    "BUFFER_PROFILE": {"egress_lossy_profile": {"pool": "egress_lossy_pool", "size": "0", "dynamic_th": "3"}},
    "BUFFER_QUEUE": {f"{port}|0-7": {"profile": "egress_lossy_profile"} for port in PORTS},
    "SCHEDULER": {"scheduler.0": {"type": "DWRR", "weight": "14"}},
    "WRED_PROFILE": {
        "AZURE_LOSSLESS": {
            "ecn": "ecn_all",
            "wred_green_enable": "true",
            "green_min_threshold": "1048576",
            "green_max_threshold": "2097152",
            "green_drop_probability": "5",
        }
    },
    "DSCP_TO_TC_MAP": {"AZURE": {"0": "1", "8": "0"}},
    "QUEUE": {
        "Ethernet0|0-2": {"scheduler": "scheduler.0"},
        "Ethernet0|3": {"scheduler": "scheduler.0", "wred_profile": "AZURE_LOSSLESS"},
        "Ethernet8|3": {"scheduler": "scheduler.0"},
    },
    "PORT_QOS_MAP": {
        "Ethernet0": {"dscp_to_tc_map": "AZURE", "pfc_enable": "3,4", "scheduler": "scheduler.0"},
        "Ethernet8": {"dscp_to_tc_map": "AZURE"},
    },
    "NTP_SERVER": {"192.0.2.1": {}},
    "VLAN": {"Vlan100": {"dhcp_servers": ["192.0.2.1", "192.0.2.2"], "vlanid": "100"}},
}


@dataclass(frozen=True)
class ConfigDb:
    """socket, folder: of redis, and of its `config`."""

    socket: str
    folder: Path

    @property
    def database(self) -> redis.Redis:
        """A connection to CONFIG_DB."""
        return redis.Redis(unix_socket_path=self.socket, db=4, decode_responses=True)

    def config(self, *options: str) -> str:
        """The command line of `config` on this switch."""
        stub = Path(__file__).with_name("sonic_config.py")
        ours = f"PYTHONPATH={REPOSITORY / 'testbed'}"  # a shell over SSH has not this process's
        words = [
            "env",
            ours,
            sys.executable,
            str(stub),
            "--socket",
            self.socket,
            "--checkpoints",
            str(self.folder / "cp"),
            *options,
        ]
        return shlex.join(words)

    def dump(self) -> bytes:
        """All of it, in one order."""
        rows = {key: self.database.hgetall(key) for key in sorted(self.database.scan_iter())}
        return json.dumps(rows, sort_keys=True).encode()

    def wait_for(self, dump: bytes, within_s: float) -> bool:
        """Whether it becomes this within a limit."""
        return in_time(lambda: self.dump() == dump, within_s, every_s=0.1)

    def set(self, key: str, row: dict[str, Any]) -> None:
        """A row as SONiC writes it."""
        flat = {
            f"{f}@" if isinstance(v, list) else f: ",".join(v) if isinstance(v, list) else v for f, v in row.items()
        }
        self.database.hset(key, mapping=flat or {"NULL": "NULL"})


@contextmanager
def config_db(folder: Path, ports: int = len(PORTS)) -> Iterator[ConfigDb]:
    """A redis that holds what a switch is shipped with, and so many ports; ends with the block."""
    server = shutil.which("redis-server", path=f"{sys.prefix}/bin:{os.environ['PATH']}")
    assert server, "make setup installs redis-server"
    folder.mkdir(parents=True, exist_ok=True)
    switch = ConfigDb(str(folder / "redis.sock"), folder)
    words = [server, "--port", "0", "--unixsocket", switch.socket, "--save", "", "--dir", str(folder)]
    process = subprocess.Popen(words, stdout=subprocess.DEVNULL)
    try:
        wait_until(Path(switch.socket).exists, "redis has its socket")
        for table, rows in AS_SHIPPED.items():
            for key, row in rows.items():
                switch.set(f"{table}|{key}", row)
        for number in range(len(PORTS), ports):
            switch.set(f"PORT|Ethernet{4 * number}", {"lanes": f"{4 * number}", "speed": "100000"})
        yield switch
    finally:
        process.terminate()
        process.wait(10)

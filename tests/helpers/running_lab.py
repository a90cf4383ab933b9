"""A namespace lab that stands while a test runs, and commands, SSH sessions and Python functions in it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from dlcp.isolation.private_namespaces import start_private
from dlcp.substrates.namespace_lab.namespace_lab import PROCESSES, controller_environment
from dlcp.substrates.namespace_lab.node import inside

HERE = Path(__file__).parent
COMMAND_LIMIT_S = 60
Topology = str | Mapping[str, Any]


class RunningLab:
    """A lab that stands. path: its inventory; folder: where that, the keys and the logs are."""

    def __init__(self, topology: Topology, folder: Path) -> None:
        self.folder = folder
        request = json.dumps({"topology": topology, "folder": str(folder)})
        self.process = start_private(
            "dlcp.substrates.namespace_lab.namespace_lab:keep",
            [request],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        assert self.process.stdout is not None
        assert self.process.stderr is not None
        line = self.process.stdout.readline().decode().strip()
        assert line, self.process.stderr.read().decode()
        self.path = Path(line)

    def run(
        self, command: Sequence[str | Path], within_s: float = COMMAND_LIMIT_S, **options: Any
    ) -> subprocess.CompletedProcess[str]:
        """Run a command on the controller, in the lab's folder, DLCP_LAB set. options: of subprocess.run; env is added
        to this process's."""
        at_home = ["env", "-C", str(options.pop("cwd", self.folder))]  # to enter a mount namespace leaves the folder
        words = self.process.inside([*at_home, *(str(word) for word in command)])
        options = {"capture_output": True, "text": True, "check": False} | options
        env = controller_environment(self.path) | options.pop("env", {})
        return subprocess.run(words, timeout=within_s, env=env, **options)

    def on(self, node: str, command: str, within_s: float = COMMAND_LIMIT_S) -> str:
        """Standard output of a shell command on a node, not by SSH: to look at what is there, or to break it."""
        pid = json.loads((self.folder / PROCESSES).read_text())[node]
        done = self.run(inside(pid, ["sh", "-c", command]), within_s)
        assert done.returncode == 0, f"{node}: {command}: {done.stderr}"
        return done.stdout

    def ssh(self, node: str, command: str, within_s: float = COMMAND_LIMIT_S) -> subprocess.CompletedProcess[str]:
        """A shell command on a node, over SSH as a person would."""
        return self.run(["ssh", "-F", "ssh_config", node, command], within_s)

    def call(self, scenario: Callable[..., Any], within_s: float = COMMAND_LIMIT_S, **arguments: Any) -> Any:
        """Call a function of a test module in a Python process on the controller; arguments and result are JSON."""
        source = "import running_lab, sys; sys.exit(running_lab.main(sys.argv[1:]))"
        paths = os.pathsep.join(filter(None, sys.path))
        words = [sys.executable, "-c", source, scenario.__module__, scenario.__name__, json.dumps(arguments)]
        done = self.run(words, within_s, env={"PYTHONPATH": paths})
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout.splitlines()[-1])

    def stop(self) -> None:
        """Kill all of it."""
        self.process.stop()
        for stream in (self.process.stdin, self.process.stdout, self.process.stderr):
            if stream is not None:
                stream.close()


def main(arguments: list[str]) -> int:
    """On the controller: run a scenario and print its result."""
    module, name, keywords = arguments
    __import__(module)
    print(json.dumps(getattr(sys.modules[module], name)(**json.loads(keywords))))
    return 0

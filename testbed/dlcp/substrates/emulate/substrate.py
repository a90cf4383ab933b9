"""The substrate `emulate`: one run in private namespaces on this machine.

Inside, `dlcp.substrates.emulate.site` builds the fabric and conducts the run; it and this file converse.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Self

from pydantic import TypeAdapter

from dlcp.agents.control.handles import Zygote
from dlcp.agents.core_waits import open_softirq_files
from dlcp.isolation.private_namespaces import start_private
from dlcp.model.base import OnProgress
from dlcp.model.result import RunResult
from dlcp.model.run import Run
from dlcp.model.workload import Training
from dlcp.substrates.json_lines import result_of

_REMEDY = "dlcp doctor shows what this machine lacks"


class Emulation:
    """Runs experiments on this machine, one after the other. What agents load is loaded once for all runs."""

    def __init__(self) -> None:
        self._zygotes: dict[str, Zygote] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        for zygote in self._zygotes.values():
            zygote.close()
        self._zygotes = {}

    def run(self, run: Run, directory: Path, on_progress: OnProgress) -> RunResult:
        """Conduct one run; its tables are written into `directory`, result.json is the caller's to write.

        on_progress: told the share done (0 to 1) and what is being done. A run that could not finish has status
        `failed` and a reason. Raises Problem when the machine cannot run it at all.
        """
        zygote = self._zygote(run)
        softirq = open_softirq_files()
        files = [zygote.fileno(), *softirq]
        process = start_private(
            "dlcp.substrates.emulate.site:main",
            list(map(str, files)),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            pass_fds=files,
        )
        for file in softirq:
            os.close(file)
        try:
            request = {"run": TypeAdapter(Run).dump_python(run, mode="json"), "directory": str(directory.resolve())}
            return result_of(process, request, on_progress, "emulate", _REMEDY)
        finally:
            process.stop()

    def _zygote(self, run: Run) -> Zygote:
        script = run.workload.script if isinstance(run.workload, Training) else ""
        if script not in self._zygotes:
            self._zygotes[script] = Zygote.spawn(script)
        return self._zygotes[script]


SUBSTRATE = Emulation

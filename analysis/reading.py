"""What every notebook begins with: which results to read, and what they are."""

from __future__ import annotations

import os
import tarfile
import tempfile
from collections.abc import Sequence
from pathlib import Path

from dlcp.report.data.load import Results, load
from dlcp.report.data.self_checks import problems

HERE = Path(__file__).parent


def choose(experiments: Sequence[str], sample: str, results: Path = HERE.parent / "results") -> Path:
    """The directory of an experiment's runs: the one that $DLCP_RESULTS names; else the newest of the experiments that
    results/ has; else a small stored sample of real runs."""
    if named := os.environ.get("DLCP_RESULTS"):
        return Path(named)
    finished = [file for name in experiments for file in results.glob(f"{name}/*/result.json")]
    if finished:
        return max(finished, key=lambda file: file.stat().st_mtime).parent.parent
    unpacked = Path(tempfile.mkdtemp(prefix="dlcp-sample-"))
    with tarfile.open(HERE / sample) as archive:
        archive.extractall(unpacked, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    return unpacked


def read(experiments: Sequence[str], sample: str) -> Results:
    """The results, after a few words about what they are and whether anything is wrong with them."""
    results = load(choose(experiments, sample))
    counted = sum(run.trusted for run in results.runs)
    print(f"{results.experiment}: {len(results.runs)} runs, of which {counted} count; from {results.directory}")
    if any(run.result.provenance.get("thinned") for run in results.runs):
        print("These are a stored sample of real runs, thinned: good for reading along. `dlcp run` makes your own.")
    if any(run.result.provenance.get("made_up") for run in results.runs):
        print("These are made-up numbers from a generator: good for reading along, proof of nothing.")
    for left_out in results.left_out:
        print("not read:", left_out.path.name, left_out.why)
    for problem in problems(results):
        print("PROBLEM:", problem)
    return results

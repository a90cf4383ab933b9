"""Make a small copy of an experiment's results, small enough to be stored with the code: the notebook's sample.

    python analysis/make_sample.py results/quickstart analysis/sample.tar.xz
    python analysis/make_sample.py --queues results/microburst analysis/sample_queues.tar.xz
    python analysis/make_sample.py --messages 300 results/ablation analysis/sample_parts.tar.xz

Kept whole: which runs there are, their statuses, completion times, accuracies and settings. Thinned: messages and
iterations (the first ones after warm-up; each starts at 0), ports (summed into one row a queue and precedence, unless
--queues keeps them and the queues' samples), hosts, flows and most statistics (left out). So job completion and
accuracy are those of the full results, tails only resemble them.
"""

from __future__ import annotations

import argparse
import json
import re
import tarfile
import tempfile
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq

from dlcp.model.loading.stored_result import record_tables

MESSAGES = 2000
"""Messages kept a run, about, where --messages does not say: 10000 over five repeats, enough for a p99 that resembles
the whole one."""
ITERATIONS = 15


def main() -> None:
    """Read the arguments, write the sample, print its size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", type=Path, help="results/<experiment>")
    parser.add_argument("sample", type=Path, help="a .tar.xz; replaced if it is there")
    parser.add_argument("--queues", action="store_true", help="keep every port, and the samples of its queues")
    parser.add_argument("--messages", type=int, default=MESSAGES, help="messages kept a run, about (%(default)s)")
    arguments = parser.parse_args()
    experiment: Path = arguments.experiment
    with tempfile.TemporaryDirectory() as temporary, tarfile.open(arguments.sample, "w:xz", preset=9) as archive:
        for result in sorted(experiment.glob("*/result.json")):
            run = result.parent
            if not run.name.endswith(".tmp"):
                thin(run, Path(temporary) / run.name, arguments.messages, arguments.queues)
                archive.add(Path(temporary) / run.name, f"{experiment.name}/{run.name}", filter=_anonymous)
    print(f"{arguments.sample}: {arguments.sample.stat().st_size / 1000:.0f} kB")


def _anonymous(member: tarfile.TarInfo) -> tarfile.TarInfo:
    """The same results make the same archive: no owner, no time."""
    member.uid = member.gid = member.mtime = 0
    member.uname = member.gname = ""
    return member


def thin(run: Path, target: Path, messages: int, queues: bool = False) -> None:
    """Copy one run's directory, thinned. messages: how many to keep, about. queues: all ports stay, and the samples of
    their queues."""
    target.mkdir(parents=True)
    few = partial(_messages, most=messages)
    cuts = {"iterations": _iterations, "messages": few, "ports": None if queues else _ports, "training": None}
    for name, cut in (cuts | ({"backlog": None} if queues else {})).items():
        source = run / f"{name}.parquet"
        if source.is_file():
            table = pq.read_table(source)
            frame = table.to_pandas()
            frame = _rounded(cut(frame) if cut else frame)
            thinned = pa.Table.from_pandas(
                frame[table.column_names], schema=table.schema.remove_metadata(), preserve_index=False
            )
            pq.write_table(
                thinned.replace_schema_metadata(None),
                target / source.name,
                compression="none",
                use_dictionary=False,
                write_statistics=False,
                store_schema=False,
            )
    result = json.loads((run / "result.json").read_text(encoding="utf-8"))
    result["provenance"]["thinned"] = "a sample: fewer messages and iterations, ports summed, no hosts, no statistics"
    result["statistics"] = {name: found for name, found in result["statistics"].items() if name == "gradient"}
    result["knobs"] = {name: value for name, value in result["knobs"].items() if not isinstance(value, dict)}
    if "tables" in result:
        result["tables"] = {name: dict(table) for name, table in record_tables(target).items()}
    (target / "result.json").write_text(json.dumps(result, separators=(",", ":")) + "\n", encoding="utf-8")


def _iterations(frame: pd.DataFrame) -> pd.DataFrame:
    first = frame.loc[~frame["warmup"], "iteration"].min()
    return frame[frame["iteration"].between(first, first + ITERATIONS - 1)]


def _messages(frame: pd.DataFrame, most: int) -> pd.DataFrame:
    """Whole tensors over as many iterations as fit, so that bursts stay together."""
    counted = frame[~frame["warmup"]]
    iterations = counted["iteration"].drop_duplicates().sort_values().head(ITERATIONS)
    counted = counted[counted["iteration"].isin(iterations)]
    tensors = np.sort(counted["tensor"].unique())
    kept = max(1, round(most * len(tensors) / len(counted)))
    chosen = tensors[np.linspace(0, len(tensors) - 1, min(kept, len(tensors))).astype(int)]
    return counted[counted["tensor"].isin(chosen)]


def _ports(frame: pd.DataFrame) -> pd.DataFrame:
    if frame.empty:
        return frame  # no switches, no counters
    summed = frame.groupby(["queue", "precedence"], as_index=False).sum(numeric_only=True)
    peaks = frame.groupby(["queue", "precedence"], as_index=False)["peak_backlog_bytes"].max()
    counted = [name for name in summed if name == "enqueued_packets" or re.fullmatch("dropped_.*_packets", name)]
    used = summed[summed[counted].sum(axis=1) > 0]
    return used.assign(
        switch="all", port="all", peak_backlog_bytes=peaks["peak_backlog_bytes"], backlog_histogram=[[]] * len(used)
    )


def _rounded(frame: pd.DataFrame) -> pd.DataFrame:
    """Durations kept to 0.1 ms, beginnings dropped: they pack better, and the sample claims no more."""
    if "end_s" in frame:
        frame = frame.assign(start_s=0.0, end_s=frame["end_s"] - frame["start_s"])
    return frame.round({column: 4 for column in frame.columns if column.endswith("_s")})


if __name__ == "__main__":
    main()

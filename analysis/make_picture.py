"""Draw the README's picture from the results of an experiment.

    python analysis/make_picture.py results/quickstart analysis/images/quickstart.png

The job that the experiment's expectations name first: the tail of its messages, its iteration and completion times with
every repeat and 95 % intervals, and the scaling regime below them. Needs the `report` extra.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from dlcp.report.analysis.comparison import compare
from dlcp.report.data.load import load
from dlcp.report.plots import style
from dlcp.report.plots.overview import overview

DOTS_AN_INCH = 120


def main() -> None:
    """Read the arguments, write the picture, print its size."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("experiment", type=Path, help="results/<experiment>")
    parser.add_argument("picture", type=Path, help="a .png; replaced if it is there")
    parser.add_argument("--job", help="another job than the first")
    arguments = parser.parse_args()
    draw(arguments.experiment, arguments.picture, arguments.job)
    print(f"{arguments.picture}: {arguments.picture.stat().st_size / 1000:.0f} kB")


def draw(experiment: Path, picture: Path, job: str | None = None) -> None:
    """Write the picture; the same results give the same bytes."""
    comparison = compare(load(experiment))
    picture.parent.mkdir(parents=True, exist_ok=True)
    with style.applied():
        overview(comparison, job or comparison.jobs[0].job).savefig(
            picture, dpi=DOTS_AN_INCH, metadata={"Software": None}
        )


if __name__ == "__main__":
    main()

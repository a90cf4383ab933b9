"""The page in a real browser: no table is wider than the screen or the sheet; light, or dark where that is wanted."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest
from matplotlib.image import imread
from synthetic_results import make_results

from dlcp.report import report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="no Chromium here; apt-get install chromium")

SCREEN_PX = 1200
A4_PX = 718
"""A4 between margins of 1 cm at 96 dots an inch."""
MEASURE = """<script>
const wide = [document.documentElement, ...document.querySelectorAll(".scroll")]
  .filter(one => one.scrollWidth > one.clientWidth)
  .map(one => one.innerText.slice(0, 30) + " " + one.scrollWidth + " in " + one.clientWidth);
document.title = document.querySelectorAll("table.figures").length + " tables;" + wide.join(";") + "|";
</script>"""


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    """Enough messages that every cell of the table is filled, and the intervals are long."""
    root = make_results(tmp_path_factory.mktemp("results"), repeats=5, iterations=100)
    return report(root).html.read_text(encoding="utf-8")


def too_wide(html: str, width_px: int, folder: Path) -> list[str]:
    """What sticks out of a window of this width."""
    (folder / "page.html").write_text(html.replace("</body>", MEASURE + "</body>"), encoding="utf-8")
    dom = chromium(folder, width_px, "--dump-dom")
    found = re.search(r"<title>(\d+) tables;(.*?)\|</title>", dom, re.DOTALL)
    assert found is not None
    assert found[1] == "10"  # four groups of figures of the profile job, five of the real one, the costs
    return [one for one in found[2].split(";") if one]


def chromium(folder: Path, width_px: int, *more: str) -> str:
    """Open folder/page.html in a browser without a window; what it prints."""
    options = [
        "--headless",
        "--no-sandbox",
        "--disable-gpu",
        "--disable-background-networking",
        "--disable-sync",
        "--disable-component-update",
        "--no-first-run",
        f"--user-data-dir={folder / 'profile'}",
        f"--window-size={width_px},2000",
        *more,
    ]
    command = [str(CHROMIUM), *options, (folder / "page.html").as_uri()]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=True).stdout


@pytest.mark.parametrize(("wanted", "options"), [("light", ()), ("dark", ("--blink-settings=preferredColorScheme=0",))])
def test_page__is_light_or_dark_as_the_reader_wants_it(
    page: str, tmp_path: Path, wanted: str, options: tuple[str, ...]
) -> None:
    """Most of the picture is paper, and the figures stand on the same paper as the text."""
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    chromium(tmp_path, SCREEN_PX, *options, "--hide-scrollbars", f"--screenshot={tmp_path / 'page.png'}")
    picture = imread(tmp_path / "page.png")[..., :3].mean(axis=2)
    paper = float(np.median(picture))
    assert paper < 0.1 if wanted == "dark" else paper > 0.97
    apart = np.abs(picture - paper)
    assert 0.02 < (apart > 0.4).mean() < 0.4  # ink there is, and it can be read
    assert (apart < 0.06).mean() > 0.6


def test_page__fits_a_window_of_1200(page: str, tmp_path: Path) -> None:
    assert too_wide(page, SCREEN_PX, tmp_path) == []


def test_page__fits_a_sheet_of_paper(page: str, tmp_path: Path) -> None:
    assert too_wide(page.replace("@media print", "@media all"), A4_PX, tmp_path) == []


def test_too_wide__does_notice(page: str, tmp_path: Path) -> None:
    nowrap = page.replace("table.figures td.n { white-space: normal; }", "").replace("scroll", "scroll x")
    assert too_wide(nowrap, A4_PX, tmp_path) != []

"""docs/README.md lists every page of docs/, and a test names every guide, as each carries out the steps of its own."""

from __future__ import annotations

import re
from pathlib import Path

from dlcp.paths import REPOSITORY as ROOT

DOCS = ROOT / "docs"
LINK = re.compile(r"\]\(([^)#\s]+)\)")
GUIDES = sorted(page.name for page in DOCS.glob("add-a-*.md"))


def links(page: Path) -> list[Path]:
    """Return the files that a page links to, as written, without those of the web."""
    return [page.parent / link for link in LINK.findall(page.read_text(encoding="utf-8")) if "://" not in link]


def test_every_page_is_in_the_index() -> None:
    listed = {link.name for link in links(DOCS / "README.md")}
    assert {page.name for page in DOCS.glob("*.md")} - listed == set()


def test_every_link_of_a_page_leads_somewhere() -> None:
    pages = [*DOCS.glob("*.md"), ROOT / "README.md", ROOT / "switch_configs" / "README.md"]
    assert [f"{page.name}: {link}" for page in pages for link in links(page) if not link.exists()] == []


def test_every_guide_has_a_test() -> None:
    tests = "\n".join(file.read_text(encoding="utf-8") for file in (ROOT / "tests").rglob("test_*.py"))
    assert len(GUIDES) > 5
    assert [guide for guide in GUIDES if guide not in tests] == []

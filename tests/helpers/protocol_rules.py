"""Rules of PROTOCOL.md that no code or no test cites, and citations of rules that do not exist.

A rule begins with its number in bold, as in "**R12.** A packet …". Code (C sources of testbed/native) and tests cite it
as `R12` in a comment or a docstring. A rule that says "(not testable: reason)" needs no test. `make lint` runs this
file.
"""

from __future__ import annotations

import re
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SPECIFICATION = Path("testbed/native/PROTOCOL.md")
CODE = Path("testbed/native")
TESTS = Path("tests")
SOURCES = {".c", ".h", ".py"}

RULE = re.compile(r"\*\*R(\d+)\.\*\*(.*?)(?=\*\*R\d+\.\*\*|\n\n|\Z)", re.DOTALL)
CITATION = re.compile(r"\bR(\d+)\b")
NOT_TESTABLE = "(not testable: "


def citations(folder: Path, apart_from: Iterable[str]) -> dict[int, set[str]]:
    """Number of a rule → names of the files below a folder that cite it. apart_from: names of files that cite none."""
    found: dict[int, set[str]] = {}
    for file in sorted(folder.rglob("*")):
        if file.suffix in SOURCES and file.name not in apart_from:
            for number in CITATION.findall(file.read_text(encoding="utf-8")):
                found.setdefault(int(number), set()).add(file.name)
    return found


def problems(root: Path) -> list[str]:
    """Return a sentence for each rule without a citation, each citation without a rule, and each number used twice."""
    own = (Path(__file__).name, f"test_{Path(__file__).name}")
    text = (root / SPECIFICATION).read_text(encoding="utf-8")
    rules = [(int(number), body) for number, body in RULE.findall(text)]
    code, tests = citations(root / CODE, own), citations(root / TESTS, own)
    known = {number for number, _ in rules}
    lines = [f"R{number} is two rules" for number, times in Counter(n for n, _ in rules).items() if times > 1]
    for number, body in rules:
        if number not in code:
            lines.append(f"R{number}: no C source in {CODE} cites it")
        if number not in tests and NOT_TESTABLE not in body:
            lines.append(f'R{number}: no test cites it; add one, or end the rule with "{NOT_TESTABLE}reason)"')
        if number in tests and NOT_TESTABLE in body:
            lines.append(f"R{number} is not testable, but {', '.join(sorted(tests[number]))} cites it")
    text_itself = {int(number): {SPECIFICATION.name} for number in CITATION.findall(text)}
    for cited in (code, tests, text_itself):
        for number in sorted(set(cited) - known):
            files = ", ".join(sorted(cited[number]))
            lines.append(f"{files}: cites R{number}, which is no rule of {SPECIFICATION.name}")
    return lines if rules else [f"{SPECIFICATION} has no rules"]


def main() -> int:
    lines = problems(ROOT)
    print("\n".join(lines) or "every rule of PROTOCOL.md is cited in code and in tests")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())

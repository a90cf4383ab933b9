"""The search for rules of PROTOCOL.md that nobody cites, tried on a small tree; the real tree has none."""

from __future__ import annotations

from pathlib import Path

import pytest
from protocol_rules import CODE, ROOT, SPECIFICATION, TESTS, problems

RULES = "* **R1.** A packet\n  has a header.\n* **R2.** A dice is thrown (not testable: chance).\n\nProse, see R1.\n"


def tree(root: Path, rules: str = RULES, code: str = "/* R1, R2 */", test: str = "# R1") -> Path:
    for file, text in ((SPECIFICATION, rules), (CODE / "a" / "b.c", code), (TESTS / "unit" / "test_b.py", test)):
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).write_text(text, encoding="utf-8")
    return root


def test_every_rule_of_the_protocol_is_cited_in_code_and_in_tests() -> None:
    assert problems(ROOT) == []


def test_a_tree_without_gaps_has_none(tmp_path: Path) -> None:
    assert problems(tree(tmp_path)) == []


@pytest.mark.parametrize(
    ("changed", "problem"),
    [
        ({"code": "/* R2 */"}, "R1: no C source in testbed/native cites it"),
        ({"test": ""}, 'R1: no test cites it; add one, or end the rule with "(not testable: reason)"'),
        ({"test": "# R1, R12"}, "test_b.py: cites R12, which is no rule of PROTOCOL.md"),
        ({"code": "/* R1, R2, R3 */"}, "b.c: cites R3, which is no rule of PROTOCOL.md"),
        ({"rules": f"{RULES}See R9.\n"}, "PROTOCOL.md: cites R9, which is no rule of PROTOCOL.md"),
        ({"test": "# R1, R2"}, "R2 is not testable, but test_b.py cites it"),
        ({"rules": f"{RULES}* **R1.** Twice.\n"}, "R1 is two rules"),
    ],
)
def test_each_gap_is_named(tmp_path: Path, changed: dict[str, str], problem: str) -> None:
    assert problems(tree(tmp_path, **changed)) == [problem]


def test_a_text_without_rules_is_a_problem_too(tmp_path: Path) -> None:
    assert problems(tree(tmp_path, rules="Prose.\n"))[-1] == "testbed/native/PROTOCOL.md has no rules"

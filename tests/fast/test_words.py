"""The lint rule for words: finds planted faults, leaves plain English alone, and its list may only shrink."""

import pytest
import words

CLEAN = '''
"""Queues of a switch, and the bytes that each may hold."""


class Queue:
    """A queue of one port."""

    found: int  # a field: stored results name it

    def drain(self, one: int) -> str:
        """Return the bytes sent; `beside` and beside: are keys of a file, not words."""
        return "see beside: in the file" if one else "Every hour"
'''

DOCSTRINGS = ["What a queue holds.", "Of a plan: its bytes.", "Whether it is full.", "Which ports it has."]


def test_plain_english_has_no_faults() -> None:
    assert words.find_faults(CLEAN) == []


@pytest.mark.parametrize("docstring", DOCSTRINGS)
@pytest.mark.parametrize("place", ['"""{}"""\n', 'def f():\n    """{}"""\n', 'class A:\n    b = 1\n    """{}"""\n'])
def test_docstring_beginnings(docstring: str, place: str) -> None:
    (fault,) = words.find_faults(place.format(docstring))
    assert fault.text.startswith(f'docstring begins with "{docstring.split()[0]}"')


@pytest.mark.parametrize(
    "source",
    [
        "def f():\n    found = 1\n",
        "def f():\n    for found in (): pass\n",
        "def f():\n    return [found for found in ()]\n",
        "def f():\n    with g() as found: pass\n",
        "def f():\n    a, found = g()\n",
        "def f():\n    if found := g(): pass\n",
        "def f():\n    _found = 1\n",
        "\ndef found(): pass\n",
    ],
)
def test_names_by_their_line(source: str) -> None:
    (fault,) = words.find_faults(source)
    assert fault.line == 2
    assert "found`" in fault.text


@pytest.mark.parametrize(
    ("source", "line"),
    [
        ('"""Queues.\n\nMade anew for each run.\n"""\n', 3),
        ("a = 1\nb = 2  # made anew\n", 2),
        ('raise ValueError(\n    f"{a} is made anew"\n)\n', 2),
    ],
)
def test_dialect_in_prose(source: str, line: int) -> None:
    (fault,) = words.find_faults(source)
    assert fault == words.Fault(line, '"anew" is dialect: again')


def test_list_only_shrinks() -> None:
    fault = words.Fault(3, "a fault")
    assert words.check_list(["a.py"], {"a.py": [fault], "b.py": []}) == []
    assert words.check_list([], {"a.py": [fault]}) == ["a.py:3: a fault"]
    assert "no faults any more" in words.check_list(["a.py"], {"a.py": []})[0]
    assert "does not exist" in words.check_list(["a.py"], {})[0]
    assert "sort" in words.check_list(["b.py", "a.py"], {"a.py": [fault], "b.py": [fault]})[0]


def test_package_agrees_with_its_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert words.main([]) == 0, capsys.readouterr().out

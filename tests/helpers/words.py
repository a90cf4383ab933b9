"""Lint rule for the words of the Python package: plain, standard technical English, as in an RFC.

Three kinds of fault are reported, each with its line: a docstring that begins with a question word or a bare genitive
("What a queue …", "Of a plan: …"), a local variable or function whose name does not say what it holds or does
(`found`, `told`), and a word of dialect in a docstring, a message or a comment ("anew", "mend").

`words_unclean.txt` lists the files that still have faults. It may only shrink: a listed file without faults must leave
the list, and a file outside of the list must have none. `python tests/helpers/words.py` checks this; with paths as
arguments it prints every fault of these files, listed or not.
"""

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "testbed" / "dlcp"
UNCLEAN = Path(__file__).with_name("words_unclean.txt")

# First words of a docstring that is neither a sentence with a verb nor a noun phrase.
BAD_STARTS = frozenset({"of", "what", "whatever", "whether", "which", "who", "whose"})

# Names that any value could have. Fields of classes and parameters are exempt: stored results and callers name them.
BAD_NAMES = frozenset(
    {
        "again",
        "alike",
        "alone",
        "anew",
        "beside",
        "found",
        "here",
        "lacking",
        "mine",
        "one",
        "ours",
        "own",
        "rest",
        "said",
        "seen",
        "theirs",
        "there",
        "told",
        "what",
        "whole",
        "whose",
    }
)

# Words of prose, and the plain word to use instead.
DIALECT = {
    "anew": "again",
    "beside": "next to, during, as well as",
    "greeting": "hello, keepalive",
    "greetings": "hellos, keepalives",
    "mend": "fix",
    "mended": "fixed",
    "mends": "fixes",
    "sooner": "earlier",
    "thus": "so",
    "told": "says, was given, was sent",
    "wherein": "in which",
    "whoever": "the peer that, the caller that",
}
# A word that code marks as its own (`beside`, beside:, "beside") is a name, not prose.
PROSE_WORD = re.compile(rf"(?<![\w`'\"./-])({'|'.join(DIALECT)})(?![\w`'\"/:=-])", re.IGNORECASE)


class Fault(NamedTuple):
    line: int
    text: str


def find_faults(source: str) -> list[Fault]:
    """Every fault of a Python file, in the order of its lines."""
    tree = ast.parse(source)
    return sorted({*_docstring_faults(tree), *_name_faults(tree), *_dialect_faults(tree, source)})


def check_list(unclean: Sequence[str], faults: dict[str, list[Fault]]) -> list[str]:
    """Compare the list of unclean files with the faults of every file; return a line per disagreement."""
    problems = []
    for path, path_faults in sorted(faults.items()):
        if path_faults and path not in unclean:
            problems += [f"{path}:{fault.line}: {fault.text}" for fault in path_faults]
        elif not path_faults and path in unclean:
            problems.append(f"{path}: has no faults any more: take it out of {UNCLEAN.name}")
    problems += [f"{path}: does not exist: take it out of {UNCLEAN.name}" for path in unclean if path not in faults]
    if sorted(set(unclean)) != list(unclean):
        problems.append(f"{UNCLEAN.name}: sort its lines, each path once")
    return problems


def _docstring_faults(tree: ast.Module) -> Iterator[Fault]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            first = re.match(r"\w+", node.value.value.strip())
            if first and first[0].lower() in BAD_STARTS:
                yield Fault(node.lineno, f'docstring begins with "{first[0]}": begin with a verb or a noun phrase')


def _name_faults(tree: ast.Module) -> Iterator[Fault]:
    fields = {
        id(target)
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
        for statement in node.body
        if isinstance(statement, ast.Assign | ast.AnnAssign)
        for target in (statement.targets if isinstance(statement, ast.Assign) else [statement.target])
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store) and id(node) not in fields:
            name = node.id
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            name = node.name
        else:
            continue
        if name.strip("_") in BAD_NAMES:
            yield Fault(node.lineno, f"name `{name}`: name it after what it holds or does")


def _dialect_faults(tree: ast.Module, source: str) -> Iterator[Fault]:
    for line, text in [*_strings(tree), *_comments(source)]:
        for word in PROSE_WORD.finditer(text):
            at = line + text.count("\n", 0, word.start())
            yield Fault(at, f'"{word[0]}" is dialect: {DIALECT[word[0].lower()]}')


def _strings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            yield node.lineno, node.value


def _comments(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string


def main(arguments: Sequence[str]) -> int:
    if arguments:
        lines = [f"{name}:{fault.line}: {fault.text}" for name in arguments for fault in find_faults(_read(Path(name)))]
    else:
        unclean = UNCLEAN.read_text(encoding="utf-8").split()
        sources = sorted(PACKAGE.rglob("*.py"))
        lines = check_list(unclean, {path.relative_to(ROOT).as_posix(): find_faults(_read(path)) for path in sources})
    print("\n".join(lines) or "words: no faults outside of the list")
    return 1 if lines else 0


def _read(path: Path) -> str:
    return path.read_text(encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))

"""The text of the King James Bible, as Debian's packages bible-kjv and bible-kjv-text print it: characters."""

from __future__ import annotations

import subprocess
from functools import cache

import numpy as np
import numpy.typing as npt

from dlcp.errors import MachineCannot

COMMAND = ("bible", "-f", "gen1:1-rev22:21")
"""Prints every verse in a line, after its place ("Ge1:1 ")."""
VERSES = 31_102
CHARACTERS = "\n !'(),-.:;?ABCDEFGHIJKLMNOPQRSTUVWYZabcdefghijklmnopqrstuvwxyz"
"""All that occur, the end of a verse among them; a character's code is its place here."""
TEST_VERSES = 1_600
"""The last ones: about 5 % of the text, which nobody learns from."""
INSTALL = "apt-get install --no-install-recommends bible-kjv bible-kjv-text"


@cache
def text(part: str) -> npt.NDArray[np.uint8]:
    """The codes of all characters of "train" or "test", verses in lines, without their places.

    MachineCannot when the packages are missing or print something else.
    """
    lines = _print().splitlines()
    verses = [line.partition(" ")[2] for line in lines]
    chosen = verses[:-TEST_VERSES] if part == "train" else verses[-TEST_VERSES:]
    codes = np.full(256, 255, np.uint8)
    codes[np.frombuffer(CHARACTERS.encode("ascii"), np.uint8)] = np.arange(len(CHARACTERS))
    text_codes = codes[np.frombuffer("".join(f"{verse}\n" for verse in chosen).encode("latin-1"), np.uint8)]
    if len(lines) != VERSES or text_codes.max() >= len(CHARACTERS):
        wrong_count = len(lines) != VERSES
        reason = f"it prints {len(lines)} lines, not {VERSES} verses" if wrong_count else "it prints other signs"
        raise MachineCannot(" ".join(COMMAND), reason, INSTALL)
    return text_codes


def passages(part: str, length: int) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """The part cut into rows of `length` characters, and for each character the one that follows it. N×length each."""
    codes = text(part)
    count = (len(codes) - 1) // length
    cut = codes[: count * length + 1].astype(np.int64)
    return cut[:-1].reshape(count, length), cut[1:].reshape(count, length)


def _print() -> str:
    try:
        done = subprocess.run(COMMAND, capture_output=True, timeout=30, check=True)
    except (OSError, subprocess.SubprocessError) as error:
        raise MachineCannot(" ".join(COMMAND), f"cannot print the King James Bible: {error}", INSTALL) from None
    return done.stdout.decode("latin-1")

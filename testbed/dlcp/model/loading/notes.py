"""Problems and warnings about one file, collected while it is checked."""

from __future__ import annotations

from dlcp.errors import Problem
from dlcp.model.loading.document import Document, Loc


class Notes:
    """Problems and warnings about one document, as they are found."""

    def __init__(self, document: Document) -> None:
        self.document = document
        self.problems: list[Problem] = []
        self.warnings: list[Problem] = []

    def wrong(self, loc: Loc, what: str, hint: str = "", *, key: bool = False) -> None:
        """Something that stops a run."""
        self.problems.append(Problem(self.document.where(loc, key=key), what, hint))

    def warn(self, loc: Loc, what: str, hint: str = "") -> None:
        """Something to look at before trusting a result."""
        self.warnings.append(Problem(self.document.where(loc), what, hint))

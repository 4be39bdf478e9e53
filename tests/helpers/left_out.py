"""Checks that an importer leaves out a part of a file and names it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from benchmarking.core.errors import FormatError
from db.importers.support.files import ForeignFile


@contextmanager
def left_out(match: str) -> Iterator[None]:
    """Whether what is left out of a file inside the block, or why the file is refused, matches."""
    texts: list[str] = []
    leave_out = ForeignFile.leave_out

    def recorded(self: ForeignFile, place: str, problem: str, **others: bool) -> None:
        texts.append(f"{self.path}: {place}: {problem}")
        leave_out(self, place, problem, **others)

    with patch.object(ForeignFile, "leave_out", recorded):
        try:
            yield
        except FormatError as error:
            texts.append(str(error))
    assert any(re.search(match, text) for text in texts), texts

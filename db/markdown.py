"""Tables in Markdown as GitHub reads it, with nothing in a cell taken for markup."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

from benchmarking.core.text import visible

SPECIAL = re.compile(r"([\\`*_\[\]|~])")
ENTITIES = {"&": "&amp;", "<": "&lt;", ">": "&gt;"}


def escaped(text: str) -> str:
    """The text so that it reads as itself, in one line: "a|b" as "a\\|b"."""
    line = " ".join(text.split()) if "\n" in text or "\r" in text else text
    safe = "".join(ENTITIES.get(character, character) for character in visible(line))
    return SPECIAL.sub(r"\\\1", safe)


def table(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Collection[int] = ()) -> str:
    """The rows as a table, its text escaped; the columns whose places are in `right` stand to the right."""
    rule = ("---:" if place in right else "---" for place in range(len(headings)))
    lines = [[escaped(heading) for heading in headings], list(rule)]
    lines += [[escaped(cell) for cell in row] for row in rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)

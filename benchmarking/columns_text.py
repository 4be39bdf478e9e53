"""Rows of words under their headings, in columns."""

from __future__ import annotations

from collections.abc import Sequence

GAP = "  "


def columns_text(headings: Sequence[str], rows: Sequence[Sequence[str]], *, right: Sequence[int] = ()) -> list[str]:
    """The lines of a table: headings, a rule, rows. Columns in `right` (numbers) stand to the right."""
    widths = [max(len(row[column]) for row in (headings, *rows)) for column in range(len(headings))]
    lines = [headings, ["-" * width for width in widths], *rows]
    return [_line(line, widths, right) for line in lines]


def _line(cells: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> str:
    parts = [
        cell.rjust(width) if column in right else cell.ljust(width)
        for column, (cell, width) in enumerate(zip(cells, widths, strict=True))
    ]
    return GAP.join(parts).rstrip()

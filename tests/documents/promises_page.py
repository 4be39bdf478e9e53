"""Writes docs/promises.md from the rows: python -m tests.documents.promises_page"""

from __future__ import annotations

from tests.documents.lines import DOCUMENTS
from tests.documents.rows import AS, NO, ONE, ROWS
from tests.helpers.paths import ROOT

PAGE = ROOT / "docs" / "promises.md"
HEAD = """\
# What the documents promise

Five documents specify what users of this project expect. Every command, flag, field, class and file in them is a row
here: whether it works *as written*, with *one line* that differs, or *no*, with the reason. A test runs every command
line, and another one checks every row. [Coming from another tool](coming-from.md) explains how the numbers differ.
"""


def page() -> str:
    """The page."""
    counts = ", ".join(f"{sum(row.verdict == verdict for row in ROWS)} {verdict}" for verdict in (AS, ONE, NO))
    parts = [HEAD, f"{len(ROWS)} rows: {counts}.\n"]
    for document in DOCUMENTS:
        parts.append(f"## {document}\n")
        lines = ["| promise | works | difference, or reason |", "|---|---|---|"]
        for row in ROWS:
            if row.document == document:
                lines.append(f"| {row.promise} | {row.verdict} | {row.here.replace('|', chr(92) + '|')} |")
        parts.append("\n".join(lines).replace("if_needed|always|never", "if_needed, always, never") + "\n")
    return "\n".join(parts)


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")

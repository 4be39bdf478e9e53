"""Writes a report of results, or of a comparison, from a database or run files as one HTML or Markdown file.

The HTML file needs no network: style, scripts and data are embedded. Its Content-Security-Policy allows only these
scripts and this style, by digest, so no name in the data can run code even if escaping failed.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import re
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Literal

from benchmarking.core.argument_types import folder_to_write
from benchmarking.core.errors import StorageError, UsageError
from benchmarking.core.metrics import DEFAULT_METRIC
from benchmarking.core.storage_paths import without_place
from benchmarking.core.text import first_few, markdown_escaped, markdown_table
from db.analysis.compare.comparison import Comparison, compare
from db.analysis.compare.matching import across_column
from db.analysis.selection import Selection as Words
from db.analysis.selection import judged_metric, unstored
from db.file_copy import make_folder, replace_file
from visualize import sources
from visualize.drawing.rows import Selection
from visualize.pages.elements import Grid
from visualize.pages.site import STATIC, Site, draw
from visualize.pages.views.compare_page import compare_command
from visualize.report.content import MethodNumber, check_count, chosen_ids, report_of, sides_of

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

    from visualize.sources import Source

Format = Literal["html", "md"]

SCRIPTS = ("vendor/vega.min.js", "vendor/vega-lite.min.js", "vendor/vega-embed.min.js", "app.js")
STYLES = ("style.css", "report.css")
MOST_MARKDOWN_ROWS = 60
"""Maximum rows of a Markdown table, since a pull-request comment has at most 65536 characters."""
LOCK_TIMEOUT_S = 30.0


def write_report(
    path: Path,
    files: Sequence[str] | None,
    database: str | None,
    lock_timeout_s: float,
    *,
    selection: Selection,
    words: Words,
    sides: tuple[str, str] | None = None,
    metric: str = DEFAULT_METRIC,
    across: Sequence[str] = (),
) -> tuple[str, ...]:
    """Write the report to a file that ends with .html or .md, and return the errors of run files that could not be
    read. It is of run files, folders or glob patterns, or else of the database, None for the default one; of the
    results that are selected by both `words` and `selection`, or of a comparison of two `sides`, which are selections.

    Raises UsageError for invalid names, and StorageError for an unreadable source, an empty selection or a write error.
    """
    report_format(path)
    given = (files, database, lock_timeout_s)
    compared = None if sides is None else [sources.resolved(text, *given) for text in sides]  # runs user SQL in them
    columns = [across_column(word) for word in across]
    source = sources.opened(*given)
    with source.warehouse:
        comparison: Comparison | None = None
        command = ""
        if compared is None:
            selection = sources.chosen(source, sources.checked(source, selection), words)
            ids: Sequence[str] = chosen_ids(source.warehouse, selection)
            if not ids:
                raise sources.nothing_selected(source, selection, words)
        else:
            before, after = compared
            comparison = compare(source.warehouse, before, after, judged_metric(source.warehouse, metric), columns)
            command = compare_command(before.text, after.text, metric, ",".join(across))
            ids = _compared_ids(source, comparison)
        is_html = report_format(path) == "html"  # Markdown has no charts
        name = without_place(source.name)
        report = report_of(source.warehouse, ids, name, comparison, command, has_charts=is_html)
    text = html(report) if is_html else markdown(report)
    replace_file(path, text.encode())
    return source.refused


def check_request(path: Path, results: int) -> None:
    """Raise UsageError for an invalid path or too many results."""
    report_format(path)
    if path.is_dir():
        raise UsageError(f"--report {path}: is a folder: give a file")
    try:
        folder_to_write(str(path.parent))
    except argparse.ArgumentTypeError as error:
        raise UsageError(f"--report {path}: {error}") from error
    check_count(results)


def write_session_report(path: Path, session_id: str, files: Sequence[str], database: str | None) -> None:
    """Write a report of all results of one command, from its run files or a database. Raises as `write_report`."""
    make_folder(path.parent)
    words = Words.parse(f"session={session_id}")
    write_report(path, files or None, database, LOCK_TIMEOUT_S, selection=Selection(), words=words)


def _compared_ids(source: Source, comparison: Comparison) -> Sequence[str]:
    """Results of both sides. Raises StorageError for a side without results."""
    sides = sides_of(comparison)
    for side, text in (("A", comparison.before), ("B", comparison.after)):
        if side not in sides.values():
            other = comparison.only_before or comparison.only_after
            points = ", ".join(dict.fromkeys(single.point for single in other[:3]))
            has = f"has {len(other)} points ({points}, ...)" if other else "selects none either"
            why = unstored(source.warehouse, Words.parse(text))
            raise StorageError(f"{source.name}: {side} ({text}) selects no results: the other side {has}{why}")
    return list(sides)


class ReportSite(Site):
    """The site of a single file, whose links are anchors."""

    is_live = False

    def url(self, view: str, parameters: DataclassInstance) -> str | None:
        """The anchor of a method; None for other links."""
        return f"#method-{parameters.number}" if isinstance(parameters, MethodNumber) else None

    def asset(self, name: str) -> str:
        """Never called, since the file embeds all assets."""
        raise AssertionError(name)


def report_format(path: Path) -> Format:
    """The format by file extension. Raises UsageError for other extensions."""
    formats: dict[str, Format] = {".html": "html", ".md": "md"}
    known = formats.get(path.suffix.lower())
    if known is None:
        raise UsageError(f"--report {path}: expected a name that ends with .html or .md")
    return known


def html(report: SimpleNamespace) -> str:
    """The report as an HTML file with the style and the scripts, which its Content-Security-Policy allows alone."""
    scripts = [(STATIC / name).read_text(encoding="utf-8") for name in SCRIPTS]
    style = "\n".join((STATIC / name).read_text(encoding="utf-8") for name in STYLES)
    digests = (hashlib.sha256(text.encode()).digest() for text in (style, *scripts))
    of_style, *of_scripts = (f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    policy = (
        f"default-src 'none'; script-src {' '.join(of_scripts)}; style-src {of_style}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    inline = {"policy": policy, "style": style, "scripts": scripts}
    return draw(ReportSite(), "report.html", report=report, inline=inline)


def markdown(report: SimpleNamespace) -> str:
    """The report as Markdown for a pull request; text from the data is escaped."""
    parts = [f"## {markdown_escaped(report.title)}"]
    parts += ["\n".join(f"- {name}: {markdown_escaped(value)}" for name, value in report.about)]
    if report.comparison is not None:
        compared = report.comparison
        parts += [f"### Compared\n\n**{markdown_escaped(compared.summary)}**", _items(compared.head)]
        parts += [*_table(compared.grid), _items(compared.notes), _code(compared.command)]
    for section in report.summary:
        parts += [f"### {section.title}", _items(section.sentences)]
    if report.doubts:
        doubts = []
        for doubt in report.doubts:
            evidence = f" ({doubt.evidence})" if doubt.evidence else ""
            places = first_few(doubt.points, 3, "; ")
            doubts.append(f"{doubt.kind.replace('_', ' ')} ({places}): {doubt.sentence}{evidence}")
        parts += ["### Doubts", _items(doubts)]
    parts += ["### Next steps", _items(report.next_steps)]
    parts += ["### Runs", *_table(report.overview)] if report.overview is not None else []
    for group in report.groups:
        parts += [f"### {markdown_escaped(group.title)}", markdown_escaped(group.about), *_table(group.grid)]
        parts += [] if group.quality is None else _table(group.quality)
        parts += [_items([*(f"{name}: {error}" for name, error in group.failures), *group.missing])]
    software = ", ".join(f"{name} {version}" for name, version in report.software)
    parts += ["### Hardware and software", *_table(report.machines), markdown_escaped(software)]
    methods = [
        f"Method {method.number}\n\n{_items([f'{n}: {v}' for n, v in method.facts])}"
        + (f"\n\n{_code(method.command)}" if method.command else "")
        for method in report.methods
    ]
    parts += ["### Method", markdown_escaped(report.method)]
    parts += ["<details><summary>Commands that measured it</summary>", *methods, "</details>"]
    return "\n\n".join(part for part in parts if part) + "\n"


def _items(lines: tuple[str, ...] | list[str]) -> str:
    return "\n".join(f"- {markdown_escaped(line)}" for line in lines)


def _table(grid: Grid) -> list[str]:
    if not grid.rows:
        return []
    names = [heading.text for heading in grid.headings]
    right = {place for place, heading in enumerate(grid.headings) if heading.is_number}
    rows = [[cell.text for cell in row] for row in grid.rows[:MOST_MARKDOWN_ROWS]]
    more = len(grid.rows) - len(rows)
    return [markdown_table(names, rows, right=right), *([f"{more} more rows are in the HTML report."] if more else [])]


def _code(command: str) -> str:
    """A code block with a fence longer than any run of backticks in it."""
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", command))])
    return f"{fence}sh\n{command}\n{fence}"

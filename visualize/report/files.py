"""A report as one HTML file or as Markdown.

The HTML file needs no network: style, scripts and data are in it. Its policy allows these scripts and this style alone,
by their digests, so that a name out of the data can run nothing even if escaping it failed.
"""

from __future__ import annotations

import base64
import hashlib
import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from benchmarking.core.errors import StorageError, UsageError
from benchmarking.core.text import markdown_escaped, markdown_table
from db.files import temporary_sibling
from visualize.pages.elements import Grid
from visualize.pages.site import STATIC, Site, draw
from visualize.report.content import MethodNumber, Report

if TYPE_CHECKING:
    from _typeshed import DataclassInstance

Format = Literal["html", "md"]

SCRIPTS = ("vendor/vega.min.js", "vendor/vega-lite.min.js", "vendor/vega-embed.min.js", "app.js")
STYLES = ("style.css", "report.css")
MOST_MARKDOWN_ROWS = 60
"""Maximum rows of a Markdown table: a comment on a pull request has at most 65536 characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Inline:
    """The assets embedded in the HTML file."""

    policy: str
    """The Content-Security-Policy."""
    style: str
    scripts: tuple[str, ...]


class ReportSite(Site):
    """The site of a single file, in which links are anchors."""

    is_live = False

    def url(self, view: str, parameters: DataclassInstance) -> str | None:
        """The anchor of a method; None for anything else."""
        return f"#method-{parameters.number}" if isinstance(parameters, MethodNumber) else None

    def asset(self, name: str) -> str:
        """Never called: the file embeds everything."""
        raise AssertionError(name)


def report_format(path: Path) -> Format:
    """The format, by the file name's extension. Raises UsageError for other extensions."""
    formats: dict[str, Format] = {".html": "html", ".md": "md"}
    found = formats.get(path.suffix.lower())
    if found is None:
        raise UsageError(f"--report {path}: expected a name that ends with .html or .md")
    return found


def write(report: Report, path: Path) -> None:
    """Write the file, replacing one that exists. Raises StorageError."""
    text = html(report) if report_format(path) == "html" else markdown(report)
    with temporary_sibling(path) as part:
        try:
            part.write_text(text, encoding="utf-8", newline="\n")
            os.replace(part, path)
        except OSError as error:
            raise StorageError(f"cannot write {path}: {error.strerror}: choose another path") from error


def html(report: Report) -> str:
    """The whole file."""
    return draw(ReportSite(), "report.html", report=report, inline=_inline())


@cache
def _inline() -> Inline:
    style = "\n".join(_text(name) for name in STYLES)
    scripts = tuple(_text(name) for name in SCRIPTS)
    allowed = " ".join(map(_digest, scripts))
    policy = (
        f"default-src 'none'; script-src {allowed}; style-src {_digest(style)}; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    return Inline(policy=policy, style=style, scripts=scripts)


def _text(name: str) -> str:
    """A static file as embedded in the HTML file."""
    return (STATIC / name).read_text(encoding="utf-8")


def _digest(text: str) -> str:
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"


def markdown(report: Report) -> str:
    """For a pull request; all text of the data is escaped."""
    parts = [f"## {markdown_escaped(report.title)}"]
    parts += ["\n".join(f"- {name}: {markdown_escaped(value)}" for name, value in report.about)]
    if report.comparison is not None:
        it = report.comparison
        parts += [f"### Compared\n\n**{markdown_escaped(it.summary)}**", _items(it.head)]
        parts += [*_table(it.grid), _items(it.notes), _code(it.command)]
    for section in report.summary:
        parts += [f"### {section.title}", _items(section.sentences)]
    if report.doubts:
        doubts = [
            f"{one.kind.replace('_', ' ')} ({_places(one.points)}): {one.sentence}"
            + (f" ({one.evidence})" if one.evidence else "")
            for one in report.doubts
        ]
        parts += ["### Doubts", _items(doubts)]
    parts += ["### Next steps", _items(report.next_steps)]
    parts += ["### Runs", *_table(report.overview)] if report.overview is not None else []
    for group in report.groups:
        parts += [f"### {markdown_escaped(group.title)}", markdown_escaped(group.about), *_table(group.grid)]
        parts += [_items([*(f"{name}: {error}" for name, error in group.failures), *group.missing])]
    software = ", ".join(f"{name} {version}" for name, version in report.software)
    parts += ["### Hardware and software", *_table(report.machines), markdown_escaped(software)]
    methods = [f"Method {one.number}\n\n{_items([f'{n}: {v}' for n, v in one.facts])}\n\n{_code(one.command)}"
               for one in report.methods]  # fmt: skip
    parts += ["### Method", markdown_escaped(report.method)]
    parts += ["<details><summary>Commands that measured it</summary>", *methods, "</details>"]
    return "\n\n".join(part for part in parts if part) + "\n"


def _places(points: tuple[str, ...]) -> str:
    more = f" and {len(points) - 3} more" if len(points) > 3 else ""
    return "; ".join(points[:3]) + more


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
    """A block of code; its fence is longer than any run of backticks in it."""
    fence = "`" * max([3, *(len(run) + 1 for run in re.findall("`+", command))])
    return f"{fence}sh\n{command}\n{fence}"

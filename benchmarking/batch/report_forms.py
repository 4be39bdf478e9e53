"""A report as Markdown or as one HTML file without outside assets."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from benchmarking.batch.report import Report, Section
from benchmarking.core.tables import Table
from benchmarking.errors import StorageError, UsageError
from benchmarking.sweep import journal

MARKDOWN_SIGNS = re.compile(r"([\\`*_{}\[\]<>#|~])")
HTML = """<!DOCTYPE html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{{ report.title }}</title>
<style>
body { font: 15px/1.5 system-ui, sans-serif; margin: 2rem auto; max-width: 80rem; padding: 0 1rem; color: #1a1a1a; }
div { overflow-x: auto; }
table { border-collapse: collapse; margin: 0.5rem 0 1rem; }
th, td { border-bottom: 1px solid #ddd; padding: 0.25rem 0.75rem; text-align: left; vertical-align: top; }
th { border-bottom: 2px solid #888; }
pre { background: #f4f4f4; padding: 0.75rem; overflow-x: auto; white-space: pre-wrap; }
</style>
</head>
<body>
<h1>{{ report.title }}</h1>
{%- for section in report.sections %}
<h2>{{ section.title }}</h2>
{%- for paragraph in section.paragraphs %}
<p>{{ paragraph }}</p>
{%- endfor %}
{%- if section.table %}
<div><table>
<thead><tr>{% for heading in section.table.headings %}<th>{{ heading }}</th>{% endfor %}</tr></thead>
<tbody>
{%- for row in section.table.rows %}
<tr>{% for value in row %}<td>{{ value }}</td>{% endfor %}</tr>
{%- endfor %}
</tbody>
</table></div>
{%- endif %}
{%- if section.items %}
<ul>{% for item in section.items %}
<li>{{ item }}</li>
{%- endfor %}
</ul>
{%- endif %}
{%- if section.code %}
<pre>{{ section.code }}</pre>
{%- endif %}
{%- endfor %}
</body>
</html>
"""


class Form(Protocol):
    """Writes a report down."""

    def __call__(self, report: Report) -> str: ...


def form_of(path: Path) -> Form:
    """The form a file's ending stands for. Raises UsageError for another ending."""
    form = FORMS.get(path.suffix.lower())
    if form is None:
        raise UsageError(f"--report {path}: takes a file that ends with {' or '.join(FORMS)}")
    return form


def check_place(path: Path) -> None:
    """See that the report can go there, before anything is measured. Raises UsageError."""
    form_of(path)
    if path.is_dir():
        raise UsageError(f"--report {path}: that is a folder: name a file")


def write(report: Report, path: Path) -> None:
    """Put the report into a file, in the place of an older one; makes its folder. Raises StorageError."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        journal.replace(path, form_of(path)(report))
    except OSError as error:
        raise StorageError(f"cannot write {path}: {error.strerror}") from error


def markdown(report: Report) -> str:
    """The report as Markdown."""
    parts = [f"# {_plain(report.title)}", *(_section(section) for section in report.sections)]
    return "\n\n".join(parts) + "\n"


def html(report: Report) -> str:
    """The report as a page; every text in it is escaped."""
    from jinja2 import Environment

    return Environment(autoescape=True).from_string(HTML).render(report=report)


def _section(section: Section) -> str:
    parts = [f"## {_plain(section.title)}", *map(_plain, section.paragraphs)]
    parts += [_table(section.table)] if section.table is not None else []
    parts += ["\n".join(f"- {_plain(item)}" for item in section.items)] if section.items else []
    parts += ["\n".join(f"    {line}" for line in section.code.splitlines())] if section.code else []
    return "\n\n".join(parts)


def _table(table: Table) -> str:
    headings, *rows = [[_plain(text) for text in row] for row in (table.headings, *table.rows)]
    return "\n".join(f"| {' | '.join(line)} |" for line in (headings, ["---"] * len(headings), *rows))


def _plain(text: str) -> str:
    """Text that means itself, in one line."""
    return MARKDOWN_SIGNS.sub(r"\\\1", " ".join(text.split()))


FORMS: Mapping[str, Form] = MappingProxyType({".md": markdown, ".html": html})

"""The report of a batch, as Markdown or as one self-contained HTML file: machine, results, failures, doubts."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Protocol

from benchmarking.batch.summary import (
    BatchSummary,
    CellSummary,
    PointSummary,
    best_text,
    doubts_text,
    failures,
    points_text,
)
from benchmarking.core.doubts import sentence
from benchmarking.core.errors import StorageError, UsageError
from benchmarking.core.metrics import METRICS, PEAK_MEMORY
from benchmarking.core.records import Doubt, Hardware, Readings
from benchmarking.core.tables import Table
from benchmarking.core.text import number, relative_error
from benchmarking.core.untrusted.redaction import LEFT_OUT, from_home, without_secret_arguments
from benchmarking.sweep.run import journal
from benchmarking.sweep.show.comparison import Comparison, comparison_table, remarks, title
from benchmarking.sweep.show.report import evidence_value, items_unit

COLUMNS = ("latency_p90_ms", "throughput_samples_per_sec", "throughput_tokens_per_sec", "time_to_first_token_ms")

"""Columns of a point's table after its median latency."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Section:
    """A part of a report, in this order."""

    title: str
    paragraphs: tuple[str, ...] = ()
    table: Table | None = None
    items: tuple[str, ...] = ()
    code: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Report:
    """The content of a report."""

    title: str
    sections: tuple[Section, ...] = field(default_factory=tuple)


def content(batch: BatchSummary, hardware: Sequence[Hardware], environment: Readings) -> Report:
    """The report of a batch on these machines."""
    return Report(
        title=f"Benchmark of {len({cell.model_id for cell in batch.cells})} models",
        sections=(
            _about(batch),
            _machine(hardware, environment),
            _overview(batch),
            *map(_comparison, batch.comparisons),
            *(_of_cell(cell) for cell in batch.cells if cell.points),
            *_failures(batch),
            *_doubts(batch),
            _further_questions(batch),
        ),
    )


def _about(batch: BatchSummary) -> Section:
    counts = ", ".join(f"{count} {status}" for status, count in sorted(batch.cells_by_status.items()))
    when = f"From {batch.started_at} to {batch.finished_at}" if batch.finished_at else f"Started {batch.started_at}"
    state = "" if batch.status == "finished" else f" The batch is {batch.status}."
    paragraphs = (f"{when}. Cells: {counts}.{state} Session {batch.session_id}.",)
    words = map(from_home, without_secret_arguments(batch.command))
    command = " ".join(word if word == LEFT_OUT else shlex.quote(word) for word in words)
    return Section(title="Request", paragraphs=paragraphs, code=command)


def _machine(hardware: Sequence[Hardware], environment: Readings) -> Section:
    found = {one.hardware_id: one for one in hardware}
    rows = [
        (
            one.device.selector,
            one.device.name or "-",
            _gigabytes(one.device.memory_bytes),
            one.device.driver or "-",
            one.cpu_model or "-",
            f"{one.cpu_cores or '-'} / {one.cpu_threads or '-'}",
            _gigabytes(one.memory_bytes),
        )
        for one in found.values()
    ]
    headings = ("device", "name", "memory", "driver", "CPU", "cores / threads", "machine memory")
    state = ("cpu_governor", "is_turbo_on", "virtual_machine", "container", "power_source", "load_average_1m")
    items = [f"{name}: {environment.values[name]}" for name in state if environment.values.get(name) is not None]
    return Section(title="Machine", table=Table(headings=headings, rows=tuple(rows)), items=tuple(items))


def _overview(batch: BatchSummary) -> Section:
    rows = [
        (
            *(cell.subject, cell.family or "-", cell.device, cell.runtime, cell.precision),
            *(points_text(cell), best_text(cell), doubts_text(cell) or "-"),
        )
        for cell in batch.cells
    ]
    headings = ("model", "family", "device", "runtime", "precision", "points", "best throughput", "doubts")
    return Section(title="Overview", table=Table(headings=headings, rows=tuple(rows)))


def _comparison(comparison: Comparison) -> Section:
    """A model by several runtimes."""
    return Section(title=title(comparison), table=comparison_table(comparison), items=tuple(remarks(comparison)))


def _of_cell(cell: CellSummary) -> Section:
    size = "" if cell.parameter_count is None else f", {cell.parameter_count / 1e6:.1f} M parameters"
    load = "" if cell.load_time_s is None else f", loaded in {number(cell.load_time_s)} s"
    about = f"{cell.family or 'no family'}, {cell.task}, {cell.weights} weights{size}{load}; run file {cell.run_file}."
    rows = tuple(_point_row(point) for point in cell.points)
    median, *others = (METRICS[name].heading for name in ("latency_median_ms", *COLUMNS))
    others[COLUMNS.index("throughput_samples_per_sec")] = items_unit(cell.family)
    headings = ("point", median, "95 % interval", *others, "peak MB", METRICS["output_error"].heading, "state")
    return Section(title=cell.name, paragraphs=(about,), table=Table(headings=headings, rows=rows))


def _point_row(point: PointSummary) -> tuple[str, ...]:
    metrics = point.metrics
    interval = [metrics.get("latency_ci_low_ms"), metrics.get("latency_ci_high_ms")]
    shown = " .. ".join(number(value) for value in interval if value is not None) or "-"
    peak = next((metrics[name] for name in PEAK_MEMORY if name in metrics), None)
    state = point.status.replace("_", " ") if point.status != "ok" else str(point.validity)
    kinds = ", ".join(doubt.kind for doubt in point.doubts)
    return (
        point.point,
        _shown(metrics.get("latency_median_ms")),
        shown,
        *(_shown(metrics.get(name)) for name in COLUMNS),
        _shown(peak),
        relative_error(metrics["output_error"]) if "output_error" in metrics else "-",
        f"{state}: {kinds}" if kinds else state,
    )


def _failures(batch: BatchSummary) -> list[Section]:
    failed = failures(batch.cells)
    skipped = [f"{c.name}: {p.point}: {p.error}" for c in batch.cells for p in c.points if p.status == "skipped"]
    sections = [Section(title="Failures", items=failed)] if failed else []
    return sections + ([Section(title="Skipped points", items=tuple(skipped))] if skipped else [])


def _doubts(batch: BatchSummary) -> list[Section]:
    """Each kind of doubt with its meaning, number of points and first evidence."""
    seen: dict[str, list[tuple[str, Doubt]]] = {}
    for cell in batch.cells:
        for point in cell.points:
            for doubt in point.doubts:
                seen.setdefault(doubt.kind, []).append((f"{cell.name}, {point.point}", doubt))
    rows = tuple((kind, sentence(kind), str(len(all_)), *_first(all_)) for kind, all_ in sorted(seen.items()))
    if not rows:
        return []
    about = "Reasons to doubt a number are stored with it; invalid numbers are never compared."
    headings = ("doubt", "meaning, and what to do", "points", "first at", "evidence there")
    return [Section(title="Doubts", paragraphs=(about,), table=Table(headings=headings, rows=rows))]


def _first(doubts: Sequence[tuple[str, Doubt]]) -> tuple[str, str]:
    where, doubt = doubts[0]
    return where, ", ".join(f"{name} = {evidence_value(value)}" for name, value in doubt.evidence.items())


def _further_questions(batch: BatchSummary) -> Section:
    if batch.database is None:
        text = "The results are in the run files; setup_benchmark_db --ingest FOLDER loads them into a database."
        return Section(title="Further questions", paragraphs=(text,))
    sql = (
        "SELECT run.model_id, run.device, run.precision, r.batch_size, r.latency_median_ms, r.validity\n"
        "FROM benchmark_results r JOIN benchmark_runs run USING (run_id)\n"
        f"WHERE run.session_id = '{batch.session_id}';"
    )
    text = f"All results, with their raw samples, are in the database {batch.database}."
    return Section(title="Further questions", paragraphs=(text,), code=sql)


def _gigabytes(size_bytes: int | None) -> str:
    return "-" if size_bytes is None else f"{size_bytes / 1e9:.1f} GB"


def _shown(value: float | None) -> str:
    return "-" if value is None else number(value)


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
    """Formats a report."""

    def __call__(self, report: Report) -> str: ...


def form_of(path: Path) -> Form:
    """The format of a file name extension. Raises UsageError for an unknown one."""
    form = FORMS.get(path.suffix.lower())
    if form is None:
        raise UsageError(f"--report {path}: expected a file that ends with {' or '.join(FORMS)}")
    return form


def check_place(path: Path) -> None:
    """Check the path of the report before anything is measured. Raises UsageError."""
    form_of(path)
    if path.is_dir():
        raise UsageError(f"--report {path}: is a folder: give a file")


def write(report: Report, path: Path) -> None:
    """Write the report, replacing an older file; creates the folder. Raises StorageError."""
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
    """The text in one line, with Markdown's signs escaped."""
    return MARKDOWN_SIGNS.sub(r"\\\1", " ".join(text.split()))


FORMS: Mapping[str, Form] = MappingProxyType({".md": markdown, ".html": html})

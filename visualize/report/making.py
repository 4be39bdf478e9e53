"""Makes a report from a database or from run files: reads the selected results, or both sides of a comparison."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarking.core.command_line import default_database
from benchmarking.core.database_paths import without_place
from benchmarking.core.errors import StorageError, UsageError
from benchmarking.core.metrics import DEFAULT_METRIC
from db.analysis.compare.comparison import Comparison, compare
from db.analysis.compare.matching import across_column
from db.analysis.selection import Selection as Words
from db.analysis.selection import judged_metric
from db.files import make_folder
from visualize import sources
from visualize.drawing.rows import Selection
from visualize.report.content import Against, report
from visualize.report.files import report_format, write
from visualize.report.rows import check_count, chosen_ids

if TYPE_CHECKING:
    from visualize.sources import Source


LOCK_TIMEOUT_S = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ReportRequest:
    """The checked options of a report."""

    path: Path
    """The file, which ends with .html or .md."""
    database: str | None
    """None for the default database."""
    files: Sequence[str] | None
    """Run files, folders or glob patterns instead of a database."""
    lock_timeout_s: float
    selection: Selection
    words: Words
    """The selection of results; unused in a comparison."""
    sides: tuple[str, str] | None
    """The two selections to compare, if any."""
    metric: str = DEFAULT_METRIC
    across: tuple[str, ...] = ()


def make(request: ReportRequest) -> tuple[str, ...]:
    """Write the report. Returns why some run files could not be read.

    Raises UsageError for invalid names, and StorageError for an unreadable source or an empty selection.
    """
    report_format(request.path)
    sides = None if request.sides is None else _resolved(request, request.sides)
    across = [across_column(word) for word in request.across]
    if request.files:
        source = sources.open_files(request.files)
    else:
        source = sources.open_database(request.database or default_database(), request.lock_timeout_s)
    with source.warehouse:
        against = None
        if sides is None:
            ids = _selected(source, request)
        else:
            comparison = compare(source.warehouse, *sides, judged_metric(source.warehouse, request.metric), across)
            against = Against(comparison=comparison, command=_command(request, sides))
            ids = _of_both(source, against)
        content = report(source.warehouse, ids, without_place(source.name), against)
    write(content, request.path)
    return source.refused


def check_request(path: Path, results: int) -> None:
    """Raise UsageError for an invalid path or too many results."""
    report_format(path)
    if path.is_dir():
        raise UsageError(f"--report {path}: is a folder: give a file")
    check_count(results)


def of_session(path: Path, session_id: str, files: Sequence[str], database: str | None) -> None:
    """Write the report of all results of a command, from its run files or from a database. Raises as `make`."""
    make_folder(path.parent)
    request = ReportRequest(
        path=path,
        database=database,
        files=files or None,
        lock_timeout_s=LOCK_TIMEOUT_S,
        selection=Selection(),
        words=Words.parse(f"session={session_id}"),
        sides=None,
    )
    make(request)


def _resolved(request: ReportRequest, texts: tuple[str, str]) -> tuple[Words, Words]:
    """Both selections; SQL of the user in them is run here."""
    before, after = (sources.resolved(text, request.files, request.database, request.lock_timeout_s) for text in texts)
    return before, after


def _selected(source: Source, request: ReportRequest) -> Sequence[str]:
    sources.check(source, request.selection)
    selection = sources.chosen(source, request.selection, request.words)
    ids = chosen_ids(source.warehouse, selection)
    if not ids:
        raise sources.nothing_selected(source, selection, request.words)
    return ids


def _of_both(source: Source, against: Against) -> Sequence[str]:
    """The results that the comparison names. Raises StorageError for a side without any."""
    sides, comparison = against.sides, against.comparison
    for side, text in (("A", comparison.before), ("B", comparison.after)):
        if side not in sides.values():
            raise StorageError(f"{source.name}: {side} ({text}) selects no results: {_there_is(comparison)}")
    return list(sides)


def _there_is(comparison: Comparison) -> str:
    other = comparison.only_before or comparison.only_after
    points = ", ".join(dict.fromkeys(one.point for one in other[:3]))
    return f"the other side has {len(other)} points ({points}, ...)" if other else "the other side selects none either"


def _command(request: ReportRequest, sides: tuple[Words, Words]) -> str:
    """The command that prints the same comparison."""
    command = ["benchhouse", "compare", *(side.text for side in sides)]
    command += ["--metric", request.metric] if request.metric != DEFAULT_METRIC else []
    return shlex.join(command + (["--across", ",".join(request.across)] if request.across else []))

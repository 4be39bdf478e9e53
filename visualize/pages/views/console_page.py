"""The page SQL: queries run as in `benchhouse query`, confined, read-only and limited."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from datetime import date, datetime
from decimal import Decimal
from itertools import chain, groupby, islice
from operator import itemgetter
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from benchmarking.core.errors import BenchhouseError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.text import counted, grouped
from db.query import answers
from db.query.answers import LINES, is_numeric
from db.query.questions import AnswerLimit, Column, answering, answering_in_parquet
from db.values import plain, readable
from visualize.drawing.configurations import MOST_COLOURS
from visualize.drawing.figure import Block, Element, Figure, Line, Mark, Note, Panel, entries
from visualize.drawing.scales import LARGEST, close_axis, number, row_axis, seconds_of, ticks, time_axis, value_axis
from visualize.drawing.scales import Axis as Scale
from visualize.pages import vega
from visualize.pages.elements import Cell, Chart, Grid, Heading, Link
from visualize.pages.site import Download, File, View

if TYPE_CHECKING:
    from visualize.pages.snapshot import Data

TIME_LIMIT_S = 10.0
DOWNLOAD_LIMIT_S = 60.0
MOST_ROWS = 500
MOST = AnswerLimit(rows=MOST_ROWS + 1, bytes=64_000_000)
MOST_BARS = 40
LONGEST_CELL = 300
LINES_A_PART = 1000
Placed = tuple[tuple[Any, ...], float, float | None]
"""A row, its place on the axis, and its number."""
EXAMPLES = {
    "Fastest setup of each model at batch 1": (
        "SELECT model_id, arg_min(concat_ws(' ', device_name, runtime, precision), latency_median_ms) AS setup,\n"
        "    min(latency_median_ms) AS latency_ms\n"
        "FROM hardware_comparison WHERE batch_size = 1 AND NOT simulated\n"
        "GROUP BY model_id ORDER BY latency_ms"
    ),
    "How many results are doubtful, and why": (
        "SELECT doubt, count(*) AS results\n"
        "FROM (SELECT unnest(doubts) AS doubt FROM latest_results)\n"
        "GROUP BY doubt ORDER BY results DESC"
    ),
    "Regressions since a date": (
        "SELECT model_id, runtime, metric, times_worse, first_bad_commit\n"
        "FROM regressions WHERE history_time >= TIMESTAMP '2026-01-01' ORDER BY times_worse DESC"
    ),
    "Load time by runtime": (
        "SELECT runtime, median(load_time_s) AS load_s\nFROM benchmark_runs GROUP BY runtime ORDER BY load_s"
    ),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsoleParameters:
    """A statement, and the table to describe."""

    sql: str | None = None
    table: str | None = None
    """A table or view."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Statement:
    """Parameters of a download: the statement."""

    sql: str | None = None


def page(data: Data, parameters: ConsoleParameters) -> SimpleNamespace:
    """The page. Errors of the statement are shown on it."""
    columns: Sequence[Column] = ()
    rows: list[tuple[Any, ...]] = []
    trouble = None
    if parameters.sql is not None:
        try:
            with answering(data.path, parameters.sql, timeout_s=TIME_LIMIT_S, limit=MOST) as answer:
                columns, rows = answer.columns, list(answer.rows)
        except BenchhouseError as error:
            trouble = str(error).replace("narrow the query, or raise --timeout", "narrow the query")
    shown = rows[:MOST_ROWS]
    fields: list[tuple[str, str]] = []
    if parameters.table is not None:
        answers.entry(data.warehouse, parameters.table)
        for field in answers.fields(data.warehouse, parameters.table):
            unit = f", {field.unit}" if field.unit else ""
            fields.append((f"{field.name} {field.type.lower()}{unit}", field.meaning))
    files = {"CSV": "console_csv", "Parquet": "console_parquet", "JSON": "console_json"} if columns else {}
    return SimpleNamespace(
        grid=_grid(columns, shown) if columns else None,
        chart=_chart(columns, shown, has_more=len(rows) > MOST_ROWS),
        has_more=len(rows) > MOST_ROWS,
        trouble=trouble,
        files=[(name, Link(view=view, parameters=Statement(sql=parameters.sql))) for name, view in files.items()],
        examples=[
            (name, Link(view="console", parameters=ConsoleParameters(sql=sql))) for name, sql in EXAMPLES.items()
        ],
        dictionary=[
            SimpleNamespace(
                name=entry.name,
                kind=entry.kind,
                meaning=entry.meaning,
                link=Link(view="console", parameters=replace(parameters, table=entry.name)),
                columns=fields if entry.name == parameters.table else (),
            )
            for entry in answers.entries(data.warehouse)
        ],
        most=MOST_ROWS,
        limit_s=TIME_LIMIT_S,
    )


def _grid(columns: Sequence[Column], rows: Sequence[tuple[Any, ...]]) -> Grid:
    def cell(value: Any) -> Cell:
        text = readable(value)
        shown = f"{text[:LONGEST_CELL]}..." if len(text) > LONGEST_CELL else text
        return Cell(text=shown, tone="muted" if value is None else "")

    return Grid(
        headings=tuple(Heading(text=column.name, is_number=is_numeric(column)) for column in columns),
        rows=tuple(tuple(map(cell, row)) for row in rows),
        caption="The answer",
    )


def _is_time(column: Column) -> bool:
    return column.type.startswith(("TIMESTAMP", "DATE"))


def _number(value: Any) -> float | None:
    """The place of a number or time on an axis; None for what has none there: NaN, the infinities, and times without a
    date in our calendar."""
    if isinstance(value, date):  # or a time of a day
        return seconds_of(datetime.fromisoformat(value.isoformat()))
    number = float(value) if isinstance(value, int | float | Decimal) else math.nan
    return number if abs(number) <= LARGEST else None


def _chart(columns: Sequence[Column], rows: Sequence[tuple[Any, ...]], *, has_more: bool) -> Chart | None:
    """The first numeric column against the first column: lines over times or numbers, else bars. If values in the first
    column repeat, bars are named by all columns before the numeric one, and so are lines. None if bars would still
    share a name."""
    y = next((place for place, one in enumerate(columns) if place > 0 and is_numeric(one)), None)
    if y is None or not len(rows) >= 2:
        return None
    x = columns[0]
    is_line = _is_time(x) or is_numeric(x)
    over = [0] if is_line or len({row[0] for row in rows}) == len(rows) else list(range(y))
    placed: list[Placed] = []
    for row in rows:
        place = _number(row[0]) if is_line else 0.0
        if row[0] is not None and place is not None:
            placed.append((row, place, _number(row[y])))
    drawn = [row for row, _, value in placed if value is not None]
    values = [value for _, _, value in placed if value is not None]
    names = [readable(row[0]) if over == [0] else " · ".join(map(readable, row[:y])) for row in drawn]
    is_too_much = not is_line and (len(rows) > MOST_BARS or len(set(names)) < len(names))
    if not values or is_too_much:
        return None
    titles = ", ".join(columns[place].name for place in over), columns[y].name
    lines = _lines(placed, y) if is_line else ()
    over_what = "the first column" if over == [0] else "the columns before it"
    apart = f", for each value of {', '.join(column.name for column in columns[1:y])}" if entries(lines) else ""
    notes = [f"The first column of numbers over {over_what}{apart}."]
    notes += [f"Drawn: the first {MOST_ROWS} rows."] if has_more else []
    if any(line.dashes is None for line in lines):
        notes.append("Marks that share a place are not joined.")
    if missing := len(rows) - len(drawn):
        notes.append(f"Without a number, so not drawn: {counted(missing, 'row')}.")
    if is_line:
        at = [place for _, place, value in placed if value is not None]
        low, high = min(at), max(at)
        edge = 0.03 * (high - low) or 1.0
        across = Scale(title=titles[0], low=low - edge, high=high + edge, ticks=ticks(low - edge, high + edge))
        panel = Panel(
            x=time_axis(at, titles[0]) if _is_time(x) else across,
            y=close_axis(titles[1], values),
            elements=lines,
        )
    else:
        elements: list[Element] = []
        for place, (name, value) in enumerate(zip(names, values, strict=True)):
            left, right = sorted((0.0, value))
            elements += [
                Block(left=left, right=right, bottom=place - 0.34, top=place + 0.34, role="bar",
                      words=f"{name}: {plain(drawn[place][y])}"),
                Note(x=right, y=place, text=number(value), dx=4),
            ]  # fmt: skip
        across = value_axis(titles[1], values, room=1.15, may_be_log=False)
        panel = Panel(x=across, y=replace(row_axis(names), title=titles[0]), elements=tuple(elements), height_in=0.5)
    shown = [*over, *(range(1, y) if entries(lines) else ()), y]
    figure = Figure(
        title=f"{titles[1]} by {titles[0]}",
        notes=tuple(notes),
        panels=(panel,),
        legend=tuple(dict.fromkeys(entries(lines))),
    )
    table = _grid([columns[place] for place in shown], [tuple(row[place] for place in shown) for row in rows])
    return vega.chart(figure, table)


def _lines(placed: Sequence[Placed], y: int) -> tuple[Line, ...]:
    """The marks, joined but for those that share a place, with a gap at each row without a number; if places repeat, a
    line for each value of the columns in between."""
    is_repeated = len({place for _, place, _ in placed}) < len(placed)
    setups = grouped((row[1:y] if is_repeated else (), (place, value)) for row, place, value in placed)
    if len(setups) > MOST_COLOURS:
        setups = {(): list(chain(*setups.values()))}
    lines = []
    for style, (setup, marks) in enumerate(setups.items()):
        dashes = None if len(dict(marks)) < len(marks) else style
        label = " · ".join(map(readable, setup))
        for has_value, run in groupby(sorted(marks, key=itemgetter(0)), lambda one: one[1] is not None):
            if has_value:
                joined = tuple(Mark(x=place, y=value) for place, value in run if value is not None)
                lines.append(Line(label=label, marks=joined, colour=style, shape=style, size=4.0, dashes=dashes))
    return tuple(lines)


Parts = Callable[[str, str], AbstractContextManager[Iterator[str | bytes]]]
"""(database, statement) -> parts of a file with the whole answer, read inside the `with` block."""


def _file(name: str, media_type: str, parts: Parts) -> Download[Statement]:
    """A download of the whole answer."""

    def answer_file(data: Data, parameters: Statement) -> File:
        if parameters.sql is None:
            raise UsageError("sql is missing: give the statement")

        def read(sql: str) -> Iterator[str | bytes]:
            with parts(data.path, sql) as opened:
                yield from opened

        found = read(parameters.sql)
        first = next(found, "")  # an invalid statement gives an error page, not a truncated file
        return File(name=f"answer.{name}", media_type=media_type, parts=chain([first], found))

    return Download(name=f"console_{name}", path=f"/sql.{name}", parameters=Statement, file=answer_file)


def _in_lines(name: str) -> Parts:
    """The format of `benchhouse query`."""

    @contextmanager
    def parts(database: str, sql: str) -> Iterator[Iterator[str]]:
        with answering(database, sql, timeout_s=DOWNLOAD_LIMIT_S) as answer:
            lines = LINES[name](answer)
            yield iter(lambda: "".join(islice(lines, LINES_A_PART)), "")

    return parts


VIEWS = (
    View(
        name="console",
        path="/sql",
        title="SQL",
        parameters=ConsoleParameters,
        page=page,
        has_charts=True,
        runs_sql=lambda parameters: parameters.sql is not None,
    ),
)
DOWNLOADS = (
    _file("csv", "text/csv; charset=utf-8", _in_lines("csv")),
    _file(
        "parquet",
        "application/vnd.apache.parquet",
        lambda database, sql: answering_in_parquet(database, sql, timeout_s=DOWNLOAD_LIMIT_S),
    ),
    _file("json", "application/json", _in_lines("json")),
)

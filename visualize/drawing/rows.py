"""The contract of chart plugins, and the rows they read: selection, shared SQL, grouping, validity, distinct names."""

from __future__ import annotations

import json
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Literal

from benchmarking.core import plugins
from benchmarking.core.axes import AXES
from benchmarking.core.errors import FormatError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.load_doubts import LIMIT_WORDS, SLO_SHARE
from benchmarking.core.metrics import MS_PER_S, PEAK_MEMORY
from benchmarking.core.records import LOOP, NUMBER_RANGE
from benchmarking.core.text import counted, cut_off
from visualize.drawing.figure import Figure, NotDrawn

if TYPE_CHECKING:
    from db.warehouse import Warehouse

PACKAGE = "visualize.charts"
"""The folder of the chart plugins."""

Row = Mapping[str, Any]
"""One result of a query, by column name; NULL is None."""
Drawing = Figure | NotDrawn | str | None
"""A figure, or why it is missing; None where nobody expects one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Selection:
    """The selected results; None selects all."""

    model_id: str | None = None
    device: str | None = None
    """A selector with an index, or a device type for all devices of that type."""
    runtime: str | None = None
    precision: str | None = None
    results: tuple[str, ...] | None = None
    """Ids of the results to select from."""
    profiles: tuple[str, ...] | None = None
    """Ids of the profiles to select from, for charts of profiles."""
    baseline: str | None = None
    """Device, device type or device name of the baseline in speedup charts; selects nothing."""
    metric: str | None = None
    """Column for charts of any metric, None for their default; selects nothing."""
    samples: str | None = None
    """Raw metric for charts of samples, None for the wall time of calls; selects nothing."""


FIELDS = tuple(field.name for field in fields(Selection))


class ChartPlugin:
    """A kind of chart, which says once what it shows: image files, pages and reports draw its figures. Importing its
    module imports neither matplotlib nor seaborn."""

    name: str
    """Name for `--chart`."""
    title: str
    needs: str
    """The data it needs, for `--list`."""
    scope: Literal["model", "models"] = "model"
    """Whether a picture shows one model or compares all models; the latter ignores `Selection.model_id`."""
    columns: str
    """SELECT list of the chart's own numbers, besides `FACTS`."""
    joins: str = ""
    """Further tables, after `TABLES`."""
    newest: Literal["latest", "comparable"] | None = "latest"
    """Which result of a series is drawn: the newest, or the newest that can be compared; None if `joins` decides."""
    condition: str = "TRUE"
    qualify: str = ""
    """A QUALIFY clause."""
    then_by: str = ""
    """Further ORDER BY columns, after `ORDER`."""
    by_default: bool = True
    """Whether it is drawn without being named. Charts of single results are not: they would make too many files."""
    has_metric: bool = False
    """Whether it draws `Selection.metric`."""
    judged: str | None = None
    """The metric whose launches the judge compares, of a chart that names the best of several results or states their
    ratios."""
    loads: Literal["without", "only", "also"] = "without"
    """Whether it draws load tests, whose levels are not grid points and are not comparable with calls."""
    alike: tuple[str, ...]
    """Columns that all rows of a figure share."""
    of_cell: bool = False
    """Whether a figure shows one device, runtime and precision, which its texts and file then name."""

    def statement(self, selection: Selection) -> str:
        """The query for the chart's rows; its parameters are fields of the selection."""
        newest = {"latest": f"r.result_id IN {LATEST}", "comparable": f"r.result_id IN {COMPARABLE}", None: "TRUE"}
        if selection.results is not None:
            latest, comparable = f"r.result_id IN {LATEST_CHOSEN}", f"r.result_id IN {COMPARABLE_CHOSEN}"
            newest = {"latest": latest, "comparable": comparable, None: CHOSEN}
        order = f"{ORDER}, {self.then_by}" if self.then_by else ORDER
        return f"""
            SELECT {FACTS}, {self.columns} FROM {TABLES} {self.joins}
            WHERE {newest[self.newest]} AND ({self.condition}) AND {SELECTED} AND {OF_LOADS[self.loads]}
            {self.qualify} ORDER BY {order}
        """  # noqa: S608 - constants of the charts; values are bound

    def rows(self, warehouse: Warehouse, selection: Selection) -> list[Row]:
        """The rows for `draw`: those of the query, with only the intervals that may be drawn. Raises FormatError for a
        value that no run has: another program wrote it."""
        sql = self.statement(selection)
        rows = [drawable(row) for row in warehouse.query(sql, bound(sql, selection)).dicts()]
        for row in rows:
            value = row.get("value")
            if isinstance(value, float) and (abs(value) > NUMBER_RANGE.most or (value < 0 and not self.has_metric)):
                raise FormatError(f"{warehouse.path}: result {row['result_id']}: no run has the value {value:g}")
        if self.newest != "latest":
            rows = with_newer(warehouse, rows)
        if self.judged is None:
            return rows
        from visualize.drawing.configurations import with_launches

        return with_launches(warehouse, rows, self.judged)

    def groups(self, rows: Sequence[Row]) -> Iterable[tuple[Row, list[Row]]]:
        """The rows of each figure, with what they share.

        Incomparable results never share a figure silently: different weights, tasks, machines or settings go to
        different figures or are named in the figure.
        """
        return grouped(rows, self.alike)

    def drawing(self, key: Row, rows: Sequence[Row]) -> Drawing:
        """The figure of a group."""
        raise NotImplementedError

    def draw(self, rows: Sequence[Row]) -> Iterator[Figure | NotDrawn]:
        """Figures of the rows, one at a time to keep only one in memory."""
        from visualize.drawing.marks import not_drawn

        for key, members in self.groups(rows):
            drawn = self.drawing(key, members)
            if drawn is not None:
                yield not_drawn(self, key, drawn) if isinstance(drawn, str) else drawn


def charts() -> Mapping[str, ChartPlugin]:
    """All charts by name, sorted."""
    return plugins.by_name(PACKAGE)


COMMAND = "coalesce(run.tags['ab'], run.session_id) AS command_id"
"""The command that measured a run, or the comparison (`benchhouse ab`) that ran several commands in turns."""

FACTS = f"""r.result_id, run.run_id, {COMMAND}, run.model_id, run.model_revision, run.config_hash,
    run.architecture_type, run.task, run.weights, run.parameter_count, run.hardware_id, places.device_place,
    hardware.device_name, run.is_simulated AS simulated, run.device, run.runtime, run.runtime_mode, run.precision,
    run.num_threads, run.cpu_list, run.started_at, run.origin_format,
    coalesce(run.origin_definition, series.metric_definition::VARCHAR) AS metric_definition,
    {", ".join(f"r.{name}" for name in AXES)}, r.axes,
    r.status, r.error, r.validity, r.doubts, r.launches, r.ci_scope"""
"""Identity and validity of a result; every chart selects these and its own numbers."""

PLACES = """(
    SELECT hardware_id, row_number() OVER (ORDER BY first_seen_at, hardware_id) - 1 AS device_place FROM hardware_info
) places"""
"""`device_place` numbers devices from 0 in the order they were added to the database; it fixes a device's colour."""

TABLES = f"""benchmark_results r
JOIN benchmark_runs run ON run.run_id = r.run_id
JOIN hardware_info hardware ON hardware.hardware_id = run.hardware_id
JOIN series ON series.series_id = r.series_id
JOIN {PLACES} ON places.hardware_id = run.hardware_id"""

SELECTED = """($model_id IS NULL OR run.model_id = $model_id)
    AND ($device IS NULL OR run.device = $device OR split_part(run.device, ':', 1) = $device)
    AND ($runtime IS NULL OR run.runtime = $runtime)
    AND ($precision IS NULL OR run.precision = $precision)"""
"""The condition of a `Selection`, for a WHERE clause."""

NO_SEARCH = "(r.extra->'$.load.searched_per_s') IS NULL"
OF_LOADS = {
    "without": "(run.runtime_mode->>'loop') IS NULL",
    "only": f"(run.runtime_mode->>'loop') IS NOT NULL AND {NO_SEARCH}",
    "also": NO_SEARCH,
}
"""WHERE condition by `ChartPlugin.loads`. Results of searches for a rate are not load levels."""

ORDER = "r.batch_size, r.sequence_length, r.new_tokens, run.started_at, r.result_id"
"""ORDER BY list. The same results give the same picture, byte for byte."""

CHOSEN = "r.result_id IN (SELECT unnest($results::VARCHAR[]))"
"""The condition of `Selection.results`."""

LATEST = "(SELECT result_id FROM latest_results)"
"""The newest result of each series, of any status."""

NEWEST_CHOSEN = """(
    SELECT result_id
    FROM benchmark_results JOIN benchmark_runs USING (run_id) LEFT JOIN series_alias USING (series_id)
    WHERE result_id IN (SELECT unnest($results::VARCHAR[])) AND task <> 'device-calibration'
    QUALIFY row_number() OVER (
        PARTITION BY coalesce(canonical_series_id, series_id) ORDER BY {first}started_at DESC, result_id DESC
    ) = 1
)"""
"""Not of the view `all_results`: to plan its columns takes longer than the query."""
LATEST_CHOSEN = NEWEST_CHOSEN.format(first="")
"""The newest result of each series among the chosen results, which may be of older runs."""
COMPARABLE_CHOSEN = NEWEST_CHOSEN.format(
    first="coalesce(validity, 'invalid') <> 'invalid' DESC, coalesce(validity = 'valid', FALSE) DESC, "
)
"""`COMPARABLE` among the chosen results."""

COMPARABLE = """(
    SELECT result_id FROM accepted_results
    UNION ALL
    SELECT result_id FROM latest_results WHERE series_id NOT IN (SELECT series_id FROM accepted_results)
)"""
"""Results for comparisons: those of the view `accepted_results`, and for series it omits the newest result, which
failed or is invalid and is only counted."""

ROUNDING = 1e-9
"""Relative error up to which an end of an interval counts as equal to the value, from which it may be converted."""
LONGEST_VALUE = 80
"""Maximum characters of a setting in a text. Its value may be anything, but a digest stays whole."""
CELL_COLUMNS = ("model_id", "device", "runtime", "precision")
"""Columns that name a picture of one cell."""
MODEL_COLUMNS = ("task", "weights", "model_revision", "config_hash", "metric_definition")
"""Columns in which results of the same model name may differ."""
SUBJECT = ("model_id", *MODEL_COLUMNS)
"""Columns that name a picture of one model on several setups."""
SETUP_COLUMNS = ("device_name", "simulated", "runtime_mode", "num_threads", "cpu_list", "hardware_id")
"""Columns in which results of the same device, runtime and precision may differ."""
CELL_DETAIL_COLUMNS = (*MODEL_COLUMNS, *SETUP_COLUMNS)
"""Further columns that distinguish cells; each cell has its own picture."""
CELL = (*CELL_COLUMNS, *CELL_DETAIL_COLUMNS)
"""Columns that all rows of a cell share."""
POINT_COLUMNS = (*(name for name in AXES if name != "batch_size"), "axes")
"""The columns of a point except its batch size."""

LATENCY = "r.latency_median_ms AS value, r.latency_ci_low_ms AS low, r.latency_ci_high_ms AS high"
"""SELECT list of the median latency with its interval."""
THROUGHPUT = "CASE WHEN r.new_tokens IS NULL THEN r.throughput_samples_per_sec ELSE r.throughput_tokens_per_sec END"
"""Generated tokens per second, or inputs per second of models that generate none."""
MEMORY_COLUMNS = ", ".join(f"r.{column}" for column in PEAK_MEMORY)
"""SELECT list with every column of peak memory."""


def bound(sql: str, selection: Selection) -> dict[str, str | list[str] | None]:
    """Values of the selection for the parameters in the SQL."""
    values = {name: getattr(selection, name) for name in FIELDS if f"${name}" in sql}
    return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}


def grouped(rows: Sequence[Row], columns: Sequence[str]) -> list[tuple[Row, list[Row]]]:
    """The rows grouped by `columns`: (values, rows), sorted by the values, numbers as numbers, also those of `axes`."""

    def place(column: str, value: Any) -> tuple[Any, ...]:
        if column != "axes":
            return sort_key(value)
        return tuple((name, sort_key(one)) for name, one in sorted(json.loads(value or "{}").items()))

    groups: dict[tuple[Any, ...], tuple[Row, list[Row]]] = {}
    for row in rows:
        key = {column: row[column] for column in columns}
        groups.setdefault(tuple(key.values()), (key, []))[1].append(row)
    return sorted(groups.values(), key=lambda group: [place(column, group[0][column]) for column in columns])


def sort_key(value: Any) -> tuple[int, float, str]:
    """A sort key for values of one column: None, then numbers by size, then the rest by their text."""
    if value is None:
        return (0, 0.0, "")
    if isinstance(value, int | float):
        return (1, float(value), "")
    return (2, 0.0, str(value))


def axis_values(row: Row) -> dict[str, float]:
    """Values on the axes that make lines or panels: sequence length, if any, and `axes`."""
    length = {} if row["sequence_length"] is None else {"sequence_length": row["sequence_length"]}
    return {**length, **json.loads(row["axes"])}


def varying(rows: Sequence[Row]) -> tuple[str, ...]:
    """Axes on which the rows differ, in the order of the axis table."""
    values: dict[str, set[float | None]] = {}
    for row in rows:
        for name in axis_values(row):
            values[name] = {axis_values(other).get(name) for other in rows} if name not in values else values[name]
    order = tuple(AXES)
    names = sorted(values, key=lambda name: (order.index(name) if name in order else len(order), name))
    return tuple(name for name in names if len(values[name]) > 1)


def is_ok(row: Row) -> bool:
    """Whether the point was measured."""
    return bool(row["status"] == "ok")


def with_newer(warehouse: Warehouse, rows: Sequence[Row]) -> list[Row]:
    """The rows with `newer`: words about the newest result of the row's series where it is not valid and the row is of
    an older one; else None."""
    from db.analysis.recommend.measured_options import newer_doubtful  # not before charts are drawn: it needs numpy

    found = newer_doubtful(warehouse, [row["result_id"] for row in rows])
    return [{**row, "newer": found[row["result_id"]].text if row["result_id"] in found else None} for row in rows]


def trust(row: Row) -> Literal["valid", "doubtful", "invalid"]:
    """How far the result is trusted: invalid results are wrong and never win; noisy and throttled ones are doubtful."""
    if row["validity"] == "invalid":
        return "invalid"
    return "valid" if row["validity"] == "valid" else "doubtful"


def measured_apart(rows: Sequence[Row]) -> bool:
    """Whether different commands measured the rows, at different times rather than in turns."""
    return len({row["command_id"] for row in rows}) > 1


def drawable(row: Row) -> Row:
    """The row without its interval, unless the interval covers the spread between launches (three or more) and has the
    value in it. An older version stored intervals of some of the launches only."""
    if "low" not in row:
        return row
    value, low, high = row.get("value"), row["low"], row["high"]
    is_sound = None in (value, low, high) or low * (1 - ROUNDING) <= value <= high * (1 + ROUNDING)
    return row if row["ci_scope"] == "between" and is_sound else {**row, "low": None, "high": None}


def read_column(rows: Sequence[Row], columns: Sequence[str]) -> str | None:
    """The first of the columns with a value above 0 in any measured row; None without a reading."""
    measured = [row for row in rows if is_ok(row)]
    return next((column for column in columns if any(row[column] for row in measured)), None)


def detail(column: str, value: Any) -> str:
    """A detail in words: settings as `key=value`, ids and revisions by their first 8 characters."""
    if value is None:
        absent = {"num_threads": "default threads", "cpu_list": "all processors", "model_revision": "no revision"}
        return absent.get(column, "")
    if column in ("runtime_mode", "axes"):
        return settings(value)
    if column == "simulated":
        return "simulated" if value else ""
    if column in ("metric_definition", "cpu_list"):
        return f"{'metrics' if column == 'metric_definition' else 'processors'} {value}"
    if column in ("config_hash", "hardware_id", "model_revision"):
        return f"{column.removeprefix('model_').split('_')[0]} {str(value)[:8]}"
    return counted(value, "thread") if column == "num_threads" else str(value)


def settings(text: str) -> str:
    """Settings from a JSON object: "attention=sdpa, cache=static"; empty for no settings."""
    return ", ".join(setting_words(name, value) for name, value in sorted(json.loads(text).items()))


def shown_settings(text: str, without: Collection[str] = ()) -> str:
    """The settings, except some, and without the ends of long values, for a text in which nothing is told apart by
    them."""
    known = ((name, str(value)) for name, value in sorted(json.loads(text).items()) if name not in without)
    return ", ".join(setting_words(name, cut_off(value, LONGEST_VALUE)) for name, value in known)


def setting_words(name: str, value: object) -> str:
    """A setting: those of load tests in words ("poisson arrivals"), others as "cache=static"."""
    if name == LIMITS:
        return f"limits: {limits_words(str(value))}"
    return LOAD_SETTINGS[name].format(str(value).replace("_", " ")) if name in LOAD_SETTINGS else f"{name}={value}"


LIMITS, LIMIT = "slo", re.compile(r"([a-z0-9]+):(\d+(?:\.\d+)?)(ms|s)")
"""The setting with the latency limits of a load test, and one of them."""
LOAD_SETTINGS: Mapping[str, str] = {
    "arrivals": "arrivals {}",
    "endpoint": "{} endpoint",
    "lengths_in": "prompts of {} words",
    "lengths_out": "replies of {} tokens",
    LOOP: "{} loop",
    SLO_SHARE: "a share of {} within the limits",
}
"""Setting of load tests -> template of its words."""


def limits_of(text: str) -> dict[str, float]:
    """Latency limits in ms by name (ttft, tpot, ...)."""
    found = (one.groups() for one in LIMIT.finditer(text))
    return {name: float(value) * (MS_PER_S if unit == "s" else 1) for name, value, unit in found}


def limits_words(text: str) -> str:
    """Latency limits in words, from "e2e:5000ms,ttft:500ms": "latency 5 s and time to first token 500 ms"."""
    known = limits_of(text)
    times = {name: f"{ms / MS_PER_S:g} s" if ms >= MS_PER_S else f"{ms:g} ms" for name, ms in known.items()}
    return " and ".join(f"{LIMIT_WORDS.get(name, name)} {time}" for name, time in times.items()) or text


def details(key: Row, columns: Sequence[str]) -> tuple[str, ...]:
    """Values of `columns` in words."""
    return tuple(detail(column, key[column]) for column in columns)


def file_details(key: Row, columns: Sequence[str]) -> tuple[str, ...]:
    """The same for names of files, which scripts know: settings as they are stored."""
    return tuple(
        ", ".join(f"{name}={value}" for name, value in sorted(json.loads(key[column]).items()))
        if column == "runtime_mode" and key[column] is not None
        else detail(column, key[column])
        for column in columns
    )

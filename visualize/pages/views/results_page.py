"""The page Results: the newest result of each series, or all results, with filters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Literal, get_args

from benchmarking.core.axes import POINT_COLUMNS
from benchmarking.core.command_line import choice
from benchmarking.core.errors import UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.text import number
from db.analysis.selection import Selection
from db.values import shortened
from visualize.charts.tradeoffs import QUALITIES
from visualize.drawing import words
from visualize.drawing.loads import is_load
from visualize.drawing.rows import Row
from visualize.pages.elements import Cell, Grid, Heading, Link, alternatives, point_text, started_text, text_cell
from visualize.pages.result_rows import COLUMNS, FIRST, RATE_NOTE, Column, has_star, own_metrics, result_columns
from visualize.pages.site import Download, File, View, query_of
from visualize.pages.views.compare_page import CompareParameters
from visualize.pages.views.run_page import RunParameters, results_csv

if TYPE_CHECKING:
    from benchmarking.core.metrics import Metric
    from visualize.pages.snapshot import Data

State = Literal["valid", "noisy", "throttled", "invalid", "failed", "skipped", "timed_out"]

PAGE_ROWS = 50
SUBJECT = (
    *("started_at", "model_id", "architecture_type", "device", "device_name", "hardware_id", "runtime", "runtime_mode"),
    *("precision", "simulated", "extra", "task", "weights", "model_revision", "config_hash"),
)
"""Columns of the setup. Only these and the columns of point and metrics are read, of about 150."""
FILTERS = """
    ($family IS NULL OR architecture_type = $family)
    AND ($model IS NULL OR model_id = $model)
    AND ($runtime IS NULL OR runtime = $runtime)
    AND ($device IS NULL OR device = $device)
    AND ($hardware IS NULL OR hardware_id = $hardware)
    AND ($precision IS NULL OR precision = $precision)
    AND ($batch IS NULL OR batch_size = $batch)
    AND ($sequence IS NULL OR sequence_length = $sequence)
    AND ($source IS NULL OR run_id IN (
        SELECT run_id FROM benchmark_runs WHERE coalesce(origin_format, 'benchhouse') = $source
    ))
    AND ($state IS NULL OR coalesce(validity, status) = $state)
    AND ($doubt IS NULL OR list_contains(doubts, $doubt))
"""
WORDS_OF_SORTS: Mapping[str, str] = {
    "newest": "-started",
    "fastest": "latency_median_ms",
    "slowest": "-latency_median_ms",
    "throughput": "-throughput_samples_per_sec",
}
"""Earlier names of orders -> column, after "-" if descending."""
NEWEST = "-started"
POINT_ORDER = (
    "sequence_length", "new_tokens", "batch_size", "concurrency", "TRY_CAST(axes->>'request_rate' AS DOUBLE)", "axes",
)  # fmt: skip
SHOWN = """
SELECT result_id, run_id, count(*) OVER () AS results
FROM {view} WHERE {filters} ORDER BY {order} LIMIT $most OFFSET $skipped
"""
"""Only the ids: of a million results, sorting all columns takes twice the time of the whole page."""
ROWS = """
SELECT {columns}, origin_format FROM all_results
WHERE run_id IN (SELECT unnest($runs::VARCHAR[])) AND result_id IN (SELECT unnest($ids::VARCHAR[]))
"""
RUNS = "SELECT DISTINCT run_id FROM benchmark_results WHERE result_id IN (SELECT unnest($ids::VARCHAR[]))"
MOST_TICKED = 12
COUNT = "SELECT count(*) AS results FROM {view} WHERE {filters}"
CELLS = """
SELECT DISTINCT architecture_type AS family, model_id AS model, runtime, device, precision,
    coalesce(origin_format, 'benchhouse') AS source
FROM benchmark_runs
WHERE task <> 'device-calibration'
"""
SIZES = """
SELECT
    list_sort(list(DISTINCT batch_size) FILTER (WHERE batch_size IS NOT NULL)) AS batch,
    list_sort(list(DISTINCT sequence_length) FILTER (WHERE sequence_length IS NOT NULL)) AS sequence
FROM series
"""
KINDS = "SELECT DISTINCT unnest(doubts) AS kind FROM benchmark_results WHERE doubts <> [] ORDER BY kind"
CHOSEN_BY = ("family", "model", "runtime", "device", "source")
"""Filters with a page for each value in a static site."""
MOST_FILES = 20
"""Maximum pages of each list of results in a static site."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsFilters:
    """Filters; None selects all."""

    family: str | None = None
    model: str | None = None
    runtime: str | None = None
    device: str | None = None
    hardware: str | None = None
    """Id of the hardware."""
    precision: str | None = None
    batch: int | None = None
    sequence: int | None = None
    source: str | None = None
    """The format of imported results, or "benchhouse" for our own."""
    state: State | None = None
    """Validity of a measured result, else its status."""
    doubt: str | None = None
    """A kind of doubt."""
    all: bool = False
    """Whether to list all results instead of the newest of each series."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsParameters(ResultsFilters):
    """The page's order, columns and place."""

    sort: str = NEWEST
    """A column, after "-" if descending."""
    columns: tuple[str, ...] = ()
    """Shown columns; empty for those that people decide by and that have values."""
    tick: tuple[str, ...] = ()
    """Ids of the results to show side by side."""
    page: int = 1


def page(data: Data, parameters: ResultsParameters) -> SimpleNamespace:
    """The page; the last one, for a number beyond it. Raises UsageError for an unknown column."""
    values = _filter_values(parameters)
    view = "all_results" if parameters.all else "latest_results"
    known = _columns(own_metrics(data))
    sort = WORDS_OF_SORTS.get(parameters.sort, parameters.sort)
    key, is_down = choice(sort.removeprefix("-"), tuple(known), "sort"), sort.startswith("-")
    chosen = tuple(choice(name, tuple(known), "column") for name in parameters.columns)
    skipped = (parameters.page - 1) * PAGE_ROWS
    order = order_by(known[key], is_down=is_down)
    more = {"most": PAGE_ROWS, "skipped": skipped, **({} if known[key].own is None else {"metric": known[key].own})}
    found = data.warehouse.query(SHOWN.format(view=view, filters=FILTERS, order=order), {**values, **more}).dicts()
    counted = found or data.warehouse.query(COUNT.format(view=view, filters=FILTERS), values).dicts()
    count, ids = int(counted[0]["results"]), [row["result_id"] for row in found]
    if count and not found:
        return page(data, replace(parameters, page=-(-count // PAGE_ROWS)))
    columns, runs_of_ticked = ", ".join((*SUBJECT, *POINT_COLUMNS, *COLUMNS)), list[dict[str, Any]]()
    if parameters.tick:
        runs_of_ticked = data.warehouse.query(RUNS, {"ids": list(parameters.tick)}).dicts()
    run_ids = list(dict.fromkeys(row["run_id"] for row in (*found, *runs_of_ticked)))
    chosen_rows = {"runs": run_ids, "ids": [*ids, *parameters.tick]}
    read = data.warehouse.query(ROWS.format(columns=columns), chosen_rows).dicts()
    by_id = {row["result_id"]: row for row in read}
    rows = [by_id[result_id] for result_id in ids]
    ticked = [by_id[result_id] for result_id in dict.fromkeys(parameters.tick) if result_id in by_id][:MOST_TICKED]
    shown = chosen or _usual(known, rows)
    filters = _filters(data, parameters)
    judged = None  # the comparison of the runs of two ticked results
    if len(ticked) == 2 and ticked[0]["run_id"] != ticked[1]["run_id"]:
        a, b = (f"run={row['run_id']}" for row in ticked)
        judged = Link(view="compare", parameters=CompareParameters(a=a, b=b, across="all"))
    pages = (replace(parameters, page=parameters.page + step) for step in (-1, 1))
    previous, following = (Link(view="results", parameters=one) for one in pages)
    runs = (("newest of each series", ResultsParameters()), ("every run", ResultsParameters(all=True)))
    choices = [alternatives("Results", "results", runs, parameters)]
    for one in filters:
        if one.name in CHOSEN_BY:
            of_options = {option: ResultsParameters(**{one.name: option}) for option in one.options}
            options = [(text, of_options[option]) for option, text in one.options.items()]
            choices.append(alternatives(one.title, "results", options, of_options.get(one.chosen)))
    grid = Grid(
        headings=(
            Heading(text=TICK, is_unseen=True),
            *(_heading(name, known[name], parameters, sort) for name in shown),
        ),
        rows=tuple(
            (
                Cell(text="", tick=row["result_id"], is_ticked=row["result_id"] in parameters.tick),
                *(known[name].cell(row) for name in shown),
            )
            for row in rows
        ),
        caption="Results",
    )
    return SimpleNamespace(
        filters=filters,
        count=count,
        first=skipped + 1 if rows else 0,  # counted from 1
        last=skipped + len(rows),
        grid=grid,
        # Without the column of ticks, which need a server.
        published_grid=replace(grid, headings=grid.headings[1:], rows=tuple(row[1:] for row in grid.rows)),
        previous=previous if parameters.page > 1 else None,
        following=following if skipped + len(rows) < count else None,
        csv_file=Link(view="results_csv", parameters=ResultsFilters(all=parameters.all, **values)),
        all=parameters.all,
        hardware=parameters.hardware,
        clear=Link(
            view="results",
            parameters=ResultsParameters(all=parameters.all, sort=parameters.sort, columns=parameters.columns),
        ),
        is_filtered=any(value is not None for value in values.values()),
        choices=choices,
        columns=tuple((name, one.heading, name in shown) for name, one in known.items()),
        state=query_of(replace(parameters, tick=())),  # without ticks, for the form of the table
        side_by_side=_side_by_side(ticked, known) if len(ticked) > 1 else None,
        rate_note=RATE_NOTE if any(map(has_star, rows)) else None,
        judged=judged,
    )


def order_by(column: Column, *, is_down: bool) -> str:
    """The ORDER BY list: missing values and, among numbers, simulated results come last."""
    direction = "DESC NULLS LAST" if is_down else "ASC NULLS LAST"
    first = ["simulated"] if column.is_number else []
    tie = ["started_at DESC", "run_id DESC", *(f"{one} NULLS FIRST" for one in POINT_ORDER), "result_id"]
    return ", ".join([*first, *(f"{one} {direction}" for one in column.order), *tie])


SUBJECTS = ("model", "device", "runtime", "precision", "point", "state")
"""Columns that are shown even without values."""
USUAL = (
    *SUBJECTS, FIRST, "latency_p90_ms", "throughput_samples_per_sec", "throughput_tokens_per_sec",
    "time_to_first_token_ms", "time_per_output_token_ms", "peak", "output_error", "doubts",
)  # fmt: skip
"""The columns of the first screen: the numbers that people decide by."""


WORKLOAD = {"task": "task", "weights": "weights", "revision": "model_revision", "configuration": "config_hash"}
"""Columns of what a model computes, which are shown where results of one model differ in them -> where it is stored."""


def _usual(known: Mapping[str, Column], rows: Sequence[Row]) -> tuple[str, ...]:
    """The columns that people decide by and that have values, with a measure of quality and the custom metrics that
    every runtime among the calls has; those of load tests are on their pages."""
    calls = [row for row in rows if row["origin_format"] is None and not is_load(row)]
    runtimes = {row["runtime"] for row in calls}
    own = [
        name
        for name, column in known.items()
        if column.own is not None and runtimes and {row["runtime"] for row in calls if column.has(row)} == runtimes
    ]
    quality = [name for name in QUALITIES if any(map(known[name].has, rows))][:1]
    usual = [*USUAL[:-1], *quality, *own, USUAL[-1]]
    if len({row["device"] for row in rows}) < len({(row["device"], row["hardware_id"]) for row in rows}):
        usual.insert(usual.index("device") + 1, "hardware")
    for name, column in reversed(WORKLOAD.items()):  # a model of one name may have several
        if len({row["model_id"] for row in rows}) < len({(row["model_id"], row[column]) for row in rows}):
            usual.insert(usual.index("model") + 1, name)
    return tuple(name for name in usual if name in SUBJECTS or any(known[name].has(row) for row in rows))


def _columns(own: Mapping[str, Metric]) -> dict[str, Column]:
    """All columns by name."""
    subjects = {
        "model": Column(heading="model", cell=_model, order=("model_id",)),
        "task": Column(heading="task", order=("task",), cell=lambda row: text_cell(row["task"])),
        "weights": Column(heading="weights", order=("weights",), cell=lambda row: text_cell(row["weights"])),
        "revision": Column(
            heading="revision", order=("model_revision",), value=lambda row: row["model_revision"],
            cell=lambda row: text_cell(row["model_revision"] and shortened(row["model_revision"])),
        ),
        "configuration": Column(
            heading="configuration", cell=lambda row: text_cell(row["config_hash"][:8]),
        ),
        "device": Column(
            heading="device", order=("device",),
            cell=lambda row: text_cell(words.stated(row["device"]), hint=row["device_name"]),
        ),
        "hardware": Column(
            heading="hardware", order=("device_name", "hardware_id"),
            cell=lambda row: text_cell(f"{row['device_name'] or words.NOT_STATED} {row['hardware_id'][:8]}"),
        ),
        "runtime": Column(
            heading="runtime",
            cell=lambda row: text_cell(words.engine(row) + (" (simulated)" if row["simulated"] else "")),
            order=("runtime",),
        ),
        "precision": Column(
            heading="precision", cell=lambda row: text_cell(words.precision(row)), order=("precision",),
        ),
        "point": Column(
            heading="point", cell=lambda row: replace(text_cell(point_text(row)), is_long=True), order=POINT_ORDER,
        ),
    }  # fmt: skip
    started = Column(
        heading="started (UTC)", cell=lambda row: text_cell(started_text(row["started_at"], row["doubts"] or ())),
        order=("started_at",), is_down=True,
    )  # fmt: skip
    measured = result_columns(own, (*subjects, "started"))
    measured[FIRST] = replace(measured[FIRST], heading="p50 ms")
    return {**subjects, **measured, "started": started}


def _model(row: Row) -> Cell:
    link = Link(view="run", parameters=RunParameters(run_id=row["run_id"], result=row["result_id"]))
    return text_cell(row["model_id"], link=link, hint=row["architecture_type"])


def _side_by_side(ticked: Sequence[Row], known: Mapping[str, Column]) -> Grid:
    """A column for each ticked result, and a row for each fact that any of them has; numbers with their ratio to the
    first."""
    lines = []
    for name, column in known.items():
        if name == "model" or not any(column.has(row) for row in ticked):
            continue
        cells, base = [text_cell(column.heading)], column.value(ticked[0])
        for row in ticked:
            cell, value = column.cell(row), column.value(row)
            if not (column.is_number and isinstance(value, int | float) and isinstance(base, int | float)):
                cells.append(cell)
                continue
            has_ratio = row is not ticked[0] and base > 0 <= value
            ratio = f" ({number(value / base, 3)}\N{MULTIPLICATION SIGN})" if has_ratio else ""
            cells.append(replace(cell, text=cell.text + ratio))
        lines.append(tuple(cells))
    names = [_model(row) for row in ticked]
    return Grid(
        headings=(Heading(text=""), *(Heading(text=one.text, link=one.link) for one in names)),
        rows=tuple(lines),
        caption="Ticked results side by side",
    )


def _filter_values(parameters: ResultsFilters) -> dict[str, Any]:
    """Values of the filters, for the query."""
    others = ("all", "sort", "page", "columns", "tick")
    return {name: value for name, value in asdict(parameters).items() if name not in others}


def _filters(data: Data, parameters: ResultsParameters) -> tuple[SimpleNamespace, ...]:
    """The lists of options in the form, each with the texts of its values."""
    cells, found_sizes, found_kinds = (
        data.once(sql, lambda sql=sql: data.warehouse.query(sql).dicts())  # type: ignore[misc]
        for sql in (CELLS, SIZES, KINDS)
    )
    (sizes,) = found_sizes
    titles = {
        "family": "Family",
        "model": "Model",
        "runtime": "Runtime",
        "device": "Device",
        "precision": "Precision",
        "source": "Source",
    }
    found = {name: sorted({row[name] for row in cells if row[name] is not None}) for name in titles}
    kinds = [row["kind"] for row in found_kinds]
    sizes = {name: [str(value) for value in sizes[name] or ()] for name in ("batch", "sequence")}
    lists: dict[str, tuple[str, Sequence[str]]] = {
        **{name: (title, found[name]) for name, title in titles.items()},
        "batch": ("Batch", sizes["batch"]),
        "sequence": ("Sequence", sizes["sequence"]),
        "state": ("State", get_args(State)),
        "doubt": ("Doubt", kinds),
    }
    filters = []
    for name, (title, options) in lists.items():
        value = getattr(parameters, name)
        if len(options) > 1 or value is not None:
            chosen = None if value is None else str(value)
            extra = () if chosen is None or chosen in options else (chosen,)  # keep the value of the URL
            texts = {}
            for one in (*extra, *options):  # as the cells have it, with the word of selections: "not stated (unknown)"
                text = words.engine({"runtime": one}) if name == "runtime" else words.stated(one)
                texts[one] = text if text == one else f"{text} ({one})"
                if name == "doubt":
                    texts[one] = one.replace("_", " ")
            filters.append(SimpleNamespace(name=name, title=title, options=texts, chosen=chosen))
    return tuple(filters)


TICK = "compare"


def _heading(name: str, column: Column, parameters: ResultsParameters, sort: str) -> Heading:
    """The heading, which sorts by its column if it has an order, the other way round the second time."""
    is_current, is_down = sort.removeprefix("-") == name, sort.startswith("-")
    goes_down = not is_down if is_current else column.is_down
    target = replace(parameters, sort=f"-{name}" if goes_down else name, page=1, tick=())
    return Heading(
        text=column.heading,
        is_number=column.is_number,
        link=Link(view="results", parameters=target) if column.order else None,
        sorted=("descending" if is_down else "ascending") if is_current else None,
    )


def csv_file(data: Data, parameters: ResultsFilters) -> File:
    """The filtered results with every column, in the order of `benchhouse export`."""
    view = "all_results" if parameters.all else "latest_results"
    sql = IDS.format(view=view, filters=FILTERS)
    ids = [row["result_id"] for row in data.warehouse.query(sql, _filter_values(parameters)).dicts()]
    if not ids:
        raise UsageError("no result matches these filters: nothing to export")
    selection = Selection(text="the filters", words="result_id IN (SELECT unnest(?::VARCHAR[]))", values=(ids,))
    return results_csv(data, selection, "results.csv")


def _in_files(parameters: ResultsParameters) -> ResultsParameters | None:
    """Each value of a single filter, newest first, and all results without a filter."""
    given = {name: value for name, value in _filter_values(parameters).items() if value is not None}
    is_one = len(given) <= 1 and set(given) <= {*CHOSEN_BY, "hardware"} and not (given and parameters.all)
    is_plain = parameters.sort == NEWEST and not parameters.columns and not parameters.tick
    return parameters if is_one and is_plain and parameters.page <= MOST_FILES else None


IDS = "SELECT result_id FROM {view} WHERE {filters}"
VIEWS = (
    View(name="results", path="/results", title="Results", parameters=ResultsParameters, page=page, in_files=_in_files),
)
DOWNLOADS = (Download(name="results_csv", path="/results.csv", parameters=ResultsFilters, file=csv_file),)

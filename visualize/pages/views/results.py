"""The page Results: the newest result of each series, or all results, with filters."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from benchmarking.core.axes import POINT_COLUMNS
from benchmarking.core.errors import UsageError
from db.analysis.selection import Selection
from visualize.pages.elements import Cell, Choice, Grid, Heading, Link, point_text, text_cell, time_text
from visualize.pages.result_rows import COLUMNS, own_metrics, result_table
from visualize.pages.site import Download, File, View
from visualize.pages.views.run import RunParameters, results_csv

if TYPE_CHECKING:
    from benchmarking.core.metrics import Metric
    from visualize.pages.snapshot import Data

Row = Mapping[str, Any]
State = Literal["valid", "noisy", "throttled", "invalid", "failed", "skipped", "timed_out"]
Sort = Literal["newest", "fastest", "slowest", "throughput", "model"]

PAGE_ROWS = 50
SUBJECT = ("started_at", "model_id", "architecture_type", "device", "device_name", "runtime", "precision", "simulated")
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
    AND ($state IS NULL OR coalesce(validity, status) = $state)
    AND ($doubt IS NULL OR list_contains(doubts, $doubt))
"""
SORTS: Mapping[str, str] = {
    "newest": "started_at DESC, run_id DESC, sequence_length, new_tokens, axes, batch_size, result_id",
    "fastest": "simulated, latency_median_ms NULLS LAST, result_id",
    "slowest": "simulated, latency_median_ms DESC NULLS LAST, result_id",
    "throughput": "simulated, throughput_samples_per_sec DESC NULLS LAST, result_id",
    "model": "model_id, device, runtime, precision, sequence_length, batch_size, result_id",
}
SHOWN = """
SELECT {columns} FROM (SELECT * FROM {view} WHERE {filters}) ORDER BY {order} LIMIT $most OFFSET $skipped
"""
COUNT = "SELECT count(*) AS results FROM {view} WHERE {filters}"
CELLS = """
SELECT DISTINCT architecture_type AS family, model_id AS model, runtime, device, precision FROM benchmark_runs
WHERE task <> 'device-calibration'
"""
SIZES = """
SELECT list_sort(list(DISTINCT batch_size)) AS batch, list_sort(list(DISTINCT sequence_length)) AS sequence FROM series
"""
KINDS = "SELECT DISTINCT unnest(doubts) AS kind FROM benchmark_results WHERE doubts <> [] ORDER BY kind"
CHOSEN_BY: Mapping[str, Callable[[str], ResultsParameters]] = {
    "family": lambda value: ResultsParameters(family=value),
    "model": lambda value: ResultsParameters(model=value),
    "runtime": lambda value: ResultsParameters(runtime=value),
    "device": lambda value: ResultsParameters(device=value),
}
"""Filters with a page for each value in a static site."""
MOST_FILES = 20
"""Maximum pages of each list of results in a static site."""
STATES: tuple[State, ...] = ("valid", "noisy", "throttled", "invalid", "failed", "skipped", "timed_out")


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsParameters:
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
    state: State | None = None
    """Validity of a measured result, else its status."""
    doubt: str | None = None
    """A kind of doubt."""
    all: bool = False
    """Whether to list all results instead of the newest of each series."""
    sort: Sort = "newest"
    page: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Filter:
    """A list of options in the form."""

    name: str
    title: str
    options: tuple[str, ...]
    chosen: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class ResultsPage:
    """The content of the page, for its template."""

    filters: tuple[Filter, ...]
    count: int
    first: int
    """Number of the first row, starting at 1; 0 without rows."""
    last: int
    grid: Grid
    previous: Link | None
    following: Link | None
    csv_file: Link
    all: bool
    hardware: str | None
    clear: Link
    is_filtered: bool
    choices: tuple[Choice, ...]


def page(data: Data, parameters: ResultsParameters) -> ResultsPage:
    """The page."""
    values = _filter_values(parameters)
    view = "all_results" if parameters.all else "latest_results"
    (counted,) = data.warehouse.query(COUNT.format(view=view, filters=FILTERS), values).dicts()
    count = int(counted["results"])
    skipped = (parameters.page - 1) * PAGE_ROWS
    columns = ", ".join((*SUBJECT, *POINT_COLUMNS, *COLUMNS))
    sql = SHOWN.format(columns=columns, view=view, filters=FILTERS, order=SORTS[parameters.sort])
    rows = data.warehouse.query(sql, {**values, "most": PAGE_ROWS, "skipped": skipped}).dicts()
    filters = _filters(data, parameters)
    return ResultsPage(
        filters=filters,
        count=count,
        first=skipped + 1 if rows else 0,
        last=skipped + len(rows),
        grid=_grid(rows, parameters, own_metrics(data)),
        previous=_page_link(parameters, parameters.page - 1) if parameters.page > 1 else None,
        following=_page_link(parameters, parameters.page + 1) if skipped + len(rows) < count else None,
        csv_file=Link(view="results_csv", parameters=replace(parameters, page=1, sort="newest")),
        all=parameters.all,
        hardware=parameters.hardware,
        clear=Link(view="results", parameters=ResultsParameters(all=parameters.all, sort=parameters.sort)),
        is_filtered=any(value is not None for value in values.values()),
        choices=_choices(filters, parameters),
    )


def _filter_values(parameters: ResultsParameters) -> dict[str, Any]:
    """Values of the filters, for the query."""
    return {name: value for name, value in asdict(parameters).items() if name not in ("all", "sort", "page")}


def _page_link(parameters: ResultsParameters, number: int) -> Link:
    return Link(view="results", parameters=replace(parameters, page=number))


def _filters(data: Data, parameters: ResultsParameters) -> tuple[Filter, ...]:
    cells, found_sizes, found_kinds = (data.once(sql, partial(_all_rows, data, sql)) for sql in (CELLS, SIZES, KINDS))
    (sizes,) = found_sizes
    titles = {"family": "Family", "model": "Model", "runtime": "Runtime", "device": "Device", "precision": "Precision"}
    found = {name: sorted({row[name] for row in cells if row[name] is not None}) for name in titles}
    kinds = [row["kind"] for row in found_kinds]
    sizes = {name: [str(value) for value in sizes[name] or ()] for name in ("batch", "sequence")}
    lists: dict[str, tuple[str, Sequence[str]]] = {
        **{name: (title, found[name]) for name, title in titles.items()},
        "batch": ("Batch", sizes["batch"]),
        "sequence": ("Sequence", sizes["sequence"]),
        "state": ("State", STATES),
        "doubt": ("Doubt", kinds),
    }
    return tuple(_filter(name, *one, getattr(parameters, name)) for name, one in lists.items())


def _all_rows(data: Data, sql: str) -> list[dict[str, Any]]:
    return data.warehouse.query(sql).dicts()


def _filter(name: str, title: str, options: Sequence[str], value: object) -> Filter:
    chosen = None if value is None else str(value)
    extra = () if chosen is None or chosen in options else (chosen,)  # keep the value of the URL
    return Filter(name=name, title=title, options=(*extra, *options), chosen=chosen)


def _choices(filters: Sequence[Filter], parameters: ResultsParameters) -> tuple[Choice, ...]:
    """Links that change one filter."""
    runs = (("newest of each series", ResultsParameters()), ("every run", ResultsParameters(all=True)))
    return (
        Choice(title="Results", options=tuple((text, _link(one), one == parameters) for text, one in runs)),
        *(
            Choice(
                title=one.title,
                options=tuple(
                    (option, _link(CHOSEN_BY[one.name](option)), option == one.chosen) for option in one.options
                ),
            )
            for one in filters
            if one.name in CHOSEN_BY
        ),
    )


def _link(parameters: ResultsParameters) -> Link:
    return Link(view="results", parameters=parameters)


HEAD: Mapping[str, Sort | None] = {
    "model": "model",
    "device": None,
    "runtime": None,
    "precision": None,
    "point": None,
}
SORTED_BY: Mapping[str, Sort] = {"median ms": "fastest", "items/s": "throughput", "started (UTC)": "newest"}


def _grid(rows: Sequence[Row], parameters: ResultsParameters, own: Mapping[str, Metric]) -> Grid:
    headings, cells = result_table(rows, own)
    first = tuple(Heading(text=name) for name in HEAD)
    last = (Heading(text="started (UTC)"),)
    return Grid(
        headings=tuple(_sortable(heading, parameters) for heading in (*first, *headings, *last)),
        rows=tuple(
            (*_subject(row), *line, text_cell(time_text(row["started_at"])))
            for row, line in zip(rows, cells, strict=True)
        ),
        caption="Results",
    )


def _sortable(heading: Heading, parameters: ResultsParameters) -> Heading:
    sort = SORTED_BY.get(heading.text) or HEAD.get(heading.text)
    if sort is None:
        return heading
    is_descending = sort in ("newest", "throughput")
    current = parameters.sort
    if sort == "fastest" and current == "slowest":
        return replace(heading, link=_sorted(parameters, "fastest"), sorted="descending")
    if current != sort:
        return replace(heading, link=_sorted(parameters, sort))
    other: Sort = "slowest" if sort == "fastest" else sort
    return replace(heading, link=_sorted(parameters, other), sorted="descending" if is_descending else "ascending")


def _sorted(parameters: ResultsParameters, sort: Sort) -> Link:
    return Link(view="results", parameters=replace(parameters, sort=sort, page=1))


def _subject(row: Row) -> tuple[Cell, ...]:
    link = Link(view="run", parameters=RunParameters(run_id=row["run_id"], result=row["result_id"]))
    model = text_cell(row["model_id"], link=link, hint=row["architecture_type"])
    return (
        model,
        text_cell(row["device"], hint=row["device_name"]),
        text_cell(row["runtime"] + (" (simulated)" if row["simulated"] else "")),
        text_cell(row["precision"]),
        text_cell(point_text(row)),
    )


def csv_file(data: Data, parameters: ResultsParameters) -> File:
    """The filtered results with every column."""
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
    return parameters if is_one and parameters.sort == "newest" and parameters.page <= MOST_FILES else None


IDS = "SELECT result_id FROM {view} WHERE {filters}"
VIEWS = (
    View(
        name="results",
        path="/results",
        title="Results",
        parameters=ResultsParameters,
        page=page,
        in_files=_in_files,
    ),
)
DOWNLOADS = (Download(name="results_csv", path="/results.csv", parameters=ResultsParameters, file=csv_file),)

"""The newest load tests, and one load test in detail: its levels, requests and doubts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarking.core.highest_rate import HIGHEST_RATE
from benchmarking.core.records import LOOP, SCENARIO, SERVER
from benchmarking.core.text import number, visible
from visualize.drawing import loads, words
from visualize.drawing.configurations import CONFIGURATION
from visualize.drawing.figure import Figure
from visualize.drawing.rows import Row, Selection, charts, grouped, is_ok, trust
from visualize.pages import vega
from visualize.pages.elements import Cell, Chart, Grid, Link, headings, number_cell, state_cell, text_cell, time_text
from visualize.pages.result_rows import OTHERS, DoubtNote, noted_doubts
from visualize.pages.site import NotFoundError, View
from visualize.pages.views.run_page import UNKNOWN, RunParameters, find_run

if TYPE_CHECKING:
    from visualize.pages.snapshot import Data

MOST = 200
NEWEST = """
WITH newest AS (
    SELECT * FROM benchmark_runs WHERE (runtime_mode->>'loop') IS NOT NULL ORDER BY started_at DESC, run_id DESC
    LIMIT $most
), levels AS (
    SELECT
        run_id,
        count(*) FILTER (WHERE status = 'ok') AS measured,
        count(*) AS levels,
        max(throughput_samples_per_sec) AS most_requests,
        max(throughput_tokens_per_sec) AS most_tokens,
        max(other_metrics['goodput_requests_per_sec']) AS most_goodput,
        max_by({'axes': axes, 'concurrency': concurrency, 'validity': validity}, result_id)
            FILTER (WHERE CAST(extra->>'$.load.is_knee' AS BOOLEAN)) AS knee,
        count(*) FILTER (WHERE validity = 'invalid') AS invalid,
        count(*) FILTER (WHERE validity NOT IN ('valid', 'invalid')) AS doubtful
    FROM benchmark_results
    WHERE run_id IN (SELECT run_id FROM newest) AND (extra->'$.load.searched_per_s') IS NULL GROUP BY run_id
)
SELECT newest.*, levels.* EXCLUDE (run_id), hardware.device_name
FROM newest LEFT JOIN levels USING (run_id) JOIN hardware_info hardware USING (hardware_id)
ORDER BY started_at DESC, newest.run_id DESC
"""
"""Excludes results of searches for a rate, which are not levels."""
LEVELS = """
SELECT * FROM all_results
WHERE run_id = $run OR (
    $is_import AND run_id IN (
        SELECT run_id FROM load_curve
        WHERE model_id = $model AND curve_id IN (SELECT curve_id FROM load_curve WHERE run_id = $run)
    )
)
QUALIFY row_number() OVER (PARTITION BY series_id ORDER BY run_id <> $run, started_at DESC, result_id DESC) = 1
ORDER BY sequence_length, new_tokens, concurrency, result_id
"""
"""Other tools write a file for each level: the levels of a curve are those of all its imported files."""
GOODPUT = "goodput_requests_per_sec"
ALIKE = """
SELECT run_id, min(started_at) AS started_at FROM load_curve
WHERE model_id = $model AND run_id <> $run AND curve_id IN (SELECT curve_id FROM load_curve WHERE run_id = $run)
GROUP BY run_id ORDER BY started_at DESC, run_id LIMIT $most
"""
MOST_ALIKE = 6
NUMBERS: Mapping[str, str] = {
    "requests": "requests_sent",
    "failed": "requests_failed",
    "requests/s": "throughput_samples_per_sec",
    "goodput/s": GOODPUT,
    "tokens/s": "throughput_tokens_per_sec",
    "TTFT p50 ms": "time_to_first_token_ms",
    "TTFT p99 ms": "time_to_first_token_p99_ms",
    "TPOT p50 ms": "time_per_output_token_ms",
    "TPOT p99 ms": "time_per_output_token_p99_ms",
    "latency p50 ms": "latency_median_ms",
    "latency p99 ms": "latency_p99_ms",
    "service time p50 ms": "service_time_p50_ms",
    "service time p99 ms": "service_time_p99_ms",
}
"""Heading -> column, or key of other_metrics."""
COUNTS = ("requests", "failed")
"""Headings of counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadsParameters:
    """No parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadsPage:
    """The content of the page, for its template."""

    loads: Grid
    most: int = MOST


def loads_page(data: Data, parameters: LoadsParameters) -> LoadsPage:
    """The page."""
    return LoadsPage(loads=newest_loads(data, MOST))


def newest_loads(data: Data, most: int) -> Grid:
    """One row for each of the newest load tests, linked to its page."""
    numbers = ("levels", "requests/s", "tokens/s", "goodput/s")
    names = ("started (UTC)", "model", "server", "engine", "loop", "lengths", *numbers, "knee", "state")
    rows = data.warehouse.query(NEWEST, {"most": most}).dicts()
    return Grid(headings=headings(names, numbers), rows=tuple(map(_cells, rows)), caption="Newest load tests")


def _cells(row: dict[str, Any]) -> tuple[Cell, ...]:
    mode = json.loads(row["runtime_mode"])
    lengths = [str(mode[name]) for name in ("lengths_in", "lengths_out") if name in mode]
    return (
        text_cell(time_text(row["started_at"])),
        text_cell(row["model_id"], link=Link(view="load", parameters=LoadParameters(run_id=row["run_id"]))),
        text_cell(_server(row, row["device_name"] or row["device"])),
        text_cell(words.engine(row)),
        text_cell(kind_of(mode)),
        text_cell("/".join(lengths) or mode.get("traffic_file"), hint="of prompts / of replies, as requested"),
        text_cell(f"{row['measured']}/{row['levels']}" if row["levels"] else None, hint="measured / planned"),
        number_cell(row["most_requests"]),
        number_cell(row["most_tokens"]),
        number_cell(row["most_goodput"], hint="requests per second within every limit"),
        text_cell(_knee(row)),
        _state(row),
    )


def _server(row: Mapping[str, Any], device: str) -> str:
    """The server's device, or else the host that an imported load was sent to."""
    is_host_alone = row["device_name"] is None and row["device"] == "unknown" and row["host"] != "unknown"
    return str(row["host"]) if is_host_alone else device


def _knee(row: dict[str, Any]) -> str | None:
    if row["knee"] is None:
        return None
    mode, axes = json.loads(row["runtime_mode"]), json.loads(row["knee"]["axes"])
    return loads.level_words({**row["knee"], "loop": mode["loop"], "offered_rate": axes.get("request_rate")})


def _state(row: dict[str, Any]) -> Cell:
    if row["status"] != "ok":
        return state_cell(row["status"])
    if not row["levels"]:
        return text_cell("no levels", tone="muted")
    found = {"invalid": row["invalid"], "doubtful": row["doubtful"]}
    states = ", ".join(f"{count} {word}" for word, count in found.items() if count)
    return text_cell(states or "valid", tone="bad" if found["invalid"] else "warn" if states else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadParameters:
    """The load test, and the level whose requests are drawn."""

    run_id: str
    """Run id, or a prefix of at least 8 characters."""
    result: str | None = None
    """Id of the level; None for the knee, else the first measured level."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadPage:
    """The content of the page, for its template."""

    title: str
    run_id: str
    run: Link
    is_simulated: bool
    error: str | None
    facts: tuple[tuple[str, str], ...]
    levels: Grid
    failures: tuple[tuple[str, str], ...]
    """(level, error) of levels that were not measured."""
    doubts: tuple[DoubtNote, ...]
    charts: tuple[Chart, ...]
    overlaid: tuple[Chart, ...]
    """All servers, engines and precisions that were tested with this model."""
    is_import: bool
    drawn: str | None
    """The level whose requests are drawn."""
    requests: tuple[Chart, ...]
    alike: tuple[tuple[str, Link], ...]
    """(time, page) of other load tests of the same server and kind."""
    command: str


def load_page(data: Data, parameters: LoadParameters) -> LoadPage:
    """The page. Raises NotFoundError."""
    run = find_run(data, parameters.run_id)
    mode = json.loads(run["runtime_mode"])
    if LOOP not in mode:
        raise NotFoundError(f"run {run['run_id']} is not a load test: see /runs/{run['run_id']}")
    is_import = run["origin_format"] is not None
    values = {"run": run["run_id"], "model": run["model_id"], "is_import": is_import}
    found = [loads.as_level(row) for row in data.warehouse.query(LEVELS, values).dicts()]
    rows = [{**row, "state": "simulated" if row["simulated"] else trust(row)} for row in found]
    levels = sorted((row for row in rows if not loads.is_search(row)), key=loads.level)
    drawn = _drawn(levels, parameters)
    requests = () if drawn is None else _figures(data, "request_timeline", Selection(results=(drawn["result_id"],)))
    device = run["device_name"] or run["device"]
    setup = [run["runtime"]] if run["runtime"] not in (SERVER, UNKNOWN) else []
    setup += [f"on {device}"] if device != UNKNOWN else []
    title = ", ".join([f"Load on {run['model_id']}", *filter(None, [" ".join(setup)])])
    is_from_sending = any(is_ok(row) and row["latency_median_ms"] is None for row in levels)
    shown = [
        name
        for name, column in NUMBERS.items()
        if any(_value(row, column) is not None for row in levels)
        and (is_from_sending or not column.startswith("service_time"))
    ]
    grid = Grid(
        headings=headings(("level", "state", *shown), shown),
        rows=tuple(
            (
                _level_cell(row, run["run_id"], drawn),
                state_cell(row["state"] if is_ok(row) else row["status"]),
                *(_number(name, _value(row, NUMBERS[name])) for name in shown),
            )
            for row in levels
        ),
        caption="Levels of the load",
    )
    others = data.warehouse.query(ALIKE, {"run": run["run_id"], "model": run["model_id"], "most": MOST_ALIKE}).dicts()
    alike = tuple(
        (f"{time_text(row['started_at'])} UTC", Link(view="load", parameters=LoadParameters(run_id=row["run_id"])))
        for row in others
    )
    return LoadPage(
        title=title,
        run_id=run["run_id"],
        run=Link(view="run", parameters=RunParameters(run_id=run["run_id"])),
        is_simulated=bool(run["is_simulated"]),
        error=run["error"],
        facts=_facts(run, mode, rows),
        levels=grid,
        failures=tuple((_level(row), str(row["error"])) for row in levels if not is_ok(row) and row["error"]),
        doubts=noted_doubts(rows, _level, is_import=run["origin_format"] is not None),
        charts=_charts(data, levels),
        overlaid=_overlaid(data, run, mode),
        is_import=is_import,
        drawn=_level(drawn) if drawn is not None and requests else None,
        requests=requests,
        alike=alike,
        command=run["command"],
    )


def kind_of(mode: Mapping[str, Any]) -> str:
    """The kind of load: "open, poisson", or an MLPerf scenario."""
    if SCENARIO in mode:
        return f"MLPerf {mode[SCENARIO]}"
    return ", ".join(filter(None, (mode[LOOP], mode.get("arrivals"))))


def _level(row: Row) -> str:
    """The name of the level, or of the search that the result belongs to."""
    return "the search for the highest rate" if loads.is_search(row) else loads.level_words(row)


def _drawn(levels: Sequence[Row], parameters: LoadParameters) -> Row | None:
    if parameters.result is not None:
        found = next((row for row in levels if row["result_id"] == parameters.result), None)
        if found is None:
            raise NotFoundError(f"no level {parameters.result!r} in this load")
        return found
    measured = [row for row in levels if is_ok(row)]
    return next((row for row in measured if row["is_knee"]), measured[0] if measured else None)


def _figures(data: Data, name: str, selection: Selection) -> tuple[Chart, ...]:
    chart = charts()[name]
    return vega.charts(chart.draw(chart.rows(data.warehouse, selection)))


def _charts(data: Data, levels: Sequence[Row]) -> tuple[Chart, ...]:
    """Latency, throughput and interactivity over the levels."""
    selection = Selection(results=tuple(row["result_id"] for row in levels if is_ok(row)))
    return tuple(one for name in ("load_latency", "load_frontier") for one in _figures(data, name, selection))


def _overlaid(data: Data, run: Row, mode: Mapping[str, Any]) -> tuple[Chart, ...]:
    """The newest levels of every server of the model in one chart; empty if there is only this one."""
    chart = charts()["load_latency"]
    rows = chart.rows(data.warehouse, Selection(model_id=run["model_id"]))
    alike = [row for row in rows if row["loop"] == mode[LOOP]]
    if len(grouped(alike, CONFIGURATION)) < 2:
        return ()
    return tuple(vega.chart(one) for one in chart.draw(alike) if isinstance(one, Figure) and len(one.legend) > 1)


def _facts(run: Row, mode: Mapping[str, Any], rows: Sequence[Row]) -> tuple[tuple[str, str], ...]:
    others = {name: value for name, value in sorted(mode.items()) if name not in (LOOP, SCENARIO, "arrivals", "slo")}
    points = dict.fromkeys(
        ", ".join(words.axis(name, row[name]) for name in ("sequence_length", "new_tokens") if row[name] is not None)
        for row in rows
    )
    highest = [row[OTHERS][HIGHEST_RATE] for row in rows if HIGHEST_RATE in row[OTHERS]]
    # The highest rate of requests that met every limit, with its level; None without limits.
    stated = [row for row in rows if row[OTHERS].get(GOODPUT) is not None and row["state"] != "invalid"]
    best = max(stated, key=lambda row: float(row[OTHERS][GOODPUT]), default=None)
    most_goodput = None if best is None else f"{number(best[OTHERS][GOODPUT])} requests/s, at {_level(best)}"
    given = {
        "server": _server(run, words.device({**run, "simulated": run["is_simulated"]})),
        "engine": words.engine(run),
        "precision": run["precision"],
        "load": ", ".join(
            [loads.LOOPS.get(mode[LOOP], mode[LOOP]), *([mode["arrivals"]] if "arrivals" in mode else [])]
        ),
        "requests": "; ".join(filter(None, points)),
        "limits": (mode.get("slo") or ("none" if run["origin_format"] is None else "")).replace(",", ", "),
        "highest rate within the limits": f"{number(highest[0])} requests/s" if highest else None,
        "most requests within the limits": most_goodput,
        "settings": ", ".join(f"{name}={value}" for name, value in others.items()),
        "started": f"{time_text(run['started_at'])} UTC",
        "program": f"benchhouse {run['tool_version']}" if run["origin_format"] is None else run["origin_format"],
    }
    return tuple((name, visible(str(value))) for name, value in given.items() if value not in (None, ""))


def _value(row: Row, column: str) -> float | None:
    value: float | None = row[column] if column in row else row[OTHERS].get(column)
    return value


def _number(name: str, value: float | None) -> Cell:
    return text_cell(f"{value:,.0f}") if name in COUNTS and value is not None else number_cell(value)


def _level_cell(row: Row, run_id: str, drawn: Row | None) -> Cell:
    text = _level(row) + (" (knee)" if row["is_knee"] else "")
    if not is_ok(row):
        return text_cell(text)
    is_drawn = drawn is not None and drawn["result_id"] == row["result_id"]
    link = Link(view="load", parameters=LoadParameters(run_id=run_id, result=row["result_id"]))
    return text_cell(text, link=link, hint="its requests are drawn below" if is_drawn else "draw its requests")


VIEWS = (
    View(
        name="loads",
        path="/loads",
        question="How many requests per second?",
        title="Loads",
        parameters=LoadsParameters,
        page=loads_page,
        in_files=lambda parameters: parameters,
    ),
    View(
        name="load",
        path="/loads/{run_id}",
        title="Load",
        parameters=LoadParameters,
        page=load_page,
        is_in_navigation=False,
        has_charts=True,
        in_files=lambda parameters: LoadParameters(run_id=parameters.run_id),
    ),
)

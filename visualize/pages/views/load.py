"""One load on a server: what came through at each level and how long it took, its requests, its doubts."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from benchmarking.core.records import LOOP, SCENARIO
from benchmarking.core.text import number, visible
from visualize.drawing import loads, words
from visualize.drawing.rows import Row, is_ok
from visualize.pages.elements import Cell, Chart, Grid, Link, headings, number_cell, state_cell, text_cell, time_text
from visualize.pages.load_pictures import GOODPUT, level_charts, request_charts, state
from visualize.pages.result_rows import OTHERS
from visualize.pages.site import NotFoundError, View
from visualize.pages.views.run import DoubtNote, RunParameters, find_run, noted_doubts

if TYPE_CHECKING:
    from visualize.pages.snapshot import Data

LEVELS = "SELECT * FROM all_results WHERE run_id = $run ORDER BY sequence_length, new_tokens, concurrency, result_id"
ALIKE = """
SELECT run_id, min(started_at) AS started_at FROM load_curve
WHERE model_id = $model AND run_id <> $run AND curve_id IN (SELECT curve_id FROM load_curve WHERE run_id = $run)
GROUP BY run_id ORDER BY started_at DESC, run_id LIMIT $most
"""
MOST_ALIKE = 6
FEWEST_LEVELS = 2
"""Minimum number of levels of a curve."""
SEARCHED = "highest_request_rate_per_sec"
"""The metric of a search for the highest rate."""
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
}
"""Heading -> column, or entry of the numbers without a column."""
FEW = ("requests", "failed")
"""The counts among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadParameters:
    """The load, and the level whose requests are drawn."""

    run_id: str
    """Run id, or a prefix of at least 8 characters."""
    result: str | None = None
    """Its id; None for the knee, else the first level with requests."""


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
    """Level and error of each that was not measured."""
    doubts: tuple[DoubtNote, ...]
    charts: tuple[Chart, ...]
    drawn: str | None
    """The level whose requests are drawn."""
    requests: tuple[Chart, ...]
    alike: tuple[tuple[str, Link], ...]
    """Other loads of the same server and kind: when, and the page."""
    command: str


def page(data: Data, parameters: LoadParameters) -> LoadPage:
    """The page. Raises NotFoundError."""
    run = find_run(data, parameters.run_id)
    mode = json.loads(run["runtime_mode"])
    if LOOP not in mode:
        raise NotFoundError(f"run {run['run_id']} is not a load test: its page is /runs/{run['run_id']}")
    found = [loads.as_level(row) for row in data.warehouse.query(LEVELS, {"run": run["run_id"]}).dicts()]
    rows = [{**row, "setup": words.cell(row), "state": state(row)} for row in found]
    levels = sorted(filter(loads.has_level, rows), key=loads.level)
    drawn = _drawn(levels, parameters)
    requests = () if drawn is None else request_charts(data, drawn)
    return LoadPage(
        title=f"Load on {run['model_id']}, {run['runtime']} on {run['device_name'] or run['device']}",
        run_id=run["run_id"],
        run=Link(view="run", parameters=RunParameters(run_id=run["run_id"])),
        is_simulated=bool(run["is_simulated"]),
        error=run["error"],
        facts=_facts(run, mode, rows),
        levels=_levels(levels, run["run_id"], drawn),
        failures=tuple((_level(row), str(row["error"])) for row in levels if not is_ok(row) and row["error"]),
        doubts=noted_doubts(rows, _level),
        charts=_charts(levels),
        drawn=_level(drawn) if drawn is not None and requests else None,
        requests=requests,
        alike=_alike(data, run),
        command=run["command"],
    )


def kind_of(mode: Mapping[str, Any]) -> str:
    """The kind of load in words: "open, poisson", or the scenario of MLPerf."""
    if SCENARIO in mode:
        return f"MLPerf {mode[SCENARIO]}"
    return ", ".join(filter(None, (mode[LOOP], mode.get("arrivals"))))


def _level(row: Row) -> str:
    """The level in words, or that the result belongs to a search."""
    return loads.level_words(row) if loads.has_level(row) else "the search for the highest rate"


def _drawn(levels: Sequence[Row], parameters: LoadParameters) -> Row | None:
    if parameters.result is not None:
        found = next((row for row in levels if row["result_id"] == parameters.result), None)
        if found is None:
            raise NotFoundError(f"no level {parameters.result!r} in this load")
        return found
    measured = [row for row in levels if is_ok(row)]
    return next((row for row in measured if row["is_knee"]), measured[0] if measured else None)


def _charts(levels: Sequence[Row]) -> tuple[Chart, ...]:
    kinds = loads.by_kind(list(filter(is_ok, levels)))
    return tuple(
        chart
        for key, members in kinds
        if len(members) >= FEWEST_LEVELS
        for chart in level_charts(key, members, with_kind=len(kinds) > 1)
    )


def _facts(run: Row, mode: Mapping[str, Any], rows: Sequence[Row]) -> tuple[tuple[str, str], ...]:
    others = {name: value for name, value in sorted(mode.items()) if name not in (LOOP, SCENARIO, "arrivals", "slo")}
    points = dict.fromkeys(
        ", ".join(words.axis(name, row[name]) for name in ("sequence_length", "new_tokens") if row[name] is not None)
        for row in rows
    )
    highest = [row[OTHERS][SEARCHED] for row in rows if SEARCHED in row[OTHERS]]
    given = {
        "server": words.device({**run, "simulated": run["is_simulated"]}),
        "engine": run["runtime"],
        "precision": run["precision"],
        "load": ", ".join(
            [loads.LOOPS.get(mode[LOOP], mode[LOOP]), *([mode["arrivals"]] if "arrivals" in mode else [])]
        ),
        "requests": "; ".join(filter(None, points)),
        "limits": (mode.get("slo") or "none").replace(",", ", "),
        "highest rate within the limits": f"{number(highest[0])} requests/s" if highest else None,
        "settings": ", ".join(f"{name}={value}" for name, value in others.items()),
        "started": f"{time_text(run['started_at'])} UTC",
        "program": f"benchhouse {run['tool_version']}" if run["origin_format"] is None else run["origin_format"],
    }
    return tuple((name, visible(str(value))) for name, value in given.items() if value not in (None, ""))


def _levels(levels: Sequence[Row], run_id: str, drawn: Row | None) -> Grid:
    shown = [name for name, column in NUMBERS.items() if any(_value(row, column) is not None for row in levels)]
    return Grid(
        headings=headings(("level", "state", *shown), shown),
        rows=tuple(
            (
                _level_cell(row, run_id, drawn),
                state_cell(row["state"] if is_ok(row) else row["status"]),
                *(_number(name, _value(row, NUMBERS[name])) for name in shown),
            )
            for row in levels
        ),
        caption="Levels of the load",
    )


def _value(row: Row, column: str) -> float | None:
    value: float | None = row[column] if column in row else row[OTHERS].get(column)
    return value


def _number(name: str, value: float | None) -> Cell:
    return text_cell(f"{value:,.0f}") if name in FEW and value is not None else number_cell(value)


def _level_cell(row: Row, run_id: str, drawn: Row | None) -> Cell:
    text = _level(row) + (" (knee)" if row["is_knee"] else "")
    if not is_ok(row):
        return text_cell(text)
    is_drawn = drawn is not None and drawn["result_id"] == row["result_id"]
    link = Link(view="load", parameters=LoadParameters(run_id=run_id, result=row["result_id"]))
    return text_cell(text, link=link, hint="its requests are drawn below" if is_drawn else "draw its requests")


def _alike(data: Data, run: Row) -> tuple[tuple[str, Link], ...]:
    rows = data.warehouse.query(ALIKE, {"run": run["run_id"], "model": run["model_id"], "most": MOST_ALIKE}).dicts()
    return tuple(
        (f"{time_text(row['started_at'])} UTC", Link(view="load", parameters=LoadParameters(run_id=row["run_id"])))
        for row in rows
    )


VIEW = View(
    name="load",
    path="/loads/{run_id}",
    title="Load",
    parameters=LoadParameters,
    page=page,
    is_in_navigation=False,
    has_charts=True,
    in_files=lambda parameters: LoadParameters(run_id=parameters.run_id),
)

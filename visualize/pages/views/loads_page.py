"""The newest load tests, and one load test in detail: its levels, requests and doubts."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.load_doubts import SLO_SHARE, HighestRate, invalid_levels_words
from benchmarking.core.records import LOOP, SCENARIO, SERVER
from benchmarking.core.text import visible
from visualize.drawing import loads, words
from visualize.drawing.configurations import CONFIGURATION
from visualize.drawing.figure import Figure
from visualize.drawing.rows import Row, Selection, charts, grouped, is_ok, limits_words, setting_words, trust
from visualize.pages import vega
from visualize.pages.elements import (
    Cell,
    Chart,
    Grid,
    Link,
    filled,
    grid,
    number_cell,
    number_text,
    started_text,
    state_cell,
    text_cell,
)
from visualize.pages.result_rows import GOODPUT, OTHERS, noted_doubts
from visualize.pages.site import NoParameters, NotFoundError, View
from visualize.pages.views.run_page import find_run, known_facts, run_link, run_started_text

if TYPE_CHECKING:
    from visualize.pages.snapshot import Data

MOST = 200
IMPORTED = """
WITH imported AS (
    SELECT run_id, CASE WHEN is_unlimited AND first_curve = last_curve THEN first_curve ELSE curve_id END AS test
    FROM (
        SELECT *, min(curve_id) FILTER (WHERE NOT is_unlimited) OVER (PARTITION BY alike) AS first_curve,
            max(curve_id) FILTER (WHERE NOT is_unlimited) OVER (PARTITION BY alike) AS last_curve
        FROM (
            SELECT run_id, min(curve_id) AS curve_id, bool_and(loop = 'open' AND request_rate IS NULL) AS is_unlimited,
                any_value(json_array(hardware_id, model_id, runtime, precision, sequence_length, new_tokens,
                    json_merge_patch(runtime_mode, '{"arrivals": null}'),
                    json_merge_patch(axes, '{"request_rate": null}'))::VARCHAR) AS alike
            FROM load_curve JOIN (SELECT result_id, axes FROM benchmark_results) USING (result_id)
            WHERE run_id IN (SELECT run_id FROM benchmark_runs WHERE origin_format IS NOT NULL)
            GROUP BY run_id
        )
    )
)
"""
"""Other tools write a file for each level: the files of a curve are one test. A level at which all requests are sent at
once states no arrivals; it belongs to the curve of its server, if that has one."""
NEWEST = f"""{IMPORTED}, tests AS (
    SELECT run_id, started_at, coalesce(test, run_id) AS test
    FROM benchmark_runs LEFT JOIN imported USING (run_id) WHERE (runtime_mode->>'loop') IS NOT NULL
), newest AS (
    SELECT test, arg_max(run_id, (started_at, run_id)) AS run_id FROM tests
    GROUP BY test ORDER BY max(started_at) DESC, test LIMIT $most
), levels AS (
    SELECT
        test,
        count(*) FILTER (WHERE NOT is_search AND status = 'ok') AS measured,
        count(*) FILTER (WHERE NOT is_search) AS levels,
        max_by({{'metrics': other_metrics, 'extra': extra, 'error': error}}, (started_at, result_id))
            FILTER (WHERE is_search) AS search,
        max(throughput_samples_per_sec) FILTER (WHERE is_sound) AS most_requests,
        max(throughput_tokens_per_sec) FILTER (WHERE is_sound) AS most_tokens,
        max(other_metrics['goodput_requests_per_sec']) FILTER (WHERE is_sound) AS most_goodput,
        max_by({{'axes': axes, 'concurrency': concurrency, 'validity': validity}}, result_id)
            FILTER (WHERE is_sound AND TRY_CAST(extra->>'$.load.is_knee' AS BOOLEAN)) AS knee,
        count(*) FILTER (WHERE NOT is_search AND validity = 'invalid') AS invalid,
        count(*) FILTER (WHERE NOT is_search AND validity NOT IN ('valid', 'invalid')) AS doubtful,
        list_distinct(flatten(list(doubts) FILTER (WHERE NOT is_search))) AS doubts,
        max(extra->>'$.load.url') AS url
    FROM (
        SELECT r.*, tests.test, tests.started_at, (extra->'$.load.searched_per_s') IS NOT NULL AS is_search,
            NOT is_search AND validity IS DISTINCT FROM 'invalid' AS is_sound
        FROM benchmark_results r JOIN tests USING (run_id)
        WHERE test IN (SELECT test FROM newest)
        QUALIFY row_number() OVER (
            PARTITION BY test, series_id ORDER BY tests.started_at DESC, run_id DESC, result_id DESC
        ) = 1
    )
    GROUP BY test
)
SELECT run.*, levels.* EXCLUDE (test), hardware.device_name
FROM newest JOIN benchmark_runs run USING (run_id) LEFT JOIN levels USING (test)
JOIN hardware_info hardware USING (hardware_id)
ORDER BY started_at DESC, run.run_id DESC
"""  # noqa: S608 - a constant of ours
"""One row per load test. The result of a search for a rate is not a level."""
ANY_LOAD = "SELECT 1 FROM benchmark_runs WHERE (runtime_mode->>'loop') IS NOT NULL LIMIT 1"
"""Asked first, since `NEWEST` reads a JSON column of every result."""
LEVELS = f"""{IMPORTED}
SELECT * FROM all_results
WHERE run_id = $run
    OR run_id IN (SELECT run_id FROM imported WHERE test = (SELECT test FROM imported WHERE run_id = $run))
QUALIFY row_number() OVER (PARTITION BY series_id ORDER BY run_id <> $run, started_at DESC, result_id DESC) = 1
ORDER BY sequence_length, new_tokens, concurrency, result_id
"""  # noqa: S608 - a constant of ours
ALIKE = """
SELECT run_id, min(started_at) AS started_at, list_distinct(flatten(list(doubts))) AS doubts FROM load_curve
WHERE model_id = $model AND run_id <> $run AND curve_id IN (SELECT curve_id FROM load_curve WHERE run_id = $run)
GROUP BY run_id ORDER BY started_at DESC, run_id LIMIT $most
"""
MOST_ALIKE = 6
WITH_REQUESTS = "SELECT DISTINCT result_id FROM requests WHERE list_contains($results, result_id) AND phase = 'measure'"
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
COUNTS = ("requests_sent", "requests_failed")


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadParameters:
    """The load test, and the level whose requests are drawn."""

    run_id: str
    """Run id, or a prefix of at least 8 characters."""
    result: str | None = None
    """Id of the level; None for the knee, else the first measured level."""


def loads_page(data: Data, parameters: NoParameters) -> SimpleNamespace:
    """The page."""
    return SimpleNamespace(loads=newest_loads(data, MOST), most=MOST)


def newest_loads(data: Data, most: int) -> Grid:
    """One row for each of the newest load tests, linked to its page; without columns in which no test has a value."""
    numbers = ("levels", "within limits/s", "requests/s", "tokens/s", "goodput/s")
    has_loads = data.warehouse.query(ANY_LOAD).dicts()
    rows = data.warehouse.query(NEWEST, {"most": most}).dicts() if has_loads else []
    return grid(filled(COLUMNS, rows), rows, "Newest load tests", numbers)


def _server(row: Mapping[str, Any], device: str) -> str:
    """The server's device, or else its address, or the host that an imported load was sent to."""
    if row["device_name"] is not None or row["device"] not in (words.UNKNOWN, SERVER):
        return device
    if row.get("url"):
        return str(row["url"])
    is_stated = row["device"] != SERVER and row["host"] != words.UNKNOWN
    return str(row["host"] or "left out") if is_stated else words.NOT_STATED


def _lengths(row: Mapping[str, Any]) -> Cell:
    mode = json.loads(row["runtime_mode"])
    stated = "/".join(str(mode[name]) for name in ("lengths_in", "lengths_out") if name in mode)
    return text_cell(stated or mode.get("traffic_file"), hint="of prompts / of replies, as requested")


def _searched(row: Mapping[str, Any]) -> Cell:
    """The answer of a search for the highest rate."""
    if (search := row["search"]) is None:
        return text_cell(None)
    found = HighestRate.of(dict(search["metrics"]), loads.facts_of(search))
    if found is None:
        return text_cell("not found", hint=search["error"])
    words = invalid_levels_words(row["invalid"], row["levels"], [loads.facts_of(search)])
    but = f"; but {words.partition(':')[0]}" if row["invalid"] else ""
    text = f"{'at least ' if found.high is None else ''}{number_text(found.rate)}"
    return text_cell(text, hint=found.text + but, tone="warn" if but else "")


def _knee(row: Mapping[str, Any]) -> Cell:
    if row["knee"] is None:
        return text_cell(None)
    mode, axes = json.loads(row["runtime_mode"]), json.loads(row["knee"]["axes"])
    at = {"loop": mode[LOOP], "offered_rate": axes.get(loads.RATE), "runtime_mode": row["runtime_mode"]}
    return text_cell(loads.level_words({**row["knee"], **at}))


def _state(row: Mapping[str, Any]) -> Cell:
    if row["status"] != "ok":
        return state_cell(row["status"])
    if not row["levels"]:
        return text_cell("no levels", tone="muted")
    states = ", ".join(f"{row[word]} {word}" for word in ("invalid", "doubtful") if row[word])
    return text_cell(states or "valid", tone="bad" if row["invalid"] else "warn" if states else "")


COLUMNS: Mapping[str, Callable[[Any], Cell]] = {
    "started (UTC)": lambda row: text_cell(started_text(row["started_at"], row["doubts"] or ())),
    "model": lambda row: text_cell(
        row["model_id"], link=Link(view="load", parameters=LoadParameters(run_id=row["run_id"]))
    ),
    "server": lambda row: text_cell(_server(row, row["device_name"] or row["device"])),
    "engine": lambda row: text_cell(words.engine(row)),
    "loop": lambda row: text_cell(kind_of(json.loads(row["runtime_mode"]))),
    "lengths": _lengths,
    "levels": lambda row: text_cell(
        f"{row['measured']}/{row['levels']}" if row["levels"] else None, hint="measured / planned"
    ),
    "within limits/s": _searched,
    "requests/s": lambda row: number_cell(row["most_requests"]),
    "tokens/s": lambda row: number_cell(row["most_tokens"]),
    "goodput/s": lambda row: number_cell(row["most_goodput"], hint="requests per second within every limit"),
    "knee": _knee,
    "state": _state,
}


def load_page(data: Data, parameters: LoadParameters) -> SimpleNamespace:
    """The page. Raises NotFoundError."""
    run = find_run(data, parameters.run_id)
    run_id = run["run_id"]
    mode = json.loads(run["runtime_mode"])
    if LOOP not in mode:
        raise NotFoundError(f"run {run_id} is not a load test: see /runs/{run_id}")
    is_import = run["origin_format"] is not None
    found = [loads.as_level(row) for row in data.warehouse.query(LEVELS, {"run": run_id}).dicts()]
    rows = [{**row, "state": "simulated" if row["simulated"] else trust(row)} for row in found]
    kinds = grouped([row for row in rows if not loads.is_search(row)], ("sequence_length", "new_tokens"))
    levels = [row for _, members in kinds for row in sorted(members, key=loads.level)]
    level_name = loads.level_names(levels)

    def named(row: Row) -> str:
        return "the search for the highest rate" if loads.is_search(row) else level_name(row)

    measured = [row for row in levels if is_ok(row)]
    drawn = next((row for row in measured if row["is_knee"]), measured[0] if measured else None)
    if parameters.result is not None:
        drawn = next((row for row in levels if row["result_id"] == parameters.result), None)
        if drawn is None:
            raise NotFoundError(f"no level {parameters.result!r} in this load")
    requests, server = (
        () if drawn is None else _figures(data, name, [drawn]) for name in ("request_timeline", "use_over_time")
    )
    ids = {"results": [row["result_id"] for row in measured]}
    with_requests = (
        {row["result_id"] for row in data.warehouse.query(WITH_REQUESTS, ids).dicts()} if measured else set()
    )
    device = run["device_name"] or run["device"]
    setup = [run["runtime"]] if run["runtime"] not in (SERVER, words.UNKNOWN) else []
    setup += [f"on {device}"] if device not in (words.UNKNOWN, SERVER) else []

    # The newest levels of every server of the model in one chart, if there are several.
    chart = charts()["load_latency"]
    every = chart.rows(data.warehouse, Selection(model_id=run["model_id"]))
    shown = {row["run_id"] for row in levels}
    same_loop = [{**row, "is_own": row["run_id"] in shown} for row in every if row["loop"] == str(mode[LOOP])]
    overlaid = chart.draw(same_loop) if len(grouped(same_loop, CONFIGURATION)) > 1 else ()
    alike = data.warehouse.query(ALIKE, {"run": run_id, "model": run["model_id"], "most": MOST_ALIKE}).dicts()
    return SimpleNamespace(
        title=", ".join([f"Load on {run['model_id']}", *filter(None, [" ".join(setup)])]),
        run_id=run_id,
        run=run_link(run_id),
        is_simulated=bool(run["is_simulated"]),
        error=run["error"],
        answer=_answer(rows),
        facts=_facts(run, mode, rows),
        levels=_levels(run_id, levels, named, drawn, with_requests),
        failures=[(named(row), str(row["error"])) for row in levels if not is_ok(row) and row["error"]],
        doubts=noted_doubts(rows, named, is_import=is_import),
        is_measured=any(map(is_ok, rows)),
        charts=[
            figure
            for _, members in grouped(measured, ("sequence_length", "new_tokens"))
            for name in ("load_latency", "load_frontier")
            for figure in _figures(data, name, members)
        ],
        overlaid=[  # those with several lines; other entries of the legend explain marks
            vega.chart(one)
            for one in overlaid
            if isinstance(one, Figure) and sum(entry.state == "valid" for entry in one.legend) > 1
        ],
        is_import=is_import,
        drawn=named(drawn) if drawn is not None and (requests or server) else None,
        requests=(*requests, *server),
        alike=[  # other load tests of the same server and kind
            (run_started_text(row, [row]), Link(view="load", parameters=LoadParameters(run_id=row["run_id"])))
            for row in alike
            if row["run_id"] not in shown
        ],
        command=run["command"],
    )


def _levels(
    run_id: str, levels: Sequence[Row], named: Callable[[Row], str], drawn: Row | None, with_requests: Collection[str]
) -> Grid:
    """A row per level, with the numbers that any has; each level with stored requests is linked to them."""

    def level_cell(row: Row) -> Cell:
        text = named(row) + (" (knee)" if row["is_knee"] else "")
        if row["result_id"] not in with_requests:
            return text_cell(text)
        link = Link(view="load", parameters=LoadParameters(run_id=run_id, result=row["result_id"]))
        return text_cell(text, link=link, hint="its requests are drawn below" if row is drawn else "draw its requests")

    def number_of(column: str, row: Row) -> Cell:
        value = _value(row, column)
        return text_cell(f"{value:,.0f}") if column in COUNTS and value is not None else number_cell(value)

    is_from_sending = any(row["latency_median_ms"] is None for row in levels if is_ok(row))
    numbers = {
        name: partial(number_of, of)
        for name, of in NUMBERS.items()
        if (is_from_sending or not of.startswith("service_time")) and any(_value(row, of) is not None for row in levels)
    }
    columns: dict[str, Callable[[Any], Cell]] = {
        "level": level_cell,
        "state": lambda row: state_cell(row["state"] if is_ok(row) else row["status"]),
        **numbers,
    }
    return grid(columns, levels, "Levels of the load", numbers)


def kind_of(mode: Mapping[str, Any]) -> str:
    """The kind of load: "open, poisson", or an MLPerf scenario."""
    if SCENARIO in mode:
        return f"MLPerf {mode[SCENARIO]}"
    return ", ".join(filter(None, (str(mode[LOOP]), _arrivals(mode))))


def _arrivals(mode: Mapping[str, Any]) -> str | None:
    arrivals = mode.get("arrivals")
    return None if arrivals is None else str(arrivals).replace("_", " ")


def _figures(data: Data, name: str, levels: Sequence[Row]) -> tuple[Chart, ...]:
    chart, selection = charts()[name], Selection(results=tuple(row["result_id"] for row in levels))
    return vega.charts(chart.draw(chart.rows(data.warehouse, selection)))


def _facts(run: Row, mode: Mapping[str, Any], rows: Sequence[Row]) -> tuple[tuple[str, str], ...]:
    shown = (LOOP, SCENARIO, "arrivals", "slo", SLO_SHARE)
    others = {name: value for name, value in sorted(mode.items()) if name not in shown}
    share = f" by {100 * mode[SLO_SHARE]:g} % of the requests" if SLO_SHARE in mode else ""
    unlimited = "none" if run["origin_format"] is None else ""
    limits = limits_words(str(mode["slo"])) + share if mode.get("slo") else unlimited
    points = dict.fromkeys(
        ", ".join(words.axis(name, row[name]) for name in ("sequence_length", "new_tokens") if row[name] is not None)
        for row in rows
    )
    url = next((load["url"] for load in map(loads.facts_of, rows) if load.get("url")), None)
    server = _server({**run, "url": url}, words.device({**run, "simulated": run["is_simulated"]}))
    given = {
        "server": server,
        "engine": words.engine(run),
        "precision": words.precision(run),
        "load": ", ".join(filter(None, [loads.LOOPS.get(str(mode[LOOP]), str(mode[LOOP])), _arrivals(mode)])),
        "requests": "; ".join(filter(None, points)),
        "limits": limits,
        "settings": ", ".join(setting_words(name, value) for name, value in others.items()),
        "started": run_started_text(run, rows),
        "program": f"benchhouse {run['tool_version']}" if run["origin_format"] is None else run["origin_format"],
    }
    return known_facts(run, given)


def _answer(rows: Sequence[Row]) -> str:
    """What the load test says about the rate to deploy: of a search for it, else of its levels."""
    text = visible(loads.found_rate(rows) or loads.rates_text(rows))
    measured = [row for row in rows if is_ok(row) and not loads.is_search(row)]
    invalid = sum(row["state"] == "invalid" for row in measured)
    if invalid and not text.startswith(loads.NO_RATE):
        searches = [loads.facts_of(row) for row in rows if loads.is_search(row)]
        text += f". But {invalid_levels_words(invalid, len(measured), searches)}"
    return f"{text[:1].upper()}{text[1:]}."


def _value(row: Row, column: str) -> float | None:
    value: float | None = row[column] if column in row else row[OTHERS].get(column)
    return value


VIEWS = (
    View(
        name="loads",
        path="/loads",
        question="How many requests per second?",
        title="Loads",
        parameters=NoParameters,
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

"""The content of a report as typed data, drawn as HTML or Markdown."""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from benchmarking.core.errors import UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import ENERGY, METRICS, Metric, energy_per_item
from benchmarking.core.quality import QUALITY_METRICS, Quality, interval_text, missing_lines
from benchmarking.core.records import NOT_APPLICABLE, REQUEST_RATE
from benchmarking.core.text import distinct_names, duration, listed, visible
from db.analysis.compare.comparison import Comparison
from db.analysis.selection import custom_metrics
from db.run_records import qualities
from db.values import reason_words
from visualize.charts import profiles
from visualize.drawing import words
from visualize.drawing.configurations import CONFIGURATION, with_launches
from visualize.drawing.figure import Figure
from visualize.drawing.loads import is_load
from visualize.drawing.rows import (
    CHOSEN,
    COMMAND,
    COMPARABLE,
    COMPARABLE_CHOSEN,
    LATEST,
    LATEST_CHOSEN,
    OF_LOADS,
    SELECTED,
    SETUP_COLUMNS,
    TABLES,
    Row,
    Selection,
    bound,
    charts,
    details,
    drawable,
    grouped,
    trust,
    with_newer,
)
from visualize.pages import vega
from visualize.pages.elements import (
    Cell,
    Chart,
    Grid,
    Heading,
    Link,
    column,
    commit_text,
    grid,
    number_cell,
    number_text,
    point_text,
    size_column,
    started_text,
    state_cell,
    text_cell,
    time_text,
)
from visualize.pages.result_rows import COLUMNS, NUMBERS, RATE_NOTE, has_star, noted_doubts, result_table, value_text
from visualize.pages.views.compare_page import compared
from visualize.pages.views.profiles_page import profile_charts
from visualize.report import findings
from visualize.report.findings import MODEL, POINT, is_ranked

if TYPE_CHECKING:
    from db.warehouse import Warehouse

MOST_RESULTS = 2000
"""Maximum results of a report. Longer reports are unreadable, and browsers take seconds to show them."""
OFFERED_RATE = f"TRY_CAST(axes->>'{REQUEST_RATE}' AS DOUBLE)"
READ = tuple(
    dict.fromkeys(
        [*MODEL, *CONFIGURATION, *POINT, *COLUMNS, *ENERGY, "started_at", "extra", "missing", "origin_format"]
    )
)
RESULTS = f"""
SELECT {", ".join(READ)}, {COMMAND} FROM all_results run WHERE result_id IN (SELECT unnest($results::VARCHAR[]))
ORDER BY model_id, task, weights, config_hash, sequence_length, new_tokens, {OFFERED_RATE}, axes, concurrency,
    batch_size, device, runtime, precision, started_at, result_id
"""  # noqa: S608 - names of columns only
RUNS = """
SELECT run.run_id, run.session_id, run.started_at, run.finished_at, run.command, run.tool_version, run.origin_format,
    run.origin_definition, run.git_commit, run.git_dirty, run.settings, run.versions, run.environment, run.driver,
    run.device, run.model_id, run.architecture_type, run.parameter_count, run.weights, run.weights_reason, run.status,
    run.error, run.load_time_s,
    hardware.hardware_id, hardware.device_name, hardware.memory_bytes, hardware.cpu_model, hardware.cpu_cores,
    hardware.cpu_threads, hardware.system_memory_bytes, run.is_simulated AS simulated
FROM benchmark_runs run JOIN hardware_info hardware USING (hardware_id)
WHERE run_id IN (SELECT unnest($runs::VARCHAR[])) ORDER BY run.started_at, run.run_id
"""
COMPARED = f"SELECT result_id FROM {COMPARABLE_CHOSEN}"  # noqa: S608 - a constant
PROFILES = profiles.SQL.format(
    selected="run.model_id IN (SELECT unnest($models::VARCHAR[])) "
    "AND run.hardware_id IN (SELECT unnest($machines::VARCHAR[]))"
)
MACHINE_STATE: Mapping[str, str] = {
    "cpu_governor": "frequency governor",
    "is_turbo_on": "turbo",
    "virtual_machine": "virtual machine",
    "container": "container",
    "power_source": "power source",
    "load_average_1m": "load average",
}
"""Columns of the machine's initial state in the report, with their labels."""
MOST_VALUES = 4
MOST_POINTS = 3
MOST_PROFILES = 4
"""Maximum profiles of a model, newest first."""
STATES = ("valid", "doubtful", "invalid", "simulated")
METHODS = {
    "calls": "Each point is measured in fresh processes (launches), after a warm-up. Latency is the median over "
    "launches of each launch's median. From three launches on, its 95 % interval covers the typical launch, not the "
    "next one; with fewer, it covers only the calls of these launches, and nothing is judged by it: ignore small "
    "differences. Peak memory and energy are readings without an interval.",
    "loads": "A load test sends requests to a running server, level by level; times count from the intended start of a "
    "request, so they include the wait of requests that were sent late.",
    "imports": "Imported results are what the files of other programs state, by the definitions of these programs.",
}
"""Kind of results -> how they were measured."""
SELECTING = "In a database, session=ID selects everything that one command measured."
IN_FRONT = ("load_latency", "hardware_comparison", "latency_vs_batch_size")
"""Charts in the order in which one is chosen for the front, before all others."""
MOST_CHARTS = 24
"""Maximum charts of a model."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MethodNumber:
    """A reference to a method of the report."""

    number: int


def sides_of(comparison: Comparison) -> dict[str, str]:
    """Result id -> "A" or "B", for all results of a comparison."""
    sides = {finding.before.result_id: "A" for finding in comparison.findings}
    sides |= {finding.after.result_id: "B" for finding in comparison.findings}
    sides |= {single.result_id: "A" for single in comparison.only_before}
    return sides | {single.result_id: "B" for single in comparison.only_after}


def chosen_ids(warehouse: Warehouse, selection: Selection) -> list[str]:
    """The newest result of each series in the selection, of any status, and of calls the one for comparisons, too."""
    latest, comparable, condition = LATEST, COMPARABLE, SELECTED
    if selection.results is not None:
        latest, comparable, condition = LATEST_CHOSEN, COMPARABLE_CHOSEN, f"{SELECTED} AND {CHOSEN}"
    compared = f"r.result_id IN {comparable} AND {OF_LOADS['without']}"
    condition += f" AND (r.result_id IN {latest} OR {compared})"
    measured = "run.task <> 'device-calibration'"  # calibrations belong to no model
    sql = f"SELECT r.result_id FROM {TABLES} WHERE {condition} AND {measured}"  # noqa: S608 - values are bound
    return [str(row["result_id"]) for row in warehouse.query(sql, bound(sql, selection)).dicts()]


def check_count(results: int) -> None:
    """Raise UsageError for too many results."""
    if results > MOST_RESULTS:
        raise UsageError(f"{results} results are selected: a report has at most {MOST_RESULTS}, narrow the selection")


def read_results(warehouse: Warehouse, ids: Sequence[str]) -> list[Row]:
    """The results with "setup", "value", "low" and "high" (latency in ms), "state" and "energy".

    The interval is None unless it covers the spread between launches. Raises UsageError for too many results.
    """
    check_count(len(ids))
    rows = with_launches(warehouse, warehouse.query(RESULTS, {"results": list(ids)}).dicts())
    # A unique name for each configuration, without hardware or device if there is only one.
    configurations = grouped(rows, CONFIGURATION)
    groups = [key for key, _ in configurations]
    facts = [details(key, SETUP_COLUMNS) for key in groups]
    is_one = len({words.device(key) for key in groups}) == 1 and not any(key["simulated"] for key in groups)
    hardware = {} if len({key["device_name"] for key in groups}) > 1 else {"device_name": None}
    same = {"device": words.UNKNOWN, "device_name": None} if is_one else hardware
    short = [words.cell({**key, **same}) for key in groups]
    unique = distinct_names(short, facts, words.SEPARATOR)
    members = zip(unique, (found for _, found in configurations), strict=True)
    names = {row["result_id"]: name for name, found in members for row in found}
    return [
        drawable(
            {
                **row,
                "setup": names[row["result_id"]],
                "value": row["latency_median_ms"],
                "low": row["latency_ci_low_ms"],
                "high": row["latency_ci_high_ms"],
                "state": "simulated" if row["simulated"] else trust(row),
                "energy": energy_per_item(row, row["batch_size"] * row["concurrency"]),
            }
        )
        for row in rows
    ]


def report_of(
    warehouse: Warehouse,
    ids: Sequence[str],
    source: str,
    comparison: Comparison | None = None,
    command: str = "",
    *,
    has_charts: bool = True,
) -> SimpleNamespace:
    """The report of one or more results, or of a comparison, which `command` prints. Raises UsageError for too many."""
    rows = read_results(warehouse, ids)
    runs = warehouse.query(RUNS, {"runs": sorted({row["run_id"] for row in rows})}).dicts()
    undated = {row["run_id"] for row in rows if "undated" in row["doubts"]}
    runs = [{**run, "doubts": ("undated",) if run["run_id"] in undated else ()} for run in runs]
    # Run id -> number of its method; runs of one command with the same settings share it.
    keys = {run["run_id"]: (run["session_id"], run["command"], run["settings"]) for run in runs}
    order = list(dict.fromkeys(keys.values()))
    numbers = {run_id: order.index(key) + 1 for run_id, key in keys.items()}
    sides, ranking = {} if comparison is None else sides_of(comparison), list[Row]()
    if comparison is None:  # a comparison has verdicts of its own
        comparable = {row["result_id"] for row in warehouse.query(COMPARED, {"results": list(ids)}).dicts()}
        ranking = with_newer(warehouse, [row for row in rows if row["result_id"] in comparable or is_load(row)])
    own = custom_metrics(warehouse)
    known_quality = qualities(warehouse, sorted(keys))
    profiled, chart_rows = _read_charts(warehouse, ids, runs) if has_charts else ([], {})
    models = list(dict.fromkeys(visible(str(row["model_id"])) for row in rows))
    # A doubt about every result that was measured names none of them.
    measured = sum(row["status"] == "ok" for row in rows)
    notes = noted_doubts(rows, lambda row: visible(f"{row['model_id']}, {row['setup']}, {point_text(row)}"))
    states = words.counts(
        str(row["status"] if row["status"] != "ok" else "simulated" if row["state"] == "simulated" else row["validity"])
        for row in rows
    )
    took = _took(runs) if len({run["session_id"] for run in runs}) == 1 else None
    kinds = {"imports" if row["origin_format"] else "loads" if is_load(row) else "calls" for row in rows}
    versions: dict[str, dict[str, None]] = {}
    for run in runs:
        for name, version in run["versions"].items():
            versions.setdefault(str(name), {})[str(version)] = None

    def doubted(group: tuple[Row, Sequence[Row]]) -> float:  # so that the first chart is of results to be trusted
        return sum(1 for row in group[1] if row["state"] != "valid") / len(group[1])

    return SimpleNamespace(
        title=f"Benchmark of {models[0] if len(models) == 1 else f'{len(models)} models'}",
        about=(
            ("results", f"{len(rows)} ({states})"),
            ("runs", f"{len(runs)}, by one command in {took}" if took else str(len(runs))),
            ("measured", _measured_text(runs)),
            ("from", visible(source)),
        ),
        summary=findings.summary(ranking) if ranking else (),
        comparison=None if comparison is None else compared(comparison, command),
        doubts=tuple(
            replace(note, points=(f"all {len(note.points)} results",)) if len(note.points) >= measured > 1 else note
            for note in notes
        ),
        is_imported=all(run["origin_format"] is not None for run in runs),  # so nobody looked for disturbances
        is_measured=measured > 0,
        next_steps=findings.next_steps(rows, ranking),
        overview=_overview(rows, runs) if len(runs) > 1 else None,
        machines=_machines(runs),
        software=tuple(
            (visible(name), visible(listed(list(versions[name]), MOST_VALUES))) for name in sorted(versions)
        ),
        groups=tuple(
            _group(key, members, numbers, sides, own, profiled, chart_rows, known_quality)
            for key, members in sorted(grouped(rows, MODEL), key=doubted)
        ),
        method=" ".join([*(text for kind, text in METHODS.items() if kind in kinds), SELECTING]),
        methods=tuple(
            _method(at + 1, [run for run in runs if keys[run["run_id"]] == key]) for at, key in enumerate(order)
        ),
    )


def _read_charts(
    warehouse: Warehouse, ids: Sequence[str], runs: Sequence[Row]
) -> tuple[Sequence[Row], Mapping[str, Sequence[Row]]]:
    """The profiles of the same models and machines, newest first, and the rows of each chart of the results."""
    columns = {"models": "model_id", "machines": "hardware_id"}
    same = {name: sorted({run[of] for run in runs}) for name, of in columns.items()}
    profiled = sorted(warehouse.query(PROFILES, same).dicts(), key=lambda row: row["started_at"], reverse=True)
    # Without charts over time, which would show one run of each series.
    selection = Selection(results=tuple(ids), profiles=())
    of_models = {name: one for name, one in charts().items() if one.by_default and one.scope == "model"}
    return profiled, {name: one.rows(warehouse, selection) for name, one in of_models.items() if not one.has_metric}


def _group(
    key: Row,
    rows: Sequence[Row],
    numbers: Mapping[str, int],
    sides: Mapping[str, str],
    own: Mapping[str, Metric],
    profiled: Sequence[Row],
    chart_rows: Mapping[str, Sequence[Row]],
    known_quality: Mapping[str, Quality],
) -> SimpleNamespace:
    """The results and charts of one model, the front one of which is open."""
    about = [str(key["task"])] + ([f"{key['weights']} weights"] if key["weights"] != "given" else [])
    about += [str(key["model_revision"])[:12]] if key["model_revision"] else []
    about += [f"metrics as defined by {key['origin_definition']}"] if key["origin_definition"] else []
    front, others, left_out = drawn_charts(chart_rows, {row["result_id"] for row in rows})
    of_model = [row for row in profiled if all(row[name] == key[name] for name in ("model_id", "task", "weights"))]
    # Failures, with points of the same reason listed together.
    places: dict[tuple[str, str, str], list[str]] = {}
    for row in rows:
        if row["status"] != "ok":
            status = str(row["status"]).replace("_", " ")
            places.setdefault((row["setup"], status, str(row["error"] or status)), []).append(words.point(row))
    # Reasons for values that only some rows have.
    reasons: dict[tuple[str, str], int] = {}
    for name in NUMBERS:
        if not any(row[name] is not None for row in rows):
            continue
        for row in rows:
            why = None if row[name] is not None or row["status"] != "ok" else row["missing"].get(name, "not measured")
            if why is not None and not why.startswith(NOT_APPLICABLE):
                reasons[name, why] = reasons.get((name, why), 0) + 1
    setups = {row["run_id"]: row["setup"] for row in rows if row["run_id"] in known_quality}
    unknown = {
        f"{setup}: {line}": None for run_id, setup in setups.items() for line in missing_lines(known_quality[run_id])
    }
    return SimpleNamespace(
        title=visible(str(key["model_id"])),
        about=visible(", ".join(about)),
        grid=_grid(rows, numbers, sides, own),
        failures=tuple(  # (setup, status and points; error)
            (visible(f"{setup}, {status}: {listed(points, MOST_POINTS, '; ')}"), visible(error))
            for (setup, status, error), points in places.items()
        ),
        quality=_quality([(setup, known_quality[run_id]) for run_id, setup in setups.items()]),
        missing=(
            *map(visible, unknown),
            *(
                visible(f"{name}: {reason_words(why)} ({count} of {len(rows)} results)")
                for (name, why), count in reasons.items()
            ),
            *([RATE_NOTE] if any(map(has_star, rows)) else []),
        ),
        front=front,
        charts=others,
        charts_left_out=left_out,
        profiles=tuple(  # of the same model, task and weights on the same devices
            (visible(f"{words.cell(row)}, {words.point(row)}"), profile_charts(row)) for row in of_model[:MOST_PROFILES]
        ),
        profiles_left_out=max(0, len(of_model) - MOST_PROFILES),
    )


def _quality(setups: Sequence[tuple[str, Quality]]) -> Grid | None:
    """A row per run that has a quality, with the 95 % intervals; None without one."""
    shown = [(setup, one.values) for setup, one in setups if one.values]
    names = [name for name in QUALITY_METRICS if any(name in values for _, values in shown)]
    if not shown:
        return None
    columns: dict[str, Callable[[Any], Cell]] = {
        QUALITY_METRICS[name].heading_with_unit: lambda one, name=name: text_cell(  # type: ignore[misc]
            interval_text(one[1][name]) if name in one[1] else None
        )
        for name in names
    }
    return grid({"setup": lambda one: text_cell(one[0]), **columns}, shown, "Quality", columns)


def _overview(rows: Sequence[Row], runs: Sequence[Row]) -> Grid:
    """A table with the outcome of each run."""
    of_run: dict[str, list[Row]] = {}
    for row in rows:
        of_run.setdefault(row["run_id"], []).append(row)

    def worst(run: Row) -> Cell:
        states = [str(row["state"]) for row in of_run[run["run_id"]] if row["status"] == "ok"]
        return state_cell(max(states, key=STATES.index)) if states else text_cell(None)

    columns: Mapping[str, Callable[[Row], Cell]] = {
        "model": column("model_id"),
        "setup": lambda run: text_cell(of_run[run["run_id"]][0]["setup"]),
        "family": column("architecture_type"),
        "parameters": lambda run: text_cell(run["parameter_count"] and words.size(run["parameter_count"])),
        "points": lambda run: text_cell(words.counts(str(row["status"]) for row in of_run[run["run_id"]])),
        "best throughput": lambda run: text_cell(_best(of_run[run["run_id"]])),
        "worst state": worst,
        "load s": lambda run: number_cell(run["load_time_s"]),
        "took": lambda run: text_cell(_took([run])),
    }
    shown = sorted(runs, key=lambda run: (run["model_id"], of_run[run["run_id"]][0]["setup"]))
    return grid(columns, shown, "Runs", ("parameters", "load s", "took"))


def _measured_text(runs: Sequence[Row]) -> str:
    """From when to when the runs were measured, without those of files that state no date."""
    times = sorted(run["started_at"] for run in runs if not run["doubts"])
    if not times:
        return words.NOT_STATED
    first, last = times[0], times[-1]
    until = f"{last:%H:%M}" if first.date() == last.date() else time_text(last)
    return f"{time_text(first)}{'' if time_text(first) == time_text(last) else f' to {until}'} UTC"


def _took(runs: Sequence[Row]) -> str | None:
    """Time from first start to last end; None if an end is unknown."""
    if any(run["finished_at"] is None for run in runs):
        return None
    first, last = min(run["started_at"] for run in runs), max(run["finished_at"] for run in runs)
    return duration((last - first).total_seconds())


def _best(rows: Sequence[Row]) -> str | None:
    """The highest throughput of a ranked result, with its point."""
    for name in ("throughput_tokens_per_sec", "throughput_samples_per_sec"):
        ranked = [row for row in rows if is_ranked(row) and row[name] is not None]
        if ranked:
            best = max(ranked, key=lambda row: float(row[name]))
            return f"{number_text(best[name])} {METRICS[name].unit} ({point_text(best)})"
    return None


def _grid(rows: Sequence[Row], numbers: Mapping[str, int], sides: Mapping[str, str], own: Mapping[str, Metric]) -> Grid:
    columns, cells = result_table(rows, own)
    side = [Heading(text="side")] if sides else []
    return Grid(
        headings=(*side, Heading(text="setup"), Heading(text="point"), *columns, Heading(text="method")),
        rows=tuple(
            (
                *((text_cell(sides.get(row["result_id"])),) if sides else ()),
                text_cell(row["setup"]),
                text_cell(point_text(row)),
                *line,
                text_cell(
                    numbers[row["run_id"]],
                    link=Link(view="method", parameters=MethodNumber(number=numbers[row["run_id"]])),
                ),
            )
            for row, line in zip(rows, cells, strict=True)
        ),
        caption="Results",
    )


def _machines(runs: Sequence[Row]) -> Grid:
    def state(run: Row) -> Cell:
        read = json.loads(run["environment"])
        values, missing, named = read.get("values", {}), read.get("missing", {}), MACHINE_STATE.items()
        known = [f"{word}: {value_text(values[name])}" for name, word in named if values.get(name) is not None]
        unknown = [f"{word}: unknown ({reason_words(missing[name])})" for name, word in named if name in missing]
        return text_cell("; ".join([*known, *unknown]) or None)

    columns: Mapping[str, Callable[[Row], Cell]] = {
        "device": lambda run: text_cell(words.stated(run["device"]) + (" (simulated)" if run["simulated"] else "")),
        "name": column("device_name"),
        "memory": size_column("memory_bytes"),
        "driver": column("driver"),
        "CPU": column("cpu_model"),
        "cores / threads": lambda run: text_cell(
            f"{run['cpu_cores'] or '-'} / {run['cpu_threads'] or '-'}"
            if run["cpu_cores"] or run["cpu_threads"]
            else None
        ),
        "machine memory": size_column("system_memory_bytes"),
        "state at the start": state,
    }
    devices = {(run["hardware_id"], run["device"]): run for run in runs}
    return grid(columns, devices.values(), "Machines and devices")


def _method(number: int, runs: Sequence[Row]) -> SimpleNamespace:
    first = runs[0]
    settings = {name: value for name, value in json.loads(first["settings"]).items() if value is not None}
    given = {
        "by": f"benchhouse {first['tool_version']}"
        if first["origin_format"] is None
        else f"{first['origin_format']}, imported",
        "started": started_text(first["started_at"], first["doubts"]) + ("" if first["doubts"] else " UTC"),
        "session": str(first["session_id"]),
        "runs": str(len(runs)),
        "commit": commit_text(first),
        **{name.replace("_", " "): value_text(value) for name, value in settings.items()},
        "weights": "; ".join(dict.fromkeys(str(run["weights_reason"]) for run in runs if run["weights_reason"]))
        or None,
    }
    facts = tuple((visible(name), visible(value)) for name, value in given.items() if value)
    return SimpleNamespace(number=number, facts=facts, command=visible(str(first["command"])))


def drawn_charts(
    rows: Mapping[str, Sequence[Row]], ids: Collection[str]
) -> tuple[Chart | None, tuple[Chart, ...], int]:
    """The charts of those of the results: the front one, others, and how many more are left out."""
    figures: dict[str, list[Figure]] = {}
    for name, found in rows.items():
        own = [row for row in found if row.get("result_id") in ids]
        if own:
            figures[name] = [drawing for drawing in charts()[name].draw(own) if isinstance(drawing, Figure)]
    order = sorted(figures, key=lambda name: (IN_FRONT.index(name) if name in IN_FRONT else len(IN_FRONT), name))
    every = [figure for name in order for figure in figures[name]]
    drawn = [vega.chart(figure) for figure in every[: 1 + MOST_CHARTS]]
    return drawn[0] if drawn else None, tuple(drawn[1:]), len(every) - len(drawn)

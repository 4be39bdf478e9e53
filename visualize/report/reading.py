"""What a report reads: results, runs, profiles, and the charts drawn by the same plugins as image files."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal

from benchmarking.core.axes import POINT_COLUMNS
from benchmarking.core.errors import UsageError
from benchmarking.core.metrics import ENERGY, energy_per_item
from visualize.charts import profiles
from visualize.drawing import words
from visualize.drawing.configurations import CONFIGURATION, with_launches
from visualize.drawing.figure import Figure
from visualize.drawing.rows import (
    CHOSEN,
    COMMAND,
    LATEST,
    LATEST_CHOSEN,
    SELECTED,
    SETUP_COLUMNS,
    TABLES,
    Selection,
    bound,
    charts,
    details,
    distinct_names,
    drawable,
    grouped,
    trust,
)
from visualize.pages import vega
from visualize.pages.result_rows import COLUMNS

if TYPE_CHECKING:
    from db.warehouse import Warehouse
    from visualize.pages.elements import Chart

Row = Mapping[str, Any]
State = Literal["valid", "doubtful", "invalid", "simulated"]

MOST_RESULTS = 2000
"""Maximum results of a report. Longer reports are unreadable, and browsers take seconds to show them."""
MODEL = ("model_id", "task", "weights", "model_revision", "config_hash", "origin_definition")
"""Columns that all results of a table share."""
POINT = tuple(POINT_COLUMNS)
"""Further columns that ranked results share."""
READ = tuple(
    dict.fromkeys(
        [*MODEL, *CONFIGURATION, *POINT, *COLUMNS, *ENERGY, "started_at", "extra", "missing", "origin_format"]
    )
)
RESULTS = f"""
SELECT {", ".join(READ)}, {COMMAND} FROM all_results run WHERE result_id IN (SELECT unnest($results::VARCHAR[]))
ORDER BY model_id, task, weights, config_hash, sequence_length, new_tokens, axes, concurrency, batch_size,
    device, runtime, precision, started_at, result_id
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
PROFILED = {"models": "model_id", "machines": "hardware_id"}
"""Parameters of `PROFILES` -> columns of the runs."""
PROFILES = profiles.SQL.format(
    selected="run.model_id IN (SELECT unnest($models::VARCHAR[])) "
    "AND run.hardware_id IN (SELECT unnest($machines::VARCHAR[]))"
)


def chosen_ids(warehouse: Warehouse, selection: Selection) -> list[str]:
    """The newest result of each series in the selection, of any status."""
    if selection.results is None:
        condition = f"{SELECTED} AND r.result_id IN {LATEST}"
    else:
        condition = f"{SELECTED} AND {CHOSEN} AND r.result_id IN {LATEST_CHOSEN}"
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
    groups = [key for key, _ in grouped(rows, CONFIGURATION)]
    facts = [details(key, SETUP_COLUMNS) for key in groups]
    is_one = len({words.device(key) for key in groups}) == 1 and not any(key["simulated"] for key in groups)
    hardware = {} if len({key["device_name"] for key in groups}) > 1 else {"device_name": None}
    short = [
        f"{key['runtime']}{words.SEPARATOR}{key['precision']}" if is_one else words.cell({**key, **hardware})
        for key in groups
    ]
    unique = distinct_names(short, facts, words.SEPARATOR)
    names = {_configuration(key): name for key, name in zip(groups, unique, strict=True)}
    return [
        drawable(
            {
                **row,
                "setup": names[_configuration(row)],
                "value": row["latency_median_ms"],
                "low": row["latency_ci_low_ms"],
                "high": row["latency_ci_high_ms"],
                "state": state(row),
                "energy": energy_per_item(row, row["batch_size"] * row["concurrency"]),
            }
        )
        for row in rows
    ]


def read_runs(warehouse: Warehouse, rows: Sequence[Row]) -> Sequence[Row]:
    """Runs of the results, oldest first."""
    return warehouse.query(RUNS, {"runs": sorted({row["run_id"] for row in rows})}).dicts()


def read_profiles(warehouse: Warehouse, runs: Sequence[Row]) -> Sequence[Row]:
    """The newest profile of each series of the same models and devices, newest first."""
    wanted = {name: sorted({row[column] for row in runs}) for name, column in PROFILED.items()}
    return sorted(warehouse.query(PROFILES, wanted).dicts(), key=lambda row: row["started_at"], reverse=True)


def state(row: Row) -> State:
    """State of a measured result. Simulated and invalid results never win."""
    return "simulated" if row["simulated"] else trust(row)


def is_ranked(row: Row) -> bool:
    """Whether the result is ranked."""
    return row["status"] == "ok" and bool(row["value"]) and row["state"] in ("valid", "doubtful")


def _configuration(row: Row) -> tuple[Any, ...]:
    return tuple(row[name] for name in CONFIGURATION)


IN_FRONT = ("load_latency", "hardware_comparison", "latency_vs_batch_size")
"""Charts in the order in which one is chosen for the front."""
COMPARISONS = ("hardware_comparison",)
"""Charts that show nothing more than others unless there are two configurations."""
MOST_CHARTS = 24
"""Maximum charts of a model."""


def rows_by_chart(warehouse: Warehouse, ids: Sequence[str]) -> Mapping[str, Sequence[Row]]:
    """The rows of each chart of a model for these results; without charts over time, which show one run of each."""
    selection = Selection(results=tuple(ids), profiles=())
    names = [name for name, one in charts().items() if one.by_default and one.scope == "model" and not one.has_metric]
    return {name: charts()[name].rows(warehouse, selection) for name in names}


def drawn_charts(
    rows: Mapping[str, Sequence[Row]], ids: Collection[str]
) -> tuple[Chart | None, tuple[Chart, ...], int]:
    """The charts of those of the results: the front one, others, and how many more are left out."""
    figures: dict[str, list[Figure]] = {}
    for name, found in rows.items():
        own = [row for row in found if row.get("result_id") in ids]
        if own and not (name in COMPARISONS and len(grouped(own, CONFIGURATION)) < 2):
            figures[name] = [not_drawn for not_drawn in charts()[name].draw(own) if isinstance(not_drawn, Figure)]
    order = sorted(figures, key=lambda name: (IN_FRONT.index(name) if name in IN_FRONT else len(IN_FRONT), name))
    every = [figure for name in order for figure in figures[name]]
    front = next((figure for name in IN_FRONT for figure in figures.get(name, ())), None)
    others = [figure for figure in every if figure is not front]
    shown = tuple(map(vega.chart, others[:MOST_CHARTS]))
    return None if front is None else vega.chart(front), shown, len(others) - len(shown)

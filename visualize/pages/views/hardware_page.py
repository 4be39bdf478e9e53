"""The page Hardware: machines and devices, and one model on every setup."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from benchmarking.core.axes import POINT_COLUMNS
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import SCENARIO, Point
from benchmarking.core.text import distinct_names, visible
from benchmarking.core.text import number as exact
from db.analysis.recommend.measured_options import workload_config
from db.values import bench_settings_of, shortened
from visualize.drawing import words
from visualize.drawing.configurations import clear_winner, finding, with_launches
from visualize.drawing.figure import Block, Element, Figure, Note, Panel
from visualize.drawing.marks import states_legend
from visualize.drawing.rows import COMMAND, PLACES, Row, drawable, trust, with_newer
from visualize.drawing.scales import row_axis, value_axis
from visualize.pages import vega
from visualize.pages.elements import (
    Cell,
    Chart,
    Grid,
    Heading,
    Link,
    alternatives,
    column,
    grid,
    number_text,
    point_text,
    separated,
    size_column,
    started_text,
    text_cell,
    time_text,
)
from visualize.pages.result_rows import COLUMNS, RATE_NOTE, has_star, models_by_calls, result_table
from visualize.pages.site import NotFoundError, View
from visualize.pages.views.results_page import ResultsParameters
from visualize.pages.views.run_page import run_link

if TYPE_CHECKING:
    from visualize.pages.snapshot import Data

MACHINES = """
SELECT
    hardware.*, count(run_id) AS runs, max(started_at) FILTER (WHERE is_dated) AS newest,
    list(DISTINCT run.device ORDER BY run.device) AS selectors
FROM hardware_info hardware JOIN (
    SELECT *, origin_format IS NULL OR run_id IN (  -- results without numbers keep no doubts
        SELECT run_id FROM benchmark_results JOIN (
            SELECT run_id FROM benchmark_runs WHERE origin_format IS NOT NULL
        ) USING (run_id) WHERE status = 'ok' AND NOT list_contains(doubts, 'undated')
    ) AS is_dated FROM benchmark_runs
) run USING (hardware_id)
GROUP BY hardware.*
ORDER BY bool_and(origin_format IS NOT NULL), simulated, newest DESC NULLS LAST, hardware_id
"""
"""Those measured on here come first; the time that is stored for a file without a date is that of its last change."""
OF_MODEL = f"""
SELECT
    hardware_comparison.*, {COMMAND}, places.device_place, run.origin_definition, run.config_hash,
    run.runtime_mode->>'{SCENARIO}' AS scenario
FROM hardware_comparison JOIN benchmark_runs run USING (run_id) JOIN {PLACES} ON places.hardware_id = run.hardware_id
WHERE hardware_comparison.model_id = $model AND (run.runtime_mode->>'loop') IS NULL
ORDER BY sequence_length, new_tokens, axes, batch_size, concurrency, simulated, latency_median_ms, result_id
"""  # noqa: S608 - names of columns only
"""Without load tests, whose levels are not comparable with calls."""
RESULTS = f"""
SELECT {", ".join((*POINT_COLUMNS, *COLUMNS, "origin_format"))} FROM all_results
WHERE result_id IN (SELECT unnest($ids))
"""  # noqa: S608 - names of columns only
"""Not every column of the view: those not needed take three quarters of the time, and tens of MB."""
MOST_BARS = 40
TWO_DEFINITIONS = "The title and the speedups are about the metrics of the baseline; others are defined differently."


@dataclass(frozen=True, slots=True, kw_only=True)
class HardwareParameters:
    """The model, workload, point and baseline to compare."""

    model: str | None = None
    """None for the model with the most setups."""
    workload: str | None = None
    """What the model computes (`_workloads`), such as "fill-mask, random weights"; None for the one with most setups,
    of those with the point."""
    point: str | None = None
    """Label of a point, such as "b1 s128"; None for the first."""
    baseline: str | None = None
    """Name of the baseline row; None for the slowest."""


def _machine(row: Row) -> str:
    """The name of a machine's device, with the number of devices."""
    many = f" x {row['device_count']}" if row["device_count"] > 1 else ""
    name = row["device_name"] or row["device_type"]
    return f"{words.stated(name)}{many}"


MACHINE_COLUMNS: Mapping[str, Callable[[Any], Cell]] = {
    "machine": lambda row: text_cell(
        _machine(row) + (" (simulated)" if row["simulated"] else ""),
        link=Link(view="results", parameters=ResultsParameters(hardware=row["hardware_id"])),
        hint="its results",
    ),
    "selector": lambda row: text_cell(", ".join(map(words.stated, row["selectors"]))),
    "CPU": column("cpu_model"),
    "device memory": size_column("memory_bytes"),
    "cores / threads": lambda row: text_cell(
        None if row["cpu_cores"] is None else f"{row['cpu_cores']} / {row['cpu_threads'] or '-'}"
    ),
    "memory": size_column("system_memory_bytes"),
    "runs": lambda row: text_cell(f"{row['runs']:,}"),
    "newest run (UTC)": lambda row: text_cell(time_text(row["newest"])),
}
MACHINE_NUMBERS = ("device memory", "cores / threads", "memory", "runs")


def page(data: Data, parameters: HardwareParameters) -> SimpleNamespace:
    """The page. Raises NotFoundError for an unknown model. The form sends the workload, point and baseline of the model
    that it showed before: the page says which it shows if this model lacks them."""
    models = models_by_calls(data)
    if parameters.model is not None and parameters.model not in models:
        known = ", ".join(models[:20]) or "none"
        raise NotFoundError(f"no model {visible(parameters.model)!r}: there are {known}")
    model = parameters.model or next(iter(models), None)
    rows = [] if model is None else data.warehouse.query(OF_MODEL, {"model": model}).dicts()
    named = _workloads(data, rows)
    asked_at = Counter(name for name, row in zip(named, rows, strict=True) if _label(row) == parameters.point)
    setups, workloads = Counter(named), tuple(sorted({*named}))
    most = max(workloads, key=lambda one: (one in asked_at, setups[one]), default=None)
    workload = parameters.workload if parameters.workload in workloads else most
    rows = [row for name, row in zip(named, rows, strict=True) if name == workload]
    points = {_label(row): point_text(row) for row in rows}
    point = parameters.point if parameters.point in points else next(iter(points), None)
    shown = [row for row in rows if _label(row) == point]
    # What differs comes first: a narrow column cuts off the end.
    plain = [
        f"{words.engine(row)} · {words.precision(row)} · {row['device_name'] or words.stated(row['device'])}"
        for row in shown
    ]
    facts = []
    for row in shown:
        mode = {**json.loads(row["runtime_mode"]), "threads": row["num_threads"], "processors": row["cpu_list"]}
        settings = ", ".join(f"{name}={value}" for name, value in sorted(mode.items()) if value is not None)
        definition = f"metrics of {row['origin_definition']}" if row["origin_definition"] else ""
        facts.append((settings, definition, row["hardware_id"][:8]))
    names = distinct_names(plain, facts, " · ")
    real = [
        name
        for name, row in zip(names, shown, strict=True)
        if not row["simulated"] and row["latency_median_ms"] is not None
    ]
    baseline = parameters.baseline if parameters.baseline in names else next(reversed(real or names), None)
    base = next((row for name, row in zip(names, shown, strict=True) if name == baseline), {})
    shown = [
        {**row, "is_comparable": row["origin_definition"] == base.get("origin_definition")} for row in shown
    ]  # numbers of two definitions are never compared
    asked = {
        "workload": (parameters.workload, workload),
        "point": (parameters.point, point),
        "setup": (parameters.baseline, baseline),
    }
    notices = [
        f"{visible(str(model))} has no {what} {visible(str(given))!r} here: this is {found}."
        for what, (given, found) in asked.items()
        if found is not None and given not in (None, found)
    ]
    stored = data.warehouse.query(RESULTS, {"ids": [row["result_id"] for row in shown]}).dicts()
    by_id = {row["result_id"]: row for row in stored}
    results = [by_id[row["result_id"]] for row in shown]
    found = data.warehouse.query(MACHINES).dicts()
    of_one = workload if len(workloads) > 1 else None
    current = HardwareParameters(model=model, workload=of_one, point=point)
    of_models = ((one, HardwareParameters(model=one)) for one in sorted(models))
    of_workloads = ((one, replace(current, workload=one, point=None)) for one in workloads)
    return SimpleNamespace(
        machines=grid(MACHINE_COLUMNS, found, "Machines and devices", MACHINE_NUMBERS),
        details=[  # (machine, its settings)
            (
                visible(f"{_machine(row)}, {row['hardware_id']}"),
                [
                    (visible(name), visible(json.dumps(value)))
                    for name, value in sorted(json.loads(row["hashed_keys"]).items())
                ],
            )
            for row in found
        ],
        models=tuple(sorted(models)),
        model=model,
        workloads=workloads,
        workload=workload,
        points=points,
        point=point,
        baselines=names,
        baseline=baseline,
        notices=notices,
        chart=_chart(data, shown, names, baseline),
        grid=_grid(shown, results, names, baseline),
        rate_note=RATE_NOTE if any(map(has_star, results)) else None,
        choices=[
            alternatives("Model", "hardware", of_models, HardwareParameters(model=model)),
            alternatives("Workload", "hardware", of_workloads, replace(current, point=None)),
            alternatives(
                "Point", "hardware", ((text, replace(current, point=one)) for one, text in points.items()), current
            ),
        ],
    )


def _label(row: Row) -> str:
    return Point.from_columns(row).label


def _workloads(data: Data, rows: Sequence[Row]) -> list[str]:
    """For each result of a model what was computed, in words; only results of one are compared. The revision, the
    settings of a user-written benchmark, and the configuration are named where they differ."""
    names, facts, bench_settings = [], [], bench_settings_of(data.warehouse, rows)
    for row in rows:
        weights = "" if row["weights"] == "given" else f"{row['weights']} weights"  # those of the file or caller
        scenario = "" if row["scenario"] is None else f"MLPerf {row['scenario']}"
        names.append(visible(", ".join(filter(None, (row["task"], weights, scenario)))))
        revision = "" if row["model_revision"] is None else f"revision {shortened(row['model_revision'])}"
        settings = (f"{name}={value}" for name, value in bench_settings.get(row["run_id"], {}).items())
        facts.append((revision, visible(", ".join(settings)), f"configuration {workload_config(row)[:8]}"))
    keys = dict.fromkeys(zip(names, facts, strict=True))
    titles = distinct_names([name for name, _ in keys], [of for _, of in keys], ", ")
    title_of = dict(zip(keys, titles, strict=True))
    return [title_of[key] for key in zip(names, facts, strict=True)]


def _shared_device(rows: Sequence[Row]) -> tuple[str, Callable[[str], str]]:
    """The device that all of several rows share, else "", and a function that takes it out of the names of setups."""
    devices = {row["device_name"] or row["device"] for row in rows}
    shared = devices.pop() if len(devices) == 1 and len(rows) > 1 else ""
    return shared, lambda name: name.replace(f" · {shared}", "", 1) if shared else name


def _chart(data: Data, rows: Sequence[Row], names: Sequence[str], baseline: str | None) -> Chart | None:
    timed = [(name, row) for name, row in zip(names, rows, strict=True) if row["latency_median_ms"] is not None]
    if not timed:
        return None  # imports may state a throughput or a score alone
    shown = timed[:MOST_BARS]
    shared, short = _shared_device([row for _, row in shown])
    shown = [(short(name), row) for name, row in shown]
    elements: list[Element] = []
    for place, (name, row) in enumerate(shown):
        value = float(row["latency_median_ms"])
        elements += [
            Block(
                left=0.0, right=value, bottom=place - 0.34, top=place + 0.34, role=f"bar {name}",
                fill="grey" if row["simulated"] else row["device_place"], state=trust(row),
                words=f"{name}: {exact(value)} ms",
            ),
            Note(x=value, y=place, text=number_text(value), dx=4),
        ]  # fmt: skip
    x = value_axis(words.value_title("latency_median_ms"), [row["latency_median_ms"] for _, row in shown], room=1.3,
                   may_be_log=False)  # fmt: skip
    doubtful = words.doubts(with_newer(data.warehouse, [row for _, row in shown]))
    # The fastest setup against the baseline: by the judge, or the readings of different commands.
    latency = {"value": "latency_median_ms", "low": "latency_ci_low_ms", "high": "latency_ci_high_ms"}
    real = {
        name: drawable({**row, **{key: row[of] for key, of in latency.items()}})
        for name, row in zip(names, with_launches(data.warehouse, rows), strict=True)
        if not row["simulated"] and row["latency_median_ms"] is not None and row["is_comparable"]
    }
    winner = min(real, key=lambda name: float(real[name]["value"]), default=None)
    told = None
    if winner is not None and baseline is not None and baseline in real and winner != baseline:
        told = finding((short(winner), real[winner]), (short(baseline), real[baseline]), list(real.values()))
    title = "Median latency" if told is None else told.text
    if told is None and winner is not None and len(real) > 1:
        state, best = trust(real[winner]), clear_winner(list(real.values()), "lower")
        how = ("" if state == "valid" else f" {state} and") + " not judged faster than all others"
        title = f"Lowest median latency: {short(winner)}" + ("" if best else f",{how}")
    figure = Figure(
        title=title,
        subtitle=visible(shared),
        notes=(
            "The newest result of each setup, without invalid ones, fastest first; simulated devices come last.",
            *([] if all(row["is_comparable"] for _, row in shown) else [TWO_DEFINITIONS]),
            *([doubtful] if doubtful else []),
            *([told.note] if told and told.note else []),
        ),
        panels=(Panel(x=x, y=row_axis([name for name, _ in shown]), elements=tuple(elements), height_in=0.5),),
        legend=states_legend([row for _, row in shown], are_blocks=True),
        columns_of_table=("setup", "device", "median ms", "state"),
        rows=tuple((name, row["device"], row["latency_median_ms"], row["validity"]) for name, row in shown),
    )
    return vega.chart(figure)


def _grid(rows: Sequence[Row], results: Sequence[Row], names: Sequence[str], baseline: str | None) -> Grid | None:
    if not rows:
        return None
    head, cells = result_table(results, has_quality=True)
    base = next((row["latency_median_ms"] for row, name in zip(rows, names, strict=True) if name == baseline), None)
    is_drawn = any(row["latency_median_ms"] is not None for row in rows)  # then the chart names a shared device
    _, short = _shared_device(rows if is_drawn else ())
    lines = []
    for row, name, line in zip(rows, names, cells, strict=True):
        link = run_link(row["run_id"], row["result_id"])
        median_ms = row["latency_median_ms"]
        times = None
        if base is not None and median_ms and not row["simulated"] and row["is_comparable"]:
            times = f"{separated(exact(base / median_ms, 3))}\N{MULTIPLICATION SIGN}"
        started = started_text(row["started_at"], row["doubts"] or ())
        lines.append((text_cell(short(name), link=link), text_cell(times), *line, text_cell(started)))
    return Grid(
        headings=(Heading(text="setup"), Heading(text="speedup", is_number=True), *head, Heading(text="started (UTC)")),
        rows=tuple(lines),
        caption="The model on each setup",
    )


VIEWS = (
    View(
        name="hardware",
        path="/hardware",
        question="Which runtime and device is fastest?",
        title="Hardware",
        parameters=HardwareParameters,
        page=page,
        has_charts=True,
        in_files=lambda parameters: parameters if parameters.baseline is None else None,
    ),
)

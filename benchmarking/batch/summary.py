"""The summary of a batch: `benchmark_summary.json` next to the run files, and the tables of its plan and its cells; and
how long its plan will take.

The duration is estimated from earlier runs of the same cells; cells without earlier runs remain unknown. The warehouse
is queried through a function, so that this package does not import it.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, Literal

from benchmarking.core.doubts import doubt_notes, validity
from benchmarking.core.errors import storage_errors
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import Cell, Doubt, Family, Point, Run, Status, Validity, canonical_hash, to_json
from benchmarking.core.tables import Column, table_of, table_text
from benchmarking.core.terminal import PLAIN, Page
from benchmarking.core.text import counted, duration, grouped, number, wrapped
from benchmarking.measure.context import Settings
from benchmarking.sweep.plan.plan import CellPlan, points_by_reason, work
from benchmarking.sweep.run import journal, spool
from benchmarking.sweep.show.compared_runtimes import Comparison
from benchmarking.sweep.show.report import Scaling, items_unit

FILE_NAME = "benchmark_summary.json"
FORMAT = "benchhouse-batch-summary"
FORMAT_VERSION = 1

SUMMARY_METRICS = (
    *("latency_median_ms", "latency_ci_low_ms", "latency_ci_high_ms", "latency_p90_ms"),
    *("throughput_samples_per_sec", "throughput_tokens_per_sec", "time_to_first_token_ms", "time_per_output_token_ms"),
    *("memory_peak_rss_infer_mb", "memory_device_process_peak_mb", "output_error", "compile_s"),
)
"""Metrics of a point included in the summary; the run file has all metrics."""

INTERVAL_METRICS = ("latency_ci_low_ms", "latency_ci_high_ms")
"""Metrics omitted with fewer than 3 launches, where they only cover the calls within these processes."""


CellState = Literal["ok", "failed", "skipped", "timed_out", "pending", "stored"]

BatchState = Literal["running", "interrupted", "finished"]


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchInfo:
    """A batch without its cells."""

    session_id: str
    command: tuple[str, ...]
    started_at: str
    """UTC, ISO 8601."""
    db_path: str | None
    """Absolute path; None to write run files only."""
    report: str | None
    """Absolute path of the report."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PointSummary:
    point: str
    """Its label: "b1 s128"."""
    status: Status
    validity: Validity | None
    error: str | None
    metrics: Mapping[str, float]
    """The measured metrics of `SUMMARY_METRICS`."""
    doubts: tuple[Doubt, ...]
    """Those above severity info."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSummary:
    run_id: str
    name: str
    """As text: "gpt2 on cpu (eager, float32)"."""
    subject: str
    """The model, or the benchmark with its variant."""
    model_id: str
    family: Family | None
    task: str
    weights: str
    parameter_count: int | None
    device: str
    device_name: str | None
    runtime: str
    precision: str
    num_threads: int | None = None
    """Requested; None leaves the choice to the runtime."""
    status: CellState
    """The status of the run; pending before there is one; stored if it is in the database and its file was removed."""
    run_file: str | None = None
    """Name of the run file in the output folder; None before there is one."""
    stored: bool | None = None
    """Whether it is in the database; None without a database, or before there is a run."""
    why_not_stored: str | None = None
    started_at: str | None = None
    finished_at: str | None = None
    load_time_s: float | None = None
    """From a fresh process to a loaded model; None before there is a run."""
    points_ok: int = 0
    points_failed: int = 0
    """Failed or timed out."""
    points_skipped: int = 0
    errors: tuple[str, ...] = ()
    """Every error, one line each."""
    points: tuple[PointSummary, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchSummary:
    """The content of `benchmark_summary.json`."""

    format: str = FORMAT
    format_version: int = FORMAT_VERSION
    session_id: str
    command: tuple[str, ...]
    status: BatchState
    started_at: str
    """UTC, ISO 8601; the first start of a resumed batch."""
    finished_at: str | None
    """None while it runs."""
    database: str | None
    cells_by_status: Mapping[str, int]
    cells: tuple[CellSummary, ...] = field(default_factory=tuple)
    comparisons: tuple[Comparison, ...] = ()
    """For models measured with several runtimes; empty while the batch runs."""
    scalings: tuple[Scaling, ...] = ()
    """For models with several numbers of threads; empty while the batch runs."""


def summary_without_results(of: CellPlan | Run, status: CellState = "pending") -> CellSummary:
    from benchmarking.sweep.show.progress import cell_name

    cell = of.cell
    return CellSummary(
        run_id=of.run_id,
        name=cell_name(cell),
        subject=cell.subject,
        model_id=cell.workload.model_id,
        family=cell.workload.family,
        task=cell.workload.task,
        weights=cell.workload.weights,
        parameter_count=cell.workload.parameter_count,
        device=cell.device.selector,
        device_name=cell.device.name,
        runtime=cell.runtime,
        precision=cell.precision,
        num_threads=cell.num_threads,
        status=status,
    )


def cell_summary(run: Run, path: Path, *, stored: bool | None, why_not_stored: str | None = None) -> CellSummary:
    """The summary of a finished run. Its errors are those of points, or of the failed launches of a point."""
    points, errors = list[PointSummary](), list[str]()
    for result in run.results:
        names = [name for name in SUMMARY_METRICS if result.ci_scope == "between" or name not in INTERVAL_METRICS]
        points.append(
            PointSummary(
                point=result.point.label,
                status=result.status,
                validity=result.validity,
                error=result.error,
                metrics={name: result.metrics[name] for name in names if name in result.metrics},
                doubts=tuple(doubt for doubt in result.doubts if doubt.severity != "info"),
            )
        )
        if result.status in ("failed", "timed_out"):
            errors.append(f"{result.point.label}: {result.status.replace('_', ' ')}: {result.error}")
            continue
        for doubt in result.doubts:
            if doubt.kind == "launch_failed":
                evidence = ", ".join(f"{name} = {value}" for name, value in doubt.evidence.items())
                errors.append(f"{result.point.label}: a launch failed: {evidence}")
    counts = Counter(result.status for result in run.results)
    return dataclasses.replace(
        summary_without_results(run, run.status),
        run_file=path.name,
        stored=stored,
        why_not_stored=why_not_stored,
        started_at=run.started_at,
        finished_at=run.finished_at,
        load_time_s=run.load_time_s,
        points_ok=counts["ok"],
        points_failed=counts["failed"] + counts["timed_out"],
        points_skipped=counts["skipped"],
        errors=tuple(errors),
        points=tuple(points),
    )


def write(folder: Path, batch: BatchSummary) -> None:
    """Write the summary into the folder, replacing an older one. Raises StorageError."""
    path = folder / FILE_NAME
    with storage_errors(f"cannot write {path}"):
        journal.replace(path, spool.document_text(batch))


def failures(cells: Sequence[CellSummary]) -> tuple[str, ...]:
    """Every error of a batch, one line each, with the cell."""
    lines = []
    for cell in cells:
        lines += [f"{cell.name}: {error}" for error in cell.errors]
        lines += [f"{cell.name}: not stored: {cell.why_not_stored}"] if cell.why_not_stored else []
    return tuple(lines)


def plan_table(plans: Sequence[CellPlan], estimate: Estimate, page: Page = PLAIN) -> str:
    """A row per planned cell, the reasons for skipped points, each once, and the estimated time of all of them."""
    from benchmarking.sweep.show.progress import cell_name

    def time_text(plan: CellPlan) -> str:
        seconds = estimate.cells_s.get(plan.run_id)
        return "unknown" if seconds is None else duration(seconds)

    def labels_text(plan: CellPlan) -> str:
        labels = [point.label for point in plan.runnable]
        return f"{len(labels)}: {' .. '.join(dict.fromkeys(labels[:1] + labels[-1:]))}"

    columns: list[Column[CellPlan]] = [
        Column("model", lambda plan: plan.cell.subject, is_key=True),
        Column("family", lambda plan: plan.cell.workload.family, spare=1),
        Column("device", lambda plan: plan.cell.device.selector, is_key=True),
        Column("runtime", lambda plan: plan.cell.runtime, is_key=True),
        Column("precision", lambda plan: plan.cell.precision, is_key=True),
        Column("threads", lambda plan: _threads(plan.cell.num_threads), is_number=True, is_key=True),
        Column("weights", lambda plan: plan.cell.workload.weights, is_key=True),
        Column("launches", lambda plan: str(plan.settings.launches), is_number=True, is_key=True),
        Column("points", labels_text),
        Column("time", time_text),
    ]
    table = table_of(columns, plans, page)
    skipped = grouped(
        (why, f"{cell_name(plan.cell)}: {', '.join(labels)}")
        for plan in plans
        for why, labels in points_by_reason(plan).items()
    )
    below = ["", *(f"skipped: {'; '.join(where)}: {why}" for why, where in skipped.items())]
    below += [*([""] if skipped else []), estimate_text(plans, estimate)]
    head = [", ".join(table.shared)] if table.shared else []
    above, notes = (wrapped("\n".join(lines), page.text_width) for lines in (head, below))
    return "\n".join([*([above] if above else []), table_text(table, page), notes])


def _threads(count: int | None) -> str | None:
    return None if count is None else str(count)


def estimate_text(plans: Sequence[CellPlan], estimate: Estimate) -> str:
    """The numbers of cells and points, and the estimated time."""
    points = sum(len(plan.runnable) for plan in plans)
    head = f"{counted(len(plans), 'cell')}, {counted(points, 'point')}"
    if not estimate.known_points and not estimate.scaled_points:
        return f"{head}; estimated time: unknown, since nothing similar was measured on this hardware before"
    parts = [f"{estimate.known_points} measured before"]
    parts += [f"{estimate.scaled_points} scaled from the nearest point"] if estimate.scaled_points else []
    parts += [f"{estimate.unknown_points} unknown and not counted"] if estimate.unknown_points else []
    return f"{head}; estimated time: about {duration(estimate.total_s)} ({', '.join(parts)})"


def throughput(point: PointSummary, family: Family | None) -> tuple[float, str] | None:
    """A point's tokens/s, else its items/s, with the unit; None if it has neither."""
    units = {"throughput_tokens_per_sec": "tokens/s", "throughput_samples_per_sec": items_unit(family)}
    for name, unit in units.items():
        if name in point.metrics:
            return point.metrics[name], unit
    return None


def points_text(cell: CellSummary) -> str:
    """The numbers of points by status: "3 ok, 1 failed"."""
    counts = ((cell.points_ok, "ok"), (cell.points_failed, "failed"), (cell.points_skipped, "skipped"))
    return ", ".join(f"{count} {what}" for count, what in counts if count) or cell.status


def best_text(cell: CellSummary) -> str:
    """The highest throughput of a cell, and its point."""
    rates = [(*best, point.point) for point in cell.points if (best := throughput(point, cell.family)) is not None]
    if not rates:
        return "-"
    value, unit, label = max(rates)
    return f"{number(value)} {unit} ({label})"


def _validity(cell: CellSummary) -> str | None:
    """The worst validity of a cell's points; None without doubts."""
    doubts = [doubt for point in cell.points for doubt in point.doubts]
    return str(validity(doubts)) if doubts else None


CELL_COLUMNS: tuple[Column[CellSummary], ...] = (
    Column("model", lambda cell: cell.subject, is_key=True),
    Column("family", lambda cell: cell.family, spare=1),
    Column("device", lambda cell: cell.device, is_key=True),
    Column("runtime", lambda cell: cell.runtime, is_key=True),
    Column("precision", lambda cell: cell.precision, is_key=True),
    Column("threads", lambda cell: _threads(cell.num_threads), is_number=True, is_key=True),
    Column("points", points_text),
    Column("best throughput", best_text),
    Column("doubts", _validity, is_state=True),
)


def cells_table(cells: Sequence[CellSummary], page: Page = PLAIN) -> str:
    """A row per cell: numbers of ok, failed and skipped points, the highest throughput, and the worst validity.

    Below the table is a sentence for each kind of doubt.
    """
    table = table_of(CELL_COLUMNS, cells, page)
    doubts = ((doubt.kind, cell.name) for cell in cells for point in cell.points for doubt in point.doubts)
    head, notes = ", ".join(table.shared), doubt_notes(dict.fromkeys(doubts))
    text = table_text(table, page)
    return "\n".join(
        [*([wrapped(head, page.text_width)] if head else []), text]
        + ["", *(wrapped(note, page.text_width) for note in notes)] * bool(notes)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierPoint:
    cell: str
    """`cell_key` of its cell."""
    point: str
    """Its label."""
    work: float
    """`plan.work` of the point."""
    profile: str
    fixed_iterations: int | None
    fixed_warmup_iterations: int | None
    latency_ms: float
    """Mean of the timed calls."""
    calls: float
    """Warm-up and timed calls of a launch."""
    launch_s: float | None
    """Total time of the point in a launch, median over launches; None if it was not stored."""
    load_s: float | None
    """From the start of the process to a loaded model; None if it was not measured."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    cells_s: Mapping[str, float] = field(default_factory=dict)
    """Seconds by run id, excluding cells that were never measured."""
    known_points: int = 0
    scaled_points: int = 0
    """Number of points scaled from the nearest point of the same cell, in proportion to the work."""
    unknown_points: int = 0

    @property
    def total_s(self) -> float:
        """Seconds of all cells with an estimate."""
        return sum(self.cells_s.values())


def cell_key(cell: Cell, hardware_id: str) -> str:
    """The key of cells whose times apply to each other."""
    workload = cell.workload
    model = (workload.model_id, workload.config_hash, workload.task, workload.weights)
    return canonical_hash([*model, hardware_id, cell.runtime, to_json(cell.runtime_mode), cell.precision])


def estimate(plans: Sequence[CellPlan], earlier: Sequence[EarlierPoint]) -> Estimate:
    """The time the plans will take."""
    by_cell = grouped((before.cell, before) for before in earlier)
    cells_s: dict[str, float] = {}
    counts = [0, 0, 0]
    for plan in plans:
        matching = by_cell.get(cell_key(plan.cell, plan.hardware.hardware_id), [])
        measured = {before.point for before in matching}
        exact = sum(point.label in measured for point in plan.runnable)
        others = len(plan.runnable) - exact
        counts = [counts[0] + exact, counts[1] + (others if matching else 0), counts[2] + (0 if matching else others)]
        if matching or not plan.runnable:  # launches x (load + points)
            loads = [before.load_s for before in matching if before.load_s is not None]
            load_s = median(loads) if loads else 0.0
            load_count = len(plan.runnable) if plan.settings.point_per_process else min(1, len(plan.runnable))
            launch_s = load_count * load_s
            for point in plan.runnable:  # as measured before, else scaled from the nearest point
                same = [_launch_s(before, plan.settings, 1.0) for before in matching if before.point == point.label]
                if not same:
                    wanted = work(point)
                    nearest = min(matching, key=lambda before: abs(math.log(before.work / wanted)))
                    same = [_launch_s(nearest, plan.settings, wanted / nearest.work)]
                launch_s += median(same)
            cells_s[plan.run_id] = plan.settings.launches * launch_s
    return Estimate(cells_s=cells_s, known_points=counts[0], scaled_points=counts[1], unknown_points=counts[2])


def _launch_s(before: EarlierPoint, settings: Settings, scale: float) -> float:
    """The time of the point in a launch, if it was measured with the same settings; else calls x latency, within the
    profile's limits."""
    profile = (settings.profile, settings.fixed_iterations, settings.fixed_warmup_iterations)
    is_same_profile = (before.profile, before.fixed_iterations, before.fixed_warmup_iterations) == profile
    latency_s = before.latency_ms * scale / 1e3
    if settings.fixed_iterations is not None:
        if is_same_profile and before.launch_s is not None:
            return before.launch_s * scale
        warm_up = settings.fixed_warmup_iterations
        timed = settings.fixed_iterations + settings.memory_calls
        return latency_s * (timed + (before.calls / 2 if warm_up is None else warm_up))
    if is_same_profile and before.launch_s is not None and scale == 1.0:
        return before.launch_s
    measured_s = min(max(before.calls * latency_s, settings.min_time_s), settings.max_time_s)
    return max(measured_s, settings.min_samples * latency_s)


Row = Mapping[str, Any]

Query = Callable[[str, Mapping[str, object]], Iterable[Row]]
"""The rows of a statement with its parameters bound."""


SQL = """
SELECT run.model_id, run.config_hash, run.task, run.weights, run.hardware_id, run.runtime, run.precision,
    CAST(run.runtime_mode AS VARCHAR) AS runtime_mode, CAST(run.settings AS VARCHAR) AS settings, run.load_time_s,
    r.batch_size, r.sequence_length, r.new_tokens, r.concurrency, CAST(r.axes AS VARCHAR) AS axes,
    r.launches, r.iterations, r.warmup_iterations, r.latency_mean_ms,
    json_extract_string(r.extra, '$.launches[*].started_at') AS started_at,
    json_extract_string(r.extra, '$.launches[*].finished_at') AS finished_at
FROM benchmark_results r JOIN benchmark_runs run USING (run_id)
WHERE r.status = 'ok' AND run.origin_format IS NULL AND run.model_id IN (SELECT unnest($models))
    AND run.hardware_id IN (SELECT unnest($hardware))
ORDER BY run.started_at
"""


def earlier_points(plans: Sequence[CellPlan], query: Query) -> tuple[EarlierPoint, ...]:
    """Earlier measurements of the plans' models on the plans' hardware."""
    models = sorted({plan.cell.workload.model_id for plan in plans})
    hardware = sorted({plan.hardware.hardware_id for plan in plans})
    rows = query(SQL, {"models": models, "hardware": hardware})
    earlier = []
    for row in rows:
        if not (row["latency_mean_ms"] and row["launches"]):
            continue
        stored = json.loads(row["settings"])
        point = Point.from_columns(row)
        durations_s = [
            (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
            for start, end in zip(row["started_at"] or (), row["finished_at"] or (), strict=True)
        ]
        names = ("model_id", "config_hash", "task", "weights", "hardware_id", "runtime")  # the order of cell_key()
        earlier.append(
            EarlierPoint(
                cell=canonical_hash(
                    [*(row[name] for name in names), json.loads(row["runtime_mode"]), row["precision"]]
                ),
                point=point.label,
                work=work(point),
                profile=stored.get("profile", ""),
                fixed_iterations=stored.get("fixed_iterations"),
                fixed_warmup_iterations=stored.get("fixed_warmup_iterations"),
                latency_ms=row["latency_mean_ms"],
                calls=(row["iterations"] + row["warmup_iterations"]) / row["launches"],
                launch_s=median(durations_s) if durations_s else None,
                load_s=row["load_time_s"],
            )
        )
    return tuple(earlier)

"""The summary of a batch: `benchmark_summary.json` next to the run files, and the tables of its plan and its cells."""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from pathlib import Path
from typing import Literal

from benchmarking.batch.estimate import Estimate
from benchmarking.core.doubts import doubt_notes, validity
from benchmarking.core.errors import storage_errors
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import Cell, Doubt, Family, Run, Status, Validity, to_json
from benchmarking.core.tables import Column, table_of, table_text
from benchmarking.core.terminal import PLAIN, Page
from benchmarking.core.text import counted, duration, number, wrapped
from benchmarking.core.untrusted.redaction import redacted
from benchmarking.sweep.plan.plan import CellPlan, points_by_reason
from benchmarking.sweep.run import journal
from benchmarking.sweep.show.compared_runtimes import Comparison, comparisons
from benchmarking.sweep.show.report import items_unit
from benchmarking.sweep.show.thread_scaling import Scaling, scalings

FILE_NAME = "benchmark_summary.json"
FORMAT = "benchhouse-batch-summary"
FORMAT_VERSION = 1

SUMMARY_METRICS = (
    "latency_median_ms",
    "latency_ci_low_ms",
    "latency_ci_high_ms",
    "latency_p90_ms",
    "throughput_samples_per_sec",
    "throughput_tokens_per_sec",
    "time_to_first_token_ms",
    "time_per_output_token_ms",
    "memory_peak_rss_infer_mb",
    "memory_device_process_peak_mb",
    "output_error",
    "compile_s",
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
    """The summary of a point."""

    point: str
    """Its label: "b1 s128"."""
    status: Status
    validity: Validity | None
    error: str | None
    metrics: Mapping[str, float]
    """The measured metrics of `SUMMARY_METRICS`."""
    doubts: tuple[Doubt, ...]
    """Kinds of doubt above severity info."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CellSummary:
    """The summary of a cell."""

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


def pending_summary(plan: CellPlan) -> CellSummary:
    """The summary of a cell without a run."""
    return _empty_summary(plan.run_id, plan.cell, "pending")


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
        _empty_summary(run.run_id, run.cell, run.status),
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


def summary(
    info: BatchInfo,
    cells: Sequence[CellSummary],
    status: BatchState,
    finished_at: str | None,
    runs: Sequence[Run] = (),
) -> BatchSummary:
    """The summary of the batch in its current state; `runs` are the runs to compare, empty while it runs."""
    return BatchSummary(
        session_id=info.session_id,
        command=info.command,
        status=status,
        started_at=info.started_at,
        finished_at=finished_at,
        database=info.db_path,
        cells_by_status=dict(Counter(cell.status for cell in cells)),
        cells=tuple(cells),
        comparisons=comparisons(runs),
        scalings=scalings(runs),
    )


def write(folder: Path, batch: BatchSummary) -> None:
    """Write the summary into the folder, replacing an older one. Raises StorageError."""
    path = folder / FILE_NAME
    with storage_errors(f"cannot write {path}"):
        journal.replace(
            path, json.dumps(redacted(to_json(batch)), ensure_ascii=False, allow_nan=False, indent=1) + "\n"
        )


def failures(cells: Sequence[CellSummary]) -> tuple[str, ...]:
    """Every error of a batch, one line each, with the cell."""
    lines = []
    for cell in cells:
        lines += [f"{cell.name}: {error}" for error in cell.errors]
        lines += [f"{cell.name}: not stored: {cell.why_not_stored}"] if cell.why_not_stored else []
    return tuple(lines)


def _empty_summary(run_id: str, cell: Cell, status: CellState) -> CellSummary:
    """The summary of a cell without results."""
    from benchmarking.sweep.show.progress import cell_name

    return CellSummary(
        run_id=run_id,
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


def plan_table(plans: Sequence[CellPlan], estimate: Estimate, page: Page = PLAIN) -> str:
    """A row per planned cell, the reasons for skipped points, each once, and the estimated time of all of them."""
    from benchmarking.sweep.show.progress import cell_name

    def time_text(plan: CellPlan) -> str:
        seconds = estimate.cells_s.get(plan.run_id)
        return "unknown" if seconds is None else duration(seconds)

    columns: list[Column[CellPlan]] = [
        Column(heading="model", text=lambda plan: plan.cell.subject, is_key=True),
        Column(heading="family", text=lambda plan: plan.cell.workload.family, spare=1),
        Column(heading="device", text=lambda plan: plan.cell.device.selector, is_key=True),
        Column(heading="runtime", text=lambda plan: plan.cell.runtime, is_key=True),
        Column(heading="precision", text=lambda plan: plan.cell.precision, is_key=True),
        Column(heading="threads", text=lambda plan: _threads(plan.cell.num_threads), is_number=True, is_key=True),
        Column(heading="weights", text=lambda plan: plan.cell.workload.weights, is_key=True),
        Column(heading="launches", text=lambda plan: str(plan.settings.launches), is_number=True, is_key=True),
        Column(heading="points", text=_labels),
        Column(heading="time", text=time_text),
    ]
    table = table_of(columns, plans, page)
    skipped: dict[str, list[str]] = {}
    for plan in plans:
        for why, labels in points_by_reason(plan).items():
            skipped.setdefault(why, []).append(f"{cell_name(plan.cell)}: {', '.join(labels)}")
    below = ["", *(f"skipped: {'; '.join(where)}: {why}" for why, where in skipped.items())]
    below += ["", estimate_text(plans, estimate)] if skipped else [estimate_text(plans, estimate)]
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


def _labels(plan: CellPlan) -> str:
    labels = [point.label for point in plan.runnable]
    return f"{len(labels)}: {labels[0]} .. {labels[-1]}" if len(labels) > 1 else f"{len(labels)}: {''.join(labels)}"


CELL_COLUMNS: tuple[Column[CellSummary], ...] = (
    Column(heading="model", text=lambda cell: cell.subject, is_key=True),
    Column(heading="family", text=lambda cell: cell.family, spare=1),
    Column(heading="device", text=lambda cell: cell.device, is_key=True),
    Column(heading="runtime", text=lambda cell: cell.runtime, is_key=True),
    Column(heading="precision", text=lambda cell: cell.precision, is_key=True),
    Column(heading="threads", text=lambda cell: _threads(cell.num_threads), is_number=True, is_key=True),
    Column(heading="points", text=points_text),
    Column(heading="best throughput", text=best_text),
    Column(heading="doubts", text=_validity, is_state=True),
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

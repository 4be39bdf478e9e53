"""Estimates the duration of a plan from earlier runs of the same cells. Cells without earlier runs remain unknown.

The warehouse is queried through a function, so that this package does not import it.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from statistics import median
from typing import Any

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import Cell, Point, canonical_hash, to_json
from benchmarking.measure.context import Settings
from benchmarking.sweep.plan.plan import CellPlan, work


@dataclass(frozen=True, slots=True, kw_only=True)
class EarlierPoint:
    """A point measured in an earlier run."""

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
    """The estimated time of a plan."""

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
    by_cell: dict[str, list[EarlierPoint]] = {}
    for before in earlier:
        by_cell.setdefault(before.cell, []).append(before)
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
            points_s = sum(_point_s(point, plan.settings, matching) for point in plan.runnable)
            cells_s[plan.run_id] = plan.settings.launches * (load_count * load_s + points_s)
    return Estimate(cells_s=cells_s, known_points=counts[0], scaled_points=counts[1], unknown_points=counts[2])


def _point_s(point: Point, settings: Settings, matching: Sequence[EarlierPoint]) -> float:
    """Seconds of a point in a launch: as measured before, else scaled from the nearest point."""
    same = [before for before in matching if before.point == point.label]
    if same:
        return median(_launch_s(before, settings, 1.0) for before in same)
    nearest = min(matching, key=lambda before: abs(math.log(before.work / work(point))))
    return _launch_s(nearest, settings, work(point) / nearest.work)


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

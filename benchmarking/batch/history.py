"""What the warehouse knows of how long cells took. It is asked through a function: nothing of it is imported."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime
from statistics import median
from typing import Any

from benchmarking.batch.estimate import Known
from benchmarking.records import Point, canonical_hash
from benchmarking.sweep.plan import CellPlan, work

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
WHERE r.status = 'ok' AND run.model_id IN (SELECT unnest($models)) AND run.hardware_id IN (SELECT unnest($hardware))
ORDER BY run.started_at
"""


def known(plans: Sequence[CellPlan], query: Query) -> tuple[Known, ...]:
    """The points of the plans' models on the plans' hardware as they were measured before."""
    models = sorted({plan.cell.workload.model_id for plan in plans})
    hardware = sorted({plan.hardware.hardware_id for plan in plans})
    rows = query(SQL, {"models": models, "hardware": hardware})
    return tuple(_known(row) for row in rows if row["latency_mean_ms"] and row["launches"])


def _known(row: Row) -> Known:
    settings = json.loads(row["settings"])
    point = Point.from_columns(row)
    durations_s = [
        (datetime.fromisoformat(end) - datetime.fromisoformat(start)).total_seconds()
        for start, end in zip(row["started_at"] or (), row["finished_at"] or (), strict=True)
    ]
    return Known(
        cell=_cell_key(row),
        point=point.label,
        work=work(point),
        profile=settings.get("profile", ""),
        fixed_iterations=settings.get("fixed_iterations"),
        fixed_warmup_iterations=settings.get("fixed_warmup_iterations"),
        latency_ms=row["latency_mean_ms"],
        calls=(row["iterations"] + row["warmup_iterations"]) / row["launches"],
        launch_s=median(durations_s) if durations_s else None,
        load_s=row["load_time_s"],
    )


def _cell_key(row: Row) -> str:
    """The same as `estimate.cell_key` of the cell."""
    model = [row[name] for name in ("model_id", "config_hash", "task", "weights", "hardware_id", "runtime")]
    return canonical_hash([*model, json.loads(row["runtime_mode"]), row["precision"]])

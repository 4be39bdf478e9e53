"""A batch as text: its plan before, its cells after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from benchmarking.batch.estimate import Estimate
from benchmarking.batch.summary import CellSummary, PointSummary
from benchmarking.core.tables import Table, table_text
from benchmarking.core.terminal import PLAIN, Page
from benchmarking.core.text import duration, number, visible
from benchmarking.records import Family
from benchmarking.sweep.plan import CellPlan
from benchmarking.sweep.progress import cell_name
from benchmarking.sweep.report import items_unit

HEADINGS = ("model", "family", "device", "runtime", "precision", "points", "best throughput", "doubts")
PLAN_HEADINGS = ("model", "family", "device", "runtime", "precision", "weights", "launches", "points", "time")
CELL_COLUMNS = 5
"""Columns, from the left, that say which cell it is."""
MAX_KINDS = 3


def cells_table(cells: Sequence[CellSummary], page: Page = PLAIN) -> str:
    """A line a cell: points that are ok, failed and skipped, the highest throughput, the doubts."""
    table = Table(
        headings=HEADINGS, rows=tuple(_row(cell) for cell in cells), states=(len(HEADINGS) - 1,), keys=CELL_COLUMNS
    )
    return table_text(table, page)


def plan_table(plans: Sequence[CellPlan], estimate: Estimate, page: Page = PLAIN) -> str:
    """A line a cell that is going to be measured, and how long all of them will take."""
    rows = tuple(_plan_row(plan, estimate.cells_s.get(plan.run_id)) for plan in plans)
    table = Table(headings=PLAN_HEADINGS, rows=rows, numbers=(PLAN_HEADINGS.index("launches"),), keys=CELL_COLUMNS)
    below = ["", *_skipped(plans), estimate_text(plans, estimate)]
    return "\n".join([table_text(table, page), *map(visible, below)])


def estimate_text(plans: Sequence[CellPlan], estimate: Estimate) -> str:
    """How many cells and points there are, and the time they will take, as far as it is known."""
    points = sum(len(plan.runnable) for plan in plans)
    head = f"{len(plans)} cells, {points} points"
    if not estimate.known_points and not estimate.scaled_points:
        return f"{head}; time: unknown, as nothing like this was measured here before"
    parts = [f"{estimate.known_points} measured before"]
    parts += [f"{estimate.scaled_points} scaled from the nearest point"] if estimate.scaled_points else []
    parts += [f"{estimate.unknown_points} unknown and not counted"] if estimate.unknown_points else []
    return f"{head}; time: about {duration(estimate.total_s)} ({', '.join(parts)})"


def throughput(point: PointSummary, family: Family | None) -> tuple[float, str] | None:
    """A point's tokens/s where it has tokens, else its items/s, with the unit; None when it has neither."""
    units = {"throughput_tokens_per_sec": "tokens/s", "throughput_samples_per_sec": items_unit(family)}
    for name, unit in units.items():
        if name in point.metrics:
            return point.metrics[name], unit
    return None


def points_text(cell: CellSummary) -> str:
    """How many points there are of each kind: "3 ok, 1 failed"."""
    counts = ((cell.points_ok, "ok"), (cell.points_failed, "failed"), (cell.points_skipped, "skipped"))
    return ", ".join(f"{count} {what}" for count, what in counts if count) or cell.status


def best_text(cell: CellSummary) -> str:
    """The highest throughput of a cell, and at which point."""
    found = [(*best, point.point) for point in cell.points if (best := throughput(point, cell.family)) is not None]
    if not found:
        return "-"
    value, unit, label = max(found)
    return f"{number(value)} {unit} ({label})"


def doubts_text(cell: CellSummary) -> str:
    """The kinds of doubt that a cell's points have, the most frequent first."""
    kinds = Counter(doubt.kind for point in cell.points for doubt in point.doubts)
    common = [kind for kind, _ in kinds.most_common(MAX_KINDS)]
    return ", ".join(common) + (f" and {len(kinds) - MAX_KINDS} more" if len(kinds) > MAX_KINDS else "")


def _row(cell: CellSummary) -> tuple[str, ...]:
    what = (cell.subject, cell.family or "-", cell.device, cell.runtime, cell.precision)
    return (*what, points_text(cell), best_text(cell), doubts_text(cell))


def _plan_row(plan: CellPlan, seconds: float | None) -> tuple[str, ...]:
    cell, workload = plan.cell, plan.cell.workload
    what = (cell.subject, workload.family or "-", cell.device.selector, cell.runtime, cell.precision)
    time = "unknown" if seconds is None else duration(seconds)
    return (*what, workload.weights, str(plan.settings.launches), _labels(plan), time)


def _labels(plan: CellPlan) -> str:
    labels = [point.label for point in plan.runnable]
    return f"{len(labels)}: {labels[0]} .. {labels[-1]}" if len(labels) > 1 else f"{len(labels)}: {''.join(labels)}"


def _skipped(plans: Sequence[CellPlan]) -> list[str]:
    """The points that are left out, with the reason."""
    lines = []
    for plan in plans:
        for label, why in plan.skipped.items():
            lines.append(f"skipped: {cell_name(plan.cell)}: {label}: {why}")
    return [*lines, ""] if lines else []

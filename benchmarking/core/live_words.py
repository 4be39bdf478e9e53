"""What `benchhouse top` and the page Live say about a sweep: its progress, the point being measured, and its tables."""

from __future__ import annotations

from functools import partial

from benchmarking.core.live_status import CellProgress, CurrentPoint, LiveStatus, MachineProgress, PointResult
from benchmarking.core.tables import Column
from benchmarking.core.text import duration, number


def progress(status: LiveStatus) -> str:
    """ "3 of 8 points, 1 failed" """
    return f"{status.done} of {status.total} points" + (f", {status.failed} failed" if status.failed else "")


def left(status: LiveStatus) -> str:
    """ "about 2 min left"; empty if unknown."""
    return f"about {duration(status.left_s)} left" if status.left_s else ""


def age(then_s: float, now_s: float) -> str:
    """The time since then; never negative, since clocks differ."""
    return duration(max(0.0, now_s - then_s))


def point_facts(now: CurrentPoint) -> dict[str, str]:
    """Names and values of the point being measured."""
    phase = now.phase.replace("_", " ") or "first call"
    facts = {
        "run": now.cell,
        "point": now.point,
        "launch": f"{now.launch} of {now.launches}",
        "pass": f"{phase}, {now.calls} calls" if now.calls else phase,
    }
    if now.median_ms is not None:
        facts["median"] = f"{number(now.median_ms)} ms"
    if now.low_ms is not None and now.high_ms is not None:
        facts["95 % interval"] = f"{number(now.low_ms)} to {number(now.high_ms)} ms"
    return facts


CELLS = (
    Column[CellProgress](heading="run", text=lambda cell: cell.name, is_key=True),
    Column[CellProgress](heading="points", text=lambda cell: f"{cell.done}/{cell.total}", is_number=True),
    Column[CellProgress](heading="failed", text=lambda cell: str(cell.failed or "") or None, is_number=True),
)
MACHINES = (
    Column[MachineProgress](heading="worker", text=lambda row: row.worker, is_key=True),
    Column[MachineProgress](heading="host", text=lambda row: row.host, spare=1),
    Column[MachineProgress](heading="device", text=lambda row: row.device, is_key=True),
    Column[MachineProgress](heading="state", text=lambda row: row.state, is_state=True),
    Column[MachineProgress](heading="points", text=lambda row: str(row.done), is_number=True),
    Column[MachineProgress](heading="failed", text=lambda row: str(row.failed), is_number=True),
    Column[MachineProgress](heading="measures", text=lambda row: row.activity or None),
)
USES = {"utilization_mean_percent": "utilization %", "power_mean_w": "power W"}
"""Use of the device during the monitored calls of a point -> heading."""


def results(now_s: float) -> tuple[Column[PointResult], ...]:
    """The columns of the latest results."""
    return (
        Column(heading="run", text=lambda point: point.cell, is_key=True, spare=2),
        Column(heading="point", text=lambda point: point.point, is_key=True),
        Column(heading="launch", text=lambda point: str(point.launch), is_number=True, spare=3),
        Column(heading="median ms", text=lambda point: _number(point.median_ms), is_number=True),
        Column(heading="calls", text=lambda point: str(point.calls or "") or None, is_number=True, spare=4),
        *(Column(heading=heading, text=partial(_use, name), is_number=True, spare=1) for name, heading in USES.items()),
        Column(heading="state", text=_state, is_state=True),
        Column(heading="ago", text=lambda point: age(point.at_s, now_s)),
    )


def _use(name: str, point: PointResult) -> str | None:
    return _number(point.use.get(name))


def _number(value: float | None) -> str | None:
    return None if value is None else number(value)


def _state(point: PointResult) -> str:
    if point.status != "ok":
        return f"{point.status.replace('_', ' ')}: {point.error or 'no reason'}"
    return ", ".join(kind.replace("_", " ") for kind in point.doubts) or "ok"

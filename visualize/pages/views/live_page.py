"""The page Live: sweeps running on this machine, with progress, latest results and what disturbed them.

Browsers poll the page, so it does not read the warehouse.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from benchmarking.core.live_status import (
    LiveStatus,
    PointResult,
    WatchedCommand,
)
from benchmarking.core.text import duration, number, visible
from visualize.pages.elements import Grid, Heading, number_cell, state_cell, text_cell
from visualize.pages.site import NotFoundError, View

if TYPE_CHECKING:
    from visualize.pages.snapshot import Data

POLL_S = 2
"""Polling interval of browsers, in seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LiveParameters:
    """No parameters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepStatus:
    """A running or finished sweep."""

    key: str
    words: str
    state: str
    tone: str
    command: str
    total: int
    done: int
    failed: int
    progress: str
    """Progress as text: "3 of 8 points, 1 failed"."""
    left: str
    activity: str
    news: str
    """Running time and last update."""
    current: tuple[tuple[str, str], ...]
    cells: Grid
    cells_left_out: int
    machines: Grid
    """Workers of a cluster; empty for a sweep of this machine."""
    results: Grid
    resume: str | None
    """The command that resumes a crashed sweep."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LivePage:
    """The content of the page, for its template."""

    running: tuple[SweepStatus, ...]
    ended: tuple[SweepStatus, ...]
    ignored: tuple[str, ...]
    poll_s: int


def page(data: Data, parameters: LiveParameters) -> LivePage:
    """The page. Raises StorageError if the status folder is unusable."""
    if data.live_snapshot is None:
        raise NotFoundError("benchhouse dashboard and benchhouse top show running sweeps, on the machine that measures")
    snapshot = data.live_snapshot()
    return LivePage(
        running=tuple(_sweep(one, snapshot.at_s) for one in snapshot.running),
        ended=tuple(_sweep(one, snapshot.at_s) for one in snapshot.ended),
        ignored=snapshot.ignored,
        poll_s=POLL_S,
    )


def _sweep(one: WatchedCommand, now_s: float) -> SweepStatus:
    status = one.status
    is_running = one.state == "running"
    ago = duration(max(0.0, now_s - status.updated_s))
    runs = duration(max(0.0, now_s - status.started_s))
    cells = Grid(
        headings=(
            Heading(text="run"),
            Heading(text="points", is_number=True),
            Heading(text="of", is_number=True),
            Heading(text="failed", is_number=True),
        ),
        rows=tuple(
            (
                text_cell(cell.name),
                text_cell(cell.done),
                text_cell(cell.total),
                text_cell(cell.failed or None, tone="bad" if cell.failed else "muted"),
            )
            for cell in status.cells
        ),
        caption="Runs of this sweep",
    )
    machines = Grid(
        headings=(
            Heading(text="worker"),
            Heading(text="host"),
            Heading(text="device"),
            Heading(text="state"),
            Heading(text="points", is_number=True),
            Heading(text="failed", is_number=True),
            Heading(text="measures"),
        ),
        rows=tuple(
            (
                text_cell(one.worker),
                text_cell(one.host),
                text_cell(one.device),
                text_cell(one.state, tone="bad" if one.state == "lost" else ""),
                text_cell(one.done),
                text_cell(one.failed or None, tone="bad" if one.failed else "muted"),
                text_cell(one.activity or None),
            )
            for one in status.machines
        ),
        caption="Machines of this sweep",
    )
    return SweepStatus(
        key=status.key.replace(".", "-"),
        words=visible(status.words),
        state=one.state,
        tone={"running": "", "finished": "good" if not status.failed else "warn"}.get(one.state, "bad"),
        command=visible(shlex.join(status.command)),
        total=status.total,
        done=min(status.done, status.total),
        failed=status.failed,
        progress=f"{status.done} of {status.total} points" + (f", {status.failed} failed" if status.failed else ""),
        left=f"about {duration(status.left_s)} left" if is_running and status.left_s else "",
        activity=visible(status.activity),
        news=f"PID {status.owner.pid}, running for {runs}, last update {ago} ago" if is_running else f"{ago} ago",
        current=_current(status) if is_running else (),
        cells=cells,
        cells_left_out=status.cells_left_out,
        machines=machines,
        results=_results(status.results, now_s),
        resume=None if status.resume_command is None else visible(status.resume_command),
    )


def _current(status: LiveStatus) -> tuple[tuple[str, str], ...]:
    """The point being measured; empty for a cluster, which shows it per machine."""
    now = status.current
    if now is None or len(status.machines) > 1:
        return ()
    phase = now.phase.replace("_", " ") or "first call"
    facts = {
        "run": now.cell,
        "point": now.point,
        "launch": f"{now.launch} of {now.launches}",
        "pass": f"{phase}, {now.calls} calls" if now.calls else phase,
        "median": None if now.median_ms is None else f"{number(now.median_ms)} ms",
        "95 % interval": None
        if now.low_ms is None or now.high_ms is None
        else f"{number(now.low_ms)} to {number(now.high_ms)} ms",
    }
    return tuple((name, visible(text)) for name, text in facts.items() if text is not None)


def _results(results: Sequence[PointResult], now_s: float) -> Grid:
    """The latest results, with device utilization during their monitored calls."""
    uses = {"utilization_mean_percent": "utilization %", "power_mean_w": "power W"}
    shown = {name: title for name, title in uses.items() if any(name in one.use for one in results)}
    return Grid(
        headings=(
            Heading(text="point"),
            Heading(text="run"),
            Heading(text="launch", is_number=True),
            Heading(text="median ms", is_number=True),
            Heading(text="calls", is_number=True),
            *(Heading(text=title, is_number=True) for title in shown.values()),
            Heading(text="state"),
            Heading(text="ago"),
        ),
        rows=tuple(
            (
                text_cell(one.point),
                text_cell(one.cell),
                text_cell(one.launch),
                number_cell(one.median_ms),
                text_cell(one.calls or None),
                *(number_cell(one.use.get(name)) for name in shown),
                state_cell(_state(one), hint=one.error and visible(one.error)),
                text_cell(duration(max(0.0, now_s - one.at_s))),
            )
            for one in results
        ),
        caption="Last results",
    )


def _state(one: PointResult) -> str:
    if one.status != "ok":
        return f"{one.status.replace('_', ' ')}: {one.error or 'no reason'}"
    return ", ".join(kind.replace("_", " ") for kind in one.doubts) or "ok"


VIEWS = (
    View(
        name="live",
        path="/live",
        title="Live",
        parameters=LiveParameters,
        page=page,
        reads_warehouse=False,
    ),
)

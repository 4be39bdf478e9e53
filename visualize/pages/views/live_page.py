"""The page Live: sweeps running on this machine, with progress, latest results and what disturbed them.

Browsers poll the page, so it does not read the warehouse.
"""

from __future__ import annotations

import shlex
from types import SimpleNamespace
from typing import TYPE_CHECKING

from benchmarking.core import live_status
from benchmarking.core.live_status import WatchedCommand
from benchmarking.core.tables import table_of
from benchmarking.core.text import visible
from visualize.pages.elements import facts, grid_of
from visualize.pages.site import NoParameters, NotFoundError, View

if TYPE_CHECKING:
    from visualize.pages.snapshot import Data

POLL_S = 2
"""Polling interval of browsers, in seconds."""


def page(data: Data, parameters: NoParameters) -> SimpleNamespace:
    """The page. Raises StorageError if the status folder is unusable."""
    if data.live_snapshot is None:
        raise NotFoundError("benchhouse dashboard and benchhouse top show running sweeps, on the machine that measures")
    snapshot = data.live_snapshot()
    return SimpleNamespace(
        running=[_sweep(command, snapshot.at_s) for command in snapshot.running],
        ended=[_sweep(command, snapshot.at_s) for command in snapshot.ended],
        ignored=snapshot.ignored,
        poll_s=POLL_S,
    )


def _sweep(one: WatchedCommand, now_s: float) -> SimpleNamespace:
    """A running or ended sweep, for the template."""
    status = one.status
    is_running = one.state == "running"
    ago, runs = (live_status.age(then_s, now_s) for then_s in (status.updated_s, status.started_s))
    # A cluster measures several points, which its machines name.
    current = status.current if is_running and len(status.machines) < 2 else None
    return SimpleNamespace(
        key=status.key.replace(".", "-"),
        words=visible(status.words),
        state=one.state,
        tone={"running": "", "finished": "good" if not status.failed else "warn"}.get(one.state, "bad"),
        command=visible(shlex.join(status.command)),
        total=status.total,
        done=min(status.done, status.total),
        progress=live_status.progress(status),
        left=live_status.left(status) if is_running else "",
        activity=visible(status.activity),
        news=f"PID {status.owner.pid}, running for {runs}, last update {ago} ago" if is_running else f"{ago} ago",
        current=() if current is None else facts(live_status.point_facts(current)),
        cells=grid_of(table_of(live_status.CELLS, status.cells), "Runs of this sweep"),
        cells_left_out=status.cells_left_out,
        # The workers of a cluster; none for a sweep of this machine.
        machines=grid_of(table_of(live_status.MACHINES, status.machines), "Machines of this sweep"),
        results=grid_of(table_of(live_status.results(now_s), status.results), "Last results"),
        resume=None if status.resume_command is None else visible(status.resume_command),
    )


VIEWS = (View(name="live", path="/live", title="Live", parameters=NoParameters, page=page, reads_warehouse=False),)

"""Brings the stored change points up to date before they are asked for, writing only when there is something new."""

from __future__ import annotations

from collections.abc import Sequence

from db.analysis.changes import Searched, stale_series, update
from db.analysis.metrics import Metric
from db.warehouse import OutdatedError, Warehouse


def refresh(path: str, metrics: Sequence[Metric], *, lock_timeout_s: float) -> Searched:
    """What was done. Raises as `Warehouse.open` does.

    The file is opened for reading first: others may go on reading it, unless there is something to store.
    """
    try:
        with Warehouse.open(path, read_only=True, lock_timeout_s=lock_timeout_s) as warehouse:
            stale = [metric for metric in metrics if stale_series(warehouse, metric)]
    except OutdatedError:  # opened for writing it is brought up to date
        stale = list(metrics)
    done = Searched()
    if stale:
        with Warehouse.open(path, lock_timeout_s=lock_timeout_s, create=False) as warehouse:
            for metric in stale:
                done += update(warehouse, metric)
    return done

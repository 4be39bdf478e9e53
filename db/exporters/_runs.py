"""The runs of a selection, as records, for targets that take one run after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from db.exporters._scope import Scope
from db.run_records import StoredRun, stored_runs

RUN_IDS = "SELECT run_id FROM chosen GROUP BY run_id ORDER BY min(started_at), run_id"


def whole_runs(scope: Scope) -> Iterator[StoredRun]:
    """Every run with a selected result, with all of its results. Raises UsageError when nothing is selected."""
    scope.months(whole=True)
    run_ids = [row["run_id"] for row in scope.read(RUN_IDS, whole=True).dicts()]
    return stored_runs(scope.warehouse, run_ids)


def selected_runs(scope: Scope) -> Iterator[StoredRun]:
    """The runs with those of their results that are selected. Raises UsageError when nothing is selected."""
    scope.months()
    ids = scope.read("SELECT run_id, result_id FROM chosen").dicts()
    kept = {row["result_id"] for row in ids}
    run_ids = [row["run_id"] for row in scope.read(RUN_IDS).dicts()]
    for stored in stored_runs(scope.warehouse, run_ids):
        results = tuple(result for result in stored.run.results if result.result_id in kept)
        yield replace(stored, run=replace(stored.run, results=results))

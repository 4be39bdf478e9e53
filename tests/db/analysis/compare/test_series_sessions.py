"""The sessions of a series that a comparison is judged by."""

from __future__ import annotations

from statistics import geometric_mean

import pytest

from benchmarking.core.metrics import JUDGED
from db.analysis.compare.reading import measured
from db.analysis.compare.series_sessions import MAX_SESSIONS, sessions_of
from db.analysis.selection import Selection

LATENCY = JUDGED["latency_median_ms"]
WILD = [10.0, 20.0] * 10
QUIET = [10.0 + place % 7 / 10 for place in range(MAX_SESSIONS)]


@pytest.fixture
def values_for(warehouse):
    """A function that gives the sessions' values for a comparison of the results of some runs, for each series."""

    def values(*run_ids):
        results = measured(warehouse, [Selection.parse(f"run={run_id}") for run_id in run_ids], LATENCY)
        found = sessions_of(warehouse, [one for side in results for one in side], LATENCY)
        return [[one.value for one in found[side[0].series_id]] for side in results]

    return values


def last_of(values):
    return f"tiny-bert-eager-{len(values) - 1}"


def test_only_the_newest_sessions_count(warehouse, write_history, values_for):
    values = [*WILD, *QUIET, 10.0]
    write_history(warehouse, values, model_id="tiny-bert")
    assert values_for(last_of(values)) == [QUIET]


def test_a_series_missing_from_the_newest_sessions_uses_older_ones(warehouse, write_history, values_for):
    values = [*WILD, *QUIET, 10.0]
    ids = write_history(warehouse, values, model_id="tiny-bert")
    with warehouse.transaction() as connection:
        for result_id in ids[15:-1]:
            connection.execute("UPDATE benchmark_results SET status = 'failed' WHERE result_id = ?", [result_id])
    assert values_for(last_of(values)) == [WILD[:15]]


def test_runs_of_one_session_are_one_value(warehouse, write_history, values_for):
    values = [*QUIET, 10.0]
    write_history(warehouse, values, model_id="tiny-bert")
    with warehouse.transaction() as connection:
        connection.execute("UPDATE benchmark_runs SET session_id = 'one' WHERE run_id LIKE 'tiny-bert-eager-1_'")
    assert values_for(last_of(values)) == [[*QUIET[:10], pytest.approx(geometric_mean(QUIET[10:20])), *QUIET[20:]]]


def test_sessions_of_another_cell_do_not_count(warehouse, write_history, values_for):
    values = [*QUIET, 10.0]
    write_history(warehouse, values, model_id="tiny-bert")
    write_history(warehouse, values, model_id="tiny-bert", runtime="compiled", first=len(values))
    both = values_for(last_of(values), f"tiny-bert-compiled-{2 * len(values) - 1}")
    assert both == [QUIET, QUIET]

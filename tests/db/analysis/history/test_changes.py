"""Change points of a warehouse are found, stored, confirmed and withdrawn."""

import json
from dataclasses import replace

import pytest

from benchmarking.core.errors import UsageError
from benchmarking.core.metrics import JUDGED
from db.analysis.history import changes, detector
from db.analysis.history.changes import SearchCounts, change_point_id, regressions, stale_series, update_changes
from db.analysis.history.detector import NAME, PARAMETERS, VERSION
from db.analysis.history.histories import alias_series, unalias_series
from db.analysis.history.history_text import regressions_text
from db.warehouse import Warehouse

MEDIAN = JUDGED["latency_median_ms"]
QUIET = [10.0, 10.1, 9.9, 10.0, 10.1, 9.9, 10.05, 9.95, 10.0, 10.1, 9.9, 10.0]
STEP = [12.0, 12.1, 11.9]
"""Seen with 12 quiet runs before it from the second run on."""
COLUMNS = "result_id, last_good_result_id, state, value_before, value_after"


def stored(warehouse, columns=COLUMNS):
    sql = f"SELECT {columns} FROM change_points ORDER BY result_id"
    return [tuple(row.values()) for row in warehouse.query(sql).dicts()]


def test_a_change_is_stored_with_the_results_around_it(warehouse, write_history):
    results = write_history(warehouse, [*QUIET, *STEP])
    assert update_changes(warehouse, MEDIAN) == SearchCounts(series=1, found=1, confirmed=1, withdrawn=0)
    assert stored(warehouse) == [(results[12], results[11], "confirmed", 10.0, 12.0)]
    (row,) = warehouse.query("SELECT * FROM change_points").dicts()
    assert row["relative_change"] == pytest.approx(0.2)
    assert row["p_value"] < 1e-4
    assert row["change_point_id"] == change_point_id("latency_median_ms", results[12])
    assert (row["metric"], row["detector"], row["detector_version"]) == ("latency_median_ms", NAME, VERSION)
    assert json.loads(row["parameters"])["p_value"] == 1e-4


def test_a_change_is_suspected_until_the_next_run_confirms_it(warehouse, write_history):
    results = write_history(warehouse, [*QUIET, *STEP[:2]])
    assert update_changes(warehouse, MEDIAN).confirmed == 0
    assert stored(warehouse, "result_id, state") == [(results[12], "suspected")]
    write_history(warehouse, STEP[2:], first=14)
    assert update_changes(warehouse, MEDIAN) == SearchCounts(series=1, found=0, confirmed=1, withdrawn=0)
    assert stored(warehouse, "result_id, state") == [(results[12], "confirmed")]


def test_days_that_differ_no_more_than_others_are_no_changes(warehouse, write_history):
    days = [10.0, 10.3, 10.1, 9.8, 9.7, 9.75, 9.7, 10.2, 10.0, 10.3]
    write_history(warehouse, [day * (1 + 0.002 * (run * 3 % 8 - 3.5) / 3.5) for day in days for run in range(8)])
    assert update_changes(warehouse, MEDIAN).found >= 1  # runs a day apart
    start = warehouse.query("SELECT min(started_at) AS first FROM benchmark_runs").dicts()[0]["first"]
    warehouse.query(
        """UPDATE benchmark_runs SET started_at = $start + to_days((n // 8)::INTEGER) + to_minutes(15 * (n % 8)) FROM
        (SELECT run_id, row_number() OVER (ORDER BY started_at) - 1 AS n FROM benchmark_runs) numbered
        WHERE benchmark_runs.run_id = numbered.run_id""",
        {"start": start},
    )
    assert update_changes(warehouse, MEDIAN).withdrawn >= 1
    assert not warehouse.query("SELECT * FROM change_points WHERE state <> 'withdrawn'").dicts()


def test_contradicted_changes_are_withdrawn_and_can_return(warehouse, write_history):
    results = write_history(warehouse, [*QUIET, *STEP[:2]])
    update_changes(warehouse, MEDIAN)
    write_history(warehouse, QUIET, first=14)
    assert update_changes(warehouse, MEDIAN) == SearchCounts(series=1, found=0, confirmed=0, withdrawn=1)
    assert stored(warehouse, "result_id, state") == [(results[12], "withdrawn")]
    warehouse.query("DELETE FROM benchmark_results WHERE result_id > ?", [results[-1]])
    update_changes(warehouse, MEDIAN)
    assert stored(warehouse, "result_id, state") == [(results[12], "suspected")]


def test_a_regression_of_a_quantization_has_its_name(warehouse, write_history):
    write_history(warehouse, [*QUIET, *STEP])
    mode = json.dumps({"quantization": "Q4_K - Medium"})
    warehouse.query("UPDATE benchmark_runs SET precision = 'other', runtime_mode = ?", [mode])
    update_changes(warehouse, MEDIAN)
    (found,) = regressions(warehouse, [MEDIAN])
    assert found.precision == "Q4_K - Medium"
    assert "precision Q4_K - Medium" in regressions_text([found])


def test_searching_again_finds_no_stale_series(warehouse, write_history):
    write_history(warehouse, [*QUIET, *STEP])
    update_changes(warehouse, MEDIAN)
    before = stored(warehouse, "*")
    assert stale_series(warehouse, MEDIAN) == []
    assert update_changes(warehouse, MEDIAN) == SearchCounts()
    warehouse.query("DELETE FROM history_scans")
    assert update_changes(warehouse, MEDIAN) == SearchCounts(series=1)
    assert stored(warehouse, "*") == before


def test_only_series_with_new_results_are_searched(warehouse, write_history):
    write_history(warehouse, QUIET)
    write_history(warehouse, QUIET, runtime="compiled")
    assert update_changes(warehouse, MEDIAN).series == 2
    write_history(warehouse, STEP, runtime="compiled", first=12)
    assert update_changes(warehouse, MEDIAN) == SearchCounts(series=1, found=1, confirmed=1)


def test_other_parameters_of_the_detector_search_everything_again(warehouse, write_history, monkeypatch):
    write_history(warehouse, [*QUIET, *STEP])
    update_changes(warehouse, MEDIAN)
    for module in (detector, changes):
        monkeypatch.setattr(module, "PARAMETERS", replace(PARAMETERS, least_change=0.3))
    assert update_changes(warehouse, MEDIAN) == SearchCounts(series=1, withdrawn=1)


def test_each_metric_has_its_own_change_points(warehouse, write_history):
    write_history(warehouse, [*QUIET, *STEP])
    update_changes(warehouse, MEDIAN)
    assert update_changes(warehouse, JUDGED["throughput_samples_per_sec"]) == SearchCounts(
        series=1, found=1, confirmed=1
    )
    assert len(set(stored(warehouse, "change_point_id"))) == 2


def test_unfit_results_are_not_part_of_the_history(warehouse, write_history):
    results = write_history(warehouse, [*QUIET, *STEP])
    sql = "UPDATE benchmark_results SET {} WHERE result_id IN (SELECT unnest(?))"
    warehouse.query(sql.format("validity = 'invalid'"), [results[12:13]])
    warehouse.query(sql.format("latency_median_ms = NULL"), [results[13:14]])
    warehouse.query(sql.format("validity = 'throttled'"), [results[14:15]])
    assert update_changes(warehouse, MEDIAN) == SearchCounts(series=1)


def test_an_alias_joins_two_histories_and_removing_it_separates_them(warehouse, write_history):
    old = write_history(warehouse, QUIET, model_id="old-name")
    new = write_history(warehouse, STEP, model_id="new-name", first=12)
    assert update_changes(warehouse, MEDIAN) == SearchCounts(series=2)
    ids = {row["model_id"]: row["series_id"] for row in warehouse.query("SELECT * FROM series").dicts()}
    alias_series(warehouse, ids["old-name"], ids["new-name"], "renamed")
    assert update_changes(warehouse, MEDIAN) == SearchCounts(series=1, found=1, confirmed=1)
    assert stored(warehouse, "result_id, last_good_result_id, series_id") == [(new[0], old[-1], ids["new-name"])]
    unalias_series(warehouse, ids["old-name"])
    assert update_changes(warehouse, MEDIAN) == SearchCounts(series=1, withdrawn=1)


def test_two_series_that_are_joined_both_ways_at_once_make_no_circle(warehouse, write_history, monkeypatch):
    for name in ("one", "two"):
        write_history(warehouse, QUIET, model_id=name)
    one, two = (row["series_id"] for row in warehouse.query("SELECT series_id FROM series ORDER BY model_id").dicts())
    change = Warehouse.change

    def changed(opened, work):
        monkeypatch.setattr(Warehouse, "change", change)
        alias_series(opened, one, two, "the other machine was faster")
        return change(opened, work)

    monkeypatch.setattr(Warehouse, "change", changed)
    with pytest.raises(UsageError, match="are already one"):
        alias_series(warehouse, two, one, "renamed")
    (alias,) = warehouse.query("SELECT series_id, canonical_series_id FROM series_alias").dicts()
    assert tuple(alias.values()) == (one, two)


def test_the_order_is_that_of_the_commits_even_if_measured_backwards(warehouse, write_history):
    results = write_history(warehouse, [*QUIET, *STEP])
    warehouse.query(
        "UPDATE benchmark_runs SET started_at = TIMESTAMP '2027-01-01' - (git_commit_time - TIMESTAMP '2026-01-01')"
    )
    update_changes(warehouse, MEDIAN)
    assert stored(warehouse, "result_id, value_after") == [(results[12], 12.0)]

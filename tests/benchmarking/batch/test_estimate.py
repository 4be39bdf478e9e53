"""Estimates of plan durations from earlier runs: a worked example of each rule."""

from __future__ import annotations

from dataclasses import replace

import pytest

from benchmarking.batch.summary import EarlierPoint, cell_key, earlier_points, estimate
from benchmarking.core.records import Point
from benchmarking.measure.context import settings
from benchmarking.sweep.plan.plan import CellPlan
from db.warehouse import Warehouse


@pytest.fixture
def plan(make_run):
    run = make_run()

    def make(*points, **how):
        return CellPlan(
            session_id="s",
            started_at="2026-01-02T03:04:05Z",
            cell=run.cell,
            hardware=run.hardware,
            provenance=run.provenance,
            settings=settings(how.pop("profile", "standard"), **how),
            timeout_s=60.0,
            points=tuple(Point(batch_size=batch, sequence_length=100) for batch in points),
        )

    return make


def measured(plan, batch_size=1, **fields):
    point = Point(batch_size=batch_size, sequence_length=100)
    defaults = {
        "cell": cell_key(plan.cell, plan.hardware.hardware_id),
        "point": point.label,
        "work": 100.0 * batch_size,
        "profile": "standard",
        "fixed_iterations": None,
        "fixed_warmup_iterations": None,
        "latency_ms": 10.0,
        "calls": 200.0,
        "launch_s": 7.0,
        "load_s": 3.0,
    }
    return EarlierPoint(**{**defaults, **fields})


def test_a_measured_point_takes_the_same_time_again_plus_one_load_per_launch(plan):
    planned_cell = plan(1, 2, launches=3)
    found = estimate([planned_cell], [measured(planned_cell), measured(planned_cell, 2, launch_s=9.0)])
    assert found.total_s == 3 * (3.0 + 7.0 + 9.0)
    assert (found.known_points, found.scaled_points, found.unknown_points) == (2, 0, 0)


def test_several_runs_of_a_point_are_combined_by_median(plan):
    planned_cell = plan(1, launches=1)
    runs = [measured(planned_cell, launch_s=seconds) for seconds in (5.0, 6.0, 100.0)]
    assert estimate([planned_cell], runs).total_s == 3.0 + 6.0


def test_one_process_per_point_loads_once_per_point(plan):
    planned_cell = plan(1, 2, profile="reference", launches=1)
    runs = [measured(planned_cell, batch, profile="reference") for batch in (1, 2)]
    assert estimate([planned_cell], runs).total_s == 2 * 3.0 + 2 * 7.0


def test_unmeasured_fixed_counts_take_calls_times_latency(plan):
    planned_cell = plan(1, launches=1, iterations=50, warmup_iterations=20)
    calls = 50 + 20 + planned_cell.settings.memory_calls
    assert estimate([planned_cell], [measured(planned_cell)]).total_s == pytest.approx(3.0 + calls * 0.010)


def test_other_profiles_take_calls_times_latency_within_their_limits(plan):
    planned_cell = plan(1, profile="quick")
    slow, fast = measured(planned_cell, latency_ms=100.0), measured(planned_cell, latency_ms=0.1)
    assert estimate([planned_cell], [slow]).total_s == 3.0 + planned_cell.settings.max_time_s
    assert estimate([planned_cell], [fast]).total_s == 3.0 + planned_cell.settings.min_time_s
    least = measured(planned_cell, latency_ms=2000.0)
    assert estimate([planned_cell], [least]).total_s == 3.0 + planned_cell.settings.min_samples * 2.0


def test_an_unknown_point_is_scaled_from_the_nearest_one(plan):
    planned_cell = plan(8, launches=1, iterations=10, warmup_iterations=0)
    how = {"fixed_iterations": 10, "fixed_warmup_iterations": 0}
    nearest = measured(planned_cell, 4, launch_s=5.0, **how)
    runs = [measured(planned_cell, 1, launch_s=1.0, **how), nearest, replace(nearest, latency_ms=11.0)]
    found = estimate([planned_cell], runs)
    assert found.total_s == 3.0 + 2 * 5.0
    assert (found.known_points, found.scaled_points, found.unknown_points) == (0, 1, 0)


def test_unmeasured_cells_have_no_estimate(plan):
    planned_cell = plan(1, 2)
    found = estimate([planned_cell], [measured(planned_cell, cell="another")])
    assert (dict(found.cells_s), found.total_s) == ({}, 0)
    assert (found.known_points, found.scaled_points, found.unknown_points) == (0, 0, 2)


def test_without_launch_times_a_point_takes_calls_times_latency(plan):
    planned_cell = plan(1, launches=1)
    assert estimate([planned_cell], [measured(planned_cell, launch_s=None, load_s=None)]).total_s == 200 * 0.010


def test_earlier_points_are_read_from_the_warehouse(plan, make_run, tmp_path):
    planned_cell = plan(1)
    run = make_run(batch_sizes=(1,), sequence_lengths=(128,), launches=2, iterations=30)
    launches = [{"started_at": f"2026-01-02T03:04:0{i}Z", "finished_at": f"2026-01-02T03:04:1{i * 2}Z"} for i in (0, 1)]
    run.results[0].extra["launches"] = launches
    with Warehouse.open(tmp_path / "a.duckdb") as warehouse:
        warehouse.ingest(run)
        (one,) = earlier_points([planned_cell], lambda sql, values: warehouse.query(sql, values).dicts())
    assert one.cell == cell_key(planned_cell.cell, planned_cell.hardware.hardware_id)
    assert (one.point, one.work, one.profile, one.latency_ms) == ("b1 s128", 128.0, "standard", 32.0)
    assert one.calls == (2 * 30 + 20) / 2
    assert (one.launch_s, one.load_s) == ((10.0 + 11.0) / 2, pytest.approx(3.3))

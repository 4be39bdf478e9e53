"""What calibration runs measured is in hardware_info: of each precision the newest, whatever order they came in."""

import itertools
from dataclasses import replace
from datetime import datetime

import pytest

from benchmarking.core.errors import StorageError
from benchmarking.core.records import Point
from db.commands import delete
from db.upkeep.verify import verify
from db.warehouse import Warehouse

READINGS = {"peak_flops_per_sec": 2e12, "peak_copy_bytes_per_sec": 1e11}


@pytest.fixture
def calibration(make_run):
    """A function that makes a calibration run."""

    def make(precision="float32", day=1, status="ok", validity="valid", **readings):
        run = make_run(
            model_id="device-calibration", family=None, precision=precision, batch_sizes=(1,), sequence_lengths=(None,),
            started_at=f"2026-03-{day:02}T00:00:00Z",
        )  # fmt: skip
        metrics = {**run.results[0].metrics, **(readings or READINGS)}
        result = replace(run.results[0], point=Point(batch_size=1), metrics=metrics, status=status, validity=validity)
        workload = replace(run.cell.workload, task="device-calibration")
        return replace(run, cell=replace(run.cell, workload=workload), results=(result,))

    return make


def calibrated(warehouse):
    columns = "peak_flops, peak_copy_bytes_per_sec, calibrated_at, calibration_run_id"
    (row,) = warehouse.query(f"SELECT {columns} FROM hardware_info").dicts()
    return tuple(row.values())


def test_a_device_that_was_never_calibrated_has_no_peaks(warehouse, make_run):
    warehouse.ingest(make_run())
    assert calibrated(warehouse) == (None, None, None, None)


def test_a_calibration_is_kept_with_its_time_and_run(warehouse, make_run, calibration):
    run = calibration(day=3)
    warehouse.ingest(make_run())
    warehouse.ingest(run)
    assert calibrated(warehouse) == ({"float32": 2e12}, 1e11, datetime(2026, 3, 3), run.run_id)


def test_the_newest_calibration_of_each_precision_wins_in_any_order(warehouse, calibration):
    runs = [
        calibration("float32", day=1, peak_flops_per_sec=1e12, peak_copy_bytes_per_sec=1e11),
        calibration("bfloat16", day=2, peak_flops_per_sec=4e12, peak_copy_bytes_per_sec=2e11),
        calibration("float32", day=3, peak_flops_per_sec=3e12),
    ]
    expected = ({"bfloat16": 4e12, "float32": 3e12}, 2e11, datetime(2026, 3, 3), runs[2].run_id)
    for order in itertools.permutations(runs):
        for table in ("hardware_info", "series", "benchmark_runs", "benchmark_results", "raw_benchmark_data"):
            warehouse.query(f"DELETE FROM {table}")
        for run in order:
            warehouse.ingest(run)
        assert calibrated(warehouse) == expected


def test_a_deleted_calibration_leaves_no_peak(database, calibration, capsys):
    older = calibration("float32", day=1, peak_flops_per_sec=1e12, peak_copy_bytes_per_sec=1e11)
    newer = calibration("bfloat16", day=2, peak_flops_per_sec=4e12)
    with Warehouse.open(database) as warehouse:
        warehouse.ingest_all([older, newer])
    for run, left in ((older, ({"bfloat16": 4e12}, None, datetime(2026, 3, 2), newer.run_id)), (newer, (None,) * 4)):
        assert delete.main([run.run_id, "--db-path", str(database), "--yes"]) == 0
        assert "deleted 1 run" in capsys.readouterr().out
        with Warehouse.open(database) as warehouse:
            assert calibrated(warehouse) == left
            assert verify(warehouse) == []


@pytest.mark.parametrize("days", [(1, 2), (2, 1)])
def test_a_valid_reading_is_preferred_to_a_noisy_one_of_any_age(warehouse, calibration, days):
    noisy = calibration(day=days[0], validity="noisy", peak_flops_per_sec=1e12)
    valid = calibration(day=days[1], peak_flops_per_sec=3e12)
    warehouse.ingest(noisy)
    assert calibrated(warehouse)[0] == {"float32": 1e12}
    warehouse.ingest(valid)
    assert calibrated(warehouse) == ({"float32": 3e12}, None, datetime(2026, 3, days[1]), valid.run_id)
    warehouse.ingest(calibration(day=3, validity="noisy", peak_flops_per_sec=2e12))
    assert calibrated(warehouse)[0] == {"float32": 3e12}


def test_storing_a_calibration_again_changes_nothing(warehouse, calibration):
    old, new = calibration(day=1), calibration(day=2, peak_flops_per_sec=3e12)
    warehouse.ingest(old)
    warehouse.ingest(new)
    before = calibrated(warehouse)
    assert not warehouse.ingest(old)
    assert not warehouse.ingest(new)
    assert calibrated(warehouse) == before


@pytest.mark.parametrize("useless", [{"status": "failed", "validity": None}, {"validity": "invalid"}])
def test_a_failed_or_invalid_calibration_is_ignored(warehouse, calibration, useless):
    warehouse.ingest(calibration(**useless))
    assert calibrated(warehouse) == (None, None, None, None)


def test_a_model_metric_named_like_a_peak_does_not_calibrate(warehouse, make_run):
    run = make_run(batch_sizes=(1,), sequence_lengths=(32,))
    metrics = {**run.results[0].metrics, **READINGS}
    warehouse.ingest(replace(run, results=(replace(run.results[0], metrics=metrics),)))
    assert calibrated(warehouse) == (None, None, None, None)


def test_another_device_is_left_unchanged(warehouse, make_run, calibration):
    run = calibration()
    hardware = replace(run.hardware, hardware_id="f" * 16, hashed_keys={"device_name": "other"})
    warehouse.ingest(make_run())
    warehouse.ingest(replace(run, hardware=hardware))
    rows = warehouse.query("SELECT peak_flops FROM hardware_info ORDER BY hardware_id = ?", ["f" * 16]).dicts()
    assert [row["peak_flops"] for row in rows] == [None, {"float32": 2e12}]


def test_a_failed_calibration_leaves_the_device_unchanged(warehouse, calibration):
    first = calibration(day=1)
    warehouse.ingest(first)
    before = calibrated(warehouse)
    clash = replace(calibration(day=2, peak_flops_per_sec=9e12), results=first.results)
    with pytest.raises(StorageError):
        warehouse.ingest(clash)
    assert calibrated(warehouse) == before


def test_a_calibrated_warehouse_verifies(warehouse, calibration):
    warehouse.ingest(calibration())
    assert verify(warehouse) == []

"""The peak is the best point's rate at its median, among valid results."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarking.calibration.calibration_plans import peaks_table
from benchmarking.core.records import Point, Result, Workload
from benchmarking.measure.aggregate import with_peak


def workload(task="device-calibration"):
    return Workload(
        model_id="device-calibration",
        family=None,
        task=task,
        source="bench",
        config={},
        config_hash="0",
        weights="given",
    )


def product(size, median_ms, **fields):
    return Result(
        result_id=str(size),
        point=Point(batch_size=1, axes={"matrix_size": size}),
        **{"status": "ok", "validity": "valid", **fields},
        metrics={"latency_median_ms": median_ms, "flops": 2.0 * size**3, "bytes_accessed": 12.0 * size**2},
    )


def copy(size, median_ms):
    return dataclasses.replace(
        product(1, median_ms),
        point=Point(batch_size=1, axes={"copy_bytes": size}),
        metrics={"latency_median_ms": median_ms, "bytes_accessed": 2.0 * size},
    )


def test_the_peak_is_the_best_points_work_over_its_median_time():
    slow, fast = with_peak(workload(), (product(100, 1.0), product(1000, 500.0)))
    assert "peak_flops_per_sec" not in slow.metrics
    assert slow.missing["peak_flops_per_sec"] == "not_applicable: another size was faster"
    assert fast.metrics["peak_flops_per_sec"] == 2e9 / 0.5


def test_the_peak_of_a_copy_counts_bytes_read_and_written():
    (result,) = with_peak(workload(), (copy(4_000_000_000, 2.0),))
    assert result.metrics["peak_copy_bytes_per_sec"] == 8e9 / 0.002
    assert "peak_flops_per_sec" not in result.metrics


def test_equal_rates_have_a_single_peak():
    results = with_peak(workload(), (product(100, 1.0), product(100, 1.0)))
    assert ["peak_flops_per_sec" in result.metrics for result in results] == [False, True]


@pytest.mark.parametrize("fields", [{"validity": "invalid"}, {"status": "failed", "validity": None, "error": "x"}])
def test_invalid_results_are_ignored_as_peaks(fields):
    wrong, right = with_peak(workload(), (product(1000, 0.001, **fields), product(100, 1.0)))
    assert "peak_flops_per_sec" not in wrong.metrics
    assert right.metrics["peak_flops_per_sec"] == 2e9


def test_results_of_models_are_unchanged():
    results = (product(100, 1.0),)
    assert with_peak(workload("feature-extraction"), results) == results


def test_the_table_marks_peaks_and_shows_doubts_and_unmeasured_parts(make_run):
    run = make_run(precision="bfloat16")
    results = (product(1000, 500.0), product(2000, 500.0, validity="noisy"), copy(4_000_000_000, 2.0))
    results = (*with_peak(workload(), results[:2]), *with_peak(workload(), results[2:]))
    text = peaks_table([dataclasses.replace(run, results=results)], {"int8": "not_supported"})
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines == [
        "peaks of Test CPU (cpu)",
        "measured precision size median ms rate remarks",
        "─" * text.splitlines()[2].count("─"),
        "matrix product bfloat16 1000 500 4 GFLOP/s",
        "matrix product bfloat16 2000 500 32 GFLOP/s peak (noisy)",
        "copy - 4000 MB 2 4 TB/s peak",
        "",
        "int8: not_supported",
    ]


def test_failed_points_are_in_the_table_with_their_reason(make_run):
    failed = product(100, 1.0, status="failed", validity=None, error="out of memory")
    assert "failed: out of memory" in peaks_table([dataclasses.replace(make_run(), results=(failed,))])

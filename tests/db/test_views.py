"""The views give the rows that handmade runs must give."""

import dataclasses

import pytest

from benchmarking.records import Doubt, canonical_hash

ONE = {"batch_sizes": (1,), "sequence_lengths": (32,)}
NOISY = {"validity": "noisy", "doubts": (Doubt(kind="cpu_pressure", severity="noisy"),)}


def with_result(run, **fields):
    return dataclasses.replace(run, results=(dataclasses.replace(run.results[0], **fields),))


def on_machine(run, device_name, *, simulated=False):
    """The run on another machine."""
    device = dataclasses.replace(run.cell.device, name=device_name, simulated=simulated)
    keys = {"device_name": device_name}
    hardware = dataclasses.replace(run.hardware, hardware_id=canonical_hash(keys)[:16], hashed_keys=keys, device=device)
    return dataclasses.replace(run, cell=dataclasses.replace(run.cell, device=device), hardware=hardware)


def rows(warehouse, view, columns):
    return [tuple(row.values()) for row in warehouse.query(f"SELECT {columns} FROM {view}").dicts()]


def test_hardware_comparison_puts_the_machines_of_a_point_side_by_side(warehouse, make_run):
    warehouse.ingest(on_machine(make_run(batch_sizes=(1, 2), sequence_lengths=(32,)), "Slow"))
    warehouse.ingest(on_machine(make_run(batch_sizes=(1, 2), sequence_lengths=(32,), slowdown=0.5), "Fast"))
    columns = "batch_size, device_name, latency_median_ms, times_fastest, throughput_samples_per_sec, memory_peak_mb"
    assert rows(warehouse, "hardware_comparison", columns) == [
        (1, "Fast", 4.0, 1.0, 250.0, 910.0),
        (1, "Slow", 8.0, 2.0, 125.0, 910.0),
        (2, "Fast", 8.0, 1.0, 250.0, 920.0),
        (2, "Slow", 16.0, 2.0, 125.0, 920.0),
    ]


def test_hardware_comparison_takes_the_latest_valid_result(warehouse, make_run):
    warehouse.ingest(make_run(**ONE, slowdown=1, started_at="2026-01-01T00:00:00Z"))
    warehouse.ingest(make_run(**ONE, slowdown=2, started_at="2026-01-02T00:00:00Z"))
    warehouse.ingest(with_result(make_run(**ONE, slowdown=3, started_at="2026-01-03T00:00:00Z"), **NOISY))
    failed = {"status": "failed", "validity": None, "error": "x"}
    warehouse.ingest(with_result(make_run(**ONE, started_at="2026-01-04T00:00:00Z"), **failed))
    assert rows(warehouse, "hardware_comparison", "latency_median_ms, validity, doubts") == [(16.0, "valid", [])]


def test_hardware_comparison_shows_a_doubtful_result_when_there_is_no_better(warehouse, make_run):
    warehouse.ingest(with_result(make_run(**ONE, slowdown=1, started_at="2026-01-01T00:00:00Z"), **NOISY))
    warehouse.ingest(with_result(make_run(**ONE, slowdown=2, started_at="2026-01-02T00:00:00Z"), **NOISY))
    warehouse.ingest(with_result(make_run(**ONE, started_at="2026-01-03T00:00:00Z"), validity="invalid"))
    assert rows(warehouse, "hardware_comparison", "latency_median_ms, validity, doubts") == [
        (16.0, "noisy", ["cpu_pressure"])
    ]


def test_a_simulated_device_is_never_the_fastest(warehouse, make_run):
    warehouse.ingest(on_machine(make_run(**ONE), "Real"))
    warehouse.ingest(on_machine(make_run(**ONE, slowdown=0.25), "Emulator", simulated=True))
    assert rows(warehouse, "hardware_comparison", "device_name, simulated, times_fastest") == [
        ("Emulator", True, 0.25),
        ("Real", False, 1.0),
    ]


def test_random_and_pretrained_weights_are_not_compared(warehouse, make_run):
    run = make_run(**ONE, slowdown=2)
    pretrained = dataclasses.replace(run.cell.workload, weights="pretrained")
    warehouse.ingest(dataclasses.replace(run, cell=dataclasses.replace(run.cell, workload=pretrained)))
    warehouse.ingest(make_run(**ONE))
    assert rows(warehouse, "hardware_comparison", "weights, times_fastest") == [("random", 1.0), ("pretrained", 1.0)]


def test_memory_of_the_device_comes_before_memory_of_the_process(warehouse, make_run):
    run = make_run(**ONE)
    metrics = {**run.results[0].metrics, "memory_device_allocated_peak_mb": 5.0, "memory_device_process_peak_mb": 7.0}
    warehouse.ingest(with_result(run, metrics=metrics))
    assert rows(warehouse, "hardware_comparison", "memory_peak_mb") == [(7.0,)]


def test_architecture_comparison_takes_medians_over_the_models(warehouse, make_run):
    for model_id, slowdown in (("a", 1), ("b", 2), ("c", 6)):
        warehouse.ingest(make_run(**ONE, model_id=model_id, slowdown=slowdown))
    warehouse.ingest(make_run(**ONE, model_id="g", family="decoder-only", slowdown=3))
    columns = "architecture_type, models, models_count, latency_median_ms, latency_fastest_ms, latency_slowest_ms"
    assert rows(warehouse, "architecture_comparison", columns) == [
        ("decoder-only", ["g"], 1, 24.0, 24.0, 24.0),
        ("encoder-only", ["a", "b", "c"], 3, 16.0, 8.0, 48.0),
    ]
    per_million = rows(warehouse, "architecture_comparison", "latency_per_million_parameters_ms")
    assert per_million == [(pytest.approx(24 / 109.48224),), (pytest.approx(16 / 109.48224),)]


def test_architecture_comparison_counts_the_doubtful(warehouse, make_run):
    warehouse.ingest(with_result(make_run(**ONE, model_id="a"), **NOISY))
    warehouse.ingest(make_run(**ONE, model_id="b"))
    assert rows(warehouse, "architecture_comparison", "models_count, doubtful_count") == [(2, 1)]


def test_latest_results_has_the_newest_of_each_series_whatever_became_of_it(warehouse, make_run):
    warehouse.ingest(make_run(batch_sizes=(1, 2), sequence_lengths=(32,), started_at="2026-01-01T00:00:00Z"))
    failed = {"status": "failed", "validity": None, "error": "out of memory", "metrics": {}}
    warehouse.ingest(with_result(make_run(**ONE, started_at="2026-01-02T00:00:00Z"), **failed))
    assert rows(warehouse, "latest_results", "batch_size, status, error, latency_median_ms") == [
        (1, "failed", "out of memory", None),
        (2, "ok", None, 16.0),
    ]


def test_history_goes_by_commits_not_by_when_they_were_measured(warehouse, make_run):
    def run(slowdown, started_at, commit_time):
        made = make_run(**ONE, slowdown=slowdown, started_at=started_at)
        return dataclasses.replace(made, provenance=dataclasses.replace(made.provenance, git_commit_time=commit_time))

    warehouse.ingest(run(1, "2026-03-05T00:00:00Z", "2026-02-01T00:00:00Z"))
    warehouse.ingest(run(2, "2026-03-01T00:00:00Z", "2026-02-03T00:00:00+00:00"))
    warehouse.ingest(run(3, "2026-02-02T00:00:00Z", None))
    warehouse.ingest(with_result(run(4, "2026-03-09T00:00:00Z", None), status="failed", validity=None, error="x"))
    columns = "position, history_time::VARCHAR, latency_median_ms"
    assert rows(warehouse, "history", columns) == [
        (1, "2026-02-01 00:00:00", 8.0),
        (2, "2026-02-02 00:00:00", 24.0),
        (3, "2026-02-03 00:00:00", 16.0),
    ]


def test_an_alias_joins_two_series_in_every_view(warehouse, make_run):
    warehouse.ingest(make_run(**ONE, model_id="old-name", slowdown=1, started_at="2026-01-01T00:00:00Z"))
    warehouse.ingest(make_run(**ONE, model_id="new-name", slowdown=2, started_at="2026-01-02T00:00:00Z"))
    warehouse.query(
        "INSERT INTO series_alias SELECT old.series_id, new.series_id, 'renamed', now()::TIMESTAMP "
        "FROM series old, series new WHERE old.model_id = 'old-name' AND new.model_id = 'new-name'"
    )
    assert rows(warehouse, "history", "position, latency_median_ms") == [(1, 8.0), (2, 16.0)]
    assert len(set(rows(warehouse, "history", "series_id"))) == 1
    assert rows(warehouse, "latest_results", "model_id") == [("new-name",)]
    assert rows(warehouse, "hardware_comparison", "model_id") == [("new-name",)]
    assert rows(warehouse, "architecture_comparison", "models") == [(["new-name"],)]


def test_raw_samples_has_one_row_a_sample_in_order(warehouse, make_run):
    warehouse.ingest(make_run(**ONE, launches=2, iterations=3))
    columns = "launch, phase, metric, sample_index, value, unit"
    assert rows(warehouse, "raw_samples ORDER BY launch, sample_index", columns) == [
        (launch, "measure", "latency_wall", i, 7.0 + i, "ms") for launch in range(2) for i in range(3)
    ]


@pytest.mark.parametrize(
    "view", ["hardware_comparison", "architecture_comparison", "latest_results", "history", "raw_samples"]
)
def test_an_empty_warehouse_has_empty_views(warehouse, view):
    assert rows(warehouse, view, "*") == []

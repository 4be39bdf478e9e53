"""The views give the rows that handmade runs must give."""

import dataclasses

import pytest

from benchmarking.core.plugins import family_names
from benchmarking.core.records import Doubt, Origin, canonical_hash
from tests.helpers.load import make_load

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


def test_a_simulated_device_is_shown_last_and_never_ranked(warehouse, make_run):
    warehouse.ingest(on_machine(make_run(**ONE), "Real"))
    warehouse.ingest(on_machine(make_run(**ONE, slowdown=0.25), "Emulator", simulated=True))
    assert rows(warehouse, "hardware_comparison", "device_name, simulated, times_fastest") == [
        ("Real", False, 1.0),
        ("Emulator", True, None),
    ]


def test_random_and_pretrained_weights_are_not_compared(warehouse, make_run):
    run = make_run(**ONE, slowdown=2)
    pretrained = dataclasses.replace(run.cell.workload, weights="pretrained")
    warehouse.ingest(dataclasses.replace(run, cell=dataclasses.replace(run.cell, workload=pretrained)))
    warehouse.ingest(make_run(**ONE))
    assert rows(warehouse, "hardware_comparison", "weights, times_fastest") == [("random", 1.0), ("pretrained", 1.0)]


def test_revisions_are_not_compared(warehouse, make_run):
    for revision, slowdown in (("a" * 40, 1), ("b" * 40, 2)):
        run = make_run(**ONE, slowdown=slowdown)
        cell = dataclasses.replace(run.cell, workload=dataclasses.replace(run.cell.workload, revision=revision))
        warehouse.ingest(dataclasses.replace(run, cell=cell))
    assert rows(warehouse, "hardware_comparison", "latency_median_ms, times_fastest") == [(8.0, 1.0), (16.0, 1.0)]


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


def test_a_model_counts_once_in_the_architecture_comparison(warehouse, make_run):
    """By the default attention, and of its revisions the newest."""
    for day, revision, mode, slowdown in (
        (1, "a", {}, 1), (2, "b", {"attention": "sdpa"}, 2), (3, "a", {"attention": "eager"}, 3),
    ):  # fmt: skip
        run = make_run(**ONE, model_id="a", slowdown=slowdown, started_at=f"2026-01-0{day}T00:00:00Z")
        workload = dataclasses.replace(run.cell.workload, revision=revision * 40)
        cell = dataclasses.replace(run.cell, workload=workload, runtime_mode=mode)
        warehouse.ingest(dataclasses.replace(run, cell=cell))
    warehouse.ingest(make_run(**ONE, model_id="c", slowdown=4))
    columns = "models_count, latency_median_ms, latency_fastest_ms, latency_slowest_ms"
    assert rows(warehouse, "architecture_comparison", columns) == [(2, 24.0, 16.0, 32.0)]


def test_architecture_comparison_takes_no_median_of_two_definitions(warehouse, make_run):
    warehouse.ingest(make_run(**ONE))
    warehouse.ingest(
        dataclasses.replace(make_run(**ONE, slowdown=3), origin=Origin(format="pyperf", definition="pyperf"))
    )
    medians = sorted(rows(warehouse, "architecture_comparison", "latency_median_ms, origin_definition"))
    assert medians == [(8.0, None), (24.0, "pyperf")]


def test_the_comparisons_are_of_calls_and_of_one_scenario_of_mlperf(warehouse, make_run):
    """A load at the point of a call is eager at float32 on the same machine, and newer."""
    calls = make_run(model_id="gpt2", family="decoder-only", batch_sizes=(1,), sequence_lengths=(32,), runtime="eager")
    load = make_load(engine="eager", concurrency=(1,), model_id="gpt2", started_at="2026-03-01T00:00:00Z")
    point = calls.results[0].point
    warehouse.ingest(calls)
    warehouse.ingest(with_result(dataclasses.replace(load, hardware=calls.hardware), point=point))
    for number, scenario in enumerate(("singlestream", "offline")):
        run = make_run(model_id="mlperf", run_id=f"m{number}", slowdown=1 + number, **ONE)
        run = dataclasses.replace(run, cell=dataclasses.replace(run.cell, runtime_mode={"scenario": scenario}))
        warehouse.ingest(with_result(run, result_id=f"m{number}"))
    assert rows(warehouse, "hardware_comparison", "model_id, run_id, times_fastest") == [
        ("gpt2", calls.run_id, 1.0), ("mlperf", "m0", 1.0), ("mlperf", "m1", 1.0),
    ]  # fmt: skip
    assert [one for one in rows(warehouse, "runtime_comparison", "run_id, speedup") if one[0] == calls.run_id] == [
        (calls.run_id, 1.0)
    ]
    assert load.run_id not in {run_id for (run_id,) in rows(warehouse, "runtime_comparison", "run_id")}
    columns = "models, latency_fastest_ms = latency_slowest_ms, scenario"
    assert sorted(rows(warehouse, "architecture_comparison", columns), key=str) == [
        (["gpt2"], True, None), (["mlperf"], True, "offline"), (["mlperf"], True, "singlestream"),
    ]  # fmt: skip


def test_architecture_comparison_counts_doubtful_results(warehouse, make_run):
    warehouse.ingest(with_result(make_run(**ONE, model_id="a"), **NOISY))
    warehouse.ingest(make_run(**ONE, model_id="b"))
    assert rows(warehouse, "architecture_comparison", "models_count, doubtful_count") == [(2, 1)]


def test_latest_results_has_the_newest_of_each_series_with_any_status(warehouse, make_run):
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


FAMILY_POINTS = {
    "encoder-only": {"sequence_length": 32},
    "decoder-only": {"sequence_length": 32, "new_tokens": 4, "prefill_ms": 2.0, "decode_ms": 6.0},
    "encoder-decoder": {"sequence_length": 32, "new_tokens": 4, "encode_ms": 2.0, "decode_ms": 4.0},
    "vision": {"image_size": 224},
    "vision-text": {"sequence_length": 32, "image_size": 224},
    "speech": {"audio_seconds": 5.0, "real_time_factor": 0.0016},
    "multimodal": {"sequence_length": 32, "image_size": 336, "new_tokens": 4, "image_encode_ms": 2.0},
    "diffusion": {"image_size": 256, "steps": 4, "step_ms": 2.0},
    "mixture-of-experts": {"sequence_length": 32, "new_tokens": 4},
    "state-space": {"sequence_length": 32, "new_tokens": 4},
    "rag": {"sequence_length": 32, "documents": 1000, "top_k": 2, "retrieve_ms": 2.0},
}
"""What a call of 8 ms of each family says in every view, as `make_run` makes it."""


@pytest.fixture
def of_every_family(warehouse, make_run):
    for family in family_names():
        run = make_run(model_id=f"a-{family}", family=family, batch_sizes=(1,))
        warehouse.ingest(dataclasses.replace(run, results=run.results[:1]))
    return warehouse


def test_every_family_s_axes_and_phases_are_in_the_views(of_every_family):
    for view in ("hardware_comparison", "architecture_comparison", "latest_results", "history"):
        found = {row["architecture_type"]: row for row in of_every_family.query(f"SELECT * FROM {view}").dicts()}
        for family, columns in FAMILY_POINTS.items():
            expected = {"latency_median_ms": 8.0, **columns}
            assert {name: found[family][name] for name in expected} == pytest.approx(expected), (view, family)
    sql = "SELECT latency_per_million_parameters_ms AS ms FROM architecture_comparison WHERE architecture_type = ?"
    (row,) = of_every_family.query(sql, ["mixture-of-experts"]).dicts()
    assert row["ms"] == pytest.approx(8 / 12), "of 12 million active parameters"


def test_points_that_differ_in_one_axis_are_not_one_row(warehouse, make_run):
    for model_id in ("a", "b"):
        warehouse.ingest(make_run(model_id=model_id, family="vision", batch_sizes=(1,)))
    columns = "image_size, models_count, throughput_samples_per_sec, throughput_tokens_per_sec"
    assert rows(warehouse, "architecture_comparison", columns) == [
        (224, 2, 125.0, None),
        (384, 2, pytest.approx(125 * 224 / 384), None),
    ]


def test_a_calibration_is_not_a_model(warehouse, make_run):
    run = make_run(**ONE)
    calibration = dataclasses.replace(run.cell.workload, task="device-calibration", family=None)
    metrics = {**run.results[0].metrics, "flops": 1e9, "achieved_flops_per_sec": 1e12, "peak_flops_per_sec": 1e12}
    run = dataclasses.replace(run, cell=dataclasses.replace(run.cell, workload=calibration))
    warehouse.ingest(with_result(run, metrics=metrics))
    for view in ("hardware_comparison", "architecture_comparison", "latest_results", "device_efficiency"):
        assert rows(warehouse, view, "*") == [], view
    assert rows(warehouse, "history", "position, task") == [(1, "device-calibration")]


def efficient(run, **counted):
    """The run with its first result's work counted: 8 ms a call."""
    metrics = {**run.results[0].metrics, "flops": 4e9, "achieved_flops_per_sec": 5e11, **counted}
    return with_result(run, metrics={name: value for name, value in metrics.items() if value is not None})


EFFICIENCY = "share_of_peak, arithmetic_intensity, balance_intensity, achieved_bytes_per_sec"


def test_device_efficiency_is_the_share_of_the_calibrated_peak(warehouse, make_run):
    warehouse.ingest(efficient(make_run(**ONE), bytes_accessed=2e8))
    warehouse.query("UPDATE hardware_info SET peak_flops = MAP {'float32': 2e12}, peak_copy_bytes_per_sec = 1e11")
    # 5e11 of 2e12 FLOP/s; 4e9 FLOP / 2e8 B; 2e12 / 1e11; 2e8 B in 8 ms
    assert rows(warehouse, "device_efficiency", EFFICIENCY) == [(0.25, 20.0, 20.0, 2.5e10)]


def test_without_a_calibration_of_the_precision_there_is_no_share(warehouse, make_run):
    warehouse.ingest(efficient(make_run(**ONE), bytes_accessed=2e8))
    assert rows(warehouse, "device_efficiency", EFFICIENCY) == [(None, 20.0, None, 2.5e10)]
    warehouse.query("UPDATE hardware_info SET peak_flops = MAP {'bfloat16': 2e12}")
    assert rows(warehouse, "device_efficiency", EFFICIENCY) == [(None, 20.0, None, 2.5e10)]


def test_without_counted_bytes_there_is_no_intensity_and_without_flops_no_row(warehouse, make_run):
    warehouse.ingest(efficient(make_run(**ONE)))
    assert rows(warehouse, "device_efficiency", EFFICIENCY) == [(None, None, None, None)]
    warehouse.ingest(efficient(make_run(**ONE, model_id="other"), flops=None, achieved_flops_per_sec=None))
    assert rows(warehouse, "device_efficiency", "model_id") == [("bert-base-uncased",)]


def test_device_efficiency_takes_the_latest_valid_result(warehouse, make_run):
    valid = efficient(make_run(**ONE, started_at="2026-01-01T00:00:00Z"))
    noisy = efficient(make_run(**ONE, started_at="2026-01-02T00:00:00Z"), flops=9e9)
    warehouse.ingest(valid)
    warehouse.ingest(with_result(noisy, **NOISY))
    assert rows(warehouse, "device_efficiency", "flops, validity") == [(4e9, "valid")]


def test_raw_samples_has_one_row_per_sample_in_order(warehouse, make_run):
    warehouse.ingest(make_run(**ONE, launches=2, iterations=3))
    columns = "launch, phase, metric, sample_index, value, unit"
    assert rows(warehouse, "raw_samples ORDER BY launch, sample_index", columns) == [
        (launch, "measure", "latency_wall", i, 7.0 + i, "ms") for launch in range(2) for i in range(3)
    ]


@pytest.mark.parametrize(
    "view",
    [
        *("hardware_comparison", "architecture_comparison", "latest_results", "history", "raw_samples"),
        *("device_efficiency", "runtime_comparison"),
    ],
)
def test_an_empty_warehouse_has_empty_views(warehouse, view):
    assert rows(warehouse, view, "*") == []

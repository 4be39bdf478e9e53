"""The view runtime_comparison: every runtime beside eager at float32 on the same silicon, and no liar ranked."""

import dataclasses
import json
import math

import pytest

from benchmarking.core.records import Doubt, Origin, canonical_hash
from db.upkeep.verify import verify

ONE = {"batch_sizes": (1,), "sequence_lengths": (32,)}
DIFFERS = {"validity": "invalid", "doubts": (Doubt(kind="output_differs", severity="invalid"),)}


def rows(warehouse, columns):
    return [tuple(row.values()) for row in warehouse.query(f"SELECT {columns} FROM runtime_comparison").dicts()]


def with_result(run, *, metrics=None, **fields):
    result = run.results[0]
    return dataclasses.replace(
        run, results=(dataclasses.replace(result, metrics={**result.metrics, **(metrics or {})}, **fields),)
    )


def in_cell(run, **fields):
    return dataclasses.replace(run, cell=dataclasses.replace(run.cell, **fields))


def on(run, device_type, selector, *, simulated=False):
    """The run on another device of the same machine."""
    device = dataclasses.replace(run.cell.device, type=device_type, selector=selector, simulated=simulated)
    keys = {**run.hardware.hashed_keys, "device_name": device_type}
    hardware = dataclasses.replace(run.hardware, hardware_id=canonical_hash(keys)[:16], hashed_keys=keys, device=device)
    return dataclasses.replace(in_cell(run, device=device), hardware=hardware)


@pytest.fixture
def eager(make_run):
    """Eager at float32: 8 ms, interval 7.7 .. 8.3 ms."""
    return make_run(**ONE)


@pytest.fixture
def graphs(make_run):
    """Twice as fast: 4 ms, interval 3.7 .. 4.3 ms."""
    return in_cell(make_run(**ONE, runtime="onnxruntime", slowdown=0.5), runtime_mode={"io_mode": "host"})


def test_the_fastest_first_with_the_ratio_and_its_interval(warehouse, eager, graphs):
    warehouse.ingest(eager)
    warehouse.ingest(with_result(graphs, metrics={"output_error": 1e-6}))
    first, second = rows(warehouse, "runtime, speedup, speedup_ci_low, speedup_ci_high, output_error")
    # by hand: 8/4; exp(-sqrt(ln(8/7.7)^2 + ln(4.3/4)^2)) and exp(sqrt(ln(8.3/8)^2 + ln(4/3.7)^2))
    low = 2 * math.exp(-math.hypot(math.log(8 / 7.7), math.log(4.3 / 4)))
    high = 2 * math.exp(math.hypot(math.log(8.3 / 8), math.log(4 / 3.7)))
    assert first == ("onnxruntime", 2.0, pytest.approx(low), pytest.approx(high), 1e-6)
    assert (round(low, 3), round(high, 3)) == (1.843, 2.18)
    assert second == ("eager", 1.0, None, None, None)
    assert verify(warehouse) == []


def test_an_invalid_result_is_shown_last_and_has_no_speedup(warehouse, eager, graphs):
    warehouse.ingest(eager)
    warehouse.ingest(with_result(graphs, **DIFFERS, metrics={"output_error": 0.9}))
    columns = "runtime, speedup, speedup_ci_low, is_ranked, validity, doubts, output_error, latency_median_ms"
    assert rows(warehouse, columns) == [
        ("eager", 1.0, None, True, "valid", [], None, 8.0),
        ("onnxruntime", None, None, False, "invalid", ["output_differs"], 0.9, 4.0),
    ]


def test_an_invalid_result_does_not_replace_a_valid_one(warehouse, eager, graphs, make_run):
    warehouse.ingest(eager)
    warehouse.ingest(graphs)
    later = make_run(**ONE, runtime="onnxruntime", slowdown=0.2, started_at="2026-05-01T00:00:00Z")
    warehouse.ingest(with_result(in_cell(later, runtime_mode={"io_mode": "host"}), **DIFFERS))
    assert rows(warehouse, "runtime, speedup") == [("onnxruntime", 2.0), ("eager", 1.0)]


def test_a_software_adapter_is_shown_and_never_ranked(warehouse, eager, graphs):
    loads = tuple(dataclasses.replace(load, verified={"is_simulated": True}) for load in graphs.loads)
    warehouse.ingest(eager)
    warehouse.ingest(dataclasses.replace(graphs, loads=loads))
    assert rows(warehouse, "runtime, speedup, is_ranked, simulated") == [
        ("eager", 1.0, True, False),
        ("onnxruntime", None, False, True),
    ]
    (best,) = warehouse.query("SELECT runtime FROM hardware_comparison WHERE times_fastest = 1").dicts()
    assert best == {"runtime": "eager"}


def test_openvino_s_cpu_is_the_cpu_and_its_gpu_is_not(warehouse, eager, graphs):
    warehouse.ingest(eager)
    warehouse.ingest(on(graphs, "openvino", "openvino:CPU"))
    gpu = in_cell(graphs, runtime="openvino")
    other = dataclasses.replace(on(gpu, "openvino-gpu", "openvino:GPU"), run_id="other")
    warehouse.ingest(with_result(other, result_id="other"))
    found = dict(rows(warehouse, "device, speedup"))
    assert found == {"cpu": 1.0, "openvino:CPU": 2.0, "openvino:GPU": None}


def test_machines_of_other_tools_and_other_definitions_have_no_common_baseline(warehouse, eager, graphs):
    """A file may state no more of a machine than its name, which is not the machine of all such files."""

    def imported(run, name):
        keys = {"imported": True, "device_name": name, "cpu_model": None}
        device = dataclasses.replace(run.cell.device, name=name)
        unknown = dict.fromkeys(("cpu_model", "cpu_cores", "cpu_threads"))
        hardware = dataclasses.replace(
            run.hardware, hardware_id=canonical_hash(keys)[:16], hashed_keys=keys, device=device, **unknown
        )
        return dataclasses.replace(in_cell(run, device=device), hardware=hardware)

    warehouse.ingest(imported(eager, "slow box"))
    warehouse.ingest(imported(graphs, "fast box"))
    assert sorted(rows(warehouse, "runtime, speedup")) == [("eager", 1.0), ("onnxruntime", None)]


def test_numbers_of_another_definition_have_no_baseline_and_no_fastest(warehouse, eager, graphs):
    warehouse.ingest(eager)
    warehouse.ingest(dataclasses.replace(graphs, origin=Origin(format="pyperf", definition="pyperf")))
    assert sorted(rows(warehouse, "runtime, speedup")) == [("eager", 1.0), ("onnxruntime", None)]
    fastest = warehouse.query("SELECT DISTINCT times_fastest FROM hardware_comparison").dicts()
    assert fastest == [{"times_fastest": 1.0}]


@pytest.mark.parametrize("fields", [{"num_threads": 1}, {"cpu_list": "0-3"}], ids=lambda fields: next(iter(fields)))
def test_only_comparable_results_are_compared(warehouse, eager, graphs, fields):
    warehouse.ingest(eager)
    warehouse.ingest(in_cell(graphs, **fields))
    assert sorted(rows(warehouse, "runtime, speedup")) == [("eager", 1.0), ("onnxruntime", None)]


def test_other_weights_and_points_have_no_baseline(warehouse, eager, graphs, make_run):
    workload = dataclasses.replace(graphs.cell.workload, weights="pretrained")
    warehouse.ingest(eager)
    warehouse.ingest(in_cell(graphs, workload=workload))
    warehouse.ingest(make_run(runtime="openvino", batch_sizes=(4,), sequence_lengths=(32,)))
    assert sorted(rows(warehouse, "runtime, speedup"), key=str) == [
        *(("eager", 1.0), ("onnxruntime", None), ("openvino", None))
    ]


def test_the_baseline_is_the_newest_valid_one_of_the_usual_attention(warehouse, make_run, graphs):
    def eager(slowdown, day, attention="sdpa", **fields):
        run = make_run(**ONE, slowdown=slowdown, started_at=f"2026-01-0{day}T00:00:00Z")
        return with_result(in_cell(run, runtime_mode={"attention": attention}), **fields)

    warehouse.ingest(eager(1, 1))
    warehouse.ingest(eager(3, 2))
    warehouse.ingest(eager(5, 3, validity="noisy"))
    warehouse.ingest(eager(7, 4, attention="eager"))
    warehouse.ingest(graphs)
    baselines = set(rows(warehouse, "baseline_latency_ms, baseline_validity, baseline_mode"))
    assert baselines == {(24.0, "valid", '{"attention":"sdpa"}')}


def test_without_a_valid_baseline_a_noisy_one_is_used_and_marked(warehouse, eager, graphs):
    warehouse.ingest(with_result(eager, validity="noisy"))
    warehouse.ingest(graphs)
    assert rows(warehouse, "speedup, baseline_validity") == [(2.0, "noisy"), (1.0, "noisy")]


def test_without_intervals_there_is_a_ratio_and_no_interval(warehouse, eager, graphs):
    metrics = {name: value for name, value in graphs.results[0].metrics.items() if "_ci_" not in name}
    bare = dataclasses.replace(graphs, results=(dataclasses.replace(graphs.results[0], metrics=metrics),))
    warehouse.ingest(eager)
    warehouse.ingest(bare)
    assert rows(warehouse, "speedup, speedup_ci_low, speedup_ci_high")[0] == (2.0, None, None)


def test_what_only_some_runtimes_have_is_listed(warehouse, graphs):
    metrics = {"compile_s": 3.0, "graph_break_count": 2.0, "nodes": 40.0, "nodes_on_cpu_unasked": 1.0}
    loads = tuple(dataclasses.replace(load, verified={"weight_dtypes": {"int8": 3}}) for load in graphs.loads)
    warehouse.ingest(dataclasses.replace(with_result(graphs, metrics=metrics), loads=loads))
    ((*numbers, dtypes, size),) = rows(warehouse, f"{', '.join(metrics)}, weight_dtypes, model_size_mb")
    assert (numbers, json.loads(dtypes), size) == (list(metrics.values()), {"int8": 3}, None)

import dataclasses
import json
import math
import shlex
from datetime import datetime

import pytest

from benchmarking.core.axes import FURTHER
from benchmarking.core.errors import FormatError
from benchmarking.core.records import Doubt, LaunchLoad, Point, Preparation, Result, Samples, json_text
from db.rows import run_rows, utc
from db.warehouse import Warehouse

NOW = datetime(2026, 5, 1)
COLUMNS = frozenset({"latency_median_ms"})


def rows_of(run):
    return run_rows(run, metric_columns=COLUMNS, source="runs/a.json", source_sha256="ab" * 32, ingested_at=NOW)


def with_result(run, **fields):
    return dataclasses.replace(run, results=(dataclasses.replace(run.results[0], **fields),))


def test_times_become_naive_utc():
    assert utc("2026-01-02T03:04:05Z", "x") == datetime(2026, 1, 2, 3, 4, 5)
    assert utc("2026-01-02T03:04:05+02:00", "x") == datetime(2026, 1, 2, 1, 4, 5)
    assert utc("2026-01-02T03:04:05.123456", "x") == datetime(2026, 1, 2, 3, 4, 5, 123456)


def test_an_invalid_time_is_refused_by_name():
    with pytest.raises(FormatError, match="run 7: started_at: expected a time in ISO 8601, found 'noon'"):
        utc("noon", "run 7: started_at")


def test_equal_values_are_equal_json():
    assert json_text({"b": 1, "a": [True, None]}) == json_text({"a": [True, None], "b": 1}) == '{"a":[true,null],"b":1}'


def test_metrics_without_a_column_are_kept_by_name(make_run):
    run = with_result(make_run(), metrics={"latency_median_ms": 2.5, "energy_gpu_j_per_token": 0.5})
    (row,) = rows_of(run)["benchmark_results"]
    assert row["latency_median_ms"] == 2.5
    assert row["other_metrics"] == [("energy_gpu_j_per_token", 0.5)]
    assert "energy_gpu_j_per_token" not in row


def test_axes_have_columns_and_stay_in_axes(make_run):
    axes = {"image_size": 224, "audio_seconds": 2.5, "steps": 4, "documents": 1000, "top_k": 8, "scale": 7.5}
    run = make_run()
    (row,) = rows_of(with_result(run, point=Point(batch_size=1, axes=axes)))["benchmark_results"]
    assert {name: row[name] for name in FURTHER} == {name: axes[name] for name in FURTHER}
    assert json.loads(row["axes"]) == axes
    (row, *_) = rows_of(run)["benchmark_results"]
    assert [row[name] for name in FURTHER] == [None] * 5


def test_a_metric_cannot_replace_a_column_that_is_not_a_metric(make_run):
    run = with_result(make_run(), metrics={"run_id": 1.0})
    (row,) = rows_of(run)["benchmark_results"]
    assert row["run_id"] == run.run_id
    assert row["other_metrics"] == [("run_id", 1.0)]


def test_doubts_are_named_and_their_evidence_is_kept(make_run):
    doubt = Doubt(kind="steal", severity="noisy", evidence={"share": 0.25})
    (row,) = rows_of(with_result(make_run(), doubts=(doubt,), extra={"windows": [1]}))["benchmark_results"]
    assert row["doubts"] == ["steal"]
    assert json.loads(row["extra"]) == {
        "doubts": [{"kind": "steal", "severity": "noisy", "evidence": {"share": 0.25}}],
        "windows": [1],
    }


def test_extra_may_not_shadow_the_doubts(make_run):
    with pytest.raises(FormatError, match='extra has the reserved key "doubts"'):
        rows_of(with_result(make_run(), extra={"doubts": []}))


def test_load_times_are_medians_over_launches(make_run):
    stages = ({"spawn": 1.0, "import": 2.0}, {"spawn": 3.0, "import": 5.0}, {"spawn": 2.0, "import": 9.0})
    loads = tuple(LaunchLoad(launch=i, stages_s=seconds) for i, seconds in enumerate(stages))
    (row,) = rows_of(dataclasses.replace(make_run(), loads=loads))["benchmark_runs"]
    assert row["load_time_s"] == 8.0  # of 3, 8, 11
    assert (row["load_spawn_s"], row["load_import_s"]) == (2.0, 5.0)
    assert row["load_weights_read_s"] is None


def test_a_run_without_loads_has_no_load_time(make_run):
    (row,) = rows_of(dataclasses.replace(make_run(), loads=()))["benchmark_runs"]
    assert row["load_time_s"] is None
    assert row["loads"] == "[]"


def test_the_preparation_is_stored_in_columns_and_as_json(make_run):
    build = {"kind": "onnx", "digest": "ab", "build_s": 12, "is_new": False, "exporter": "torch.onnx", "opset": 20}
    preparation = Preparation(build=build, missing={"b1 s32": "failed: x"})
    (row,) = rows_of(dataclasses.replace(make_run(), preparation=preparation))["benchmark_runs"]
    columns = ("build_kind", "build_digest", "build_s", "build_is_new", "exporter")
    assert [row[name] for name in columns] == ["onnx", "ab", 12.0, False, "torch.onnx"]
    missing = {"b1 s32": "failed: x"}
    stored = {name: value for name, value in json.loads(row["preparation"]).items() if value is not None}
    assert stored == {"build": build, "references": {}, "missing": missing, "stand_ins": {}}


def test_a_build_with_invalid_values_is_stored_as_json_only(make_run):
    preparation = Preparation(build={"build_s": "long", "is_new": 1, "exporter": None})
    (row,) = rows_of(dataclasses.replace(make_run(), preparation=preparation))["benchmark_runs"]
    assert [row[name] for name in ("build_s", "build_is_new", "exporter", "build_kind")] == [None] * 4
    assert json.loads(row["preparation"])["build"]["build_s"] == "long"


@pytest.mark.parametrize(
    ("verified", "dtypes"),
    [
        ({"weight_dtypes": {"int8": 96, "float32": 4}, "parameter_dtypes": ["x"]}, {"int8": 96, "float32": 4}),
        ({"parameters_by_dtype": {"bfloat16": 5}}, {"bfloat16": 5}),
        ({"parameter_dtypes": ["float32", "float16"]}, {"float32": None, "float16": None}),
    ],
)
def test_weight_dtypes_are_the_verified_ones(make_run, verified, dtypes):
    run = make_run()
    loads = (dataclasses.replace(run.loads[0], verified=verified), *run.loads[1:])
    (row,) = rows_of(dataclasses.replace(run, loads=loads))["benchmark_runs"]
    assert json.loads(row["weight_dtypes"]) == dtypes


def test_a_run_without_verified_properties_has_no_dtypes(make_run):
    (row,) = rows_of(dataclasses.replace(make_run(), loads=()))["benchmark_runs"]
    assert (row["weight_dtypes"], row["is_simulated"]) == (None, False)


def test_a_software_adapter_found_only_at_launch_makes_a_run_simulated(make_run):
    run = make_run()
    loads = (*run.loads[:-1], dataclasses.replace(run.loads[-1], verified={"is_simulated": True}))
    (row,) = rows_of(dataclasses.replace(run, loads=loads))["benchmark_runs"]
    assert row["is_simulated"] is True
    device = dataclasses.replace(run.cell.device, simulated=True)
    emulator = dataclasses.replace(run, loads=(), cell=dataclasses.replace(run.cell, device=device))
    assert rows_of(emulator)["benchmark_runs"][0]["is_simulated"] is True


def test_the_command_can_be_typed_again(make_run):
    run = make_run()
    command = ("run_hardware_benchmark", "--description", "it's a try", "--tag", "a=b c")
    run = dataclasses.replace(run, provenance=dataclasses.replace(run.provenance, command=command))
    (row,) = rows_of(run)["benchmark_runs"]
    assert tuple(shlex.split(row["command"])) == command


def test_a_repeated_point_is_one_series(make_run):
    run = make_run(batch_sizes=(1,), sequence_lengths=(32,))
    again = dataclasses.replace(run.results[0], result_id="second")
    rows = rows_of(dataclasses.replace(run, results=(*run.results, again)))
    assert len(rows["benchmark_results"]) == 2
    assert len(rows["series"]) == 1


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_non_finite_number_is_refused_by_name(make_run, value):
    with pytest.raises(FormatError, match=r"\(b1 s32\): latency_median_ms is -?(nan|inf), which is not a finite"):
        rows_of(with_result(make_run(), metrics={"latency_median_ms": value}))


def test_a_non_finite_sample_is_refused_by_name(make_run):
    samples = Samples(
        launch=0,
        phase="measure",
        metric="latency_wall",
        unit="ms",
        started_at="2026-01-02T03:04:05Z",
        values=(math.nan,),
    )
    with pytest.raises(FormatError, match="latency_wall is nan"):
        rows_of(with_result(make_run(), samples=(samples,)))


def test_a_failed_point_is_a_row_without_samples(make_run):
    failed = Result(result_id="r", point=Point(batch_size=8), status="failed", error="out of memory")
    rows = rows_of(dataclasses.replace(make_run(), results=(failed,)))
    (row,) = rows["benchmark_results"]
    assert (row["status"], row["error"], row["validity"]) == ("failed", "out of memory", None)
    assert rows["raw_benchmark_data"] == []


def test_an_answer_as_dictionaries_has_both_sides_of_a_join(empty_database):
    with Warehouse.open(empty_database, read_only=True) as warehouse:
        (row,) = warehouse.query("SELECT 1 AS a, 2 AS a, MAP {'x': 3} AS a").dicts()
    assert row == {"a": 1, "a_1": 2, "a_2": {"x": 3}}

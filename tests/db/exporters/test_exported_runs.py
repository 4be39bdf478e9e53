"""Run files and the formats of other benchmarks, to exact numbers."""

from __future__ import annotations

import json
import shutil
import sqlite3
from dataclasses import replace
from operator import attrgetter
from statistics import stdev

import pytest

from benchmarking.core.doubts import KINDS
from benchmarking.core.errors import UsageError
from benchmarking.core.records import Doubt, Point, Samples
from db import ingestion
from db.importers.support.files import read_file
from db.importers.support.measures import foreign_result
from db.upkeep.verify import verify
from db.warehouse import Warehouse
from tests.helpers.imported_files import importer_for
from tests.helpers.paths import FIXTURES
from tests.helpers.records import make_result

OF_THE_FILE = ("source", "source_sha256", "ingested_at")


def test_run_files_load_again_with_equal_rows(export, asked_warehouse, empty_database, table_keys, tmp_path):
    assert export("json", tmp_path / "out") == []
    with Warehouse.open(shutil.copy2(empty_database, tmp_path / "again.duckdb")) as again:
        done = ingestion.load_files(again, ingestion.run_files([tmp_path / "out"]))
        assert (len(done.loaded), done.refused) == (4, ())
        assert verify(again) == []
        for name, key in table_keys.items():
            sql = f"SELECT * FROM {name} ORDER BY {key}"
            found, expected = ([dict(row) for row in one.query(sql).dicts()] for one in (again, asked_warehouse))
            for row in (*found, *expected):
                for column in OF_THE_FILE:
                    row.pop(column, None)
            assert found == expected, name


def test_a_run_is_exported_completely(export, asked_warehouse, capsys):
    export("json", selection="model=bert-base-uncased,batch=1,sequence=32")
    (line,) = capsys.readouterr().out.splitlines()
    assert len(json.loads(line)["results"]) == 5


def test_one_run_may_be_one_file_and_several_may_not(export, tmp_path):
    export("json", tmp_path / "one.json", "model=vit")
    assert json.loads((tmp_path / "one.json").read_text())["cell"]["workload"]["model_id"] == "vit"
    with pytest.raises(UsageError, match="a run file contains one run, but several are selected"):
        export("json", tmp_path / "two.json", "model=gpt2")


def test_names_of_run_files_are_safe_and_sort_by_start(make_run):
    from db.exporters.files import file_name

    run = make_run(model_id="../../org/model: x", started_at="2026-01-02T03:04:05.678Z")
    assert file_name(run) == f"20260102T030405Z_..-..-org-model-x_cpu_eager_float32_{run.run_id}.json"


def test_omitted_compacted_samples_are_reported(export, warehouse, make_run, tmp_path):
    warehouse.ingest(make_run(batch_sizes=(1,), sequence_lengths=(8,), launches=2))
    with warehouse.cursor() as cursor:
        cursor.execute("UPDATE raw_benchmark_data SET samples = [], sketch = [1.0], compacted_at = now()::TIMESTAMP")
    (note,) = export("json", tmp_path / "out", warehouse=warehouse)
    assert "left out the quantiles of 2 launches and metrics, whose raw samples were compacted" in note


def test_transformers_format_has_text_generation_on_torch_in_seconds(export, capsys):
    notes = export("transformers_benchmark_v2")
    (entry,) = json.loads(capsys.readouterr().out).values()
    assert entry["measurements"] == {
        "e2e_latency": [0.01, 0.02, 0.01, 0.02],
        "time_to_first_token": [0.004, 0.005, 0.004, 0.005],
        "inter_token_latency": [0.002, 0.005, 0.002, 0.005],
        "shape_and_decoded_outputs": [],
        "gpu_metrics": None,
        "timestamps": None,
    }
    config = entry["config"]
    assert [config[name] for name in ("batch_size", "sequence_length", "num_tokens_to_generate")] == [2, 6, 4]
    assert (config["attn_implementation"], config["compile_kwargs"], config["kernelize"]) == ("sdpa", None, False)
    assert entry["metadata"]["model_id"] == "gpt2"
    assert entry["metadata"]["timestamp"] == "2026-02-03T00:00:00+00:00"
    assert sorted(notes) == [
        "left out: 1 result: not measured (failed, skipped or timed out)",
        "left out: 1 result: not measured on torch",
        "left out: 8 results: no text generated",
    ]


def test_the_first_layout_has_statistics_of_all_calls_in_seconds(export, capsys):
    export("benchmark_scenarios", None, "model=gpt2,runtime=eager")
    document = json.loads(capsys.readouterr().out)
    assert document["model_name"] == "gpt2"
    scenario = document["benchmark_scenarios"][0]
    latency = scenario["measurements"]["latency"]
    assert latency["measurements"] == [0.01, 0.02, 0.01, 0.02]
    assert (latency["mean"], latency["median"], latency["std"], latency["p90"]) == pytest.approx(
        (0.015, 0.015, 0.005, 0.02)
    )
    assert scenario["measurements"]["tokens_per_second"]["measurements"] == [400, 200, 400, 200]
    assert scenario["measurements"]["time_per_output_token_seconds"]["measurements"][0] == 0.0025
    assert scenario["metadata"]["config"]["num_tokens_to_generate"] == 4
    assert scenario["gpu_metrics"]["gpu_monitoring_status"] in ("disabled", "failed")


def test_without_a_supported_result_no_file_is_created(export, tmp_path):
    with pytest.raises(UsageError, match="the selection has no result that the format supports"):
        export("transformers_benchmark_v2", tmp_path / "out.json", "model=vit")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", ["transformers_benchmark_v2", "benchmark_scenarios", "llama_bench_sql"])
def test_an_export_can_be_imported(export, tmp_path, name):
    path = tmp_path / "out"
    export(name, path, "model=gpt2,runtime=eager")
    file = read_file(path)
    importer = importer_for(file)
    assert name.startswith(importer.name)
    (run,) = importer.runs(file)
    (result,) = run.results
    assert result.metrics["latency_mean_ms"] == pytest.approx(15.0, rel=1e-12)
    assert (result.point.batch_size, result.point.sequence_length, result.point.new_tokens) == (2, 6, 4)
    assert run.cell.runtime == "eager"


@pytest.mark.parametrize(
    ("name", "mode"),
    [
        ("benchmark_scenarios", {"attn_implementation": "sdpa", "sdpa_backend": "math", "compile_mode": "default"}),
        ("transformers_benchmark_v2", {"attn_implementation": "sdpa", "continuous_batching": True, "kernelize": True}),
        ("transformers_benchmark_v2", {"compile_kwargs": '{"dynamic": false, "mode": "max-autotune"}'}),
        ("llama_bench_sql", {"attention": "sdpa", "batch_threads": 4, "prefix_cache": True}),
    ],
)
def test_the_settings_of_an_import_come_back_under_their_names(name, mode, export, warehouse, make_run, tmp_path):
    run = make_run(family="decoder-only", batch_sizes=(1,), sequence_lengths=(32,), with_doubtful=False)
    runtime = "compiled" if any(one.startswith("compile") for one in mode) else "eager"
    warehouse.ingest(replace(run, cell=replace(run.cell, runtime=runtime, runtime_mode=mode)))
    export(name, tmp_path / "out.json", warehouse=warehouse)
    file = read_file(tmp_path / "out.json")
    (again,) = importer_for(file).runs(file)
    assert (again.cell.runtime, dict(again.cell.runtime_mode)) == (runtime, mode)


@pytest.mark.parametrize(("selector", "precision"), [("cpu", "float16"), ("cuda:1", "other"), ("openvino:GPU", "int4")])
def test_a_script_for_sqlite_comes_back_with_its_device_precision_and_model(
    selector, precision, export, warehouse, make_run, tmp_path
):
    run = make_run(model_id="org/name-7B", family="decoder-only", batch_sizes=(1,), sequence_lengths=(32,))
    device = replace(run.cell.device, type=selector.partition(":")[0], selector=selector)
    warehouse.ingest(replace(run, cell=replace(run.cell, device=device, precision=precision)))
    export("llama_bench_sql", tmp_path / "out.sql", warehouse=warehouse)
    file = read_file(tmp_path / "out.sql")
    (again,) = importer_for(file).runs(file)
    cell = again.cell
    assert (cell.device.selector, cell.device.type, cell.precision) == (selector, device.type, precision)
    assert cell.workload.model_id == "org/name-7B"


OF_SINGLE_RESULTS = ["benchmark_report", "benchmark_scenarios", "llama_bench_sql", "transformers_benchmark_v2"]


@pytest.fixture
def came_back(export, empty_database, tmp_path):
    """A function that stores runs, exports them in a format, and reads the export: its runs."""

    def again(name, *runs):
        with Warehouse.open(shutil.copy2(empty_database, tmp_path / "stored.duckdb")) as stored:
            stored.ingest_all(runs)
            export(name, tmp_path / "out", warehouse=stored)
        paths = sorted((tmp_path / "out").iterdir()) if (tmp_path / "out").is_dir() else [tmp_path / "out"]
        return [run for path in paths for run in importer_for(read_file(path)).runs(read_file(path))]

    return again


@pytest.mark.parametrize("name", OF_SINGLE_RESULTS)
@pytest.mark.parametrize(
    ("kinds", "validity"),
    [
        ((), "valid"),
        (("container",), "valid"),
        (("few_samples", "command_failed"), "invalid"),
        (("some_requests_failed", "slow_calls"), "noisy"),
    ],
)
def test_an_export_comes_back_with_its_doubts_and_simulated(kinds, validity, name, came_back, make_run):
    made = make_run(family="decoder-only", device="null", batch_sizes=(1,), sequence_lengths=(32,))
    doubts = tuple(Doubt(kind=kind, severity=KINDS[kind].severity if kind in KINDS else "invalid") for kind in kinds)
    result = replace(made.results[0], doubts=doubts, validity=validity)
    result = replace(result, point=replace(result.point, new_tokens=4))
    device = replace(made.cell.device, type="null", selector="null", name="null device", simulated=True)
    (again,) = came_back(name, replace(made, cell=replace(made.cell, device=device), results=(result,)))
    (found,) = again.results
    assert again.is_simulated
    assert (found.validity, set(kinds) - {doubt.kind for doubt in found.doubts}) == (validity, set())


@pytest.mark.parametrize("name", OF_SINGLE_RESULTS)
@pytest.mark.parametrize("family", ["encoder-only", None])
def test_a_model_comes_back_with_its_family_task_and_weights(name, family, came_back, make_run):
    made = make_run(family="decoder-only", batch_sizes=(1,), sequence_lengths=(32,))
    result = replace(made.results[0], point=replace(made.results[0].point, new_tokens=4))
    workload = replace(made.cell.workload, family=family, task="fill-mask", weights="random")
    (again,) = came_back(name, replace(made, cell=replace(made.cell, workload=workload), results=(result,)))
    found = again.cell.workload
    assert (found.family, found.task, found.weights) == (family, "fill-mask", "random")


@pytest.mark.parametrize("name", OF_SINGLE_RESULTS)
def test_what_is_measured_comes_back_as_measured_on_its_device(name, came_back, make_run):
    made = make_run(family="decoder-only", batch_sizes=(1,), sequence_lengths=(512,))
    result = replace(made.results[0], point=replace(made.results[0].point, new_tokens=4))
    device = replace(made.cell.device, type="cpu", selector="cpu", name="AMD EPYC 9654")
    mode = {"attention": "sdpa"}
    cell = replace(made.cell, device=device, runtime="compiled", runtime_mode=mode, precision="bfloat16")
    hardware = replace(made.hardware, cpu_model=device.name)
    (again,) = came_back(name, replace(made, cell=cell, hardware=hardware, results=(result,)))
    assert not again.is_simulated
    assert (again.cell.device.selector, again.cell.device.type, again.cell.device.name) == ("cpu", "cpu", device.name)
    assert (again.cell.runtime, again.cell.precision) == ("compiled", "bfloat16")
    assert mode.items() <= again.cell.runtime_mode.items()
    assert again.results[0].validity == "valid"


@pytest.mark.parametrize("name", ["benchmark_scenarios", "transformers_benchmark_v2"])
@pytest.mark.parametrize("stated", [{}, {"throughput_samples_per_sec": 85e6, "decode_tokens_per_sec": 7.0}])
def test_a_rate_comes_back_as_stored_or_not_at_all(name, stated, came_back, make_run):
    made = make_run(family="decoder-only", batch_sizes=(1,), sequence_lengths=(32,), with_doubtful=False)
    (result,) = made.results
    rates = ("throughput_samples_per_sec", "throughput_tokens_per_sec", "decode_tokens_per_sec")
    each = replace(result.samples[0], metric="time_per_output_token")
    metrics = {name: value for name, value in result.metrics.items() if name not in rates} | stated
    point = replace(result.point, new_tokens=4)
    result = replace(result, point=point, metrics=metrics, samples=(*result.samples, each))
    (again,) = came_back(name, replace(made, cell=replace(made.cell, runtime="eager"), results=(result,)))
    assert {name: again.results[0].metrics[name] for name in rates if name in again.results[0].metrics} == stated


@pytest.mark.parametrize("name", ["benchmark_scenarios", "transformers_benchmark_v2"])
@pytest.mark.parametrize("inner_loops", [1, 100])
def test_launches_and_blocks_of_calls_come_back(name, inner_loops, came_back, make_run):
    made = make_run(family="decoder-only", batch_sizes=(1,), sequence_lengths=(32,), with_doubtful=False)
    (result,) = made.results
    sizes = (15, 20, 25)
    samples = [
        Samples(
            metric=metric,
            launch=launch,
            phase="measure",
            unit="ms",
            started_at=made.started_at,
            values=tuple(launch + 10.0 + place / 100 for place in range(size)),
            inner_loops=inner_loops if metric == "latency_wall" else 1,
        )
        for metric in ("latency_wall", "time_to_first_token")
        for launch, size in enumerate(sizes)
    ]
    point = replace(result.point, new_tokens=4)
    result = foreign_result(point, samples=samples, metrics={"throughput_samples_per_sec": 90.0})
    result = replace(result, result_id=made.results[0].result_id)
    (again,) = came_back(name, replace(made, cell=replace(made.cell, runtime="eager"), results=(result,)))
    (found,) = again.results
    assert (found.launches, found.ci_scope) == (result.launches, result.ci_scope) == (3, "between")
    for column in ("latency_median_ms", "latency_ci_low_ms", "latency_ci_high_ms", "latency_p90_ms", "latency_p99_ms"):
        assert found.metrics.get(column) == pytest.approx(result.metrics.get(column)), column
    timed = [one for one in found.samples if one.metric in ("latency_wall", "time_to_first_token")]
    assert [(one.metric, len(one.values), one.inner_loops) for one in timed] == [
        (one.metric, len(one.values), one.inner_loops) for one in samples
    ]


def test_a_time_over_all_tokens_is_no_time_between_tokens(came_back, make_run):
    made = make_run(family="decoder-only", batch_sizes=(1,), sequence_lengths=(32,), with_doubtful=False)
    (result,) = made.results
    doubts = (Doubt(kind="token_divisor", severity="info"),)
    each = Samples(
        metric="time_per_output_token", launch=0, phase="measure", unit="ms", started_at=made.started_at, values=(2.0,)
    )
    result = replace(result, point=replace(result.point, new_tokens=4), doubts=doubts, samples=(*result.samples, each))
    (again,) = came_back("transformers_benchmark_v2", replace(made, results=(result,)))
    assert "decode_tokens_per_sec" not in again.results[0].metrics
    assert "time_per_output_token_ms" not in again.results[0].metrics


@pytest.mark.parametrize("name", ["benchmark_report", "benchmark_scenarios", "llama_bench_sql"])
def test_results_of_another_tool_come_back_with_its_runtime_device_and_precision(name, came_back):
    path = FIXTURES / "imports/llama_bench/41_columns.jsonl"
    runs = list(importer_for(read_file(path)).runs(read_file(path)))
    found = came_back(name, *runs)
    assert {one.cell.runtime for one in found} == {"llama.cpp"}
    for part in ("device.type", "device.name", "device.count", "precision"):
        of = attrgetter(f"cell.{part}")
        assert {of(one) for one in found} == {of(one) for one in runs}, part
    modes = [dict(one.cell.runtime_mode) for one in runs]
    assert [dict(one.cell.runtime_mode) for one in found if dict(one.cell.runtime_mode) not in modes] == []


@pytest.mark.parametrize("name", OF_SINGLE_RESULTS)
def test_a_point_comes_back_with_its_further_axes_and_its_tokens_of_the_batch(name, came_back, make_run):
    """Without the axes, both points would be one series. 4 sequences of 8 tokens in 16 ms are 2000 tokens/s."""
    axes = ({"image_size": 224, "depth": 512}, {"image_size": 448})
    points = [Point(batch_size=4, sequence_length=32, new_tokens=8, axes=one) for one in axes]
    results = tuple(make_result(point, 16.0, launches=1) for point in points)
    results = tuple(replace(one, metrics={**one.metrics, "throughput_tokens_per_sec": 2000.0}) for one in results)
    made = replace(make_run(family="multimodal", launches=1), results=results)
    found = [one for run in came_back(name, made) for one in run.results]
    assert sorted((one.point for one in found), key=lambda point: point.axes["image_size"]) == points
    for one in found:
        assert one.metrics["throughput_tokens_per_sec"] == pytest.approx(2000, rel=0.02)


@pytest.mark.parametrize("text", ["it's", "a', 'b", "'", "two\nlines\r\nand \u2028 one", "a'||char(10)||'b"])
def test_a_script_for_sqlite_comes_back_with_its_text(text, came_back, make_run):
    run = make_run(model_id=f"m {text} m", family="decoder-only", batch_sizes=(1,), sequence_lengths=(32,))
    (again,) = came_back("llama_bench_sql", replace(run, cell=replace(run.cell, runtime_mode={"note": text})))
    assert again.cell.workload.model_id == f"m {text} m"
    assert again.cell.runtime_mode["note"] == text


def test_an_organisation_in_the_name_of_an_imported_model_comes_back(came_back, tmp_path):
    table = "| model | backend | test | t/s |\n|---|---|---|---|\n| gemma3 4B Q4_K - Medium | CUDA | pp512 | 9.5 |\n"
    (tmp_path / "a.md").write_text(f"$ llama-bench -hf org/gemma-3-4b-it-GGUF:Q4_K_M\n{table}")
    file = read_file(tmp_path / "a.md")
    (run,) = importer_for(file).runs(file)
    (again,) = came_back("llama_bench_sql", run)
    assert again.cell.workload.model_id == run.cell.workload.model_id == "org/gemma-3-4b-it-GGUF:Q4_K_M"


def test_a_scenario_names_the_gpu_that_another_tool_did_not_monitor(export, warehouse, tmp_path):
    path = FIXTURES / "imports/llama_bench/41_columns.jsonl"
    for run in importer_for(read_file(path)).runs(read_file(path)):
        warehouse.ingest(run)
    export("benchmark_scenarios", tmp_path / "out", warehouse=warehouse)
    scenario = json.loads((tmp_path / "out").read_text())["benchmark_scenarios"][0]
    hardware = scenario["metadata"]["hardware_info"]
    assert ("RTX" in hardware["gpu_name"], hardware["gpu_memory_total"]) == (True, None)
    assert scenario["gpu_metrics"]["gpu_monitoring_reason"] == "no_samples_collected"


def test_a_speed_without_a_latency_is_exported_and_a_result_without_either_is_left_out(
    export, warehouse, make_run, tmp_path
):
    run = make_run(family="decoder-only", batch_sizes=(1,), sequence_lengths=(32,), with_doubtful=False)
    point = run.results[0].point
    cases = [
        ((32, None), {"prefill_tokens_per_sec": 1280.0}),
        ((None, 8), {"decode_tokens_per_sec": 40.0}),
        ((32, 8), {"total_tokens_per_sec": 99.0, "throughput_tokens_per_sec": 20.0}),
        ((32, 9), {"prefill_tokens_per_sec": 1280.0, "decode_tokens_per_sec": 40.0}),
    ]
    results = tuple(
        replace(
            run.results[0],
            result_id=f"{run.results[0].result_id[:-1]}{number}",
            point=replace(point, sequence_length=prompt, new_tokens=new),
            metrics=metrics,
            samples=(),
            pooled_quantiles=(),
        )
        for number, ((prompt, new), metrics) in enumerate(cases)
    )
    warehouse.ingest(replace(run, results=results))
    notes = export("llama_bench_sql", tmp_path / "out.sql", warehouse=warehouse)
    assert notes == ["left out: 1 result: neither a mean latency nor the tokens per second of a call"]
    (again,) = importer_for(file := read_file(tmp_path / "out.sql")).runs(file)
    assert [
        result.metrics.get("total_tokens_per_sec", result.metrics.get("throughput_tokens_per_sec"))
        for result in again.results
    ] == [1280.0, 40.0, 99.0]


def test_a_load_is_no_call_of_formats_that_know_single_calls(make_run):
    from db.exporters.support.exporting import why_no_calls

    run = make_run(batch_sizes=(1,), sequence_lengths=(32,))
    (result,) = run.results
    assert why_no_calls(run, result) is None
    assert "a load" in (why_no_calls(run, replace(result, point=replace(result.point, concurrency=2))) or "")
    unlimited = replace(result, doubts=(Doubt(kind="concurrency_unlimited", severity="info"),))
    assert "a load" in (why_no_calls(run, unlimited) or "")
    loop = replace(run, cell=replace(run.cell, runtime_mode={"loop": "open"}))
    assert "a load" in (why_no_calls(loop, result) or "")


def test_llama_bench_sql_runs_in_sqlite_with_llama_bench_s_numbers(export, tmp_path):
    """2 x (6 + 4) tokens in 10 and 20 ms: 2000 and 1000 tokens/s; their mean is 1500, not 20 / 15 ms = 1333."""
    export("llama_bench_sql", tmp_path / "out.sql")
    database = sqlite3.connect(":memory:")
    database.row_factory = sqlite3.Row
    database.executescript((tmp_path / "out.sql").read_text())
    rows = database.execute("SELECT * FROM llama_bench ORDER BY test_time, n_prompt").fetchall()
    assert len(rows) == 6
    row = next(row for row in rows if row["model_filename"] == "gpt2" and row["runtime"] == "eager")
    assert (row["n_prompt"], row["n_gen"], row["n_depth"], row["batch_size"]) == (6, 4, 0, 2)
    assert (row["avg_ns"], row["stddev_ns"]) == (15_000_000, round(stdev([10e6, 20e6] * 2)))
    assert (row["avg_ts"], row["stddev_ts"]) == (1500.0, pytest.approx(stdev([2000, 1000] * 2)))
    assert row["test_time"] == "2026-02-03T00:00:00Z"
    assert (row["model_size"], row["model_n_params"]) == (437_900_000, 109_482_240)
    assert (row["n_batch"], row["n_gpu_layers"], row["gpu_info"]) == (None, None, None)
    database.close()


@pytest.mark.parametrize(
    "text", ["it's|\"; DROP TABLE series; -- <b>\x1b[31m\n*", "'); DROP TABLE llama_bench; --", "a\0b\r\nc", ""]
)
def test_text_in_sql_is_text(text):
    from db.exporters.benchmark_formats import _quoted_text

    literal = _quoted_text(text)
    assert "\n" not in literal
    assert sqlite3.connect(":memory:").execute(f"SELECT {literal}").fetchone() == (text,)


def test_without_raw_samples_only_the_stored_mean_is_exported(make_run):
    from db.exporters.benchmark_formats import times_and_speeds

    result = replace(make_run(batch_sizes=(1,), sequence_lengths=(32,)).results[0], samples=())
    assert times_and_speeds(result) == {"avg_ns": 8_000_000}
    assert times_and_speeds(replace(result, metrics={})) == {"avg_ns": None}


@pytest.mark.parametrize("shortest", [0.0, 1e-320])
def test_calls_of_which_one_takes_no_time_have_no_speed(make_run, shortest):
    from db.exporters.benchmark_formats import times_and_speeds

    result = make_run(batch_sizes=(1,), sequence_lengths=(32,)).results[0]
    calls = replace(result.samples[0], values=(8.0, shortest, 4.0))
    speeds = times_and_speeds(replace(result, samples=(calls,)))
    assert (speeds["avg_ns"], speeds["avg_ts"], speeds["stddev_ts"]) == (4_000_000, None, None)


def test_anonymous_run_files_do_not_name_their_host_and_other_formats_are_refused(asked_database, capsys):
    from benchmarking import cli

    asked = ["export", "--db-path", str(asked_database), "--anonymous", "--format"]
    assert cli.main([*asked, "json"]) == 0
    runs = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert {run["provenance"]["host"] for run in runs} == {""}
    assert len({run["run_id"] for run in runs}) == len(runs) == 4
    assert cli.main([*asked, "csv"]) == 2
    assert "--anonymous: the format csv contains host names" in capsys.readouterr().err

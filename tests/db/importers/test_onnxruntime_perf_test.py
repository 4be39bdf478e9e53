"""onnxruntime_perf_test's result file and printed output, written by hand after its source, value by value."""

from __future__ import annotations

import pytest

from db.importers.onnxruntime_benchmarks import PERF_TEST
from db.importers.support.files import read_file
from tests.helpers.left_out import left_out
from tests.helpers.paths import FIXTURES

FOLDER = FIXTURES / "imports/onnxruntime_perf_test"


def runs_of(path):
    return list(PERF_TEST.runs(read_file(path)))


def written(tmp_path, text):
    (tmp_path / "r.csv").write_text(text)
    return tmp_path / "r.csv"


def test_a_model_is_a_run_and_an_invocation_a_launch():
    resnet, squeezenet = runs_of(FOLDER / "result.csv")
    (result,) = resnet.results
    assert [(one.launch, one.values) for one in result.samples] == [
        (0, pytest.approx((12.5, 12.0, 13.5))),
        (1, pytest.approx((13.0, 14.5))),
    ]
    assert (result.launches, result.iterations, result.warmup_iterations) == (2, 5, 2)
    assert (resnet.cell.workload.model_id, resnet.cell.runtime) == ("resnet50", "onnxruntime")
    assert squeezenet.results[0].metrics["latency_median_ms"] == pytest.approx(0.02)


def test_columns_are_medians_over_the_invocations():
    metrics = runs_of(FOLDER / "result.csv")[0].results[0].metrics
    assert metrics["latency_median_ms"] == pytest.approx((12.5 + 13.75) / 2)
    assert metrics["latency_mean_ms"] == pytest.approx((38 / 3 + 13.75) / 2)
    assert (metrics["latency_min_ms"], metrics["latency_max_ms"]) == (12.0, 14.5)
    assert metrics["process_peak_working_set_mb"] == pytest.approx((104.8576 + 115.34336) / 2)
    assert metrics["cpu_usage_percent"] == 49


def test_unstated_values_are_doubts_and_stated_percentiles_are_kept():
    (result,) = runs_of(FOLDER / "result.csv")[0].results
    assert [doubt.kind for doubt in result.doubts] == ["undated", "batch_size_not_stated", "options_may_differ"]
    assert result.extra["kept"]["stated"][0]["latency_p99_ms"] == pytest.approx(13.5)


def test_each_value_of_the_printed_output_is_imported():
    (run,) = runs_of(FOLDER / "printed.txt")
    (result,) = run.results
    assert result.metrics == pytest.approx(
        {
            "session_creation_ms": 250.0,
            "first_call_ms": 31.0,
            "latency_mean_ms": 12.5,
            "duration_ms": 1520.0,
            "inferences_per_sec": 78.9474,
            "cpu_usage_percent": 49.0,
            "process_peak_working_set_mb": 104.8576,
            "latency_min_ms": 11.0,
            "latency_max_ms": 20.0,
            "latency_median_ms": 12.4,
            "latency_p90_ms": 13.1,
            "latency_p95_ms": 13.9,
            "stated_latency_p99_ms": 19.5,
            "latency_p999_ms": 20.0,
        }
    )
    assert (result.iterations, run.cell.workload.model_id[:8]) == (120, "unknown-")
    assert "Setting intra_op_num_threads to 4" in result.extra["kept"]["lines"]


def test_a_result_file_is_recognised_by_its_first_line_even_if_a_later_one_is_wrong(tmp_path):
    assert PERF_TEST.recognises(read_file(written(tmp_path, "m,0.1,1048576,1,0\nm,fast,1048576,1,1\n")))
    assert not PERF_TEST.recognises(read_file(written(tmp_path, "m,0.1,1048576,1,7\n")))
    assert not PERF_TEST.recognises(read_file(written(tmp_path, "name,seconds,bytes,cpu,call\n")))


OTHER_TABLES = {
    "flowers": "5.1,3.5,14,2,0\n4.9,3.0,14,2,0\n4.7,3.2,13,2,1\n",
    "sales": "region,price,quantity,stock,returned\nnorth,9.99,3,4,0\nsouth,19.99,5,6,1\n",
    "compiled models": "cuda,bert,1.8,1.1,1500000,1,0,0\ncuda,opt,1.7,1.2,1410000,1,0,1\n",
    "processes": "host,seconds,rss_bytes,cpu,sample\na,0.5,104857600,10,0\na,0.6,104857600,10,1\n",
    "clusters": "a,0.5,104857600,10,1\na,0.5,104857600,10,1\na,0.5,104857600,10,4\n",
    "bytes of models": "a,0.5,104857600,1048576,0\nb,0.5,104857600,1048576,1\n",
}


@pytest.mark.parametrize("table", OTHER_TABLES.values(), ids=OTHER_TABLES)
def test_a_table_whose_last_cells_are_whole_numbers_is_no_result_file(tmp_path, table):
    assert not PERF_TEST.recognises(read_file(written(tmp_path, table)))


def test_labels_of_an_older_version_are_read(tmp_path):
    lines = ("Total time cost:58.8", "Total iterations:1000", "Average time cost:58.8 ms", "P50 Latency is 0.0587sec")
    (run,) = runs_of(written(tmp_path, "\n".join(lines)))
    assert run.results[0].metrics == pytest.approx({"latency_mean_ms": 58.8, "latency_median_ms": 58.7})
    assert run.results[0].iterations == 1000


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("m,0.1,1048576,1,0\nm,0.1,1048576,1,2\n", r"line 2: expected call 1 of m, found 'm,0\.1,1048576,1,2'"),
        (
            "m,0.1,1048576,1,0\nhello\n",
            r"line 2: expected model,seconds,bytes,percent,call or a statistic, found 'hello'",
        ),
        ("m,1e,1048576,1,0\n", r"line 1: expected a number, found '1e'"),
        ("m,1e999,1048576,1,0\n", r"line 1: expected a number, found '1e999'"),
        ("", "the file is empty, or not text"),
    ],
)
def test_an_invalid_line_is_refused_with_its_number(tmp_path, text, message):
    with left_out(rf"r\.csv: {message}"):
        runs_of(written(tmp_path, text))


def test_each_invocation_in_a_log_is_a_run_with_its_own_options():
    first, second = runs_of(FOLDER / "two_invocations.txt")
    assert [run.results[0].metrics["latency_mean_ms"] for run in (first, second)] == [144.871, 84.3236]
    assert [run.results[0].metrics["session_creation_ms"] for run in (first, second)] == [
        pytest.approx(127.918),
        pytest.approx(60.94),
    ]
    assert [dict(run.cell.runtime_mode) for run in (first, second)] == [{"provider": "acl"}, {}]
    assert {run.cell.workload.model_id for run in (first, second)} == {"squeezenet1.0-9"}


def test_the_command_is_read_behind_the_prompt_of_windows(tmp_path):
    lines = (
        "D:\\ort>onnxruntime_perf_test -m times -r 1 -e dml d:\\resnet50\\model.onnx res.out",
        "Session creation time cost:1.84149 s",
        "Total inference time cost:0.734606 s",
        "Total inference requests:1",
        "Average inference time cost:734.606 ms",
    )
    (run,) = runs_of(written(tmp_path, "\n".join(lines)))
    assert (run.cell.workload.model_id, run.cell.runtime_mode) == ("resnet50", {"provider": "dml"})
    assert run.results[0].metrics["latency_mean_ms"] == 734.606


def test_the_time_of_a_call_follows_the_time_to_submit_it():
    (run,) = runs_of(FOLDER / "two_times.csv")
    (result,) = run.results
    assert run.cell.workload.model_id == "squeezenet"
    assert {one.metric: one.values for one in result.samples} == {
        "latency_wall": (pytest.approx(3.4), pytest.approx(3.3)),
        "submission": (pytest.approx(1.2), pytest.approx(1.1)),
    }


PRINTED = "Session creation time cost: 0.5 s\nTotal inference requests: 100\nAverage inference time cost: 10 ms\n"


def of_command(folder, flags):
    return runs_of(written(folder, f"$ onnxruntime_perf_test {flags} /m/resnet50/model.onnx\n{PRINTED}"))[0]


def test_calls_in_flight_threads_and_provider_of_the_command_are_the_runs(tmp_path):
    run = of_command(tmp_path, "-e cuda -c 8 -x 16 -r 100 -I")
    assert (run.results[0].point.label, run.cell.num_threads, run.cell.device.type) == ("b1 c8", 16, "cuda")
    assert run.cell.runtime_mode == {"provider": "cuda"}


def test_flags_that_change_what_is_measured_tell_series_apart(tmp_path):
    run = of_command(tmp_path, "-m times -P -y 2 -o 1 -f batch:4 -f 'seq:128' -i \"trt_fp16_enable|true a|b\" -M -x 0")
    assert run.cell.runtime_mode == {
        "inter_op_num_threads": "2",
        "optimization_level": "1",
        "free_dimensions": "batch:4 seq:128",
        "provider_options": "trt_fp16_enable|true a|b",
        "parallel_executor": True,
        "no_memory_pattern": True,
    }
    assert (run.cell.device.type, run.cell.num_threads) == ("cpu", None)  # the tool's default provider
    run = of_command(
        tmp_path, "--plugin_eps A --plugin_ep_libs='A|/x/a.so' -plugin_ep_options 'k|v' -I --compile_ep_context"
    )
    assert run.cell.runtime_mode == {"plugin_eps": "A", "plugin_ep_options": "k|v", "compile_ep_context": True}


@pytest.mark.parametrize("flags", ["-u opt.onnx -I", "-I -u /tmp/opt.onnx", "--saved opt.onnx -e cpu", "-u=opt.onnx"])
def test_a_flags_value_is_no_model(tmp_path, flags):
    assert of_command(tmp_path, flags).cell.workload.model_id == "resnet50"
    if "saved" not in flags:
        (run,) = runs_of(written(tmp_path, f"onnxruntime_perf_test -I /m/resnet50/model.onnx {flags}\n{PRINTED}"))
        assert run.cell.workload.model_id == "resnet50"


def test_printed_threads_are_read_without_the_command(tmp_path):
    lines = f"Setting intra_op_num_threads to 4\nSetting inter_op_num_threads to 2\n{PRINTED}"
    (run,) = runs_of(written(tmp_path, lines))
    assert (run.cell.num_threads, run.cell.runtime_mode) == (4, {"inter_op_num_threads": "2"})
    assert run.cell.device.type == "unknown"


def test_printed_threads_are_those_of_the_invocation_below_them(tmp_path):
    lines = (f"Setting intra_op_num_threads to {threads}\n{PRINTED}" for threads in (4, 8))
    first, second = runs_of(written(tmp_path, "".join(lines)))
    assert (first.cell.num_threads, second.cell.num_threads) == (4, 8)


def test_a_model_before_the_flags_is_named_and_so_is_a_command_of_several_lines(tmp_path):
    first, second = (
        "onnxruntime_perf_test yolo.q.onnx -x 4 -r 10 -e spacemit -I",
        "inference.q.onnx -m times -e spacemit",
    )
    text = f"{first}\n{PRINTED}\n`onnxruntime_perf_test` prints:\n$ onnxruntime_perf_test \\\n  {second}\n{PRINTED}"
    runs = runs_of(written(tmp_path, text))
    assert [run.cell.workload.model_id for run in runs] == ["yolo.q", "inference.q"]
    assert [run.cell.num_threads for run in runs] == [4, None]
    assert {run.cell.runtime_mode["provider"] for run in runs} == {"spacemit"}


def test_a_model_in_quotes_before_the_flags_is_named(tmp_path):
    text = f'onnxruntime_perf_test "my models/a b.onnx" -x 4 -e cuda 2>&1\n{PRINTED}'
    (run,) = runs_of(written(tmp_path, text))
    assert (run.cell.workload.model_id, run.cell.num_threads, run.cell.device.type) == ("a b", 4, "cuda")
    assert run.provenance.command == ("onnxruntime_perf_test", "my models/a b.onnx", "-x", "4", "-e", "cuda")


def test_unnamed_models_of_several_commands_are_not_one(tmp_path):
    each = [f"onnxruntime_perf_test -e cuda -I --weights {name}.bin\n{PRINTED}" for name in "ab"]
    first, second = (run.cell.workload.model_id for run in runs_of(written(tmp_path, "".join(each))))
    assert (first.startswith("unknown-"), second) == (True, f"{first}-1")


def test_of_several_commands_above_the_numbers_what_differs_is_of_none(tmp_path):
    commands = "onnxruntime_perf_test -e cuda -x 2 a.onnx\nonnxruntime_perf_test -e cuda -x 4 b.onnx\n"
    run, *_ = runs_of(written(tmp_path, f"{commands}{PRINTED}onnxruntime_perf_test -e cpu c.onnx\n"))
    assert run.cell.workload.model_id.startswith("unknown-")
    assert (run.cell.device.type, run.cell.runtime_mode, run.cell.num_threads) == ("cuda", {"provider": "cuda"}, None)

"""trtllm-bench's reports, written by hand after its source: milliseconds of the load, nanoseconds of each request."""

from __future__ import annotations

import json

import pytest

from db.importers.support.files import read_file
from db.importers.tensorrt_benchmarks import TRTLLM_BENCH
from tests.helpers.imported_files import importer_for
from tests.helpers.left_out import left_out
from tests.helpers.paths import FIXTURES

FOLDER = FIXTURES / "imports/trtllm_bench"


def only_run(path):
    (run,) = TRTLLM_BENCH.runs(read_file(path))
    return run


def changed(tmp_path, change):
    report = json.loads((FOLDER / "report.json").read_text())
    change(report)
    (tmp_path / "report.json").write_text(json.dumps(report))
    return tmp_path / "report.json"


def test_statistics_of_the_report_are_in_milliseconds():
    (result,) = only_run(FOLDER / "report.json").results
    expected = {
        "duration_s": 4.0,
        "latency_mean_ms": 1125.0,
        "latency_median_ms": 1100.0,
        "latency_p95_ms": 1600.0,
        "time_to_first_token_ms": 180.0,
        "time_to_first_token_p90_ms": 300.0,
        "time_per_output_token_ms": 14.0,
        "throughput_samples_per_sec": 50.0,
        "throughput_tokens_per_sec": 3200.0,
        "total_tokens_per_sec": 9600.0,
        "concurrency_mean": 56.25,
        "spec_decode_acceptance_percent": 70.0,
        "spec_decode_acceptance_length": 3.1,
        "power_mean_w": 900.0,
        "energy_total_j": 3600.0,
    }
    assert {name: result.metrics[name] for name in expected} == pytest.approx(expected)
    assert result.missing["time_to_first_token_p99_ms"] == "too_few_samples"  # 200 requests
    assert (result.point.label, result.iterations) == ("b1 s128 n64 in_flight_about=64 num_requests=200", 200)
    assert [doubt.kind for doubt in result.doubts] == ["undated", "concurrency_not_stated"]


def test_means_and_lengths_of_older_reports_stand_beside_their_percentiles(tmp_path):
    def older(report):
        report["dataset"] = {"avg_isl": 64.0, "max_isl": 64, "avg_osl": 16.0, "max_osl": 20}
        report["request_info"]["avg_input_length"] = 64.0
        report["streaming_metrics"] = {"avg_ttft_ms": 4533.1, "ttft_percentiles": {"p50": 4500.0}}
        report["performance"] |= {"avg_request_latency_ms": 4743.5, "request_latency_percentiles_ms": {"p50": 4700.0}}

    (result,) = only_run(changed(tmp_path, older)).results
    assert (result.point.sequence_length, result.point.new_tokens) == (64, None)
    assert (result.metrics["latency_mean_ms"], result.metrics["latency_median_ms"]) == (4743.5, 4700)
    assert (result.metrics["ttft_average_ms"], result.metrics["time_to_first_token_ms"]) == (4533.1, 4500)


def test_engine_and_machine_are_the_reports():
    run = only_run(FOLDER / "report.json")
    assert (run.cell.workload.model_id, run.cell.runtime) == ("meta-llama/Llama-3.1-8B", "tensorrt-llm")
    assert (run.cell.precision, run.cell.device.name, run.cell.device.count) == ("bfloat16", "NVIDIA H100 80GB HBM3", 2)
    assert run.cell.device.memory_bytes == round(79.25 * 2**30)
    assert run.cell.runtime_mode == {
        "loop": "not stated",
        "backend": "Pytorch",
        "quantization": "FP8",
        "kv_cache_dtype": "FP8",
        "speculation": "Eagle",
        "tp_size": 2,
        "max_batch_size": 64,
        "max_num_tokens": 4096,
        "scheduling_policy": "GUARANTEED_NO_EVICT",
    }


def test_a_load_that_was_not_streamed_has_no_time_to_first_token(tmp_path):
    (result,) = only_run(changed(tmp_path, lambda report: report.pop("streaming_metrics"))).results
    assert "time_to_first_token_ms" not in result.metrics
    assert result.metrics["latency_median_ms"] == 1100.0


def test_loads_that_were_not_streamed_are_told_apart(tmp_path):
    streamed = [only_run(FOLDER / name).cell.runtime_mode for name in ("report.json", "requests.json")]
    assert all("streaming" not in mode for mode in streamed)
    whole = only_run(changed(tmp_path, lambda report: report.pop("streaming_metrics")))
    assert whole.cell.runtime_mode == {**streamed[0], "streaming": False}
    requests = json.loads((FOLDER / "requests.json").read_text())
    (tmp_path / "requests.json").write_text(json.dumps([{**one, "first_token_timestamp": -1} for one in requests]))
    assert only_run(tmp_path / "requests.json").cell.runtime_mode == {**streamed[1], "streaming": False}


def test_times_of_requests_are_nanoseconds_and_a_failed_one_is_no_sample():
    (result,) = only_run(FOLDER / "requests.json").results
    samples = {one.metric: one.values for one in result.samples}
    assert samples == {
        "latency_wall": (190.0, 270.0, 240.0),
        "time_to_first_token": (50.0, 60.0, 100.0),
        "time_per_output_token": (20.0, 30.0, 20.0),
    }
    assert result.metrics["throughput_samples_per_sec"] == pytest.approx(3 / 0.27)
    (requests,) = result.requests
    assert requests.first_token_ms == pytest.approx((50.0, 60.0, 110.0, 20.0))
    assert requests.error == (None, None, None, "failed")
    assert [doubt.evidence for doubt in result.doubts if doubt.kind == "failed_requests"] == [{"failed_requests": 1}]


def test_a_request_without_its_number_of_output_tokens_leaves_the_tokens_per_second_unknown(tmp_path):
    requests = json.loads((FOLDER / "requests.json").read_text())
    del requests[0]["num_output_tokens"]
    (tmp_path / "requests.json").write_text(json.dumps(requests))
    (result,) = only_run(tmp_path / "requests.json").results
    assert result.requests[0].tokens_out[0] == 8  # of newer versions
    del requests[0]["num_total_output_tokens"], requests[0]["output_tokens"]
    (tmp_path / "requests.json").write_text(json.dumps(requests))
    (result,) = only_run(tmp_path / "requests.json").results
    assert "throughput_tokens_per_sec" not in result.metrics
    assert result.metrics["throughput_samples_per_sec"] == pytest.approx(3 / 0.27)
    assert (result.requests[0].tokens_out[0], result.point.new_tokens) == (None, None)


def test_a_negative_time_is_named_with_its_position(tmp_path):
    path = changed(tmp_path, lambda report: report["performance"].update(total_latency_ms=-4.0))
    with left_out(r"performance\.total_latency_ms: expected a number from 0, found -4\.0"):
        only_run(path)


PRINTED = """\
[TensorRT-LLM] TensorRT-LLM version: 1.1.0
= PYTORCH BACKEND
Model:                  demo/model
TensorRT-LLM Version:   1.1.0
Dtype:                  bfloat16
KV Cache Dtype:         None
Quantization:           FP8
= MACHINE DETAILS
NVIDIA H100 80GB HBM3, memory 79.25 GB, 2.62 GHz
= WORLD + RUNTIME INFORMATION
TP Size:                2
Max Runtime Batch Size: 2048
Issue Rate (req/sec):   7.6753E+14
= PERFORMANCE OVERVIEW
===========================================================
Request Throughput (req/sec):                     43.2089
Total Output Throughput (tokens/sec):             5530.7382
Total Latency (ms):                               115716.9214
Average request latency (ms):                     75903.4456
Average time-to-first-token [TTFT] (ms):          52667.0339
-- Per-Request Time-per-Output-Token [TPOT] Breakdown (ms)
[TPOT] MINIMUM: 32.8005
[TPOT] AVERAGE: 182.9639
[TPOT] P50    : 204.0463
[TPOT] P99    : 206.5821
"""
OLDER = """\
= ENGINE DETAILS
Model:                  demo/older
Dtype:                  float16
= STATISTICS
Number of requests:             3000
Token Throughput (tokens/sec):  23405.9
Request Throughput (req/sec):   182.86
Total Latency (seconds):        16.4
"""


def test_what_it_prints_is_read_from_any_text_of_every_version(tmp_path):
    path = tmp_path / "notes.md"
    path.write_text(f"First:\n{PRINTED}\nthen, on the old machine:\n{OLDER}")
    new, old = importer_for(read_file(path)).runs(read_file(path))
    assert (new.cell.workload.model_id, new.cell.precision, new.hardware.device.count) == ("demo/model", "bfloat16", 2)
    assert (new.cell.device.type, new.cell.device.name) == ("cuda", "NVIDIA H100 80GB HBM3")
    assert new.cell.device.memory_bytes == round(79.25 * 2**30)
    mode = {"backend": "Pytorch", "loop": "not stated", "quantization": "FP8", "tp_size": 2, "max_batch_size": 2048}
    assert new.cell.runtime_mode == mode
    assert new.results[0].metrics == {
        "duration_s": 115.7169214,
        "throughput_samples_per_sec": 43.2089,
        "throughput_tokens_per_sec": 5530.7382,
        "latency_mean_ms": 75903.4456,
        "ttft_average_ms": 52667.0339,
        "tpot_minimum_ms": 32.8005,
        "tpot_average_ms": 182.9639,
        "time_per_output_token_ms": 204.0463,
        "time_per_output_token_p99_ms": 206.5821,
    }
    assert new.origin.kept["printed"]["Issue Rate"] == "7.6753E+14"
    assert (old.cell.workload.model_id, old.results[0].iterations) == ("demo/older", 3000)
    assert old.results[0].metrics["duration_s"] == pytest.approx(16.4)
    assert new.run_id != old.run_id


def test_a_printed_duration_that_is_no_number_is_left_out_alone(tmp_path):
    path = tmp_path / "notes.md"
    path.write_text(OLDER.replace("16.4", "1.6.4"))
    (run,) = importer_for(read_file(path)).runs(read_file(path))
    assert "duration_s" not in run.results[0].metrics
    assert run.results[0].metrics["throughput_samples_per_sec"] == 182.86


def test_loads_of_other_numbers_in_flight_and_lengths_are_told_apart(tmp_path):
    def label(requests, in_flight, most=64, mean=64.0):
        report = json.loads((FOLDER / "report.json").read_text())
        report["request_info"] |= {"num_requests": requests, "avg_num_concurrent_requests": in_flight}
        report["dataset"]["osl_stats"] |= {"maximum": most, "average": mean}
        report["dataset"] |= {"max_osl": most, "avg_osl": mean}
        (tmp_path / "report.json").write_text(json.dumps(report))
        return only_run(tmp_path / "report.json").results[0].point.label

    assert label(3000, 1.0) == "b1 s128 n64 in_flight_about=1 num_requests=3000"
    assert label(3000, 508.3) == label(3000, 496.1) == "b1 s128 n64 in_flight_about=512 num_requests=3000"
    assert label(16, 1.0, 80, 70.0) == "b1 s128 in_flight_about=1 num_requests=16 output_tokens_requested=70"


@pytest.mark.parametrize(
    ("means", "label"),
    [
        ({"avg_output_length": 28.0}, "b1 s128 in_flight_about=64 num_requests=200 output_tokens_requested=64"),
        ({"avg_input_length": 4128.5}, "b1 n64 in_flight_about=64 input_tokens_requested=128 num_requests=200"),
        ({"avg_output_length": None}, "b1 s128 in_flight_about=64 num_requests=200 output_tokens_requested=64"),
    ],
)
def test_lengths_of_the_data_are_those_of_the_requests_only_if_their_mean_is_the_same(tmp_path, means, label):
    (result,) = only_run(changed(tmp_path, lambda report: report["request_info"].update(means))).results
    assert result.point.label == label
    assert result.metrics.get("output_tokens_mean") == means.get("avg_output_length", 64)


@pytest.mark.parametrize(
    ("part", "change", "setting"),
    [
        ("world_info", {"kv_cache_percentage": 0.1}, {"kv_cache_percentage": 0.1}),
        ("engine", {"max_sequence_length": 128, "model_path": "/m"}, {"max_sequence_length": 128}),
        ("world_info", {"chunked": True, "issue_rate": 1.0}, {"chunked": True}),
    ],
)
def test_every_limit_of_the_engine_tells_loads_apart(tmp_path, part, change, setting):
    plain = only_run(FOLDER / "report.json").cell.runtime_mode
    run = only_run(changed(tmp_path, lambda report: report[part].update(change)))
    assert run.cell.runtime_mode == {**plain, **setting}


def test_a_printed_load_has_the_lengths_of_its_data_and_the_memory_of_its_cache(tmp_path):
    data = "= DATASET DETAILS\nDataset Path:  /d\n        Input     Output     Seq. Length\n"
    data += "MIN:   128.0000   {0}.0000   192.0000\nMAX:   128.0000   64.0000   192.0000\nAVG:   128.0   62.0   192.0\n"
    means = "Average Input Length (tokens):  128.0000\nAverage Output Length (tokens): {0}.0000\n"
    cache = PRINTED.replace("Issue Rate", means + "KV Memory Percentage:   {1}%\nIssue Rate") + data
    alike, other = runs_of(tmp_path, cache.format(64, "90.00") + cache.format(60, "10.00"))
    assert (alike.results[0].point.label, alike.cell.runtime_mode.get("kv_cache_percentage")) == ("b1 s128 n64", None)
    assert other.results[0].point.label == "b1 s128 output_tokens_requested=62"
    assert other.cell.runtime_mode["kv_cache_percentage"] == 0.1


OVERVIEW = """\
= PERFORMANCE OVERVIEW
Request Throughput (req/sec):                     {0}
Total Output Throughput (tokens/sec):             {1}
Per GPU Output Throughput (tokens/sec/gpu):       {2}
"""
COMMAND = """\
$ trtllm-bench -m org/model throughput --dataset $DATA --backend pytorch \\
    --num_requests {} --concurrency {} --max_batch_size {} --tp 8 --ep 4
"""


def runs_of(tmp_path, text):
    (tmp_path / "notes.md").write_text(text)
    return list(TRTLLM_BENCH.runs(read_file(tmp_path / "notes.md")))


def test_a_printed_overview_has_the_settings_of_the_command_above_it(tmp_path):
    text = "What trtllm-bench prints:\n" + COMMAND.format(10, 1, 1) + OVERVIEW.format(0.1244, 254.5535, 31.8192)
    text += COMMAND.format(49152, 3072, 384) + OVERVIEW.format(17.5825, 36008.8948, 4501.1119)
    first, second = runs_of(tmp_path, text)
    for run, label, batch in ((first, "b1 num_requests=10", 1), (second, "b1 c3072 num_requests=49152", 384)):
        assert (run.cell.workload.model_id, run.results[0].point.label) == ("org/model", label)
        mode = {"backend": "pytorch", "tp_size": 8, "ep_size": 4, "max_batch_size": batch, "loop": "closed"}
        assert (run.cell.runtime_mode, run.hardware.device.count) == (mode | {"streaming": False}, 8)
        assert "concurrency_not_stated" not in [doubt.kind for doubt in run.results[0].doubts]


@pytest.mark.parametrize(
    ("flags", "mode"),
    [
        ("--beam_width 4 --enable_chunked_context", {"beam_width": "4", "enable_chunked_context": "True"}),
        ("--extra_llm_api_options /home/me/spec.yaml", {"extra_llm_api_options": "spec.yaml"}),
        ("--warmup 2 --workspace /w --report_json r.json --tp 1", {}),
        ("--streaming", {"streaming": None}),
    ],
)
def test_every_flag_of_the_command_that_may_change_numbers_is_a_setting(tmp_path, flags, mode):
    command = "trtllm-bench -m org/m throughput --dataset d --backend pytorch {}\n"
    plain, run = runs_of(tmp_path, "".join(command.format(one) + OVERVIEW.format(1, 80, 10) for one in ("", flags)))
    expected = {**plain.cell.runtime_mode, **mode}
    assert plain.cell.runtime_mode["streaming"] is False
    assert run.cell.runtime_mode == {name: one for name, one in expected.items() if one is not None}


def test_an_overview_without_title_below_its_command_is_read_and_states_its_gpus(tmp_path):
    untitled = "trtllm-bench -m org/m throughput\n" + OVERVIEW.partition("\n")[2]
    first, second = runs_of(tmp_path, untitled.format(1, 80, 20) + untitled.format(2, 160, 160))
    assert [run.hardware.device.count for run in (first, second)] == [4, 1]
    assert [run.results[0].metrics["throughput_samples_per_sec"] for run in (first, second)] == [1, 2]


@pytest.mark.parametrize(
    "below",
    [
        "= DATASET DETAILS\nAverage request latency (ms):  1.0\n",
        "============ Serving Benchmark Result ============\nTotal Latency (ms):   1.0\n",
        "Request throughput (req/s):    6.11\nTotal token throughput (tok/s):   1159.52\nTotal Latency (ms):   1.0\n",
        "Results (vLLM):\nRequest Throughput (req/sec):    7.2641\nAverage request latency (ms):  1.0\n",
    ],
)
def test_what_stands_below_a_printed_report_changes_nothing_of_it(tmp_path, below):
    (alone,) = runs_of(tmp_path, OVERVIEW.format(1, 80, 20))
    (run,) = runs_of(tmp_path, OVERVIEW.format(1, 80, 20) + below)
    assert run.results[0].metrics == alone.results[0].metrics


def test_of_several_commands_above_an_overview_what_differs_names_nothing(tmp_path):
    (run,) = runs_of(tmp_path, COMMAND.format(10, 1, 1) + COMMAND.format(10, 64, 1) + OVERVIEW.format(1, 80, 10))
    assert run.cell.workload.model_id == "org/model"
    assert run.cell.runtime_mode["loop"] == "not stated"
    assert "concurrency_not_stated" in [doubt.kind for doubt in run.results[0].doubts]


def test_a_command_that_states_no_limit_of_requests_in_flight_is_an_open_loop(tmp_path):
    (run,) = runs_of(tmp_path, COMMAND.format(10, -1, 1) + OVERVIEW.format(1, 80, 10))
    assert run.cell.runtime_mode["loop"] == "open"
    assert "concurrency_unlimited" in [doubt.kind for doubt in run.results[0].doubts]

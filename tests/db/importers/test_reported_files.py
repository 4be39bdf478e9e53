"""Files of other tools that were imported wrongly once, each with its right value."""

from __future__ import annotations

import json

import pytest

from db.importers.support.files import read_file
from tests.helpers.imported_files import importer_for
from tests.helpers.paths import FIXTURES

IMPORTS = FIXTURES / "imports"


def read(path):
    """The runs of a recorded file, and what was left out of it."""
    file = read_file(IMPORTS / path)
    return list(importer_for(file).runs(file)), [one.text for one in file.left_out]


def results(path):
    return [result for run in read(path)[0] for result in run.results]


def doubts(result):
    return {doubt.kind for doubt in result.doubts}


@pytest.mark.parametrize(
    ("path", "expected"),
    [
        (
            "inference_perf/summary_prometheus_metrics.json",
            {"latency_median_ms": 6000, "time_to_first_token_ms": 3750, "time_per_output_token_ms": 18},
        ),
        (
            "vllm_bench_serve/times_in_seconds.json",
            {"latency_median_ms": 21447.9, "time_to_first_token_ms": 3138.2, "time_per_output_token_ms": 141.05},
        ),
        ("aiperf/records.json", {"time_to_first_token_ms": 44.45, "latency_median_ms": 6653.9}),
        (
            "trtexec/version_7.txt",
            {"latency_median_ms": 0.508223, "gpu_compute_median_ms": 0.428223, "queries_per_sec": 2310.9},
        ),
        (
            "openvino_llm_bench/batch_of_two.json",
            {"time_per_output_token_ms": 23.88, "decode_tokens_per_sec": 83.752},
        ),
    ],
)
def test_the_one_result_of_a_file_has_its_numbers(path, expected):
    (result,) = results(path)
    assert {name: result.metrics[name] for name in expected} == pytest.approx(expected, rel=1e-4)
    assert result.status == "ok"


def test_metrics_under_records_have_their_concurrency():
    (result,) = results("aiperf/records.json")
    assert (result.point.concurrency, result.point.new_tokens) == (1, 1024)


def test_a_time_per_token_that_was_divided_by_the_batch_has_a_doubt():
    assert "divided_by_batch" in doubts(results("openvino_llm_bench/batch_of_two.json")[0])


def test_a_table_is_read_to_its_end_across_a_printed_line():
    runs, left_out = read("llama_bench/line_inside_table.md")
    speeds = [result.metrics["throughput_tokens_per_sec"] for run in runs for result in run.results]
    assert speeds == [881.71, 52.22]
    assert left_out == [
        "line 6: not a row of the table: 'llama_model_loader: warning: something printed in between'",
    ]


@pytest.mark.parametrize(
    ("name", "count", "lines"), [("lines_above.json", 1, [1, 2]), ("lines_above.jsonl", 2, [1, 2])]
)
def test_lines_above_json_are_named_and_the_rest_is_read(name, count, lines):
    runs, left_out = read(f"llama_bench/{name}")
    assert sum(len(run.results) for run in runs) == count
    assert [text.partition(":")[0] for text in left_out] == [f"line {line}" for line in lines]


def test_a_last_line_that_is_cut_off_is_named_and_the_others_are_read():
    runs, left_out = read("llama_bench/last_line_cut.jsonl")
    assert [result.point.sequence_length for run in runs for result in run.results] == [512]
    assert [text.partition(":")[0] for text in left_out] == ["line 2"]


@pytest.mark.parametrize("path", ["pytest_benchmark/batch_sizes.json", "google_benchmark/batch_sizes.json"])
def test_parameters_named_like_axes_are_in_the_columns_of_the_axes(path):
    points = [(result.point.batch_size, result.point.sequence_length) for result in results(path)]
    assert points == [(1, 128), (8, 128)]


def series_of(*paths):
    """The keys of the series of each file's first result."""
    from db.rows import series_id, series_keys

    runs = [read(path)[0][0] for path in paths]
    return {series_id(series_keys(run, run.results[0].point)) for run in runs}


@pytest.mark.parametrize(
    "paths",
    [
        ("llama_bench/rpc_none.md", "llama_bench/rpc_two_machines.md"),
        ("sglang_bench_serving/unnamed_model_a.jsonl", "sglang_bench_serving/unnamed_model_b.jsonl"),
        ("vllm_bench_offline/throughput_short.json", "vllm_bench_offline/throughput_long.json"),
    ],
)
def test_different_things_are_different_series(paths):
    assert len(series_of(*paths)) == 2


def test_the_clients_request_function_is_not_the_engine():
    for name in ("server_of_sglang.json", "server_of_vllm.json"):
        (run,), _ = read(f"vllm_bench_serve/{name}")
        assert (run.cell.runtime, run.cell.runtime_mode["endpoint"]) == ("server", "vllm")
        assert "engine_not_stated" in doubts(run.results[0])


def test_a_latency_in_seconds_is_converted_and_takes_no_other_row_with_it():
    offline, single = results("mlperf/seconds_results.json")
    assert offline.metrics["throughput_tokens_per_sec"] == 8840.42
    assert single.metrics["latency_p90_early_stopping_ms"] == 21_700


def test_a_time_per_token_without_a_first_token_has_a_doubt_and_a_true_reason():
    (result,) = results("sglang_bench_serving/reasoning.jsonl")
    assert result.metrics["time_per_output_token_ms"] == 6.0
    assert "first_token_not_counted" in doubts(result)
    assert result.missing["time_to_first_token_ms"].startswith("left_out: 0 in the file, although tokens followed")


def test_tokens_far_from_the_retokenized_ones_are_a_doubt():
    (result,) = results("sglang_bench_serving/prefill_elsewhere.jsonl")
    assert "tokens_miscounted" in doubts(result)
    assert result.validity == "invalid"


def test_a_load_that_completed_far_below_its_rate_is_over_saturated():
    (result,) = results("vllm_bench_serve/over_saturated.json")
    (doubt,) = [one for one in result.doubts if one.kind == "over_saturated"]
    assert doubt.evidence["completed_share"] == pytest.approx(0.2203)
    assert result.validity == "invalid"


def test_nvfp4_is_a_quantization():
    (run,), _ = read("llama_bench/nvfp4.json")
    assert (run.cell.precision, run.cell.runtime_mode["quantization"]) == ("other", "NVFP4")


def test_an_infinite_interval_is_left_out_alone_with_its_reason():
    runs, left_out = read("asv/infinite_interval.json")
    first, second = (run.results[0] for run in runs)
    assert (first.metrics["latency_median_ms"], second.metrics["latency_median_ms"]) == (20, 10)
    assert "latency_ci_99_low_ms" not in first.metrics
    assert first.missing["latency_ci_99_low_ms"] == "left_out: '-inf' in the file"
    assert (second.metrics["latency_ci_99_low_ms"], second.metrics["latency_ci_99_high_ms"]) == (9, 11)
    assert "results.mod.time_a.stats_ci_99_a: expected a number, found '-inf'" in left_out


def test_an_emoji_in_a_text_of_a_large_file_changes_nothing(tmp_path):
    found = []
    for text in ("hi", "\N{GRINNING FACE}", "\ud83d"):
        path = tmp_path / "detailed.json"
        path.write_text(json.dumps(detailed(160, text)))
        assert path.stat().st_size > 1_000_000
        file = read_file(path)
        (run,) = importer_for(file).runs(file)
        found.append((run.results[0].metrics, len(run.results[0].samples)))
    assert found[0] == found[1] == found[2]
    assert found[0][0]["time_to_first_token_ms"] == 50


def detailed(n, text):
    """A detailed result of vllm bench serve with generated texts."""
    statistics = {f"{one}_{metric}_ms": 50.0 for one in ("mean", "median", "std", "p99") for metric in ("ttft", "tpot")}
    return {
        "date": "20250416-120000",
        "backend": "vllm",
        "model_id": "m",
        "tokenizer_id": "m",
        "num_prompts": n,
        "request_rate": "inf",
        "burstiness": 1.0,
        "max_concurrency": 8,
        "duration": 60.0,
        "completed": n,
        "total_input_tokens": 100 * n,
        "total_output_tokens": 500 * n,
        "request_throughput": n / 60,
        **statistics,
        "input_lens": [100] * n,
        "output_lens": [500] * n,
        "ttfts": [0.05] * n,
        "itls": [[0.010000000000000001 + 1e-9 * k for k in range(499)] for _ in range(n)],
        "generated_texts": [f"hello {text}"] * n,
        "errors": [""] * n,
    }

"""Printed results of vLLM and SGLang, llmperf, InferenceX, onnxruntime's benchmark.py, llama-batched-bench,
lm-evaluation-harness, AIPerf's table, and the layout of benchmark_v2's README."""

from __future__ import annotations

import json
import math
import re
from dataclasses import replace

import pytest

from benchmarking.core.metrics import JUDGED
from benchmarking.core.quality import Quality, QualityValue, quality_lines
from benchmarking.core.sample_statistics import exact_share_interval
from db.analysis.compare.comparison import compare
from db.analysis.selection import Selection
from db.commands.recommend import main as recommend
from db.commands.show import main as show
from db.importers import onnxruntime_benchmarks
from db.importers.support.files import NoResultsError, read_file
from db.run_records import qualities, store_quality, stored_runs
from db.warehouse import Warehouse
from tests.helpers.imported_files import importer_for
from tests.helpers.left_out import left_out
from tests.helpers.paths import FIXTURES
from tests.helpers.run_changes import Alter

IMPORTS = FIXTURES / "imports"


def runs(path):
    file = read_file(path if path.is_absolute() else IMPORTS / path)
    return list(importer_for(file).runs(file))


def all_of(name):
    return runs(IMPORTS / name)


def test_a_printed_block_is_a_load_with_the_settings_above_it():
    first, second = all_of("vllm_printed/serving.log")
    (result,) = first.results
    assert (first.cell.workload.model_id, first.cell.runtime) == ("demo/model-8b", "server")
    assert result.point.label == "b1 s2048 n2048 c32 num_prompts=32"
    assert result.metrics["time_to_first_token_ms"] == 7099.88
    assert (result.metrics["time_per_output_token_ms"], result.metrics["median_itl_ms"]) == (70.23, 68.15)
    assert second.results[0].metrics["service_time_p50_ms"] == 1590
    assert second.results[0].point.axes["request_rate"] == 4


def test_two_blocks_under_one_command_are_of_its_model_and_each_of_its_own_load(tmp_path):
    block = """Maximum request concurrency: {0}
============ Serving Benchmark Result ============
Successful requests:                     {1}
Benchmark duration (s):                  10.00
Request throughput (req/s):              {2}
Median TTFT (ms):                        55.00
==================================================
"""
    command = "$ vllm bench serve --model demo/model-8b --num-prompts 20 --tensor-parallel-size 2\n"
    (tmp_path / "sweep.log").write_text(command + block.format(4, 20, 2.0) + block.format(8, 40, 4.0))
    first, second = runs(tmp_path / "sweep.log")
    assert {run.cell.workload.model_id for run in (first, second)} == {"demo/model-8b"}
    assert {run.hardware.device.count for run in (first, second)} == {2}
    assert [run.results[0].point.label for run in (first, second)] == ["b1 c4 num_prompts=20", "b1 c8"]


def test_every_labelled_number_of_a_printed_block_is_a_metric_or_kept(tmp_path):
    lines = (
        "vllm bench serve --backend openai --model m --num-prompts 8",
        "============ Serving Benchmark Result ============",
        "Successful requests:                     8",
        "RTFx (Inverse Real-Time Factor):         12.30",
        "Mean Client Queue Time (ms):             55.00",
        "P99 E2EL incl. Client Queue (ms):        2600.00",
        "Request throughput (req/s):              2.00",
        "Drafts:                                  8000",
        "Per-position acceptance (%):",
        "  Position 0:                            85.00",
        "Cache hit rate:                          51.2%",
        "==================================================",
    )
    (tmp_path / "a.log").write_text("\n".join(lines))
    (run,) = runs(tmp_path / "a.log")
    metrics = run.results[0].metrics
    assert (metrics["rtfx"], metrics["mean_client_queue_time_ms"]) == (12.3, 55.0)
    assert metrics["p99_e2el_including_client_queue_ms"] == 2600.0
    assert run.origin.kept["printed"] == {"Drafts": 8000, "Position 0": 85.0, "Cache hit rate (%)": 51.2}


def test_printed_loads_of_embeddings_are_no_generated_text(tmp_path):
    text = (IMPORTS / "vllm_printed/serving.log").read_text()
    (tmp_path / "a.log").write_text(text.replace("backend='vllm'", "backend='vllm-pooling'"))
    assert "vllm-pooling" in (tmp_path / "a.log").read_text()
    tasks = [run.cell.workload.task for run in runs(tmp_path / "a.log")]
    assert tasks == ["feature-extraction", "text-generation"]


def test_the_first_serving_benchmarks_printed_no_title():
    first, second = all_of("vllm_printed/first_versions.log")
    (result,) = first.results
    assert (first.cell.workload.model_id, result.point.label) == (
        "demo/model-7b",
        "b1 input_tokens_mean=121 request_rate=6.5",
    )
    assert (result.metrics["duration_s"], result.metrics["total_output_tokens"]) == (294.101467, 415416)
    assert (result.metrics["throughput_samples_per_sec"], result.metrics["throughput_tokens_per_sec"]) == (
        6.05,
        1412.49,
    )
    assert (result.metrics["time_to_first_token_ms"], result.metrics["time_per_output_token_ms"]) == (115488.55, 611.68)
    assert second.results[0].metrics["throughput_samples_per_sec"] == 6.15


def test_the_rate_above_a_result_without_a_title_is_not_that_of_the_result_before(tmp_path):
    block = "Traffic request rate: {}\nSuccessful requests: 10\nBenchmark duration: {} s\n"
    block += "Request throughput: {} requests/s\n"
    (tmp_path / "a.log").write_text(block.format("1.0", 10, 0.9) + block.format("2.0", 5, 1.8))
    labels = [run.results[0].point.label for run in runs(tmp_path / "a.log")]
    assert labels == ["b1 request_rate=1.0", "b1 request_rate=2.0"]


def test_printed_lines_of_offline_benchmarks_have_their_own_command():
    throughput, latency = all_of("vllm_printed/offline.log")
    assert {run.cell.workload.model_id for run in (throughput, latency)} == {"demo/model-70b"}
    assert throughput.hardware.device.count == latency.hardware.device.count == 4
    assert throughput.results[0].metrics["total_tokens_per_sec"] == 2735.5
    assert latency.results[0].point.label == "b8 s256 n128"
    assert latency.results[0].metrics["latency_median_ms"] == pytest.approx(5258.1)
    assert (latency.results[0].iterations, latency.results[0].warmup_iterations) == (100, 10)


def test_llmperfs_inter_token_latency_includes_the_first_token():
    (run,) = all_of("llmperf/demo_550_150_summary.json")
    metrics = run.results[0].metrics
    assert run.results[0].point.label == "b1 n100 c4 mean_input_tokens=550 mean_output_tokens=150"
    assert (metrics["latency_median_ms"], metrics["time_to_first_token_ms"]) == (1181.6, 241.7)
    assert metrics["normalized_time_per_output_token_median_ms"] == 11.6
    assert "time_per_output_token_ms" not in metrics
    assert metrics["throughput_samples_per_sec"] == pytest.approx(198.9 / 60)
    assert [doubt.evidence["failed_requests"] for doubt in run.results[0].doubts] == [2]


def test_gpus_of_prompts_and_of_new_tokens_are_others_only_on_a_disaggregated_server(tmp_path):
    row = {"hardware": "b300", "framework": "trt", "conc": 16, "isl": 8192, "osl": 1025, "spec_method": "mtp"}
    row |= {"num_prefill_gpu": 8, "num_decode_gpu": 8, "metrics": {"output_tput_per_gpu": 272.0, "mean_ttft": 1.5}}
    alone = {name: value for name, value in row.items() if not name.startswith("num_")} | {"prefill_tp": 4}
    rows = [{**row, "disagg": False}, {**row, "disagg": True}, {**alone, "decode_tp": 4}]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    found = runs(tmp_path / "rows.json")
    assert [run.hardware.device.count for run in found] == [8, 16, 4]
    assert {(run.hardware.device.name, run.cell.runtime_mode["spec_method"]) for run in found} == {("b300", "mtp")}
    (result,) = found[0].results
    assert (result.metrics["output_tokens_per_sec_per_gpu"], result.metrics["mean_ttft_ms"]) == (272, 1500)
    assert "of one GPU" in result.missing["throughput_tokens_per_sec"]


def test_whole_numbers_that_llmperf_writes_as_text_are_numbers(tmp_path):
    data = json.loads((IMPORTS / "llmperf/demo_550_150_summary.json").read_text())
    data["results_number_input_tokens_min"] = "131"
    (tmp_path / "a_summary.json").write_text(json.dumps(data))
    file = read_file(tmp_path / "a_summary.json")
    assert list(importer_for(file).runs(file))
    assert file.left_out == {}


def test_llmperfs_responses_are_the_samples_of_their_summary(tmp_path):
    name = "demo_550_150_summary.json"
    (tmp_path / name).write_bytes((IMPORTS / "llmperf" / name).read_bytes())
    responses = [
        {"error_code": None, "end_to_end_latency_s": 1.0 + n, "ttft_s": 0.1, "number_output_tokens": 100}
        for n in range(3)
    ]
    responses.append({"error_code": 429, "end_to_end_latency_s": 9.0, "ttft_s": 9.0, "number_output_tokens": 0})
    (tmp_path / "demo_550_150_individual_responses.json").write_text(json.dumps(responses))
    (run,) = runs(tmp_path / name)
    assert {one.metric: list(one.values) for one in run.results[0].samples} == {
        "latency_wall": [1000, 2000, 3000],
        "time_to_first_token": [100, 100, 100],
    }
    with pytest.raises(NoResultsError, match=f"responses of a load: imported with {name}"):
        runs(tmp_path / "demo_550_150_individual_responses.json")
    (tmp_path / name).write_bytes((tmp_path / name).read_bytes()[:200])  # the disk was full
    (alone,) = runs(tmp_path / "demo_550_150_individual_responses.json")
    assert alone.results[0].iterations == 3


def test_aggregates_of_inferencex_are_loads_on_their_gpus():
    first, second = all_of("inferencex/agg_demo.json")
    assert (first.cell.runtime, first.hardware.device.name, first.hardware.device.count) == ("sglang", "b200", 8)
    assert first.results[0].point.label == "b1 s1024 n1024 c8"
    assert first.results[0].metrics["latency_median_ms"] == 10_300
    assert first.results[0].metrics["output_tokens_per_sec_per_gpu"] == 800
    assert (second.cell.device.type, second.results[0].metrics["time_to_first_token_ms"]) == ("rocm", 300)
    assert first.provenance.versions == {"image": "example/sglang:1"}  # a version of the engine starts no series
    assert first.cell.runtime_mode.keys() == {"tp", "loop", "quantization"}


def test_mtp_of_the_first_versions_is_the_speculative_decoding_of_later_ones(tmp_path):
    modes = {}
    for name, value in (("mtp", "off"), ("mtp", "on"), ("spec_decoding", "none"), ("spec_decoding", "mtp")):
        row = json.loads((FIXTURES / "imports/inferencex/agg_demo.json").read_text())[0]
        row.pop("spec_decoding", None)
        (tmp_path / "agg.json").write_text(json.dumps([{**row, name: value}]))
        (run,) = all_of(tmp_path / "agg.json")
        modes[value] = run.cell.runtime_mode
    assert modes["on"] == modes["mtp"] == {**modes["off"], "spec_decoding": "mtp"}
    assert modes["off"] == modes["none"]
    further = {"kv_offloading": "dram", "router": {"name": "r"}, "dcp_size": 8, "pcp_size": 1}
    (tmp_path / "agg.json").write_text(json.dumps([{**row, "spec_decoding": "none", **further}]))
    (run,) = all_of(tmp_path / "agg.json")
    added = {"kv_offloading": "dram", "router": '{"name": "r"}', "dcp_size": 8}
    assert run.cell.runtime_mode == {**modes["off"], **added}


def test_what_inferencex_states_of_a_server_tells_its_rows_apart(tmp_path):
    """Known or not, in files and in rows of its site, which has words beside the results."""
    row = json.loads((FIXTURES / "imports/inferencex/agg_demo.json").read_text())[0]
    ones = dict.fromkeys(("prefill_pp", "prefill_dcp_size", "decode_pcp_size"), 1)
    further = [
        {"decode_pp": 2, "kv_p2p_transfer": "nixl"},
        {"num_speculative_tokens": 3, "power": 12.5, "total_prompt_tokens": 7, "server_metrics": {"hits": 3}},
        {"prefill_hw": "h100", "decode_hw": "gb300"},
    ]
    (tmp_path / "agg.json").write_text(json.dumps([{**row, **ones, **one} for one in ({}, *further)]))
    plain, stages, tokens, mixed = all_of(tmp_path / "agg.json")
    mode = all_of("inferencex/agg_demo.json")[0].cell.runtime_mode
    assert [one.cell.runtime_mode for one in (plain, stages, tokens, mixed)] == [
        mode,
        {**mode, **further[0]},
        {**mode, "num_speculative_tokens": 3},
        mode,
    ]
    assert mixed.hardware.device.name == "h100, gb300"
    of_site = {"hardware": "h200", "benchmark_type": "agentic_traces", "offload_mode": "off", "run_url": "https://a/1"}
    metrics = {"tput_per_gpu": 1000, "kv_offload_backend": "lmcache", "dcp_size": 8, "num_requests_total": 5}
    (tmp_path / "agg.json").write_text(json.dumps({"framework": "sglang", "conc": 4, **of_site, "metrics": metrics}))
    (run,) = all_of(tmp_path / "agg.json")
    words = {"benchmark_type": "agentic_traces", "kv_offload_backend": "lmcache", "dcp_size": 8}
    assert run.cell.runtime_mode == {"loop": "closed", **words}


def test_an_agentic_load_of_inferencex_has_its_times_and_totals(tmp_path):
    shared = {"framework": "sglang", "model": "demo/model", "precision": "fp8", "conc": 4, "tp": 8}
    latency = {"ttft": {"mean": 102.0, "p50": 1.5, "p90": 389.5}, "tpot": {"p50": 0.008}, "e2el": {"p75": 40.0}}
    throughput = {
        "output": {"tokens_per_second": 26.5},
        "total": {"tokens_per_second": 3242.5},
        "duration_seconds": 3291.5,
        "per_gpu": {"total_tput_tps": 405.25, "output_tput_tps": 3.25, "input_tput_tps": 402.0},
    }
    agentic = {
        "hw": "cluster:h100-dgxc",
        "num_gpus": 8,
        "scenario_type": "agentic-coding",
        "num_requests_total": 112,
        "num_requests_successful": 108,
        "request_accounting": {"records_error_dropped": 1, "records_warmup_dropped": 3},
        "request_metrics": {"latency": latency, "throughput": throughput},
    }
    fixed = {"hw": "b200", "isl": 1024, "osl": 1024, "tput_per_gpu": 500.0, "median_ttft": 0.3}
    (tmp_path / "agg.json").write_text(json.dumps([shared | fixed, shared | agentic]))
    _, run = runs(tmp_path / "agg.json")
    (result,) = run.results
    assert (result.status, result.iterations, run.hardware.device.type) == ("ok", 108, "cuda")
    assert result.metrics == {
        "time_to_first_token_ms": 1500.0,
        "mean_ttft_ms": 102_000.0,
        "time_to_first_token_p90_ms": 389_500.0,
        "time_per_output_token_ms": 8.0,
        "latency_p75_ms": 40_000.0,
        "throughput_tokens_per_sec": 26.5,
        "total_tokens_per_sec": 3242.5,
        **{
            f"{name}_tokens_per_sec_per_gpu": value
            for name, value in (("total", 405.25), ("output", 3.25), ("input", 402.0))
        },
    }
    (failed,) = (doubt for doubt in result.doubts if doubt.kind == "some_requests_failed")
    assert failed.evidence["failed_requests"] == 1
    assert run.origin.kept["request_metrics"] == {"throughput": {"duration_seconds": 3291.5}}
    (tmp_path / "agg.json").write_text(json.dumps(shared | agentic))
    assert runs(tmp_path / "agg.json")[0].results[0].metrics == result.metrics


def test_each_row_of_onnxruntimes_details_is_a_run():
    first, _, third = all_of("onnxruntime_transformers_benchmark/detail.csv")
    assert (first.cell.runtime, first.cell.precision, first.cell.num_threads) == ("onnxruntime", "int8", 2)
    assert first.results[0].point.label == "b1 s16"
    assert first.results[0].metrics["latency_mean_ms"] == 1.24
    assert (third.cell.runtime, third.cell.device.type, third.cell.num_threads) == ("eager", "cuda", None)


def test_the_columns_of_onnxruntimes_summary_are_points():
    (run,) = all_of("onnxruntime_transformers_benchmark/summary.csv")
    found = {result.point.label: result.metrics["latency_mean_ms"] for result in run.results}
    assert found == {"b1 s16": 2.5, "b1 s128": 14.1}


def test_what_onnxruntimes_details_state_is_not_stored_once_more_from_the_summary(tmp_path):
    for name in ("detail.csv", "summary.csv"):
        (tmp_path / name).write_text((IMPORTS / "onnxruntime_transformers_benchmark" / name).read_text())
    of_other, of_same = ",Precision.FLOAT32,by_script,True,2,2.50,14.10", ",Precision.INT8,by_script,True,2,1.24,{}\n"
    text = (tmp_path / "summary.csv").read_text()
    assert of_other in text
    (tmp_path / "summary.csv").write_text(text.replace(of_other, of_same.format("9.90")))
    (run,) = runs(tmp_path / "summary.csv")
    assert [(result.point.label, result.metrics["latency_mean_ms"]) for result in run.results] == [("b1 s128", 9.9)]
    (tmp_path / "summary.csv").write_text(text.replace(of_other, of_same.format("7.480")))
    with pytest.raises(NoResultsError, match=r"all its numbers are in the details beside it"):
        runs(tmp_path / "summary.csv")


def test_details_are_read_once_however_many_summaries_are_beside_them(tmp_path, monkeypatch):
    read, means_in = [], onnxruntime_benchmarks._means_in
    monkeypatch.setattr(onnxruntime_benchmarks, "_means_in", lambda one: read.append(one.path.name) or means_in(one))
    for name, copies in (("detail", 2), ("summary", 3)):
        text = (IMPORTS / f"onnxruntime_transformers_benchmark/{name}.csv").read_text()
        for number in range(copies):
            (tmp_path / f"{name}{number}.csv").write_text(text)
    for number in range(3):
        runs(tmp_path / f"summary{number}.csv")
    assert sorted(read) == ["detail0.csv", "detail1.csv"]


def test_appended_details_are_read_under_their_own_headers():
    first, slow, half, rocm, vision = all_of("onnxruntime_transformers_benchmark/versions.csv")
    metrics = slow.results[0].metrics
    assert (metrics["latency_mean_ms"], metrics["latency_p99_ms"], slow.cell.num_threads) == (100.43, 1048, 4)
    assert (first.results[0].metrics["throughput_samples_per_sec"], first.results[0].iterations) == (83.56, 1000)
    assert (half.cell.precision, half.cell.device.type, half.results[0].point.label) == ("float16", "cuda", "b4 s64")
    assert (rocm.cell.device.type, rocm.cell.runtime_mode["providers"]) == ("rocm", "rocm")
    assert (vision.results[0].point.label, vision.cell.runtime_mode) == ("b8", {"inputs": "1"})


def test_a_summary_without_sequence_lengths_has_points_of_batches_and_another_header_other_ones():
    vision, text = all_of("onnxruntime_transformers_benchmark/vision_summary.csv")
    found = {result.point.label: result.metrics["latency_mean_ms"] for result in (*vision.results, *text.results)}
    assert found == {"b1": 3.1, "b4": 7.9, "b2 s16": 1.2}


def test_fusion_statistics_are_no_results(tmp_path):
    (tmp_path / "fusion.csv").write_text(
        "model_filename,datetime,transformers,torch,EmbedLayerNormalization,Attention\nbert.onnx,2026-01-01,4,2,1,12\n"
    )
    with pytest.raises(NoResultsError, match="no times"):
        runs(tmp_path / "fusion.csv")


def test_a_batched_table_is_read_to_its_end_and_has_what_was_printed_above_it():
    (run,) = all_of("llama_batched_bench/table.log")
    assert [result.point.label for result in run.results] == ["b1 s128 n128", "b2 s128 n128", "b4 s128 n128"]
    assert (run.cell.workload.model_id, run.cell.num_threads) == ("llama-7b-q8_0", 8)
    assert run.cell.runtime_mode["n_gpu_layers"] == "99"
    metrics = run.results[2].metrics
    assert (metrics["time_to_first_token_ms"], metrics["decode_tokens_per_sec"]) == (373, 74.44)
    assert metrics["time_per_output_token_ms"] == pytest.approx(6878 / 128)
    (lines,) = all_of("llama_batched_bench/lines.jsonl")
    assert lines.results[1].metrics["total_tokens_per_sec"] == 44.410854


def test_the_lines_of_a_sweep_are_points_of_a_filled_cache():
    (run,) = all_of("llama_batched_bench/sweep.jsonl")
    assert [result.point.label for result in run.results] == ["b1 s512 n128", "b1 s512 n128 depth=512"]
    metrics = run.results[1].metrics
    assert (metrics["time_to_first_token_ms"], metrics["decode_tokens_per_sec"]) == (pytest.approx(1169.302), 67.458099)
    assert metrics["time_per_output_token_ms"] == pytest.approx(1897.474 / 128)
    assert run.cell.num_threads == 32


def test_the_sequences_of_a_batched_table_may_be_headed_pl(tmp_path):
    heading = "|    PP |    TG |  PL |  N_KV |  T_PP s | S_PP t/s |  T_TG s | S_TG t/s |    T s |   S t/s |"
    row = "|   512 |   128 |   4 |  2560 |   0.271 |  7557.20 |   1.810 |   282.87 |  2.081 | 1230.18 |"
    (tmp_path / "a.md").write_text(f"{heading}\n{re.sub('[^|]', '-', heading)}\n{row}\n")
    ((result,),) = [run.results for run in runs(tmp_path / "a.md")]
    assert (result.point.label, result.metrics["latency_median_ms"]) == ("b4 s512 n128", 2081.0)
    (tmp_path / "b.md").write_text((tmp_path / "a.md").read_text().replace(" PL ", " XX "))
    with left_out("pl: "):  # a table with the time of a whole call is no sweep
        runs(tmp_path / "b.md")


def test_the_tables_of_a_report_belong_to_the_models_above_them(tmp_path):
    text = (IMPORTS / "llama_batched_bench/report.md").read_text()
    assert {
        run.cell.workload.model_id: run.results[0].metrics["decode_tokens_per_sec"]
        for run in runs(IMPORTS / "llama_batched_bench/report.md")
    } == {"demo/model-20b-GGUF": 80.0, "demo/model-120b-GGUF": 50.0}
    (tmp_path / "tables.md").write_text("".join(line for line in text.splitlines(True) if "demo/" not in line))
    unnamed = runs(tmp_path / "tables.md")
    assert len({run.cell.workload.model_id for run in unnamed}) == 1
    assert [run.cell.runtime_mode.get("table") for run in unnamed] == [None, "2"]


def test_a_second_table_of_a_model_is_another_run(tmp_path):
    heading = "|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |"
    line = "|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|"
    row = "|   128 |    128 |    1 |    256 |    0.182 |   703.44 |    2.997 |    {} |    3.179 |    80.53 |"
    command = (
        "make -j batched-bench && ./batched-bench ./models/llama-7b-v2/ggml-model-q8_0.gguf 10880 1 99 0 128 128 1"
    )
    before, after = ("\n".join([heading, line, row.format(speed)]) for speed in ("42.71", "52.71"))
    (tmp_path / "both.md").write_text(f"{command}\n\nmaster:\n\n{before}\n\nPR:\n\n{after}\n")
    first, second = runs(tmp_path / "both.md")
    assert {run.cell.workload.model_id for run in (first, second)} == {"llama-7b-v2/ggml-model-q8_0"}
    assert [run.results[0].metrics["decode_tokens_per_sec"] for run in (first, second)] == [42.71, 52.71]
    assert first.run_id != second.run_id


BATCHED_TABLE = """$ ./build/bin/llama-batched-bench -m models/llama-7b-q8_0.gguf -c 2048 -npp 128 -ntg 128 --seed 3 {}
llama_batched_bench: n_kv_max = 2048, n_batch = 2048, is_tg_separate = {}, n_threads = 8, n_threads_batch = {}

|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |
|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|
|   128 |    128 |    4 |   1024 |    0.200 |  2188.03 |    5.120 |   146.13 |    5.320 |   273.94 |
"""


@pytest.mark.parametrize(
    ("flags", "separate", "threads", "mode", "each_ms"),
    [
        ("-b 64 -ctk f16 -sm layer", 0, 8, {}, 40.0),
        ("-lv 3 -hft hf_secret -mu https://example.com/a.gguf", 0, 8, {}, 40.0),
        ("-tgs", 1, 8, {"is_tg_separate": "1"}, 10.0),
        ("-fa on", 0, 8, {"flash_attn": "1"}, 40.0),
        ("", 0, 2, {"n_threads_batch": "2"}, 40.0),
        ("-ctk q8_0 --cache-type-v q4_0", 0, 8, {"type_k": "q8_0", "type_v": "q4_0"}, 40.0),
        ("-ot exps=CPU --no-repack", 0, 8, {"tensor_buft_overrides": "exps=CPU", "no_repack": "1"}, 40.0),
        (
            "-ot 'blk.(3|4)=CUDA0' -ot exps=CPU -b 1 -b 2",
            0,
            8,
            {"tensor_buft_overrides": "blk.(3|4)=CUDA0,exps=CPU"},
            40.0,
        ),
        ("-fmoe -mla 3 -ncmoe 10", 0, 8, {"fmoe": "1", "mla": "3", "n_cpu_moe": "10"}, 40.0),
    ],
)
def test_the_command_above_a_batched_table_tells_runs_apart(tmp_path, flags, separate, threads, mode, each_ms):
    (tmp_path / "table.md").write_text(BATCHED_TABLE.format(flags, separate, threads))
    (run,) = runs(tmp_path / "table.md")
    assert (run.cell.workload.model_id, run.cell.num_threads) == ("llama-7b-q8_0", 8)
    assert run.cell.runtime_mode == {"n_batch": "2048", **mode}
    assert run.results[0].metrics["time_per_output_token_ms"] == each_ms


@pytest.mark.parametrize(("cached", "mode"), [(640, {"is_pp_shared": "1"}), (1024, {}), ("?", {})])
def test_the_tokens_in_the_cache_of_a_batched_table_say_whether_the_prompt_was_shared(tmp_path, cached, mode):
    heading, rows = BATCHED_TABLE.partition("\n\n")[2].partition("|-")[::2]
    one = "|   128 |    128 |    1 |    256 |    0.182 |   703.44 |    2.997 |    42.71 |    3.179 |    80.53 |"
    (tmp_path / "table.md").write_text(f"{heading}|-{rows.replace('1024', f'{cached}')}{one}\n")
    (run,) = runs(tmp_path / "table.md")
    assert [result.point.batch_size for result in run.results] == [4, 1]
    assert run.cell.runtime_mode == mode


def test_the_lines_of_a_batched_table_have_its_settings(tmp_path):
    """Also one that is not known, but no result of another kind."""
    lines = (IMPORTS / "llama_batched_bench/lines.jsonl").read_text().splitlines()
    more = {"is_tg_separate": 0, "kv_unified": 1, "speed_of_sound": 343.5}
    (tmp_path / "a.jsonl").write_text("".join(f"{json.dumps(json.loads(line) | more)}\n" for line in lines))
    (plain,), (run,) = all_of("llama_batched_bench/lines.jsonl"), runs(tmp_path / "a.jsonl")
    assert run.cell.runtime_mode == {**plain.cell.runtime_mode, "kv_unified": "1"}
    assert "n_threads_batch" not in run.cell.runtime_mode  # it is that of n_threads


def test_scores_are_metrics_of_their_model_beside_its_speed():
    (run,) = all_of("lm_evaluation_harness/results_2026-03-01T12-00-00.json")
    (result,) = run.results
    assert (run.cell.workload.model_id, run.cell.precision) == ("demo/model", "bfloat16")
    assert result.metrics["quality_arc_easy_acc_norm"] == 0.7298
    assert result.metrics["quality_gsm8k_exact_match_flexible_extract"] == 0.892
    assert run.cell.runtime_mode["num_fewshot"] == "5"
    assert result.missing["latency_median_ms"] == "not_applicable: an evaluation of quality, not of speed"


EVALUATION = json.loads((IMPORTS / "lm_evaluation_harness/results_2026-03-01T12-00-00.json").read_text())


def test_long_lists_of_examples_that_differ_at_their_end_are_two_series(tmp_path):
    shots = {f"task_{number:03}": number % 2 for number in range(60)}
    found = set()
    for last in (0, 1):
        path = tmp_path / f"results_2026-03-0{1 + last}T12-00-00.json"
        path.write_text(json.dumps({**EVALUATION, "n-shot": {**shots, "task_059": last}}))
        (run,) = runs(path)
        found.add(run.cell.runtime_mode["num_fewshot"])
    assert len(found) == 2
    assert max(map(len, found)) < 600


def setup(run):
    """What tells the run's series from others of the model, apart from the device."""
    return json.dumps([run.cell.precision, run.cell.runtime_mode], sort_keys=True)


def evaluation(folder, *, scores=None, date=1772366400.25, **config):
    """The run of an evaluation like the fixture's, with other scores by task or another configuration."""
    data = {**EVALUATION, "date": date, "config": {**EVALUATION["config"], **config}}
    data["results"] = EVALUATION["results"] if scores is None else scores
    (folder / "results_a.json").write_text(json.dumps(data))
    (run,) = runs(folder / "results_a.json")
    return run


@pytest.mark.parametrize(
    ("kind", "runtime"),
    [
        *((kind, "eager") for kind in ("hf", "hf-auto", "hf-causal-experimental", "hf-multimodal", "huggingface")),
        *((kind, "vllm") for kind in ("vllm", "vllm-vlm")),
        *((kind, "server") for kind in ("local-chat-completions", "azure-openai-chat-completions", "openai-chat")),
        *(
            (kind, "server")
            for kind in ("anthropic-chat", "sglang-generate", "litellm-chat", "vllm-server-completions")
        ),
        *((kind, kind) for kind in ("sglang", "openvino", "onnxruntime-genai")),
        ("ggml", "llama.cpp"),
    ],
)
def test_kinds_of_models_of_the_harness_are_the_engine_they_run_in(tmp_path, kind, runtime):
    assert evaluation(tmp_path, model=kind).cell.runtime == runtime


def test_the_score_of_an_evaluation_is_the_mean_of_its_tasks_with_the_interval_of_independent_errors(tmp_path):
    run = evaluation(tmp_path)
    accuracy = run.quality.values["task_accuracy"]
    assert accuracy.by_window == (0.7298, 0.844)  # the first scores of its tasks
    half = 1.959964 * math.hypot(0.0091, 0.0162) / 2
    assert accuracy.value == pytest.approx((0.7298 + 0.844) / 2)
    assert (accuracy.low, accuracy.high) == pytest.approx((accuracy.value - half, accuracy.value + half))
    turned = evaluation(tmp_path, scores=dict(reversed(EVALUATION["results"].items()))).quality
    assert (turned.inputs, turned.values) == (run.quality.inputs, run.quality.values)


@pytest.mark.parametrize("right", [16, 0])
def test_a_score_of_samples_that_were_all_alike_is_no_surer_than_their_number_allows(tmp_path, right):
    score = {"acc,none": right / 16, "acc_stderr,none": 0.0}
    accuracy = evaluation(tmp_path, scores={"a": {**score, "sample_len": 16}}).quality.values["task_accuracy"]
    assert (accuracy.low, accuracy.high) == pytest.approx(exact_share_interval(right, 16))
    known = {"b": {"acc,none": 0.5, "acc_stderr,none": 0.1}}
    both = evaluation(tmp_path, scores={"a": {**score, "sample_len": 16}, **known}).quality.values["task_accuracy"]
    low, high = exact_share_interval(right, 16)
    below, above = (math.hypot(end, 1.959964 * 0.1) / 2 for end in (right / 16 - low, high - right / 16))
    assert (both.value - both.low, both.high - both.value) == pytest.approx((below, above))
    unknown = evaluation(tmp_path, scores={"a": score, **known}).quality.values["task_accuracy"]
    assert (unknown.low, unknown.high) == (None, None)


@pytest.mark.parametrize(
    ("task", "is_counted"),
    [
        ({"acc,none": float("nan")}, False),
        ({"acc,none": "N/A"}, False),
        ({"acc,none": True}, False),
        ({"f1,none": 71.5}, False),
        ({"acc_norm,none": None, "acc,none": 0.5}, True),
        ({"word_perplexity,none": 9.5}, False),
    ],
)
def test_a_task_without_a_share_takes_no_other_and_a_missing_error_only_the_interval(task, is_counted, tmp_path):
    good = {"acc,none": 0.7, "acc_stderr,none": 0.02}
    quality = evaluation(tmp_path, scores={"bad": task, "good": good}).quality
    accuracy = quality.values["task_accuracy"]
    assert accuracy.by_window == ((0.5, 0.7) if is_counted else (0.7,))
    assert (accuracy.low is None) is is_counted  # the second task has no error
    both = evaluation(tmp_path, scores={"bad": good, "good": good}).quality
    assert (quality.inputs == both.inputs) is is_counted
    assert evaluation(tmp_path, scores={"bad": {"word_perplexity,none": 9.5}}).quality is None


@pytest.mark.parametrize(
    "changed",
    [
        {"gen_kwargs": {"temperature": 0.9, "do_sample": True}},
        {"fewshot_seed": 0},
        {"model_args": "pretrained=demo/model,dtype=bfloat16,max_length=512"},
        {"model_args": {"pretrained": "demo/model", "dtype": "bfloat16", "enable_thinking": False}},
        {"model_args": "pretrained=demo/model,dtype=bfloat16,add_special_tokens=False"},
        {"model_args": "pretrained=demo/model,dtype=bfloat16,tokenizer=other/tokenizer"},
        {"model_args": "pretrained=demo/model,dtype=bfloat16,an_argument_of_tomorrow=1"},
        {"limit": 10},
    ],
)
def test_scores_under_other_conditions_are_another_series_and_not_compared(tmp_path, changed):
    plain, other = evaluation(tmp_path), evaluation(tmp_path, **changed)
    assert setup(other) != setup(plain)
    assert not other.quality.same_inputs("task_accuracy", plain.quality)
    defaults = {"gen_kwargs": None, "fewshot_seed": 1234, "limit": None}
    parallel = (
        "pretrained=demo/model,dtype=bfloat16,parallelize=True,enable_thinking=True,tokenizer=demo/model,"
        "tensor_parallel_size=2,max_batch_size=8,trust_remote_code=True,offload_folder=/tmp/a,truncation=false"
    )
    assert setup(evaluation(tmp_path, **defaults, model_args=parallel)) == setup(plain)
    written = {"gen_kwargs": "do_sample=True,temperature=0.9,seed=7"} if "gen_kwargs" in changed else changed
    assert setup(evaluation(tmp_path, **written)) == setup(other)  # as older versions wrote it, drawn anew


def test_another_version_of_a_task_has_other_scores(tmp_path, monkeypatch):
    def versions(stated):
        monkeypatch.setitem(EVALUATION, "versions", stated)
        return evaluation(tmp_path)

    first, second = versions({"arc_easy": 1.0, "gsm8k": 2.0}), versions({"arc_easy": 1.0, "gsm8k": 3.0})
    assert first.cell.runtime_mode["task_versions"] == "arc_easy=1.0, gsm8k=2.0"
    assert setup(first) != setup(second)
    assert not first.quality.same_inputs("task_accuracy", second.quality)
    assert versions({"arc_easy": 1.0, "gsm8k": 1.0}).cell.runtime_mode["task_versions"] == "1.0"
    assert "task_versions" not in versions(None).cell.runtime_mode


def test_answers_that_a_task_draws_by_its_own_file_are_other_conditions(tmp_path, monkeypatch):
    def drawn(gen_kwargs=None, **task):
        monkeypatch.setitem(EVALUATION, "configs", {"gsm8k": task})
        return evaluation(tmp_path, gen_kwargs=gen_kwargs).cell.runtime_mode.get("decoding")

    greedy = {"until": ["Q:"], "do_sample": False, "temperature": 0.0}
    assert drawn(generation_kwargs=greedy, repeats=1) is None
    sampled = {"until": ["Q:"], "do_sample": True, "temperature": 0.7, "top_p": 0.9}
    assert drawn(generation_kwargs=sampled, repeats=1) == "gsm8k.temperature=0.7, gsm8k.top_p=0.9"
    assert drawn("seed=7", generation_kwargs=sampled) == "gsm8k.temperature=0.7, gsm8k.top_p=0.9"
    assert drawn(generation_kwargs=greedy, repeats=8) == "gsm8k.repeats=8"
    given = {"temperature": 0.9, "seed": 7}  # replaces the task's own
    assert drawn(given, generation_kwargs=sampled, repeats=8) == "gsm8k.repeats=8, temperature=0.9"
    for damaged in ("x", ["x"], {"temperature": ["x"]}):
        drawn(generation_kwargs=damaged, repeats=damaged)


def test_the_folder_of_a_long_argument_is_no_condition(tmp_path):
    runs = [
        evaluation(tmp_path, model_args=f"pretrained=demo/model,dtype=bfloat16,template={folder}/{'a' * 600}.jinja")
        for folder in ("/home/a", "/data/b")
    ]
    assert setup(runs[0]) == setup(runs[1])


def test_changes_of_the_model_are_compared_on_the_same_inputs(tmp_path):
    for change in (
        "load_in_8bit=True",
        "delta=demo/delta",
        "kv_cache_dtype=fp8",
        "lora_local_path=/a/lora",
        "subfolder=b",
    ):
        changed = evaluation(tmp_path, model_args=f"pretrained=demo/model,dtype=bfloat16,{change}")
        plain = evaluation(tmp_path)
        assert setup(changed) != setup(plain)
        assert changed.quality.same_inputs("task_accuracy", plain.quality)


def test_scores_stand_beside_the_speeds_of_the_same_model_precision_and_engine(make_run, tmp_path, capsys):
    def speed(precision="bfloat16", weights="pretrained", revision=None, **cell):
        run = make_run(model_id=cell.pop("model_id", "demo/model"), precision=precision, batch_sizes=(1,))
        workload = replace(run.cell.workload, weights=weights, revision=revision)
        return replace(run, cell=replace(run.cell, workload=workload, **cell))

    same, others = speed(), [
        speed("int8"),
        speed("unknown"),
        speed(weights="random"),
        speed(runtime="openvino"),
        speed(runtime="server"),
        speed(model_id="demo/other"),
        speed(runtime_mode={"quantization": "weight-only"}),
    ]  # fmt: skip
    four_bits = "pretrained=demo/model,dtype=bfloat16,load_in_4bit=True"
    newest = evaluation(tmp_path)
    evaluations = [
        newest,
        evaluation(tmp_path, date=1772366300, scores={"gsm8k": {"exact_match,none": 0.1}}),
        evaluation(tmp_path, date=1772366500, model_args=four_bits, scores={"gsm8k": {"exact_match,none": 0.2}}),
        evaluation(tmp_path, model_dtype=None, model_args="pretrained=demo/model,dtype=auto"),
        evaluation(tmp_path, model="local-completions"),
    ]
    path = str(tmp_path / "a.duckdb")
    with Warehouse.open(path) as warehouse:
        warehouse.ingest_all([same, *others, *evaluations])
        rows = warehouse.query("SELECT run_id, task_accuracy FROM hardware_comparison").dicts()
        score = newest.quality.values["task_accuracy"].value
        own = {run.run_id for run in evaluations}
        joined = {row["run_id"]: row["task_accuracy"] for row in rows if row["task_accuracy"] is not None}
        assert {run_id: value for run_id, value in joined.items() if run_id not in own} == {same.run_id: score}
        ids = [run.run_id for run in (same, *others)]
        assert qualities(warehouse, ids) == {same.run_id: newest.quality}
        assert [stored.run.quality for stored in stored_runs(warehouse, ids)] == [None] * len(ids)  # not their own
        measured = Quality(inputs="a", values={"kl_divergence": QualityValue(value=0.1)}, how={"text": "a text"})
        store_quality(warehouse, {same.run_id: measured})
        both = qualities(warehouse, ids)[same.run_id]
        scored = replace(newest.quality.values["task_accuracy"], inputs=newest.quality.inputs)
        assert both.values == measured.values | {"task_accuracy": scored}
        assert both.inputs == "a"
        assert both.same_inputs("task_accuracy", newest.quality)
        first, second = quality_lines(both)
        assert first == "quality: KL 0.1 nats (? windows of a text)"
        assert second.endswith("(2 tasks of lm-evaluation-harness)")
    assert recommend(["demo/model", "--min-accuracy", "0.7", "--among", "weights=pretrained", "--db-path", path]) == 0
    assert "bfloat16" in next(line for line in capsys.readouterr().out.splitlines() if "recommend" in line)


def test_one_evaluation_beside_both_sides_says_nothing_about_their_quality(make_run, tmp_path):
    speeds = []
    for day in (1, 2):
        fields = {"model_id": "demo/model", "precision": "bfloat16", "batch_sizes": (1,), "sequence_lengths": (32,)}
        run = make_run(**fields, started_at=f"2026-03-0{day}T12:00:00Z")
        speeds.append(Alter.workload(run, weights="pretrained", revision=None))
    scored = evaluation(tmp_path)
    with Warehouse.open(str(tmp_path / "a.duckdb")) as warehouse:
        warehouse.ingest_all([*speeds, scored])
        before, after = (Selection.parse(f"run={run.run_id}") for run in speeds)
        found = compare(warehouse, before, after, JUDGED["latency_median_ms"])
    (quality,) = found.quality
    assert quality.metric == "task_accuracy"
    assert quality.judgement.verdict == "not judged"
    assert quality.judgement.reason == f"one evaluation, run {scored.run_id}, is of both"


def test_evaluations_beside_the_compared_speeds_are_their_quality_and_no_points(make_run, tmp_path, capsys):
    path = str(tmp_path / "a.duckdb")
    fields = {"model_id": "demo/model", "batch_sizes": (1,), "sequence_lengths": (32,)}
    speeds = [
        Alter.workload(make_run(**fields, precision=precision), weights="pretrained", revision=None)
        for precision in ("float32", "bfloat16")
    ]
    scored = [
        evaluation(tmp_path, model_dtype=f"torch.{word}", model_args=f"pretrained=demo/model,dtype={word}")
        for word in ("float32", "bfloat16")
    ]
    with Warehouse.open(path) as warehouse:
        warehouse.ingest_all([*speeds, *scored])
        before, after = (Selection.parse(f"precision={word}") for word in ("float32", "bfloat16"))
        found = compare(warehouse, before, after, JUDGED["latency_median_ms"])
        assert [(one.before.run_id, one.after.run_id) for one in found.findings] == [
            tuple(run.run_id for run in speeds)
        ]
        assert sum(found.counts.values()) == 1
        assert [one.metric for one in found.quality] == ["task_accuracy"]
        alone = [Selection.parse(f"run={run.run_id}") for run in scored]
        evaluated = compare(warehouse, *alone, JUDGED["latency_median_ms"], ("precision",))
        assert len(evaluated.findings) == len(evaluated.quality) == 1
    show(["--db-path", path])
    of_bfloat16 = [line for line in capsys.readouterr().out.splitlines() if "eager bfloat16: task score" in line]
    assert len(of_bfloat16) == 1
    with Warehouse.open(path) as warehouse:
        warehouse.remove_runs([scored[1].run_id])
        found = compare(warehouse, before, after, JUDGED["latency_median_ms"])
    assert (len(found.findings), found.quality) == (1, ())
    assert len(found.only_before) == 1, "the evaluation of A is shown although B has none"


def test_aiperfs_table_has_the_numbers_of_its_json():
    (run,) = all_of("aiperf/table.csv")
    metrics = run.results[0].metrics
    assert (metrics["latency_median_ms"], metrics["time_to_first_token_ms"]) == (6653.9, 44.45)
    assert metrics["throughput_tokens_per_sec"] == 153.3


@pytest.mark.parametrize("batch", [None, 2])
def test_every_number_of_the_readmes_layout_is_stored(tmp_path, batch):
    data = json.loads((IMPORTS / "benchmark_scenarios/of_the_readme.json").read_text())
    if batch is not None:
        data["benchmark_scenarios"][0]["metadata"]["config"] |= {"batch_size": batch, "num_tokens_to_generate": 100}
    (tmp_path / "a.json").write_text(json.dumps(data))
    (run,) = runs(tmp_path / "a.json")
    metrics = run.results[0].metrics
    assert run.hardware.device.name == "NVIDIA A100"
    assert metrics["throughput_tokens_per_sec"] == 87.3
    assert (metrics["latency_median_ms"], metrics["time_to_first_token_mean_ms"]) == (2430, 150)
    assert (metrics["time_to_first_token_std_ms"], metrics["utilization_mean_percent"]) == (20, 85.2)
    assert metrics["memory_device_used_mean_mb"] == pytest.approx(12450 * 1.048576)


def test_examples_in_the_prompt_are_in_the_configuration_of_older_versions(tmp_path):
    data = {
        "results": {"hellaswag": {"acc": 0.4, "acc_stderr": 0.01}},
        "versions": {"hellaswag": 0},
        "config": {"model": "hf-causal", "model_args": "pretrained=org/m", "num_fewshot": 10, "batch_size": 4},
    }
    (tmp_path / "results.json").write_text(json.dumps(data))
    (run,) = runs(tmp_path / "results.json")
    assert (run.cell.runtime_mode["num_fewshot"], run.cell.workload.model_id) == ("10", "org/m")


def test_scores_of_lighteval_are_its_own(tmp_path):
    data = {
        "config_general": {"lighteval_sha": "?", "model_name": "org/m", "total_evaluation_time_secondes": "15039.25"},
        "results": {"leaderboard|arc:challenge|25": {"acc": 0.5622866894197952, "acc_stderr": 0.014497573881108282}},
        "versions": {"leaderboard|arc:challenge|25": 0},
    }
    path = tmp_path / "results_2025-03-08T00-35-08.942086.json"
    path.write_text(json.dumps(data))
    (run,) = runs(path)
    assert run.cell.runtime_mode["harness"] == "lighteval"
    assert run.started_at == "2025-03-08T00:35:08+00:00"
    assert run.results[0].metrics["quality_leaderboard_arc_challenge_25_acc"] == 0.5622866894197952
    assert run.results[0].metrics["evaluation_duration_s"] == 15039.25


def test_lightevals_configuration_of_the_model_is_its_setup(tmp_path):
    def run(samples=None, **model):
        general = {
            "lighteval_sha": "?",
            "num_fewshot_seeds": 1,
            "max_samples": samples,
            "model_name": "org/m",
            "model_config": {
                "model_name": "org/m",
                "revision": "main",
                "batch_size": 8,
                "model_parallel": None,
                "device": "cuda",
                "dtype": "bfloat16",
                "max_length": None,
                "add_special_tokens": True,
                "system_prompt": None,
                "generation_parameters": {"temperature": 0, "top_p": None},
                "tokenizer": None,
                "compile": False,
                **model,
            },
        }
        results = {"arc:challenge|25": {"acc": 0.6, "acc_stderr": 0.01}, "all": {"acc": 0.6, "acc_stderr": 0.01}}
        (tmp_path / "results_a.json").write_text(
            json.dumps({"config_general": general, "results": results, "versions": {}})
        )
        (found,) = runs(tmp_path / "results_a.json")
        return found

    plain = run()
    cell, (result,) = plain.cell, plain.results
    assert (cell.precision, cell.runtime, cell.runtime_mode) == ("bfloat16", "eager", {"harness": "lighteval"})
    assert (cell.workload.revision, plain.hardware.device.type) == ("main", "cuda")
    assert (result.point.batch_size, [doubt.kind for doubt in result.doubts]) == (8, ["undated"])
    assert run(dtype="float").cell.precision == "float32"
    four_bits = run(dtype="4bit")
    assert setup(four_bits) != setup(plain)
    assert four_bits.quality.inputs == plain.quality.inputs
    others = [run(samples=10), run(generation_parameters={"temperature": 1.0}), run(max_length=512)]
    others += [run(system_prompt="short"), run(system_prompt="long " * 200)]
    others += [run(use_chat_template=True), run(add_special_tokens=False)]
    assert len({setup(one) for one in (plain, *others)}) == 8
    assert len({one.quality.inputs for one in (plain, *others)}) == 8
    assert max(len(str(one.cell.runtime_mode)) for one in others) < 700


def test_aiperfs_newer_table_has_sums_and_signs():
    (run,) = all_of("aiperf/table_with_sums.csv")
    (result,) = run.results
    expected = {
        "latency_median_ms": 16428.07,
        "latency_p99_ms": 54340.44,
        "time_to_first_token_ms": 9539.09,
        "time_per_output_token_ms": 46.22,
        "throughput_tokens_per_sec": 343421.9,
        "benchmark_duration_ms": 141580,
        "osl_mismatch_diff_avg_percent": -21.09,
    }
    assert {name: result.metrics[name] for name in expected} == pytest.approx(expected)
    assert (result.point.sequence_length, result.point.new_tokens, result.iterations) == (128, 101, 481414)
    assert [doubt.evidence["failed_requests"] for doubt in result.doubts if "failed" in doubt.kind] == [18586]


def test_titles_in_aiperfs_table_may_have_parentheses_of_their_own(tmp_path):
    head, _, singles = (IMPORTS / "aiperf/table_with_sums.csv").read_text().partition("\n\n")
    columns = head.partition("\n")[0].split(",")
    waiting = ",".join(["HTTP Waiting (TTFB) (ms)", *("177.33" if one == "p50" else "229.45" for one in columns[1:])])
    count = "Completed Requests (Success + Error),500000.00"
    (tmp_path / "table.csv").write_text(f"{head}\n{waiting}\n\n{singles.rstrip()}\n{count}\n")
    file = read_file(tmp_path / "table.csv")
    (result,) = next(iter(importer_for(file).runs(file))).results
    names = ("http_waiting_ttfb_avg_ms", "http_waiting_ttfb_p50_ms", "completed_requests_success_error")
    assert [result.metrics[name] for name in names] == [229.45, 177.33, 500000]
    assert not file.left_out


def test_gpus_of_one_index_on_several_machines_are_several(tmp_path):
    rows = """
Endpoint,GPU_Index,GPU_Name,GPU_UUID,Metric,avg,sum,min,max,Hostname
dcgm:9400,0,NVIDIA H100,GPU-a,GPU Utilization (%),97.00,,0.00,100.00,host-a
dcgm:9400,0,NVIDIA H100,GPU-b,GPU Utilization (%),96.00,,0.00,99.00,host-b
"""
    (tmp_path / "table.csv").write_text((IMPORTS / "aiperf/table.csv").read_text() + rows)
    (run,) = runs(tmp_path / "table.csv")
    assert run.hardware.device.count == 2


def test_another_service_is_another_series_of_llmperf(tmp_path):
    data = json.loads((IMPORTS / "llmperf/demo_550_150_summary.json").read_text())
    data |= {"framework": "anyscale", "api": "https://api.example.com/v1"}
    (tmp_path / "a_summary.json").write_text(json.dumps(data))
    (run,) = runs(tmp_path / "a_summary.json")
    assert (run.cell.runtime_mode["framework"], run.provenance.host) == ("anyscale", "api.example.com")


GPU_ROWS = """
Endpoint,GPU_Index,GPU_Name,GPU_UUID,Platform,Metric,avg,min,max
localhost:9401,0,NVIDIA H100 80GB HBM3,GPU-a,nvidia,GPU Power Usage (W),"1,012.50",90.00,700.00
localhost:9401,0,NVIDIA H100 80GB HBM3,GPU-a,nvidia,GPU Utilization (%),97.00,0.00,100.00
localhost:9401,1,NVIDIA H100 80GB HBM3,GPU-b,nvidia,GPU Utilization (%),96.00,0.00,100.00
localhost:9401,2,NVIDIA H100 80GB HBM3,GPU-c,nvidia,GPU Utilization (%),0.00,0.00,0.00
"""


def test_the_gpus_that_worked_are_aiperfs_hardware(tmp_path):
    (tmp_path / "table.csv").write_text((IMPORTS / "aiperf/table.csv").read_text() + GPU_ROWS)
    file = read_file(tmp_path / "table.csv")
    (run,) = importer_for(file).runs(file)
    device = run.hardware.device
    assert (device.type, device.name, device.count) == ("cuda", "NVIDIA H100 80GB HBM3", 2)
    gpus = run.origin.kept["telemetry_data"]["endpoints"]["localhost:9401"]["gpus"]
    assert gpus["gpu_0"]["metrics"]["gpu_power_usage"] == {"unit": "W", "avg": 1012.5, "min": 90, "max": 700}
    assert (sorted(gpus), file.left_out) == (["gpu_0", "gpu_1", "gpu_2"], {})
    assert run.results[0].metrics["latency_median_ms"] == 6653.9


def test_gpu_rows_of_another_table_without_ids_are_read(tmp_path):
    rows = """
Endpoint,GPU_Index,GPU_Name,Metric,avg,min,max
localhost:9401,0,NVIDIA H100 80GB HBM3,GPU Memory Used (GB),40.00,1.00,60.00
"""
    (tmp_path / "table.csv").write_text((IMPORTS / "aiperf/table.csv").read_text() + GPU_ROWS + rows)
    (run,) = runs(tmp_path / "table.csv")
    assert run.origin.kept["telemetry_data"]["endpoints"]["localhost:9401"]["gpus"]["gpu_0"]["gpu_uuid"] == "GPU-a"


def test_the_spread_of_lengths_and_the_sampling_tell_llmperfs_loads_apart(tmp_path):
    data = json.loads((IMPORTS / "llmperf/demo_550_150_summary.json").read_text())
    changes = (
        {},
        {"stddev_input_tokens": 0, "stddev_output_tokens": 0},
        {"additional_sampling_params_temperature": 0.2},
        {"additional_sampling_params_temperature": 0},
    )
    modes = []
    for change in changes:
        (tmp_path / "a_summary.json").write_text(json.dumps(data | change))
        (run,) = runs(tmp_path / "a_summary.json")
        modes.append({name: one for name, one in run.cell.runtime_mode.items() if name not in ("loop", "framework")})
    stated = {"stddev_input_tokens": 150, "stddev_output_tokens": 10, "additional_sampling_params_temperature": 0.7}
    assert modes == [
        stated,
        {"additional_sampling_params_temperature": 0.7},
        {**stated, "additional_sampling_params_temperature": 0.2},
        {**stated, "additional_sampling_params_temperature": 0},
    ]

"""vLLM's latency and throughput benchmarks: seconds of a whole batch, tokens of prompts and answers."""

from __future__ import annotations

import json
import shutil

import pytest

from db.importers.serving_clients import OFFLINE
from db.importers.support.files import NoResultsError, read_file
from db.importers.support.importing import GivenValues, import_files
from db.importers.vllm_printed import PLUGIN as PRINTED
from tests.helpers.imported_files import importer_for
from tests.helpers.paths import FIXTURES

FOLDER = FIXTURES / "imports/vllm_bench_offline"


def runs(name):
    return list(OFFLINE.runs(read_file(FOLDER / name)))


LATENCIES = (2010.0, 1990.0, 2000.0, 2030.0, 1980.0, 2000.0)


def test_latencies_are_those_of_a_batch_whose_size_the_plain_file_lacks():
    (run,) = runs("latency.json")
    (result,) = run.results
    assert result.samples[0].values == pytest.approx(LATENCIES)
    assert result.metrics["latency_mean_ms"] == pytest.approx(2001.6666667)
    assert result.metrics["latency_median_ms"] == pytest.approx(2000.0)
    assert (run.cell.workload.model_id[:8], run.cell.runtime) == ("unknown-", "vllm")
    assert [doubt.kind for doubt in result.doubts] == ["undated", "batch_size_not_stated"]
    assert result.extra["kept"]["stated"]["percentiles"]["99"] == 2.029


def test_the_records_for_pytorch_have_model_sizes_and_settings():
    (run,) = runs("latency_8.pytorch.json")
    (result,) = run.results
    assert result.point.label == "b8 s32 n128"
    assert result.samples[0].values == pytest.approx(LATENCIES)
    assert (result.iterations, result.warmup_iterations) == (6, 10)
    assert (run.cell.workload.model_id, run.cell.precision) == ("facebook/opt-125m", "bfloat16")
    assert run.cell.runtime_mode == {"engine": "offline", "tensor_parallel_size": 2}


@pytest.mark.parametrize(
    ("arguments", "mode"),
    [
        ({"enforce_eager": True, "kv_cache_dtype": "fp8"}, {"enforce_eager": True, "kv_cache_dtype": "fp8"}),
        ({"speculative_config": {"method": "ngram"}}, {"speculative_config": '{"method": "ngram"}'}),
        ({"use_beam_search": True, "n": 8}, {"use_beam_search": True, "n": 8}),
        ({"max_num_seqs": 1, "max_num_batched_tokens": 256}, {"max_num_seqs": 1, "max_num_batched_tokens": 256}),
        ({"cpu_offload_gb": 20, "attention_backend": "X"}, {"cpu_offload_gb": 20, "attention_backend": "X"}),
        ({"enable_prefix_caching": False, "enable_dbo": True}, {"enable_prefix_caching": False, "enable_dbo": True}),
        ({"n": 1, "gpu_memory_utilization": 0.92, "cpu_offload_gb": 0, "dataset_name": "sharegpt"}, {}),
        ({"model_impl": "transformers", "scheduling_policy": "fcfs"}, {"model_impl": "transformers"}),
        ({"hf_overrides": {"a": 1}, "rope_scaling": {}}, {"hf_overrides": '{"a": 1}'}),
        ({"compilation_config": "<CompilationConfig object is not JSON serializable>", "block_size": 16}, {}),
        ({"optimization_level": 0}, {"optimization_level": 0}),
        ({"dataset_name": "random", "random_prefix_len": 8, "sonnet_prefix_len": 200}, {"random_prefix_len": 8}),
        ({"prefill_context_parallel_size": 2}, {"prefill_context_parallel_size": 2}),
        ({"offload_group_size": 8, "offload_prefetch_step": 1}, {"offload_group_size": 8}),
        ({"kv_sharing_fast_prefill": True, "max_lora_rank": 16}, {"kv_sharing_fast_prefill": True}),
        ({"additional_config": {"a": 1}, "cudagraph_capture_sizes": None}, {"additional_config": '{"a": 1}'}),
        ({"disable_log_stats": True, "use_tqdm_on_load": True, "seed": 7, "enable_prefix_caching": None}, {}),
    ],
)
def test_the_engines_settings_are_part_of_the_series(tmp_path, arguments, mode):
    """Written by the tool with all other arguments of the command, or printed as its namespace."""
    records = json.loads((FOLDER / "latency_8.pytorch.json").read_text())
    for record in records:
        record["benchmark"]["extra_info"]["args"] |= {"tensor_parallel_size": 1, **arguments}
    (tmp_path / "l.pytorch.json").write_text(json.dumps(records))
    (run,) = OFFLINE.runs(read_file(tmp_path / "l.pytorch.json"))
    assert run.cell.runtime_mode == {"engine": "offline", **mode}
    given = {"model": "m", "backend": "vllm", **arguments}
    texts = {name: value for name, value in given.items() if not isinstance(value, dict)}
    namespace = ", ".join(f"{name}={value!r}" for name, value in texts.items())
    (tmp_path / "printed.log").write_text(f"Namespace({namespace})\nThroughput: 5.00 requests/s, 640.00 tokens/s\n")
    (printed,) = PRINTED.runs(read_file(tmp_path / "printed.log"))
    found = {name: str(mode[name]) for name in mode if name in texts}
    assert {name: str(one) for name, one in printed.cell.runtime_mode.items()} == {"engine": "offline", **found}


def test_the_device_the_revision_and_the_gpus_of_context_parallelism_are_those_of_the_arguments(tmp_path):
    records = json.loads((FOLDER / "latency_8.pytorch.json").read_text())
    given = {"device": "cpu", "revision": "abc", "prefill_context_parallel_size": 2, "decode_context_parallel_size": 2}
    for record in records:
        record["benchmark"]["extra_info"]["args"] |= given
    (tmp_path / "l.pytorch.json").write_text(json.dumps(records))
    (run,) = OFFLINE.runs(read_file(tmp_path / "l.pytorch.json"))
    assert (run.cell.device.type, run.cell.device.count, run.cell.workload.revision) == ("cpu", 4, "abc")
    (tmp_path / "l.log").write_text("vllm bench latency --device cpu --revision abc\nAvg latency: 5.25 seconds\n")
    (printed,) = PRINTED.runs(read_file(tmp_path / "l.log"))
    assert (printed.cell.device.type, printed.cell.workload.revision) == ("cpu", "abc")


@pytest.mark.parametrize(
    ("name", "label", "tokens"),
    [
        ("throughput.json", "b1 num_prompts=1000 tokens_per_request=420", 33600.0),
        ("throughput_random.pytorch.json", "b1 s32 n128 num_prompts=1000", 12800.0),
    ],
)
def test_tokens_per_second_are_of_prompts_and_answers_together(name, label, tokens):
    (run,) = runs(name)
    (result,) = run.results
    assert result.point.label == label
    assert result.metrics["throughput_samples_per_sec"] == 80.0
    assert result.metrics["total_tokens_per_sec"] == tokens
    assert "throughput_tokens_per_sec" not in result.metrics
    assert result.metrics["duration_s"] == 12.5


@pytest.mark.parametrize("name", ["latency.json", "throughput.json"])
def test_a_plain_file_may_name_its_model(tmp_path, name):
    (tmp_path / name).write_text(json.dumps({"model_id": "demo/model", **json.loads((FOLDER / name).read_text())}))
    (run,) = OFFLINE.runs(read_file(tmp_path / name))
    assert run.cell.workload.model_id == "demo/model"


def test_the_plain_file_is_skipped_if_a_more_detailed_one_is_in_its_folder(tmp_path):
    shutil.copy(FOLDER / "latency.json", tmp_path / "latency_8.json")
    shutil.copy(FOLDER / "latency_8.pytorch.json", tmp_path)
    with pytest.raises(NoResultsError, match=r"all its numbers are in latency_8\.pytorch\.json"):
        list(OFFLINE.runs(read_file(tmp_path / "latency_8.json")))
    another = {**json.loads((FOLDER / "latency.json").read_text()), "avg_latency": 1.5}
    (tmp_path / "latency_8.json").write_text(json.dumps(another))
    assert list(OFFLINE.runs(read_file(tmp_path / "latency_8.json")))  # of a later run, without records


def test_a_loads_records_for_pytorch_are_the_load(tmp_path):
    load = json.loads((FIXTURES / "imports/vllm_bench_serve/detailed.json").read_text())
    statistics = {name: load[name] for name in load if name.endswith("_ms")}
    lists = ("ttfts", "itls", "latencies", "generated_texts", "errors")
    others = {name: value for name, value in load.items() if name not in (*statistics, *lists)}
    record = {"benchmark": {"name": "vLLM benchmark", "extra_info": {"args": {}}}, "model": {"name": load["model_id"]}}
    metrics = [{"name": name, "benchmark_values": [value], "extra_info": others} for name, value in statistics.items()]
    (tmp_path / "load.pytorch.json").write_text(json.dumps([{**record, "metric": one} for one in metrics]))
    importer = importer_for(read_file(tmp_path / "load.pytorch.json"))
    (run,) = importer.runs(read_file(tmp_path / "load.pytorch.json"))
    assert (importer.name, run.cell.workload.model_id) == ("vllm_bench_serve", load["model_id"])
    assert run.results[0].metrics["throughput_samples_per_sec"] == load["request_throughput"]
    assert run.results[0].metrics["time_to_first_token_ms"] == load["median_ttft_ms"]


def records_of(model, metrics, **information):
    shared = {"benchmark": {"name": "vLLM benchmark", "extra_info": {"args": {}}}, "model": {"name": model}}
    listed = {name: value if isinstance(value, list) else [value] for name, value in metrics.items()}
    return [
        {**shared, "metric": {"name": name, "benchmark_values": values, "extra_info": information}}
        for name, values in listed.items()
    ]


@pytest.mark.parametrize("is_lines", [False, True])
def test_each_measurement_of_joined_records_is_a_run_of_its_own(tmp_path, is_lines):
    """Joined by scripts for PyTorch's benchmark database: of several models, repetitions, and of loads among them."""
    latency = {"avg_latency": 2.0, "percentiles": {}}
    load = {"model_id": "c", "num_prompts": 9, "completed": 9, "duration": 3.0, "request_throughput": 3.0}
    records = [
        *records_of("a", {"latency": [2.0, 2.0]}, **latency),
        *records_of("b", {"latency": [9.0, 9.0]}, **latency),
        *records_of("b", {"latency": [8.0, 8.0]}, **latency),
        *records_of("c", {"median_ttft_ms": 30.0, "median_tpot_ms": 4.0}, **load),
        *records_of("d", {"median_ttft_ms": 50.0, "median_tpot_ms": 5.0}, **{**load, "model_id": "d"}),
        *records_of("a", {"latency": [2.0, 2.0]}, **latency),  # the first one again
        {"benchmark": {"name": "other"}},
    ]
    path = tmp_path / "joined.json"
    path.write_text("\n".join(map(json.dumps, records)) if is_lines else json.dumps(records))
    stored = []
    (done,) = import_files([(path, True)], None, GivenValues(), lambda files: [stored.extend(files[0].runs) or 5])
    numbers = {
        (run.cell.workload.model_id, metric): result.metrics[metric]
        for run in stored
        for result in run.results
        for metric in ("latency_median_ms", "time_to_first_token_ms")
        if metric in result.metrics
    }
    assert numbers == {
        ("a", "latency_median_ms"): 2000.0,
        ("b", "latency_median_ms"): 8000.0,
        ("c", "time_to_first_token_ms"): 30.0,
        ("d", "time_to_first_token_ms"): 50.0,
    }
    assert (len(stored), len({run.run_id for run in stored})) == (5, 5)
    assert [text.partition(":")[0] for text in done.left_out] == ["record 9"]

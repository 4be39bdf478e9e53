"""SGLang's bench_serving: loads of a server, one a line."""

from __future__ import annotations

import json

import pytest

from db.importers.serving_clients import SGLANG
from db.importers.support.files import read_file
from db.importers.support.measures import median_of
from tests.helpers.imported_files import importer_for
from tests.helpers.paths import FIXTURES

FOLDER = FIXTURES / "imports/sglang_bench_serving"


def runs(name):
    return list(SGLANG.runs(read_file(FOLDER / name)))


def test_each_line_is_a_load_with_its_own_statistics():
    (result,) = runs("appended.jsonl")[0].results
    assert result.point.label == "b1 s16 n4 c8 request_rate=4.0"
    assert result.iterations == 5
    expected = {
        "service_time_mean_ms": 61.0,
        "service_time_p50_ms": 60.0,
        "std_e2e_latency_ms": 2.0,
        "stated_latency_p99_ms": 64.86,
        "time_to_first_token_ms": 30.0,
        "mean_ttft_ms": 31.0,
        "time_per_output_token_ms": 10.0,
        "std_tpot_ms": 0.0,
        "throughput_samples_per_sec": 4.0,
        "throughput_tokens_per_sec": 16.0,
        "input_tokens_per_sec": 64.0,
        "total_tokens_per_sec": 80.0,
        "concurrency_mean": 0.244,
        "duration_s": 1.25,
    }
    assert {name: result.metrics[name] for name in expected} == expected
    assert result.missing["service_time_p99_ms"] == "too_few_samples"


def test_model_precision_and_device_come_from_the_server():
    run, other = runs("appended.jsonl")
    assert run.cell.workload.model_id == "meta-llama/Llama-3.1-8B-Instruct"
    assert (run.cell.precision, run.cell.device.type, run.cell.runtime) == ("bfloat16", "cuda", "sglang")
    assert run.cell.runtime_mode == {"endpoint": "sglang", "tp_size": 2, "loop": "open", "arrivals": "poisson"}
    assert run.provenance.versions == {"sglang": "0.5.2"}
    assert (other.cell.workload.model_id[:8], other.cell.device.type) == ("unknown-", "unknown")


def test_details_are_samples_in_milliseconds_and_an_endless_rate_is_no_axis():
    (result,) = runs("appended.jsonl")[1].results
    found = {one.metric: one.values for one in result.samples}
    assert found["time_to_first_token"] == pytest.approx((30.0, 31.0, 29.0, 30.0, 35.0))
    assert found["inter_chunk_latency"] == pytest.approx((10.0,) * 15)
    assert result.point.label == "b1 s16 n4 num_prompts=5"
    assert "concurrency_unlimited" in [doubt.kind for doubt in result.doubts]
    assert result.extra["kept"]["gaps_per_request"] == [3] * 5


def test_a_load_in_which_no_request_succeeded_failed(tmp_path):
    line = json.loads((FOLDER / "appended.jsonl").read_text().splitlines()[0])
    (tmp_path / "a.jsonl").write_text(json.dumps(line | {"completed": 0}) + "\n")
    (run,) = SGLANG.runs(read_file(tmp_path / "a.jsonl"))
    assert (run.status, run.results[0].error) == ("failed", "no request succeeded")


def test_a_native_file_has_goodput_and_failures():
    (run,) = runs("detailed.jsonl")
    (result,) = run.results
    samples = {one.metric: one.values for one in result.samples}
    assert (result.iterations, len(samples["time_to_first_token"])) == (18, 18)
    assert median_of(samples["time_to_first_token"]) == pytest.approx(result.metrics["time_to_first_token_ms"])
    assert (result.metrics["request_goodput_per_sec"], result.metrics["slo_attainment_share"]) == (
        pytest.approx(17.334929165),
        0.9,
    )
    assert [doubt.evidence for doubt in result.doubts if doubt.kind == "failed_requests"] == [{"failed_requests": 2}]


def test_an_infinite_rate_is_none(tmp_path):
    line = (FOLDER / "appended.jsonl").read_text().splitlines()[0]
    load = {**json.loads(line), "request_rate": float("inf"), "max_concurrency": None}
    (tmp_path / "out.jsonl").write_text(json.dumps(load) + "\n")
    file = read_file(tmp_path / "out.jsonl")
    (run,) = SGLANG.runs(file)
    assert "request_rate" not in run.results[0].point.axes
    assert run.cell.runtime_mode["loop"] == "open"
    assert file.left_out == {}


def served_by(tmp_path, **server):
    """The run of a load of a server that describes itself so."""
    load = json.loads((FOLDER / "appended.jsonl").read_text().splitlines()[0])
    (tmp_path / "out.jsonl").write_text(json.dumps({**load, "server_info": server}) + "\n")
    (run,) = SGLANG.runs(read_file(tmp_path / "out.jsonl"))
    return run


def test_replicas_of_attention_alone_are_among_the_gpus_of_tensor_parallelism(tmp_path):
    sizes = {"model_path": "deepseek-ai/DeepSeek-R1", "tp_size": 8, "dp_size": 8, "device": "cuda"}
    shared, apart = (served_by(tmp_path, **sizes, enable_dp_attention=one) for one in (True, False))
    assert (shared.cell.device.count, apart.cell.device.count) == (8, 64)
    assert shared.cell.runtime_mode["enable_dp_attention"] is True
    assert "enable_dp_attention" not in apart.cell.runtime_mode


def test_servers_of_prompts_and_of_new_tokens_are_one_setup_with_the_gpus_of_both(tmp_path):
    each = {"model_path": "m", "tp_size": 4, "device": "cuda", "dtype": "bfloat16", "version": "0.5.9"}
    run = served_by(tmp_path, prefill=[each, each], decode=[{**each, "tp_size": 8}])
    assert (run.cell.workload.model_id, run.cell.device.count, run.cell.precision) == ("m", 16, "bfloat16")
    assert run.cell.runtime_mode["disaggregation"] == "1 decode, 2 prefill"
    assert "disaggregation" not in served_by(tmp_path, **each, disaggregation_mode="null").cell.runtime_mode
    assert served_by(tmp_path, **each, disaggregation_mode="decode").cell.runtime_mode["disaggregation"] == "decode"


def test_a_load_of_embeddings_has_no_rate_of_new_tokens(tmp_path):
    load = json.loads((FOLDER / "appended.jsonl").read_text().splitlines()[0])
    load |= {"backend": "sglang-embedding", "total_output_tokens": 0, "output_throughput": 0.0}
    (tmp_path / "out.jsonl").write_text(json.dumps(load) + "\n")
    (run,) = SGLANG.runs(read_file(tmp_path / "out.jsonl"))
    (result,) = run.results
    assert run.cell.workload.task == "feature-extraction"
    assert "throughput_tokens_per_sec" not in result.metrics
    assert result.missing["throughput_tokens_per_sec"].startswith("not_applicable")


def test_settings_of_the_engine_are_those_that_are_known_and_those_of_the_command_that_started_it(tmp_path):
    plain = {"model_path": "m", "stream_interval": 1, "max_prefill_tokens": 16384, "page_size": 1, "attn_cp_size": 1}
    given = {"stream_interval": 10, "decode_attention_backend": "fa3", "speculative_draft_model_path": "/data/eagle"}
    mode = served_by(tmp_path, **plain).cell.runtime_mode
    changed = served_by(tmp_path, **{**plain, **given, "attn_cp_size": 2, "revision": "abc"})
    stated = {"stream_interval": 10, "decode_attention_backend": "fa3", "speculative_draft_model_path": "eagle"}
    assert (changed.cell.runtime_mode, changed.cell.workload.revision) == ({**mode, **stated, "attn_cp_size": 2}, "abc")
    computed = {**plain, "mem_fraction_static": 0.8, "swa_full_tokens_ratio": 0.3, "port": 1, "enable_metrics": True}
    computed |= {"base_gpu_id": 4, "weight_version": "v2", "show_time_cost": True, "device": "cuda"}
    assert served_by(tmp_path, **computed).cell.runtime_mode == mode
    command = "python -m sglang.launch_server --model-path m --port 1 --enable-metrics --mem-fraction-static 0.8"
    command += " --base-gpu-id 4 --weight-version v2 --show-time-cost --device cuda"
    run = served_by(tmp_path, **computed, launch_command=command)
    assert run.cell.runtime_mode == {**mode, "mem_fraction_static": 0.8}
    assert run.origin.kept["server_info"]["launch_command"] == command


def test_files_of_first_versions_have_no_limit_of_requests_in_flight(tmp_path):
    load = json.loads((FOLDER / "appended.jsonl").read_text().splitlines()[0])
    del load["max_concurrency"], load["server_info"]
    (tmp_path / "old.jsonl").write_text(json.dumps(load) + "\n")
    file = read_file(tmp_path / "old.jsonl")
    (run,) = importer_for(file).runs(file)
    assert run.origin.format == "sglang_bench_serving"
    assert "concurrency_unlimited" in [doubt.kind for doubt in run.results[0].doubts]


@pytest.fixture
def load_of(tmp_path):
    def load(place=0, **changes):
        line = json.loads((FOLDER / "appended.jsonl").read_text().splitlines()[place]) | changes
        (tmp_path / "load.jsonl").write_text(json.dumps(line))
        (run,) = SGLANG.runs(read_file(tmp_path / "load.jsonl"))
        return run

    return load


def test_loads_of_other_sizes_and_servers_are_told_apart(load_of):
    def points(*changes):
        return [load_of(1, **change).results[0].point.label for change in changes]

    at_once = {"errors": [], "max_concurrency": None, "request_rate": "inf"}
    many = {"completed": 1000, "total_input_tokens": 16000, "total_output_tokens": 4000}
    assert points(at_once, at_once | many) == ["b1 s16 n4 num_prompts=5", "b1 s16 n4 num_prompts=1000"]
    early = {"max_concurrency": 8, "total_output_tokens": 19, "output_lens": [4, 4, 4, 4, 3]}
    assert points(early, early | {"random_output_len": 64}) == [
        "b1 s16 c8 output_tokens_requested=4",
        "b1 s16 c8 output_tokens_requested=64",
    ]
    by_chance = early | {"total_output_tokens": 20, "random_output_len": 64}
    assert points(by_chance, by_chance | {"output_lens": []}) == ["b1 s16 c8 output_tokens_requested=64"] * 2, (
        "lengths that differ may add up to a multiple of the number of requests"
    )
    drawn = early | {"random_range_ratio": 0.5, "total_input_tokens": 60, "input_lens": []}
    assert points(drawn) == ["b1 c8 input_tokens_requested=16 output_tokens_requested=4"]
    chats = early | {"dataset_name": "sharegpt", "total_output_tokens": 21}
    assert points(chats, chats | {"sharegpt_output_len": 32}) == ["b1 s16 c8", "b1 s16 c8 output_tokens_requested=32"]
    server = load_of().origin.kept | {"dtype": "bfloat16", "kv_cache_dtype": "auto", "disable_cuda_graph": False}
    assert load_of(server_info=server).cell.runtime_mode.keys() == {"endpoint", "loop", "arrivals"}
    drafted = {"speculative_algorithm": "EAGLE", "speculative_num_steps": 3, "kv_cache_dtype": "fp8_e5m2"}
    mode = load_of(server_info=server | drafted | {"disable_radix_cache": True}, accept_length=2.5).cell.runtime_mode
    assert mode == {
        "endpoint": "sglang",
        "loop": "open",
        "arrivals": "poisson",
        "speculation": "EAGLE",
        "speculative_num_steps": 3,
        "kv_cache_dtype": "fp8_e5m2",
        "disable_radix_cache": True,
    }
    defaults = {"json_model_override_args": "{}", "moe_a2a_backend": "none", "cpu_offload_gb": 0, "log_requests": True}
    others = {"json_model_override_args": '{"num_hidden_layers": 1}', "enable_two_batch_overlap": True}
    others |= {"attention_backend": "torch_native", "chunked_prefill_size": -1, "max_running_requests": 1}
    mode = load_of(server_info=server | defaults | {"enable_metrics": True}).cell.runtime_mode
    assert load_of(server_info=server | defaults | others).cell.runtime_mode == mode | others
    assert mode.keys() == {"endpoint", "loop", "arrivals"}
    assert load_of(server_info=None, accept_length=2.5).cell.runtime_mode["speculation"] is True


@pytest.mark.parametrize(
    ("changes", "mode"),
    [
        ({"dataset_name": "random-ids"}, {}),
        ({"dataset_name": "sharegpt"}, {}),
        ({"dataset_name": "generated-shared-prefix"}, {"dataset_name": "generated-shared-prefix"}),
        ({"dataset_name": "image"}, {"dataset_name": "image"}),
        ({"random_range_ratio": 0.5}, {"random_range_ratio": 0.5}),
        ({"dataset_name": "mmmu", "random_range_ratio": 0.5}, {"dataset_name": "mmmu"}),
    ],
)
def test_the_data_that_was_sent_tells_loads_apart(load_of, changes, mode):
    assert load_of(**changes).cell.runtime_mode == {**load_of().cell.runtime_mode, **mode}


def test_prompts_that_came_from_the_cache_are_counted_and_doubted_where_they_share_nothing(load_of):
    def cached(tokens, **changes):
        report = {"total_cached_tokens": tokens, "storage_backend": None}
        (result,) = load_of(cache_report=report, **changes).results
        return result.metrics.get("cached_prompt_tokens"), "prefix_cache_hit" in [one.kind for one in result.doubts]

    assert [cached(0), cached(40)] == [(0, False), (40, True)]
    assert cached(40, dataset_name="generated-shared-prefix") == (40, False)
    assert cached(40, completed=0) == (None, False)


@pytest.mark.parametrize("limits", [{"request_rate": 4.0, "max_concurrency": None}, {"max_concurrency": 8}])
def test_a_load_without_a_success_is_in_the_series_of_the_others(load_of, limits):
    good, bad = load_of(**limits), load_of(**limits, completed=0, total_input_tokens=0, total_output_tokens=0)
    assert (good.results[0].status, bad.results[0].status) == ("ok", "failed")
    assert (bad.cell, bad.results[0].point) == (good.cell, good.results[0].point)
    at_once = {"request_rate": "inf", "max_concurrency": None}
    assert load_of(**at_once, completed=0).cell == load_of(**at_once).cell

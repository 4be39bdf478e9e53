"""The settings of a load that tell it apart, where a file states them: the length of answers, the number of prompts
that are sent at once, and whether the server drafts tokens."""

from __future__ import annotations

import json
import math
import re
import shutil

import pytest

from db.importers.aiperf import PLUGINS as OF_NVIDIA
from db.importers.guidellm import PLUGIN as GUIDELLM
from db.importers.inference_perf import INFERENCE_PERF
from db.importers.serving_clients import SERVE, SGLANG
from db.importers.support.files import NoResultsError, read_file
from db.importers.vllm_printed import PLUGIN as PRINTED
from tests.helpers.imported_files import importer_for
from tests.helpers.left_out import left_out
from tests.helpers.paths import FIXTURES

IMPORTS = FIXTURES / "imports"
AIPERF, GENAI_PERF = OF_NVIDIA
LENGTH, PROMPT = "output_tokens_requested", "input_tokens_requested"


def test_answers_of_other_requested_lengths_are_other_points_where_the_file_states_the_length(tmp_path):
    """Their mean varies from run to run, and is no part of a point."""

    def requested(importer, name, changes, *lengths):
        for length in lengths:
            data = json.loads((IMPORTS / name).read_text())
            changes(data, length)
            (tmp_path / "load.json").write_text(json.dumps(data))
            run = next(iter(importer.runs(read_file(tmp_path / "load.json"))))
            yield run.results[0].point.axes.get(LENGTH)

    def shorter(metrics):
        metrics["output_sequence_length"] |= {"min": 3.0, "avg": 12.0}

    def aiperf(data, length):
        shorter(data)
        data["input_config"]["datasets"][0]["prompts"]["osl"]["mean"] = length

    def first_aiperf(data, length):
        shorter(data)
        data["input_config"] |= {"datasets": None, "input": {"prompt": {"output_tokens": {"mean": length}}}}

    def genai_perf(data, length):
        shorter(data)
        data["input_config"]["input"]["output_tokens"]["mean"] = length

    def guidellm(data, length):
        data["config"]["spec"]["data"][0]["output_tokens"] = length
        data["benchmarks"][0]["metrics"]["output_token_count"]["successful"] |= {"min": 3}

    def first_guidellm(data, length):
        guidellm(data, length)
        data |= {"config": None, "args": {"data": [f"prompt_tokens=32,output_tokens={length}"]}}

    export = "aiperf/profile_export_aiperf.json"
    assert list(requested(AIPERF, export, aiperf, 64, 128.0)) == [64, 128]
    assert list(requested(AIPERF, export, first_aiperf, 64, None)) == [64, None]
    export = "genai_perf/profile_export_genai_perf.json"
    assert list(requested(GENAI_PERF, export, genai_perf, 64, "")) == [64, None]
    for changes in (guidellm, first_guidellm):
        assert list(requested(GUIDELLM, "guidellm/benchmarks.json", changes, 16, 64)) == [16, 64]


def test_prompts_of_one_requested_length_are_one_point_however_their_mean_is_rounded(tmp_path):
    def points(importer, name, change, *means):
        path = tmp_path / name.rpartition("/")[2]
        for mean in means:
            text = (IMPORTS / name).read_text()
            data = json.loads(text.splitlines()[0] if path.suffix == ".jsonl" else text)
            change(data, mean)
            path.write_text(json.dumps(data))
            yield next(iter(importer.runs(read_file(path)))).results[0].point.axes

    def nvidia(data, mean):
        data["input_sequence_length"] |= {"min": 3.0, "avg": mean}

    def of_a_file(data, mean):
        nvidia(data, mean)
        data["input_config"]["input"]["file"] = "prompts.jsonl"

    def guidellm(data, mean):
        data["benchmarks"][0]["metrics"]["prompt_token_count"]["successful"] |= {"min": 3, "mean": mean}

    def sglang(data, mean):
        data |= {"dataset_name": "random", "random_input_len": 32, "random_range_ratio": 0.0, "input_lens": None}
        data["total_input_tokens"] = mean * data["completed"] + 0.0

    def wider(data, mean):
        sglang(data, mean)
        data["random_range_ratio"] = 0.5

    export = "genai_perf/profile_export_genai_perf.json"
    for importer, name, change in (
        (AIPERF, "aiperf/profile_export_aiperf.json", nvidia),
        (GENAI_PERF, export, nvidia),
        (GUIDELLM, "guidellm/benchmarks.json", guidellm),
        (SGLANG, "sglang_bench_serving/appended.jsonl", sglang),
    ):
        first, second = points(importer, name, change, 20.4, 20.6)
        assert first == second, name
        assert (first[PROMPT], "input_tokens_mean" in first) == (32, False)
    assert [axes["input_tokens_mean"] for axes in points(GENAI_PERF, export, of_a_file, 20.4, 20.6)] == [20, 21]
    (run,) = SGLANG.runs(read_file(tmp_path / "appended.jsonl"))
    assert "random_range_ratio" not in run.cell.runtime_mode
    assert run.results[0].metrics["input_tokens_mean"] == pytest.approx(20.6)
    list(points(SGLANG, "sglang_bench_serving/appended.jsonl", wider, 20.6))
    (run,) = SGLANG.runs(read_file(tmp_path / "appended.jsonl"))
    assert run.cell.runtime_mode["random_range_ratio"] == 0.5


def test_a_length_of_the_users_metadata_and_a_drafting_server_tell_vllms_loads_apart(tmp_path):
    load = json.loads((IMPORTS / "vllm_bench_serve/server_of_vllm.json").read_text())
    load["total_output_tokens"] = load["completed"] * 7 + 1
    found = []
    for changes in ({}, {"output_len": "500"}, {"output_len": "long"}, {"spec_decode_acceptance_rate": 70.0}):
        (tmp_path / "load.json").write_text(json.dumps(load | changes))
        (run,) = SERVE.runs(read_file(tmp_path / "load.json"))
        found.append((run.results[0].point.axes.get(LENGTH), run.cell.runtime_mode.get("speculation")))
    assert found == [(None, None), (500, None), (None, None), (None, True)]


def test_a_stage_has_the_output_length_of_its_configuration(tmp_path):
    shutil.copytree(FIXTURES / "import_folders/inference_perf_rate", tmp_path / "load")
    stage, config = (tmp_path / "load" / name for name in ("stage_0_lifecycle_metrics.json", "config.yaml"))
    data = json.loads(stage.read_text())
    data["successes"]["output_len"] |= {"min": 1}
    data["successes"]["prompt_tokens"] |= {"min": 1}
    stage.write_text(json.dumps(data))
    lengths = "  output_distribution:\n    mean: 50\n  input_distribution:\n    mean: 99\n"
    config.write_text(f"{config.read_text()}data:\n  type: random\n{lengths}")
    (run,) = INFERENCE_PERF.runs(read_file(stage))
    assert (run.results[0].point.axes[LENGTH], run.results[0].point.axes[PROMPT]) == (50, 99)


REQUESTS = {
    "aiperf": [
        (
            {"datasets": [{"type": "synthetic", "entries": 9, "prompts": {"batch_size": 32}}]},
            {"data.prompts.batch_size": 32},
        ),
        ({"datasets": [{"type": "public", "dataset": "a"}]}, {"data.type": "public", "data.dataset": "a"}),
        ({"datasets": [{"type": "file", "path": "/tmp/a.jsonl"}]}, {"data.type": "file", "data.prompts_of": "a.jsonl"}),
        ({"datasets": [{"turns": {"mean": 5}}, {"random_seed": 7}]}, {"data.turns.mean": 5}),
        (
            {"datasets": [{"trace_session_sample_ratio": 0.5, "show_trace_timing": True, "export_http_trace": True}]},
            {"data.trace_session_sample_ratio": 0.5},
        ),
        ({"input": {"conversation": {"num": 50}}}, {}),
        ({"endpoint": {"connection_reuse_strategy": "pooled"}}, {}),
        ({"endpoint": {"extra": {"best_of": 4}, "api_key": "k", "timeout": 9.0}}, {"extra.best_of": 4}),
        ({"endpoint": {"extra": {"temperature": 0, "ignore_eos": False}}}, {"extra.temperature": 0}),
        ({"endpoint": {"streaming": False}}, {"streaming": False}),
    ],
    "genai_perf": [
        ({"input": {"batch_size": 32, "num_dataset_entries": 7, "goodput": {"ttft": 9.0}}}, {"input.batch_size": 32}),
        ({"input": {"image": {"width": {"mean": 512}, "format": "png"}}}, {"input.image.width.mean": 512}),
        ({"input": {"sessions": {"num": 10, "turns": {"mean": 1}}}}, {"input.sessions.num": 10}),
        ({"endpoint": {"backend": "vllm", "url": "a:1"}}, {"backend": "vllm"}),
        (
            {"endpoint": "v1/a", "endpoint_type": "embeddings", "batch_size_text": 8, "artifact_dir": "a", "u": "a:1"},
            {"endpoint": "embeddings", "batch_size_text": 8},
        ),
    ],
}


@pytest.mark.parametrize("importer", OF_NVIDIA, ids=lambda one: one.name)
def test_what_a_request_contains_tells_loads_apart(tmp_path, importer):
    """But for lengths, which are axes, and what is of a single run."""
    data = json.loads((IMPORTS / importer.name / f"profile_export_{importer.name}.json").read_text())
    inputs = data["input_config"]
    for change, mode in ({}, {}), *REQUESTS[importer.name]:
        if "endpoint_type" in change:  # the flat settings of the first versions
            changed = {"model": ["a"], "concurrency": 2, **change}
        else:
            changed = {**inputs, **change, "endpoint": {**inputs["endpoint"], **change.get("endpoint", {})}}
        (tmp_path / "load.json").write_text(json.dumps({**data, "input_config": changed}))
        (run,) = importer.runs(read_file(tmp_path / "load.json"))
        assert run.cell.runtime_mode == {"endpoint": "chat", "loop": "closed", **mode}


@pytest.mark.parametrize(
    ("config", "mode"),
    [
        ("load: {type: poisson, stages: [{rate: 9}], num_workers: 3, base_seed: 1}", {"arrivals": "poisson"}),
        ("data: {type: shareGPT, path: /tmp/a.json}", {"data.type": "shareGPT", "data.prompts_of": "a.json"}),
        (
            "data: {type: shared_prefix, shared_prefix: {num_groups: 4, seed: 3}}",
            {"data.type": "shared_prefix", "data.shared_prefix.num_groups": 4},
        ),
        (
            "data: {type: random, input_distribution: {mean: 9, std_dev: 3.5, total_count: 7}}",
            {"data.type": "random", "data.input_distribution.std_dev": 3.5},
        ),
        (
            "load: {type: constant, lora_traffic_split: [a]}",
            {"arrivals": "constant", "load.lora_traffic_split": '["a"]'},
        ),
        ("api: {type: chat, streaming: false, headers: {key: k}}", {"api.type": "chat", "streaming": False}),
    ],
)
def test_a_stage_has_the_requests_and_arrivals_of_its_configuration(tmp_path, config, mode):
    shutil.copytree(FIXTURES / "import_folders/inference_perf_rate", tmp_path / "load")
    (tmp_path / "load/config.yaml").write_text(f"server: {{model_name: tiny}}\n{config}\n")
    (run,) = INFERENCE_PERF.runs(read_file(tmp_path / "load/stage_0_lifecycle_metrics.json"))
    assert (run.cell.workload.model_id, run.cell.runtime_mode) == ("tiny", {"loop": "open", **mode})


BLOCK = """============ Serving Benchmark Result ============
Successful requests:                     {completed}
Benchmark duration (s):                  10.00
Total input tokens:                      6400
Total generated tokens:                  3211
Request throughput (req/s):              10.00
Mean TTFT (ms):                          50.00
==================================================
"""


@pytest.mark.parametrize(
    ("above", "axes"),
    [
        ("Traffic request rate: inf\nMaximum request concurrency: None\n", {"num_prompts": 100}),
        ("Traffic request rate: inf\nMaximum request concurrency: 8\n", {}),
        ("vllm bench serve --random-output-len 128 --num-prompts 100\n", {"num_prompts": 100, LENGTH: 128}),
        ("Namespace(dataset_name='sharegpt', random_output_len=128, sharegpt_output_len=None)\n", {}),
        ("Namespace(dataset_name='sharegpt', random_output_len=128, sharegpt_output_len=64)\n", {LENGTH: 64}),
        ("Namespace(dataset_name='random', random_input_len=96, random_range_ratio=0.5)\n", {PROMPT: 96}),
        ("Namespace(dataset_name='random', random_input_len=64, random_range_ratio=0.5)\n", {}),
        ("vllm bench serve --dataset-name sonnet --sonnet-input-len 96\n", {}),
    ],
)
def test_a_printed_load_has_the_settings_above_it(tmp_path, above, axes):
    (tmp_path / "load.log").write_text(above + BLOCK.format(completed=100))
    (run,) = PRINTED.runs(read_file(tmp_path / "load.log"))
    assert run.results[0].point.axes == axes


@pytest.mark.parametrize(
    ("flags", "length"),
    [
        ("--dataset-name random --random-input-len 96", None),
        ("--dataset-name random --random-input-len 96 --random-range-ratio 0", None),
        ("--dataset-name random --random-input-len 96 --random-range-ratio 1.0", 64),  # what a chat template leaves
        ("--num-prompts 100", 64),
    ],
)
def test_lengths_that_sglang_draws_by_default_are_not_one_length_by_chance(tmp_path, flags, length):
    printed = BLOCK.format(completed=100).replace("Successful", "Traffic request rate:      inf\nSuccessful")
    (tmp_path / "load.log").write_text(f"python -m sglang.bench_serving --max-concurrency 4 {flags}\n{printed}")
    (run,) = PRINTED.runs(read_file(tmp_path / "load.log"))
    point = run.results[0].point
    assert (point.sequence_length, point.axes.get(PROMPT)) == (length, None if length else 96)


def test_a_printed_block_of_placeholders_is_no_failed_load(tmp_path):
    numbers = BLOCK.format(completed=100)
    (tmp_path / "notes.md").write_text(re.sub(r" \d[\d.]*$", " xxx", numbers, flags=re.MULTILINE) + numbers)
    with left_out("line 1: a result without any number"):
        (run,) = PRINTED.runs(read_file(tmp_path / "notes.md"))
    assert run.results[0].status == "ok"


PRINTED_LOAD = "vllm bench serve --model m --request-rate 4 --num-prompts 100 "
SONNET = {"dataset_name": "sonnet"}
ALL_DATA = "sonnet_prefix_len=200, random_range_ratio=0.0, random_prefix_len=0, gsp_num_groups=64, n=1, top_p=None, "


@pytest.mark.parametrize(
    ("above", "mode"),
    [
        (PRINTED_LOAD + "--dataset-name random --random-input-len 64 --seed 1 --goodput ttft:9 --save-result", {}),
        (f"Namespace({ALL_DATA}dataset_name='random', request_rate=4, metric_percentiles='99', f=<function a>)", {}),
        (f"Namespace({ALL_DATA}dataset_name='sonnet', request_rate=4)", SONNET | {"sonnet_prefix_len": "200"}),
        ("Namespace(lora_modules=['a', 'b'], request_rate=4)", {"lora_modules": "['a', 'b']"}),
        (PRINTED_LOAD + "--dataset-name random --random-prefix-len 512", {"random_prefix_len": "512"}),
        ("docker run --rm --gpus all " + PRINTED_LOAD + "--header 'Authorization: Bearer x'", {}),
        (PRINTED_LOAD + "--random-range-ratio 0.5 --ignore-eos", {"random_range_ratio": "0.5", "ignore_eos": "True"}),
        (PRINTED_LOAD + "--extra-body '{\"a\":1}' --temperature 0", {"extra_body": '{"a":1}', "temperature": "0"}),
        (PRINTED_LOAD + "\nBurstiness factor: 1.0 (Poisson process)", {}),
        (PRINTED_LOAD + "\nBurstiness factor: 0.25 (Gamma distribution)", {"arrivals": "gamma", "variation": 2.0}),
        (PRINTED_LOAD + "--burstiness inf", {"arrivals": "constant"}),
    ],
)
def test_what_requests_contain_and_how_they_arrive_tells_printed_loads_apart(tmp_path, above, mode):
    (tmp_path / "load.log").write_text(f"{above}\n{BLOCK.format(completed=100)}")
    (run,) = PRINTED.runs(read_file(tmp_path / "load.log"))
    assert run.cell.runtime_mode == {"loop": "open", **mode}


@pytest.mark.parametrize(
    ("changes", "mode"),
    [
        ({"burstiness": 1.0, "gpu": "h100", "version": "0.9.1", "commit": "a"}, {"arrivals": "poisson"}),
        ({"burstiness": None}, {"arrivals": "poisson"}),  # of the first versions, which had no other arrivals
        ({"burstiness": 0.25}, {"arrivals": "gamma", "variation": 2.0}),
        ({"burstiness": 4}, {"arrivals": "gamma", "variation": 0.5}),
        ({"burstiness": float("inf")}, {"arrivals": "constant"}),
        (SONNET | {"sonnet_prefix_len": "800"}, SONNET | {"sonnet_prefix_len": "800"}),
        ({"quantization": "fp8", "max_num_seqs": "64"}, {"quantization": "fp8", "max_num_seqs": "64"}),
    ],
)
def test_arrivals_and_known_settings_of_the_users_metadata_tell_vllms_loads_apart(tmp_path, changes, mode):
    data = json.loads((IMPORTS / "vllm_bench_serve/detailed.json").read_text())
    (tmp_path / "load.json").write_text(json.dumps({**data, "request_rate": 4.0, "max_concurrency": None, **changes}))
    (run,) = SERVE.runs(read_file(tmp_path / "load.json"))
    others = {"endpoint": "vllm", "loop": "open", "arrivals": "poisson", "tp": 2}
    assert run.cell.runtime_mode == {**others, **mode}


def test_the_commands_arguments_in_the_records_for_pytorch_tell_a_load_apart_in_both_of_its_files(
    tmp_path,
):
    load = json.loads((IMPORTS / "vllm_bench_serve/server_of_vllm.json").read_text()) | {"completed": 999}
    given = {"dataset_name": "random", "random_prefix_len": 896, "random_range_ratio": 0.0, "random_output_len": 128}
    given |= {"sonnet_prefix_len": 200, "seed": 3, "base_url": None, "temperature": 0.9, "lora_modules": ["a"]}
    given |= {"random_mm_base_items_per_request": 1, "random_mm_limit_mm_per_prompt": {"image": 255}}  # newer versions
    benchmark = {"name": "vLLM benchmark", "extra_info": {"args": given}}
    metric = {"name": "mean_ttft_ms", "benchmark_values": [load["mean_ttft_ms"]], "extra_info": load}
    record = {"benchmark": benchmark, "model": {"name": load["model_id"]}, "metric": metric}
    (tmp_path / "load.pytorch.json").write_text(json.dumps([record]))
    (of_records,) = SERVE.runs(read_file(tmp_path / "load.pytorch.json"))
    (tmp_path / "load.json").write_text(json.dumps(load))
    (run,) = SERVE.runs(read_file(tmp_path / "load.json"))
    mode = {"random_prefix_len": 896, "temperature": 0.9, "lora_modules": '["a"]'}
    assert run.cell.runtime_mode == {"endpoint": "vllm", "loop": "open", **mode}
    assert (of_records.cell.runtime_mode, of_records.results[0].point) == (run.cell.runtime_mode, run.results[0].point)
    assert run.results[0].point.axes[LENGTH] == 128
    assert run.origin.kept["arguments of the command"]["seed"] == 3
    with pytest.raises(NoResultsError, match=r"all its numbers are in load\.json"):
        list(SERVE.runs(read_file(tmp_path / "load.pytorch.json")))
    (tmp_path / "load.json").write_text(json.dumps({**load, "date": "20300101-000000"}))
    assert list(SERVE.runs(read_file(tmp_path / "load.pytorch.json")))  # of another load


def test_the_commands_arguments_are_those_of_the_last_load_that_was_appended(tmp_path):
    load = json.loads((IMPORTS / "vllm_bench_serve/server_of_vllm.json").read_text())
    metric = {"name": "mean_ttft_ms", "benchmark_values": [1.0]}

    def appended(*loads):
        """The settings of each load in a file to which the last one was appended, with temperature 0.9."""
        (tmp_path / "load.json").write_text("\n".join(map(json.dumps, loads)))
        benchmark = {"name": "vLLM benchmark", "extra_info": {"args": {"temperature": 0.9}}}
        records = [{"benchmark": benchmark, "metric": {**metric, "extra_info": loads[-1]}}]
        (tmp_path / "load.pytorch.json").write_text(json.dumps(records))
        runs = SERVE.runs(read_file(tmp_path / "load.json"))
        return [run.cell.runtime_mode.get("temperature") for run in runs]

    assert appended(load) == [0.9]
    assert appended(load, {**load, "date": "20300101-000000"}) == [None, 0.9]


def test_loops_and_limits_that_a_file_does_not_state_are_not_stated(tmp_path):
    genai = IMPORTS / "genai_perf/gpt2-openai-chat-concurrency2/profile_export_genai_perf.csv"
    served = json.loads((IMPORTS / "vllm_bench_serve/server_of_vllm.json").read_text())
    cut = {name: value for name, value in served.items() if name not in ("request_rate", "max_concurrency")}
    response = {"error_code": None, "end_to_end_latency_s": 1.0, "ttft_s": 0.1, "number_output_tokens": 100}
    files = {
        "profile_export_genai_perf.csv": genai.read_bytes(),
        "table.csv": (IMPORTS / "aiperf/table.csv").read_bytes(),
        "cut.json": json.dumps(cut).encode(),
        "responses.json": json.dumps([response] * 3).encode(),
    }
    for name, content in files.items():
        (tmp_path / name).write_bytes(content)
        file = read_file(tmp_path / name)
        (run,) = importer_for(file).runs(file)
        assert "concurrency_not_stated" in [doubt.kind for doubt in run.results[0].doubts], name
        assert run.cell.runtime_mode["loop"] == "not stated", name
    (of_folder,) = GENAI_PERF.runs(read_file(genai))
    assert (of_folder.results[0].point.concurrency, of_folder.cell.runtime_mode["loop"]) == (2, "closed")


@pytest.mark.parametrize(
    ("name", "place", "change"),
    [
        ("vllm_bench_serve/server_of_vllm.json", (), {"request_rate": "4.0", "max_concurrency": None}),
        ("vllm_bench_serve/server_of_vllm.json", (), {"request_rate": "inf", "max_concurrency": "8"}),
        ("sglang_bench_serving/detailed.jsonl", (), {"request_rate": math.nan, "max_concurrency": None}),
        ("aiperf/profile_export_aiperf.json", ("input_config",), {"phases": [{"type": "poisson", "rate": "4.0"}]}),
        (
            "guidellm/benchmarks.json",
            ("benchmarks", 0, "config"),
            {"strategy": {"type_": "poisson", "rate": -1}, "profile": None},
        ),
    ],
)
def test_a_rate_or_limit_that_could_not_be_read_is_not_stated(tmp_path, name, place, change):
    path = IMPORTS / name
    data = json.loads(path.read_text().splitlines()[0] if path.suffix == ".jsonl" else path.read_text())
    changed = data
    for key in place:
        changed = changed[key]
    changed |= change
    (tmp_path / path.name).write_text(json.dumps(data))
    file = read_file(tmp_path / path.name)
    run = next(iter(importer_for(file).runs(file)))
    kinds = [doubt.kind for doubt in run.results[0].doubts]
    assert {"size_left_out", "concurrency_not_stated"} <= set(kinds)
    assert "concurrency_unlimited" not in kinds
    assert run.cell.runtime_mode["loop"] == "not stated"


@pytest.mark.parametrize(
    ("phases", "loadgen", "mode", "is_doubted"),
    [
        ([{"concurrency": 2, "requests": 9, "grace_period": 5}], None, {}, False),
        ([{"concurrency": 2, "prefill_concurrency": 1}], None, {"prefill_concurrency": 1}, False),
        ([{"concurrency": 2, "cancellation": {"rate": 50.0}}], None, {"cancellation": '{"rate": 50.0}'}, False),
        (
            [{"concurrency": 2, "concurrency_ramp": {"duration": 30}}],
            None,
            {"concurrency_ramp": '{"duration": 30}'},
            True,
        ),
        ([{"type": "user_centric", "rate": 5.0, "users": 40}], None, {"users": 40}, False),
        (
            [{"type": "poisson", "rate_series": {"path": "/a", "points": [{"qps": 1}]}}],
            None,
            {"rate_series": '{"points": [{"qps": 1}]}'},
            True,
        ),
        (
            [{"exclude_from_results": True, "concurrency": 1}, {"concurrency": 2}, {"concurrency": 8, "name": "b"}],
            None,
            {"phases": '[{"concurrency": 2}, {"concurrency": 8}]'},
            True,
        ),
        (None, {"request_rate": 4.0, "request_rate_mode": "constant"}, {"arrivals": "constant"}, False),
        (None, {"request_rate": 4.0, "arrival_pattern": "constant"}, {"arrivals": "constant"}, False),
        (None, {"concurrency": 4, "request_rate_mode": "concurrency_burst"}, {}, False),
        (None, {"concurrency": 4, "arrival_pattern": "concurrency_burst"}, {}, False),
        (None, {"request_rate": 4.0, "request_rate_mode": "poisson", "benchmark_duration": 9}, {}, False),
        (
            None,
            {"request_rate": 4.0, "warmup_request_rate_ramp_duration": 30},
            {"warmup_request_rate_ramp_duration": 30},
            False,
        ),
        (
            None,
            {"request_rate": 4.0, "request_rate_ramp_duration": 30},
            {"request_rate_ramp_duration": 30},
            True,
        ),
    ],
)
def test_ramps_limits_and_cancellations_of_aiperf_tell_loads_apart(tmp_path, phases, loadgen, mode, is_doubted):
    data = json.loads((IMPORTS / "aiperf/profile_export_aiperf.json").read_text())
    data["input_config"] |= {"phases": phases, "loadgen": loadgen}
    (tmp_path / "load.json").write_text(json.dumps(data))
    (run,) = AIPERF.runs(read_file(tmp_path / "load.json"))
    others = {"endpoint", "loop", "arrivals"} - mode.keys()
    assert {name: value for name, value in run.cell.runtime_mode.items() if name not in others} == mode
    assert ("varying_rate" in [doubt.kind for doubt in run.results[0].doubts]) is is_doubted
    load = phases[0] if phases and "phases" not in mode else loadgen or {}
    assert run.results[0].point.concurrency == load.get("concurrency", 1)


@pytest.mark.parametrize(
    "data",
    [
        '{"prompt_tokens": 32, "prompt_tokens_stdev": 16, "output_tokens": 8, "turns": 3, "output_tokens_min": null}',
        ["prompt_tokens=32,prompt_tokens_stdev=16,output_tokens=8,output_tokens_stdev=0,turns=3"],
        [{"kind": "synthetic_text", "prompt_tokens": 32, "prompt_tokens_stdev": 16, "turns": 3, "samples": 1000}],
    ],
)
def test_the_spread_of_lengths_and_the_turns_tell_guidellms_loads_apart(tmp_path, data):
    report = json.loads((IMPORTS / "guidellm/benchmarks.json").read_text())
    report |= {"config": None, "args": {"data": data}, "benchmarks": report["benchmarks"][:1]}
    (tmp_path / "load.json").write_text(json.dumps(report))
    (run,) = GUIDELLM.runs(read_file(tmp_path / "load.json"))
    mode = run.cell.runtime_mode
    assert {name: mode[name] for name in mode if name not in ("load", "loop")} == {
        "prompt_tokens_stdev": 16,
        "turns": 3,
    }
    report["args"]["data"] = ["prompt_tokens=32,output_tokens=8,turns=1"]
    (tmp_path / "load.json").write_text(json.dumps(report))
    (run,) = GUIDELLM.runs(read_file(tmp_path / "load.json"))
    assert run.cell.runtime_mode.keys() <= {"load", "loop"}


@pytest.mark.parametrize(
    ("backend", "data", "mode"),
    [
        ({"http2": False, "api_key": "k", "request_format": "/v1/chat/completions"}, {"samples": 9}, {}),
        ({"request_format": "/v1/completions"}, {}, {"endpoint": "/v1/completions"}),
        ({"stream": False, "max_tokens": 64}, {}, {"streaming": False, "max_tokens": 64}),
        ({"extras": {"body": {"think": False}, "headers": {"a": "b"}}}, {}, {"extras.body": '{"think": false}'}),
        ({}, {"kind": "huggingface", "path": "a/b"}, {"data.kind": "huggingface", "data.prompts_of": "a/b"}),
        ({}, {"delay": 2.0, "source": "/home/a/b.txt"}, {"data.delay": 2.0, "data.source": "b.txt"}),
        ({}, {"prefix_buckets": [{"prefix_count": 9}]}, {"data.prefix_buckets": '[{"prefix_count": 9}]'}),
    ],
)
def test_the_backend_and_the_data_of_guidellm_tell_its_loads_apart(tmp_path, backend, data, mode):
    report = json.loads((IMPORTS / "guidellm/benchmarks.json").read_text())
    report["benchmarks"] = report["benchmarks"][:1]
    report["benchmarks"][0]["config"]["backend"] |= backend
    report["config"]["spec"]["data"][0] |= data
    (tmp_path / "load.json").write_text(json.dumps(report))
    (run,) = GUIDELLM.runs(read_file(tmp_path / "load.json"))
    assert run.cell.runtime_mode == {"load": "concurrent", "loop": "closed", **mode}


@pytest.mark.parametrize(
    ("strategy", "mode", "is_doubted"),
    [
        ({"type_": "concurrent", "streams": 2, "rampup_duration": 0.0}, {}, False),
        ({"type_": "concurrent", "streams": 2, "rampup_duration": 30.0}, {"rampup_duration": 30.0}, True),
        ({"type_": "trace", "time_scale": 2.0, "schedule_turn": "idle_gap"}, {"time_scale": 2.0}, False),
    ],
)
def test_a_ramp_and_the_pace_of_a_trace_tell_guidellms_loads_apart(tmp_path, strategy, mode, is_doubted):
    data = json.loads((IMPORTS / "guidellm/benchmarks.json").read_text())
    data["benchmarks"] = data["benchmarks"][:1]
    data["benchmarks"][0]["config"]["strategy"] = {"worker_count": 3, "random_seed": 7, **strategy}
    (tmp_path / "load.json").write_text(json.dumps(data))
    (run,) = GUIDELLM.runs(read_file(tmp_path / "load.json"))
    assert {name: value for name, value in run.cell.runtime_mode.items() if name not in ("load", "loop")} == mode
    assert ("varying_rate" in [doubt.kind for doubt in run.results[0].doubts]) is is_doubted

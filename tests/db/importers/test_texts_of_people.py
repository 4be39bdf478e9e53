"""Results as people keep them: in notes, quoted mails, comments of scripts, several tools in one text."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import pytest

from db.importers.support.files import ForeignFile, importers_for, recognising
from db.importers.support.importing import GivenValues, import_files
from tests.helpers.imported_files import importer_for
from tests.helpers.paths import FIXTURES

BLOCK = """\
============ Serving Benchmark Result ============
Successful requests:                     10
Total input tokens:                      1000
Median TTFT (ms):                        50.50
Median TPOT (ms):                        -0.00
Mean TPOT (ms):                          1.76
Total throughput (tok/s):                2121.89
==================================================
"""
BATCHED = """\
|    PP |     TG |    B |   N_KV |   T_PP s | S_PP t/s |   T_TG s | S_TG t/s |      T s |    S t/s |
|-------|--------|------|--------|----------|----------|----------|----------|----------|----------|
|  2048 |    128 |    4 |   8704 |    3.224 |  2541.33 |    4.124 |   124.16 |    7.347 |  1184.65 |
"""
BENCH = """\
| model             |       size |     params | backend | ngl |   test |            t/s |
| ----------------- | ---------: | ---------: | ------- | --: | -----: | -------------: |
| qwen2 7B Q4_K - M |   4.36 GiB |     7.62 B | ROCm    |  99 |  pp512 | 1955.27 ± 1.88 |
"""


def read(text, name="notes.md"):
    file = ForeignFile(
        path=Path(name), content=text.encode(), sha256="0" * 64, modified_at=datetime(2026, 1, 2, 3, 4, 5)
    )
    return list(importer_for(file).runs(file)), file


def test_a_block_in_comments_is_read_and_a_time_of_0_is_none():
    (run,), _ = read("".join(f"# {line}\n" for line in BLOCK.splitlines()), "run.sh")
    metrics = run.results[0].metrics
    assert metrics["time_to_first_token_ms"] == 50.5
    assert "time_per_output_token_ms" not in metrics  # -0.00 beside a mean of 1.76
    assert "in one piece" in run.results[0].missing["time_per_output_token_ms"]
    assert metrics["total_tokens_per_sec"] == 2121.89


def test_what_a_logger_writes_before_and_colours_around_a_line_changes_no_value():
    logged = "".join(
        f"client-1  | INFO 05-01 12:00:00 [serve.py:80] \x1b[32m{line}\x1b[0m\n" for line in BLOCK.splitlines()
    )
    (plain,), _ = read(BLOCK)
    (run,), file = read(logged, "client.log")
    assert run.results[0].metrics == plain.results[0].metrics
    assert file.left_out == {}


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("2026-05-01T10:11:12.1234567Z ", ""),  # a runner
        ("2026-05-01 10:11:12,123 ", ""),
        ("bench-1  | ", ""),  # a container
        ("\x1b[36mbench_1 | \x1b[0m2026-05-01T10:11:12Z ", ""),
        ("May  1 10:11:12 host llama-bench[1234]: ", ""),  # a journal
        ("2026-05-01T10:11:12+0000 host python3[1]: ", ""),
        ("\x1b[32m", "\x1b[0m"),
    ],
)
@pytest.mark.parametrize(
    "name",
    [
        *("llama_bench/table.md", "llama_batched_bench/table.log", "onnxruntime_perf_test/two_invocations.txt"),
        *("optimum_benchmark/printed.md", "vllm_printed/first_versions.log", "trtexec/log.txt"),
    ],
)
def test_what_a_log_has_before_each_line_changes_no_result(name, before, after):
    text = (FIXTURES / "imports" / name).read_text()
    plain, _ = read(text)
    logged, _ = read("".join(f"{before}{line}{after}\n" for line in ["Attaching", *text.splitlines()]))
    for run, expected in zip(logged, plain, strict=True):
        assert run.cell == expected.cell
        assert [one.metrics for one in run.results] == [one.metrics for one in expected.results]


@pytest.mark.parametrize("title", ["", f"{'=' * 50}\n            Serving Benchmark Result\n{'=' * 50}\n"])
def test_a_block_without_its_title_is_read_to_its_end(title):
    text = (FIXTURES / "imports/vllm_printed/serving.log").read_text()
    plain, _ = read(text)
    untitled, _ = read(text.replace("============ Serving Benchmark Result ============\n", title))
    for run, expected in zip(untitled, plain, strict=True):
        assert (run.cell, run.results[0].point) == (expected.cell, expected.results[0].point)
        assert run.results[0].metrics == expected.results[0].metrics


def test_a_printed_rate_that_rises_is_that_of_its_own_result():
    rising = (
        "Traffic ramp-up strategy: linear.\nWill increase RPS from 1 to 10 RPS over the duration of the benchmark.\n"
    )
    (first, second), _ = read(f"vllm bench serve --model m\n{rising}{BLOCK}Traffic request rate: 4.0\n{BLOCK}")
    assert first.cell.runtime_mode["ramp_up"] == "linear from 1 to 10 requests/s"
    assert "varying_rate" in [doubt.kind for doubt in first.results[0].doubts]
    assert "ramp_up" not in second.cell.runtime_mode


@pytest.mark.parametrize("indent", [None, 1])
@pytest.mark.parametrize("seam", ["", " ", "\n"])
def test_files_that_were_joined_are_all_read(indent, seam):
    documents = [{"load": number, "values": list(range(200))} for number in range(3)]
    texts = [json.dumps(one, indent=indent) for one in documents]
    file = ForeignFile(
        path=Path("all.json"), content=f"{seam.join(texts)} x\n".encode(), sha256="a", modified_at=datetime(2026, 1, 2)
    )
    assert (file.json, file.json_lines) == (None, tuple(documents))
    assert [one.problem for one in file.noise] == ["not JSON, or cut off: 'x'"]
    lists = seam.join(f"[{text}]" for text in texts)
    assert replace(file, content=f"{lists}\n[{texts[0]}, {{".encode()).json == [*documents, documents[0]]


@pytest.mark.parametrize("format_name", [None, "hyperfine"])
def test_joined_files_of_a_tool_that_has_one_document_in_a_file_are_all_read(format_name):
    text = (FIXTURES / "imports" / "hyperfine" / "failing.json").read_text().strip()
    damaged = text.replace('"mean"', '"median"')
    content = f'{text}loading...\n{text}\n{{"other": 1}}\n{damaged}'.encode()
    alone = ForeignFile(path=Path("a"), content=text.encode(), sha256="a", modified_at=datetime(2026, 1, 2))
    ((importer,), file) = importers_for(alone), replace(alone, content=content, left_out={})
    expected = [(run.cell, result.metrics) for run in importer.runs(alone) for result in run.results]
    (joined,) = importers_for(file, format_name)
    runs = list(joined.runs(file))
    found = [(run.cell, result.metrics) for run in runs for result in run.results]
    assert found[: 2 * len(expected)] == expected * 2
    assert len({run.run_id for run in runs}) == len(runs)
    assert {one.text.partition(":")[0] for one in file.left_out} == {"document 3", "document 4", "line 24"}


def test_a_program_that_reads_such_logs_is_none():
    text = 'blocks = text.split("============ Serving Benchmark Result ============")\nfor block in blocks:\n    pass\n'
    file = ForeignFile(path=Path("a.py"), content=text.encode(), sha256="a", modified_at=datetime(2026, 1, 2))
    assert recognising(file) == ()


def test_a_flag_without_value_takes_no_other_and_a_variable_names_nothing():
    flags = "--ignore-eos --model demo/model --base-url http://10.0.0.2:8000 --num-prompts $N -tp 4"
    (run,), file = read(f"vllm bench serve {flags}\n{BLOCK}")
    assert (run.cell.workload.model_id, run.provenance.host) == ("demo/model", "10.0.0.2:8000")
    assert (run.hardware.device.count, file.left_out) == (4, {})
    (unnamed,), _ = read("vllm bench serve --model $MODEL_PATH \\\n" + BLOCK)
    assert unnamed.cell.workload.model_id.startswith("unknown-")


def test_settings_of_the_engine_are_part_of_an_offline_result_unless_commented_out():
    text = "".join(
        f"vllm bench latency --model demo/model --dtype bfloat16 {flag}\nAvg latency: {seconds} seconds\n"
        f"99% percentile latency: {seconds} seconds\n"
        for flag, seconds in (("# --kv-cache-dtype fp8", 1.5), ("--kv-cache-dtype fp8", 2.5))
    )
    (plain, quantized), _ = read(text)
    assert "kv_cache_dtype" not in plain.cell.runtime_mode
    assert quantized.cell.runtime_mode["kv_cache_dtype"] == "fp8"
    assert {plain.cell.precision, quantized.cell.precision} == {"bfloat16"}


def test_percentiles_without_their_average_are_a_result():
    percentiles = "10% percentile latency: {} seconds\n50% percentile latency: {} seconds\n"
    text = percentiles.format(1, 2) + "other:\nAvg latency: 4 seconds\n" + percentiles.format(3, 4)
    runs, _ = read(text)
    assert [run.results[0].metrics["latency_median_ms"] for run in runs] == [2000, 4000]


def test_tables_of_two_tools_in_one_text_are_both_imported(tmp_path):
    (tmp_path / "notes.md").write_text(f"{BENCH}\nbuild: 360e134 (1)\n\n{BATCHED}")
    stored = []

    def store(files):
        stored.extend(run for file in files for run in file.runs)
        return [len(file.runs) for file in files]

    (outcome,) = import_files([(tmp_path / "notes.md", True)], None, GivenValues(), store)
    assert (outcome.format, outcome.results, outcome.left_out) == ("llama_batched_bench and llama_bench", 2, ())
    assert [run.results[0].point.batch_size for run in stored] == [4, 1]


def test_a_quoted_table_has_the_model_of_the_command_above_it():
    command = "`llama-batched-bench -m /models/Qwen3-0.6B-Q6_K.gguf -c 4096 -npl 1,2`\n\n"
    (run,), _ = read("".join(f"> {line}\n" for line in (command + BATCHED).splitlines()))
    assert run.cell.workload.model_id == "Qwen3-0.6B-Q6_K"
    assert run.results[0].metrics["decode_tokens_per_sec"] == 124.16


def test_workers_for_prompts_and_for_new_tokens_are_part_of_a_load():
    row = {
        "hw": "gb200",
        "framework": "sglang",
        "conc": 8,
        "tput_per_gpu": 1000.0,
        "is_multinode": True,
        "prefill_tp": 4,
        "prefill_num_workers": 2,
        "decode_tp": 8,
        "decode_num_workers": 1,
    }
    (run,), _ = read(json.dumps(row))
    assert (run.cell.device.type, run.hardware.device.count) == ("cuda", 16)
    assert run.cell.runtime_mode["prefill_num_workers"] == 2
    (other,), _ = read(json.dumps({**row, "hw": "gaudi3"}))
    assert other.cell.device.type == "unknown"


def test_scores_of_a_server_name_it():
    data = {
        "results": {"gsm8k": {"alias": "gsm8k", "exact_match,strict-match": 0.5}},
        "config": {
            "model": "local-chat-completions",
            "model_args": {"model": "m", "base_url": "http://10.0.0.1:8000/v1"},
        },
        "total_evaluation_time_seconds": "100.0",
    }
    (run,), _ = read(json.dumps(data))
    assert (run.cell.runtime, run.provenance.host) == ("server", "10.0.0.1:8000")


def test_a_precision_that_is_a_quantization_is_a_setting_in_every_format():
    command = "vllm bench latency --model demo/model --dtype nvfp4\n"
    (printed,), _ = read(f"{command}Avg latency: 1 seconds\n99% percentile latency: 1 seconds\n")
    (aggregate,), _ = read(
        json.dumps({"hw": "b200", "framework": "x", "conc": 1, "tput_per_gpu": 1, "precision": "w4a16"})
    )
    assert (printed.cell.precision, printed.cell.runtime_mode["quantization"]) == ("other", "nvfp4")
    assert (aggregate.cell.precision, aggregate.cell.runtime_mode["quantization"]) == ("other", "w4a16")


def test_a_load_that_its_limit_of_requests_in_flight_held_back_did_not_reach_its_rate():
    lines = {
        "Successful requests": 300,
        "Maximum request concurrency": 25,
        "Request rate configured (RPS)": 1.5,
        "Request throughput (req/s)": 0.43,
        "Median E2EL (ms)": 55000.22,
        "P99 E2EL (ms)": 99000.33,
    }
    for completed, doubted in ((0.43, True), (1.1, False)):
        lines["Request throughput (req/s)"] = completed
        body = "".join(f"{label}:   {value}\n" for label, value in lines.items())
        (run,), _ = read(f"============ Serving Benchmark Result ============\n{body}{'=' * 50}\n")
        assert ("rate_not_achieved" in [doubt.kind for doubt in run.results[0].doubts]) == doubted


def test_labels_with_their_values_below_them_are_no_noise():
    text = BLOCK.replace("====\n", "====\n\n", 1).replace(
        "Total throughput", "Per-position acceptance (%):\n\nPosition 0: 58.32\n\nTotal throughput"
    )
    (run,), file = read(text)
    assert run.results[0].metrics["total_tokens_per_sec"] == 2121.89
    assert file.left_out == {}


DEVICES = """\
ggml_cuda_init: found 1 ROCm devices:
  Device 0: Radeon 8060S Graphics, gfx1151 (0x1151), VMM: no, Wave Size: 32
ggml_vulkan: Found 1 Vulkan devices:
ggml_vulkan: 0 = Radeon 8060S Graphics (RADV STRIX_HALO) (radv) | uma: 1 | fp16: 1
| model             |       size |     params | backend     | ngl | dev     |  test |           t/s |
| ----------------- | ---------: | ---------: | ----------- | --: | ------- | ----: | ------------: |
| qwen2 7B Q4_K - M |   4.36 GiB |     7.62 B | ROCm,Vulkan |  99 | ROCm0   | pp128 | 124.14 ± 2.06 |
| qwen2 7B Q4_K - M |   4.36 GiB |     7.62 B | ROCm,Vulkan |  99 | Vulkan0 | pp128 | 100.14 ± 2.06 |
"""


def test_a_build_of_several_backends_ran_on_the_chosen_device():
    runs, _ = read(DEVICES)
    assert [(run.cell.device.type, run.cell.device.name) for run in runs] == [
        ("rocm", "Radeon 8060S Graphics"),
        ("vulkan", "Radeon 8060S Graphics (RADV STRIX_HALO)"),
    ]


def test_a_prompt_and_new_tokens_behind_a_filled_cache_are_no_call():
    (run,), _ = read((FIXTURES / "imports/llama_batched_bench/sweep.md").read_text())
    first, second = run.results
    assert (first.point.axes, second.point.axes) == ({}, {"depth": 512})
    assert (second.metrics["prefill_tokens_per_sec"], second.metrics["decode_tokens_per_sec"]) == (8.77, 2.59)
    assert "one by one" in second.missing["latency_median_ms"]


EARLIER = """\
python3 -m sglang.bench_serving --backend sglang --num-prompts 30 --model org/m
100%|####| 30/30 [00:09<00:00, 13.97it/s]============ Serving Benchmark Result ============
Backend:                                 sglang
Max reqeuest concurrency:                16
Successful requests:                     20
Median TTFT (ms):                        294.80
==================================================
"""


def test_requests_that_are_missing_failed_and_a_misspelt_label_is_understood():
    (run,), _ = read(EARLIER)
    (result,) = run.results
    assert result.point.concurrency == 16
    assert [doubt.evidence["failed_requests"] for doubt in result.doubts if doubt.kind == "failed_requests"] == [10]


def test_a_load_cannot_complete_faster_than_it_is_sent():
    def kinds(rate, completed):
        lines = f"Traffic request rate: {rate}\nSuccessful requests: {completed}\nRequest throughput (req/s): 3.77\n"
        (run,), _ = read(BLOCK.replace("Successful requests:                     10\n", lines))
        return [doubt.kind for doubt in run.results[0].doubts]

    assert "rate_exceeded" in kinds(2.0, 996)
    assert "rate_exceeded" not in kinds(3.7, 996)
    assert "rate_exceeded" not in kinds(2.0, 10)  # so few may come by chance


CLIENT = "vllm bench serve --model org/m --num-prompts 10 --max-concurrency 16\n"


def mode_of(text):
    (run,), _ = read(text)
    return run.cell.runtime_mode, run.hardware.device.count


def test_a_servers_command_in_one_line_says_what_one_in_several_says():
    flags = ("--tensor-parallel-size 4", "--quantization fp8", "--host 0.0.0.0")
    expected = {"tensor_parallel_size": 4, "quantization": "fp8", "loop": "closed"}, 4
    assert mode_of(f"vllm serve org/m {' '.join(flags)}\n{CLIENT}{BLOCK}") == expected
    lines = " \\\n  ".join(("vllm serve org/m", *flags))
    assert mode_of(f"{lines}\n{CLIENT}{BLOCK}") == expected
    launched = "python -m sglang.launch_server --model-path org/m --tp 8 --disable-radix-cache\n"
    assert mode_of(f"{launched}{CLIENT}{BLOCK}") == ({"tp": 8, "disable_radix_cache": "True", "loop": "closed"}, 8)


def test_a_flag_that_is_shortened_is_the_whole_one_and_a_flag_of_its_own_is_none():
    serve = "python -m sglang.launch_server --model-path org/m --{} 4 --{} 256\n"
    client = "python -m sglang.bench_serving --dataset-name random --random-{} 64 --random-{} 32 --{} 512 --{} 16\n"
    load = "input-len", "output-len", "num-prompts", "max-concurrency"
    (whole,), _ = read(serve.format("tensor-parallel-size", "max-running-requests") + client.format(*load) + BLOCK)
    shortened = "tensor-parallel", "max-running", "input", "output", "num-prompt", "max-conc"
    (short,), _ = read(serve.format(*shortened[:2]) + client.format(*shortened[2:]) + BLOCK)
    assert (short.cell, short.results[0].point) == (whole.cell, whole.results[0].point)
    mode, _ = mode_of(f"{CLIENT.strip()} --stream x\n{BLOCK}")
    assert mode == {"loop": "closed", "stream": "x"}


@pytest.mark.parametrize(
    ("flags", "mode"),
    [
        ("--offload-group-size 8", {"offload_group_size": "8"}),
        ("--attention-config.backend FLASHINFER", {"attention_config.backend": "FLASHINFER"}),
        ("--kv-sharing-fast-prefill", {"kv_sharing_fast_prefill": "True"}),
        ("--a-flag-of-tomorrow 1", {"a_flag_of_tomorrow": "1"}),
        ("--cudagraph-capture-sizes 1 2 4", {"cudagraph_capture_sizes": "1 2 4"}),
        ("-O0 -cc.mode=3", {"optimization_level": 0, "compilation_config.mode": "3"}),
        ("--reasoning-parser r --chat-template c --port 1 --api-key k --download-dir /d --served-model-name n", {}),
    ],
)
def test_every_flag_of_a_server_that_may_change_its_numbers_is_a_setting(flags, mode):
    assert mode_of(f"vllm serve org/m {flags}\n{CLIENT}{BLOCK}") == ({**mode, "loop": "closed"}, 1)


@pytest.mark.parametrize(
    "command",
    [
        "docker run --gpus all --shm-size 32g image python3 -m sglang.launch_server --model-path org/m --tp 8\n",
        "docker run --gpus all \\\n  --shm-size 32g \\\n  image \\\n  sglang.launch_server --model-path org/m --tp 8\n",
        "podman run --gpus all \\\n  --ipc=host \\\n  vllm/vllm-openai:latest \\\n  --model org/m --tp 8\n",
        "docker run --ipc=host vllm/vllm-openai org/m --tp 8\ndocker run \\\n  --rm \\\n  other --model org/x\n",
    ],
)
def test_the_flags_of_a_container_are_of_no_server_and_of_no_client(command):
    (run,), _ = read(f"{command}{CLIENT}{BLOCK}")
    assert run.cell.workload.model_id == "org/m"
    assert (run.results[0].point.concurrency, run.hardware.device.count) == (16, 8)
    degree = {name: value for name, value in run.cell.runtime_mode.items() if name != "loop"}
    assert list(degree.values()) == [8], degree


def test_each_result_has_the_server_that_was_started_above_it():
    serve = "VLLM_USE_V1=0 vllm serve {} org/m --max-num-seqs 2048\n"
    text = f"{CLIENT}{serve.format('-tp 8')}{BLOCK}{serve.format('-tp 2 -pp 4')}{BLOCK}{CLIENT}{BLOCK}"
    runs, _ = read(text + CLIENT.replace("org/m", "org/other") + BLOCK)
    assert [run.cell.workload.model_id for run in runs] == ["org/m"] * 3 + ["org/other"]
    of_two = {"max_num_seqs": "2048", "tensor_parallel_size": 2, "pipeline_parallel_size": 4}
    assert [run.cell.runtime_mode for run in runs] == [
        {"max_num_seqs": "2048", "tensor_parallel_size": 8, "loop": "closed"},
        {**of_two, "loop": "not stated"},  # its client's command, and so its limit of requests in flight, is not
        {**of_two, "loop": "closed"},
        {"loop": "closed"},
    ]


@pytest.mark.parametrize(
    ("serve", "mode"),
    [
        ("sglang serve --model-path {} --tp 8", {"tp": 8}),
        ("sglang serve {} --tp 8", {"tp": 8}),
        ("trtllm-serve {} --tp_size 8 --backend pytorch", {"tp_size": 8}),
        ("trtllm-serve serve {}", {}),
        ("text-generation-launcher --model-id {} --num-shard 8", {"num_shard": "8"}),
        ("lmdeploy serve api_server {} --tp 8", {"tp": 8}),
        ("mlc_llm serve HF://{} --mode server", {"mode": "server"}),
        ("./llama-server -hf {} -ngl 99 --parallel 4", {"parallel": "4"}),
        ("llama-server -m {} --parallel 4", {"parallel": "4"}),
    ],
)
def test_a_server_of_any_engine_is_that_of_the_results_below_its_command(serve, mode):
    client = CLIENT.replace("--model org/m ", "")
    first, second = read(f"vllm serve org/m -tp 2\n{client}{BLOCK}{serve.format('org/n')}\n{client}{BLOCK}")[0]
    assert (first.cell.workload.model_id, second.cell.workload.model_id) == ("org/m", "org/n")
    assert second.cell.runtime_mode == {**mode, "loop": "closed"}


@pytest.mark.parametrize("lines", [0, 100])
def test_of_several_servers_a_load_is_of_the_one_with_its_model(lines):
    logged = "INFO: started\n" * lines
    text = f"vllm serve org/m -tp 2\n{logged}llama-server -m /models/n.gguf --parallel 8\n{logged}{CLIENT}{BLOCK}"
    assert mode_of(text) == ({"tensor_parallel_size": 2, "loop": "closed"}, 2)
    assert mode_of(text.replace("--model org/m", "--model n"))[0].get("parallel") == ("8" if lines else None)


@pytest.mark.parametrize("client", ["sglang.bench_serving", "sglang.benchmark.serving"])
def test_a_client_under_its_new_name_is_the_one_under_its_old_name(client):
    command = f"python -m {client} --backend sglang --model org/n --num-prompts 10 --max-concurrency 16\n"
    _, run = read(f"{CLIENT}{BLOCK}{command}{BLOCK}")[0]
    assert (run.cell.workload.model_id, run.results[0].point.axes) == ("org/n", {"num_prompts": 10})
    assert run.cell.runtime_mode == {"endpoint": "sglang", "loop": "closed"}


@pytest.mark.parametrize(("begin", "end"), [("\r", ""), ("", "\n")])
@pytest.mark.parametrize("updates", [2, 200])
def test_progress_between_a_command_and_its_result_hides_nothing(begin, end, updates):
    bar = "".join(f"{begin}{n}%|#   | {n}/100 [00:00<00:10, 2.00it/s]{end}" for n in range(updates))
    logged = "INFO [api_server.py:9] POST /v1/completions 200 OK\n" * updates
    above = "Traffic request rate: 4.0\nMaximum request concurrency: None\n"
    runs, _ = read(
        "".join(
            f"vllm serve {model} -tp 4\n{logged}{CLIENT.replace('org/m', model)}{above}{bar}\n{BLOCK}"
            for model in ("org/m", "org/n")
        )
    )
    assert [run.cell.workload.model_id for run in runs] == ["org/m", "org/n"]
    for run in runs:
        assert run.results[0].point.axes == {"num_prompts": 10, "request_rate": 4.0}
        assert run.cell.runtime_mode["tensor_parallel_size"] == 4


def test_lines_are_numbered_as_in_the_file():
    _, file = read("a\rb\x0cc\u2028d\n" + BLOCK.replace("Median TPOT", "?\nMedian TPOT"))
    assert [one.place for one in file.left_out] == ["line 6"]


def test_the_model_that_a_client_fetched_is_that_of_its_result_alone():
    client = CLIENT.replace("--model org/m ", "") + "Namespace(model=None, max_concurrency=16)\n"
    fetched = "First model name: {0}, first model id: org/{0}\n"
    runs, _ = read("".join(f"{client}{fetched.format(name)}{BLOCK}" for name in ("m", "n")) + CLIENT + BLOCK)
    assert [run.cell.workload.model_id for run in runs] == ["org/m", "org/n", "org/m"]


def test_a_block_without_generated_tokens_that_counts_inputs_is_of_no_text():
    (run,), _ = read(BLOCK.replace("Median TPOT", "Input throughput (inputs/s):   40.00\nMedian TPOT"))
    assert run.cell.workload.task == "feature-extraction"
    assert run.results[0].metrics["input_sequences_per_sec"] == 40


def test_a_notice_of_failed_requests_ends_no_block():
    notice = f"{'=' * 23}!FAILED REQUESTS!{'=' * 23}\nTotal failed requests: 3\n{'=' * 21}!CHECK LOG!{'=' * 20}\n"
    (run,), file = read(
        BLOCK.replace("Median TTFT", f"Failed requests:    3\n{notice}Median TTFT") + "Median ITL (ms): 9\n"
    )
    (result,) = run.results
    assert (result.metrics["time_to_first_token_ms"], result.metrics["total_tokens_per_sec"]) == (50.5, 2121.89)
    assert "median_itl_ms" not in result.metrics, "below the closing line"
    assert run.origin.kept["printed"] == {"Total failed requests": 3}
    assert not file.left_out


def test_what_several_commands_above_a_result_say_otherwise_is_of_none():
    other = CLIENT.replace("org/m", "org/m-70b").replace("16", "64 -tp 8")
    runs, _ = read(f"{CLIENT}{other}8B:\n{BLOCK}70B:\n{BLOCK}")
    for run in runs:
        assert run.cell.workload.model_id.startswith("unknown-")
        assert (run.cell.runtime_mode, run.hardware.device.count) == ({"loop": "not stated"}, 1)
        assert "concurrency_not_stated" in [doubt.kind for doubt in run.results[0].doubts]
    offline = "vllm bench throughput --model org/large --max-num-seqs 8\nsee benchmark_serving.py\n"
    (run,), _ = read(f"{offline}{CLIENT}{BLOCK}")  # which prints no such result
    assert (run.cell.workload.model_id, run.results[0].point.concurrency) == ("org/m", 16)


@pytest.mark.parametrize(
    ("above", "label", "kind", "loop"),
    [
        ("", "", "concurrency_not_stated", "not stated"),
        ("vllm bench serve --model m --max-concurrency $N\n", "", "concurrency_not_stated", "not stated"),
        ("vllm bench serve --model m\n", "", "concurrency_unlimited", "open"),
        ("Namespace(model='m', max_concurrency=None)\n", "", "concurrency_unlimited", "open"),
        ("Traffic request rate: inf\nMaximum request concurrency: None\n", "", "concurrency_unlimited", "open"),
        ("", "Max request concurrency:   not set\n", "concurrency_unlimited", "open"),
        ("", "Failed requests:   0\n", "concurrency_unlimited", "open"),
        ("", "Traffic request rate:   4.0\n", "concurrency_unlimited", "open"),
    ],
)
def test_a_load_is_unlimited_only_where_its_client_says_so(above, label, kind, loop):
    (run,), _ = read(above + BLOCK.replace("Successful", f"{label}Successful"))
    assert kind in [doubt.kind for doubt in run.results[0].doubts]
    assert run.cell.runtime_mode["loop"] == loop


def test_a_variable_inside_a_name_names_no_model():
    (run,), _ = read(f"vllm bench serve --model org/${{MODEL}} --max-concurrency 4\n{BLOCK}")
    assert run.cell.workload.model_id.startswith("unknown-")

"""optimum-benchmark's files (recorded) value by value, and the shapes of older versions."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from statistics import median

import pytest

from benchmarking.core.errors import FormatError
from db.importers.optimum_benchmark import PLUGIN
from db.importers.support.files import NoResultsError, read_file
from tests.helpers.left_out import left_out
from tests.helpers.paths import FIXTURES

FOLDER = FIXTURES / "imports/optimum_benchmark"


def only_run(path):
    (run,) = PLUGIN.runs(read_file(path))
    return run


def raw_ms(name, target):
    return [value * 1e3 for value in json.loads((FOLDER / name).read_text())["report"][target]["latency"]["values"]]


@pytest.fixture
def alone(tmp_path):
    """A function that copies a recorded file into an empty folder."""
    return lambda name: Path(shutil.copy(FOLDER / name, tmp_path / name))


def test_each_value_of_an_encoders_report_is_imported():
    run = only_run(FOLDER / "tiny_bert.json")
    (result,) = run.results
    values = raw_ms("tiny_bert.json", "forward")
    (samples,) = result.samples
    assert (samples.metric, samples.values) == ("latency_wall", tuple(values))
    assert result.metrics["latency_median_ms"] == pytest.approx(median(values), rel=1e-12)
    assert result.metrics["latency_mean_ms"] == pytest.approx(525.2873383336313, rel=1e-12)
    assert result.metrics["throughput_samples_per_sec"] == pytest.approx(3.8074399553292086)  # as the file states
    assert result.metrics["throughput_tokens_per_sec"] == pytest.approx(16 * 3.8074399553292086)
    assert result.metrics["first_call_ms"] == pytest.approx(678.6936569988029)
    assert result.metrics["load_model_s"] == pytest.approx(0.8034174350032117)
    assert result.metrics["memory_peak_rss_infer_mb"] == 471.805952
    assert result.metrics["memory_peak_rss_load_mb"] == 463.302656
    assert (result.point.label, result.iterations, result.warmup_iterations) == ("b2 s16", 6, 3)


def test_the_run_has_the_files_model_and_machine():
    run = only_run(FOLDER / "tiny_bert.json")
    assert (run.cell.workload.model_id, run.cell.workload.family) == ("bert-model", "encoder-only")
    assert (run.cell.workload.task, run.cell.runtime, run.cell.precision) == ("feature-extraction", "eager", "float32")
    assert (run.cell.device.type, run.cell.device.name, run.hardware.cpu_threads) == ("cpu", "AMD EPYC", 2)
    assert run.hardware.memory_bytes == 25_276_514_304
    assert run.provenance.versions == {
        "torch": "2.13.0+cpu",
        "python": "3.11.7",
        "optimum_benchmark": "0.6.0",
        "transformers": "4.57.6",
        "accelerate": "1.15.0",
    }
    assert run.origin.kept["config"]["environment"]["machine"] == "x86_64"


def test_generation_has_first_token_and_per_token_times():
    (result,) = only_run(FOLDER / "tiny_gpt2.json").results
    prefill, decode = raw_ms("tiny_gpt2.json", "prefill"), raw_ms("tiny_gpt2.json", "decode")
    assert result.point.label == "b2 s16 n8"
    assert result.metrics["latency_mean_ms"] == pytest.approx(354.87935166747775)
    assert result.metrics["time_to_first_token_ms"] == pytest.approx(median(prefill))
    assert result.metrics["time_per_output_token_ms"] == pytest.approx(median(decode) / 7)
    assert result.metrics["decode_tokens_per_sec"] == pytest.approx(50.75688448570549)  # as the file states
    assert result.metrics["throughput_tokens_per_sec"] == pytest.approx(2 * 8 / 0.35487935166747775)
    assert {samples.metric for samples in result.samples} == {
        "latency_wall",
        "time_to_first_token",
        "time_per_output_token",
    }


def test_known_faults_are_left_out_with_a_reason_or_have_a_doubt():
    run = only_run(FOLDER / "tiny_gpt2.json")
    (result,) = run.results
    assert result.missing["inter_token_latency_p50_ms"].startswith("not_supported: per_token.latency repeats")
    assert result.missing["first_call_ms"].startswith("not_supported: first_generate is the second call")
    assert len(run.origin.kept["report"]["per_token"]["latency"]["values"]) == 162
    doubt = next(doubt for doubt in result.doubts if doubt.kind == "mislabelled_throughput")
    assert doubt.evidence == {"value": 39.45002698584169, "stated_unit": "samples/s", "unit": "tokens/s"}


def test_a_negative_decode_makes_the_result_invalid(alone):
    path = alone("tiny_gpt2.json")
    data = json.loads(path.read_text())
    data["report"]["decode"]["latency"]["values"][0] = -0.001
    path.write_text(json.dumps(data))
    (result,) = only_run(path).results
    assert result.validity == "invalid"
    assert [doubt.evidence["min_ms"] for doubt in result.doubts if doubt.kind == "negative_time"] == [-1.0]


@pytest.mark.parametrize("name", ["tiny_bert", "tiny_gpt2"])
def test_the_flat_csv_is_the_same_as_the_json(alone, name):
    whole, flat = only_run(FOLDER / f"{name}.json"), only_run(alone(f"{name}.csv"))
    assert flat.results[0].metrics == whole.results[0].metrics
    assert [one.values for one in flat.results[0].samples] == [one.values for one in whole.results[0].samples]
    assert (flat.cell.runtime, flat.cell.precision, flat.hardware) == (
        whole.cell.runtime,
        whole.cell.precision,
        whole.hardware,
    )


def test_a_file_is_skipped_if_a_more_detailed_one_is_in_its_folder():
    for name in ("tiny_bert.csv", "tiny_bert_report.json", "tiny_bert_report.csv", "tiny_bert_config.json"):
        with pytest.raises(NoResultsError, match="only a configuration, or all its numbers are in another file"):
            list(PLUGIN.runs(read_file(FOLDER / name)))


def test_a_report_uses_the_configuration_in_its_folder(alone):
    report = alone("tiny_bert_report.json")
    alone("tiny_bert_config.json")
    run = only_run(report)
    assert (run.cell.workload.model_id, run.results[0].point.label) == ("bert-model", "b2 s16")


def test_a_report_alone_has_its_sizes_from_its_throughput(alone):
    run = only_run(alone("tiny_bert_report.json"))
    assert (run.cell.workload.model_id[:8], run.results[0].point.label) == ("unknown-", "b2")


def test_reports_of_older_versions_are_read():
    (result,) = only_run(FOLDER / "old_nested.json").results
    assert result.point.label == "b2 s16 n5"
    assert result.metrics["time_to_first_token_ms"] == pytest.approx(20.0)
    assert result.metrics["time_per_output_token_ms"] == pytest.approx(20.0)  # 80 ms over 4 tokens
    assert result.metrics["latency_median_ms"] == pytest.approx(100.0)  # decode was stored less the mean prefill


def test_the_first_versions_have_only_means():
    run = only_run(FOLDER / "inference_results.csv")
    (result,) = run.results
    assert result.metrics == {"latency_mean_ms": 500.0, "throughput_tokens_per_sec": 400.0}
    assert result.point.batch_size == 2  # 160 samples a second for 0.0125 s
    assert run.origin.kept["report"]["forward.peak_memory(MB)"] == "512"
    assert "latency_median_ms" not in result.metrics
    assert result.missing["latency_median_ms"] == "not_stated: the file does not say"
    assert result.samples == ()


def edited(path, edit):
    data = json.loads(path.read_text())
    edit(data)
    path.write_text(json.dumps(data))
    return path


def gpu(data):
    data["config"]["backend"]["device"] = "cuda"
    data["config"]["environment"] |= {
        "gpu": ["NVIDIA H100", "NVIDIA H100"],
        "gpu_count": 2,
        "gpu_vram_mb": 170_000_000_000,
    }


@pytest.mark.parametrize(
    ("device", "dtype", "allowed", "precision"),
    [
        ("cuda", "float32", True, "tf32"),
        ("cuda", "float32", False, "float32"),
        ("cuda", "float16", True, "float16"),
        ("cpu", "float32", True, "float32"),
    ],
)
def test_float32_that_may_be_rounded_to_tf32_is_tf32(alone, device, dtype, allowed, precision):
    def change(data):
        gpu(data)
        data["config"]["backend"] |= {"device": device, "torch_dtype": dtype, "allow_tf32": allowed}

    assert only_run(edited(alone("tiny_bert.json"), change)).cell.precision == precision


def test_gpu_vram_mb_is_in_bytes_and_of_all_gpus(alone):
    run = only_run(edited(alone("tiny_bert.json"), gpu))
    device = run.cell.device
    assert (device.type, device.name, device.count, device.memory_bytes) == ("cuda", "NVIDIA H100", 2, 85_000_000_000)
    assert "device_clock" in [doubt.kind for doubt in run.results[0].doubts]


def test_summed_memory_of_rocm_is_left_out(alone):
    def rocm(data):
        gpu(data)
        data["config"]["environment"]["gpu"] = ["AMD Instinct MI300X"]
        data["report"]["forward"]["memory"] |= {"max_process_vram": 9e9, "max_allocated": 512.5}

    (result,) = only_run(edited(alone("tiny_bert.json"), rocm)).results
    assert "memory_device_process_peak_mb" not in result.metrics
    assert result.missing["memory_device_process_peak_mb"].startswith("not_supported: on ROCm")
    assert result.metrics["memory_device_allocated_peak_mb"] == 512.5


def test_energy_is_in_joules_and_has_a_doubt(alone):
    def energy(data):
        data["report"]["forward"]["energy"] = {"unit": "kWh", "cpu": 1e-6, "ram": 2e-6, "gpu": None, "total": 3e-6}

    (result,) = only_run(edited(alone("tiny_bert.json"), energy)).results
    assert result.metrics["energy_cpu_pkg_j_per_call"] == pytest.approx(3.6)
    assert result.metrics["energy_dram_j_per_call"] == pytest.approx(7.2)
    assert "estimated_energy" in [doubt.kind for doubt in result.doubts]


def test_the_energy_of_a_call_is_that_of_its_two_parts_in_versions_that_store_these_alone(alone):
    def energy(data):
        del data["report"]["generate"]
        data["report"]["prefill"]["energy"] = {"unit": "kWh", "cpu": 3e-6, "gpu": 1e-6, "ram": None}
        data["report"]["decode"]["energy"] = {"unit": "kWh", "cpu": -1e-6, "gpu": -2e-6, "ram": 1e-6}

    (result,) = only_run(edited(alone("tiny_gpt2.json"), energy)).results
    found = {name: value for name, value in result.metrics.items() if name.startswith("energy")}
    assert found == {"energy_cpu_pkg_j_per_call": pytest.approx(7.2)}  # no part of the others is left out
    assert "estimated_energy" in [doubt.kind for doubt in result.doubts]


def test_a_benchmark_with_a_traceback_in_the_place_of_numbers_failed_for_its_last_line(alone):
    def fail(data):
        data["report"] = {"traceback": 'Traceback (most recent call last):\n  File "x"\nOutOfMemoryError: CUDA\n'}

    run = only_run(edited(alone("tiny_gpt2.json"), fail))
    (result,) = run.results
    assert (run.status, result.status, result.error) == ("failed", "failed", "OutOfMemoryError: CUDA")
    assert result.point.label == only_run(alone("tiny_gpt2.json")).results[0].point.label


@pytest.mark.parametrize(
    ("fields", "precision"),
    [
        ({"torch_dtype": "bfloat16"}, "bfloat16"),
        ({"torch_dtype": "float8_e4m3fn"}, "float8_e4m3"),
        ({"torch_dtype": "float8_e5m2"}, "other"),
        ({"quantization_scheme": "gptq"}, "other"),
        ({"autocast_enabled": True, "autocast_dtype": "float16"}, "float16"),
        ({"name": "onnxruntime"}, "unknown"),
        ({"name": "openvino", "load_in_4bit": True}, "int4"),
        ({"name": "tensorrt-llm", "dtype": "float16"}, "float16"),
        ({"name": "vllm", "engine_args": {"dtype": "bfloat16"}}, "bfloat16"),
        ({"name": "vllm", "engine_args": {"quantization": "fp8"}}, "other"),
        ({"name": "py-txi", "quantize": "awq"}, "other"),
    ],
)
def test_precision_comes_from_the_configuration(alone, fields, precision):
    path = edited(alone("tiny_bert.json"), lambda data: data["config"]["backend"].update(fields))
    assert only_run(path).cell.precision == precision


@pytest.mark.parametrize(
    ("device", "precision", "mode"),
    [("cuda", "float16", {"autocast": "float16"}), ("cpu", "float32", {"autocast": True})],
)
def test_autocast_without_a_stated_dtype_is_that_of_torch(alone, device, precision, mode):
    fields = {"device": device, "autocast_enabled": True, "autocast_dtype": None}
    cell = only_run(edited(alone("tiny_bert.json"), lambda data: data["config"]["backend"].update(fields))).cell
    assert (cell.precision, cell.runtime_mode) == (precision, mode)


@pytest.mark.parametrize(
    ("backend", "scenario", "mode"),
    [
        ({"name": "llama_cpp", "filename": "/models/x.Q4_K_M.gguf"}, {}, {"filename": "x.Q4_K_M.gguf"}),
        ({"name": "vllm", "serving_mode": "offline", "engine_args": {"enforce_eager": True, "download_dir": "/d"}}, {},
         {"engine_args": '{"enforce_eager": true}'}),
        ({"name": "vllm", "serving_mode": "online"}, {}, {"serving_mode": "online"}),
        ({"name": "tensorrt-llm", "tp": 4, "pp": 1, "world_size": 4, "use_cuda_graph": True}, {},
         {"tp": 4, "use_cuda_graph": True}),
        ({"name": "py-txi", "volumes": {"/me": "/data"}, "environment": ["HF_TOKEN=x"], "speculate": 3}, {},
         {"speculate": 3}),
        ({"name": "of_next_year", "seed": 1, "hub_token": "x", "a_new_setting": 2}, {}, {"a_new_setting": 2}),
        ({"inter_op_num_threads": 16, "eval_mode": False}, {}, {"inter_op_num_threads": 16, "eval_mode": False}),
        ({"hub_kwargs": {"revision": "main", "force_download": False}}, {}, {}),
        ({"name": "vllm", "engine_args": {"max_lora_rank": 64, "rank": 1}}, {},
         {"engine_args": '{"max_lora_rank": 64}'}),
        ({}, {"generate_kwargs": {"num_beams": 4, "max_new_tokens": 8, "use_cache": False}},
         {"num_beams": 4, "use_cache": False}),
        ({}, {"generate_kwargs": {"num_beams": 1, "num_return_sequences": 1, "do_sample": False, "use_cache": True},
              "call_kwargs": {"guidance_scale": 7.5, "num_images_per_prompt": 1}}, {"guidance_scale": 7.5}),
    ],
)  # fmt: skip
def test_every_setting_of_backend_and_calls_is_part_of_the_series(alone, backend, scenario, mode):
    def change(data):
        data["config"]["backend"].update(backend)
        data["config"]["scenario"].update(scenario)

    assert only_run(edited(alone("tiny_bert.json"), change)).cell.runtime_mode == mode


def test_training_is_refused(alone):
    path = edited(alone("tiny_bert.json"), lambda data: data["report"].update(train=data["report"]["forward"]))
    with pytest.raises(FormatError, match=r"report\.train: training is not supported: only inference is imported"):
        only_run(path)


def test_an_invalid_value_is_refused_with_its_path(alone):
    def break_it(data):
        data["report"]["forward"]["latency"]["values"][2] = "fast"

    with left_out(r"report\.forward\.latency\.values\[2\]: expected a number, found 'fast'"):
        only_run(edited(alone("tiny_bert.json"), break_it))


def test_the_full_report_of_the_first_versions_states_batch_and_device():
    exported, eager = PLUGIN.runs(read_file(FOLDER / "first_versions.csv"))
    assert [run.results[0].point.label for run in (exported, eager)] == ["b128 s256", "b2048 s256"]
    assert [run.results[0].metrics["latency_mean_ms"] for run in (exported, eager)] == [
        pytest.approx(58.4),
        pytest.approx(6340.0),
    ]
    assert (exported.cell.runtime, eager.cell.runtime, eager.cell.precision) == ("onnxruntime", "eager", "float32")
    device = eager.cell.device
    assert (device.type, device.name, device.count) == ("cuda", "NVIDIA A100-SXM4-80GB", 4)
    assert eager.cell.workload.model_id == "BAAI/bge-base-en-v1.5"
    assert eager.provenance.versions["transformers"] == "4.34.0.dev0"
    # A path of one machine and the number of a device are no settings, but are kept.
    provider = {"trt_engine_cache_enable": "True", "trt_fp16_enable": "True"}
    assert json.loads(exported.cell.runtime_mode["provider_options"]) == provider
    options = exported.origin.kept["config"]["backend"]["provider_options"]
    assert (options["trt_engine_cache_path"], options["device_id"]) == ("tmp/trt_cache", "0")


def test_a_quantized_model_of_the_first_versions_is_not_the_unquantized_one(tmp_path):
    header, *rows = (FOLDER / "first_versions.csv").read_text().splitlines()
    columns = ",backend.quantization_strategy,backend.quantization_config.load_in_4bit"
    path = tmp_path / "full_report.csv"
    path.write_text("\n".join([header + columns, rows[1] + ",bnb,True", rows[1] + ",,"]))
    quantized, plain = PLUGIN.runs(read_file(path))
    assert (quantized.cell.precision, plain.cell.precision) == ("other", "float32")
    assert quantized.cell.runtime_mode["quantization_strategy"] == "bnb"


def test_an_ambiguous_batch_size_is_not_guessed(tmp_path):
    path = tmp_path / "inference_results.csv"
    path.write_text(",forward.latency(s),forward.throughput(samples/s),forward.peak_memory(MB)\n0,1.2,1710.0,44135\n")
    with pytest.raises(FormatError, match=r"line 2\.report: no batch size"):
        list(PLUGIN.runs(read_file(path)))
    config = "backend: {name: pytorch}\nmodel: gpt2\ntask: text-generation\ndevice: cpu\n"
    (tmp_path / "hydra_config.yaml").write_text(config + "benchmark: {input_shapes: {batch_size: 2048}}\n")
    (run,) = PLUGIN.runs(read_file(path))
    assert (run.results[0].point.batch_size, run.cell.workload.model_id) == (2048, "gpt2")


def test_a_report_in_markdown_has_its_stated_statistics(alone):
    (result,) = only_run(alone("printed.md")).results
    assert result.point.label == "b1 n64"  # from throughput times mean latency
    assert result.iterations == 10
    found = result.metrics
    assert (found["time_to_first_token_ms"], found["time_to_first_token_mean_ms"]) == pytest.approx((26.455, 26.585))
    assert (found["decode_ms"], found["time_per_output_token_ms"]) == pytest.approx((1614.062, 1614.062 / 63))
    assert found["decode_tokens_per_sec"] == pytest.approx(38.82, rel=1e-3)  # as the report states
    assert found["latency_mean_ms"] == pytest.approx(1622.815 + 26.585)
    assert (found["load_model_s"], found["memory_device_allocated_peak_mb"]) == (20.028271, 16089.67)
    assert (found["stated_time_to_first_token_p90_ms"], found["time_to_first_token_std_ms"]) == (26.871, 0.425)
    assert "prefill and decode" in result.missing["latency_median_ms"]


def test_a_report_is_read_between_the_messages_of_a_log(alone):
    path = alone("printed.md")
    plain = only_run(path).results
    path.write_text(path.read_text().replace("\n", "\n[INFO] a message\n"))
    assert PLUGIN.recognises(read_file(path))
    assert [one.metrics for one in only_run(path).results] == [one.metrics for one in plain]


LINES = """\
[M][2025-03-07 05:26:18,818][process][INFO] - \t+ Received report from isolated process
[M][2025-03-07 05:26:18,827][report][INFO] - + forward:
[M][2025-03-07 05:26:18,827][report][INFO] - \t+ latency:
[M][2025-03-07 05:26:18,828][report][INFO] - \t\t+ count: 100
[M][2025-03-07 05:26:18,828][report][INFO] - \t\t+ mean: 0.026585 (s)
warning: a line of another program
[M][2025-03-07 05:26:18,828][report][INFO] - \t\t+ p50: 0.026455 (s)
[M][2025-03-07 05:26:18,828][report][INFO] - \t+ throughput:
[M][2025-03-07 05:26:18,828][report][INFO] - \t\t+ throughput: 75.23 (samples/s)
"""


def test_a_report_in_a_log_is_read_with_its_date(tmp_path):
    (tmp_path / "benchmark.log").write_text(LINES + LINES)
    first, second = PLUGIN.runs(read_file(tmp_path / "benchmark.log"))
    assert first.results[0].metrics == second.results[0].metrics
    assert first.results[0].metrics["latency_median_ms"] == 26.455
    assert first.results[0].metrics["throughput_samples_per_sec"] == 75.23
    assert first.results[0].point.batch_size == 2
    assert first.started_at == "2025-03-07T05:26:18+00:00"


def test_a_printed_report_beside_its_json_is_passed_over(tmp_path):
    report = {"forward": {"latency": {"unit": "s", "values": [0.02, 0.03], "mean": 0.025}}}
    (tmp_path / "benchmark_report.json").write_text(json.dumps(report))
    printed = "+ forward:\n\t+ latency:\n\t\t+ count: 2\n\t\t+ mean: 0.025000 (s)\n"
    for name in ("benchmark_report.txt", "benchmark.log"):
        (tmp_path / name).write_text(printed)
        with pytest.raises(NoResultsError):
            only_run(tmp_path / name)


def test_gpus_are_those_that_the_benchmark_could_use(tmp_path):
    data = json.loads((FOLDER / "tiny_bert.json").read_text())
    data["config"]["backend"] |= {"device": "cuda", "device_ids": "1"}
    data["config"]["environment"] |= {"gpu": ["DGX Display", "A100", "A100"], "gpu_count": 3, "gpu_vram_mb": 10**11}
    (tmp_path / "benchmark.json").write_text(json.dumps(data))
    device = only_run(tmp_path / "benchmark.json").cell.device
    assert (device.name, device.count) == ("A100", 1)


@pytest.mark.parametrize(
    ("backend", "shapes", "axes"),
    [
        ({}, {"num_choices": 2, "vocab_size": 99, "num_channels": 3}, {}),
        ({"task": "multiple-choice"}, {"num_choices": 4}, {"num_choices": 4}),
        ({"model_type": "wav2vec2", "task": "automatic-speech-recognition"}, {}, {"audio_samples": 16}),
        ({"model_type": "whisper", "task": "automatic-speech-recognition"}, {"nb_max_frames": 3000}, None),
        ({}, {"num_channels": 1}, {"num_channels": 1}),
    ],
)
def test_further_sizes_of_inputs_are_axes(edited, backend, shapes, axes):
    def sized(data):
        data["config"]["backend"] |= backend
        data["config"]["scenario"]["input_shapes"] |= shapes

    point = only_run(edited(FOLDER / "tiny_bert.json", sized)).results[0].point
    assert point.axes == ({"nb_max_frames": 3000, "audio_samples": 16} if axes is None else axes)


def test_the_revision_and_the_binding_of_the_launcher_tell_runs_apart(edited):
    def changed(data):
        data["config"]["backend"]["model_kwargs"] = {"revision": "abc"}
        data["config"]["launcher"] |= {"numactl": True, "numactl_kwargs": {"cpunodebind": 0}}

    cell = only_run(edited(FOLDER / "tiny_bert.json", changed)).cell
    plain = only_run(FOLDER / "tiny_bert.json").cell
    assert (cell.workload.revision, plain.workload.revision) == ("abc", None)
    assert cell.runtime_mode == {**plain.runtime_mode, "numactl": True, "numactl_kwargs": '{"cpunodebind": 0}'}

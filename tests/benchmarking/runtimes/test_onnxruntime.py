"""The runtime onnxruntime: what it supports, and a tiny model in a process without torch."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.records import Cell, Device, Point, Readings, Workload, to_json
from benchmarking.devices import cpu, cuda, mps, openvino, rocm
from benchmarking.runtimes.onnxruntime import PLUGIN, at_sizes
from benchmarking.runtimes.support.onnxruntime import ort_runtime
from benchmarking.workloads.support.resolve import resolve

CPU = Device(type="cpu", selector="cpu", found=True, name="Test CPU", precisions=cpu.PRECISIONS)
GPU = Device(type="cuda", selector="cuda:0", found=True, name="Test GPU")
INTEL = Device(type="openvino", selector="openvino:GPU.1", found=True, name="Intel(R) Arc(TM) A770 Graphics (dGPU)")
POINT = Point(batch_size=2, sequence_length=16)


@pytest.fixture
def bert() -> Workload:
    return resolve("tiny-bert")


@pytest.fixture
def gpt2() -> Workload:
    return resolve("tiny-gpt2")


@pytest.fixture
def built_with(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def set_providers(*names):
        monkeypatch.setattr("onnxruntime.get_available_providers", lambda: [*names, "CPUExecutionProvider"])

    return set_providers


def test_contracts_are_kept():
    assert PLUGIN.prepares
    assert PLUGIN.mode_at("int8", {}) == {"quantization": "dynamic"}
    assert PLUGIN.needs_no_torch
    assert PLUGIN.is_compared


@pytest.mark.parametrize(
    ("plugin", "device", "names"),
    [
        (cpu, CPU, ["CPUExecutionProvider"]),
        (cuda, GPU, ["CUDAExecutionProvider", "DmlExecutionProvider"]),
        (rocm, GPU, ["MIGraphXExecutionProvider", "ROCMExecutionProvider"]),
        (mps, GPU, ["CoreMLExecutionProvider"]),
        (openvino, INTEL, ["OpenVINOExecutionProvider", "DmlExecutionProvider"]),
        (openvino, dataclasses.replace(INTEL, selector="openvino:NPU"), ["OpenVINOExecutionProvider"]),
    ],
)
def test_each_device_lists_its_providers_by_preference(plugin, device, names):
    assert [provider.name for provider in plugin.PLUGIN.ort_providers(device)] == names


def test_tf32_is_off_by_default():
    options = cuda.ORT_PROVIDER.options_at
    assert options("float32") == {"device_id": "0", "use_tf32": "0"}
    assert options("tf32") == {"device_id": "0", "use_tf32": "1"}


def test_the_openvino_provider_gets_device_and_precision():
    provider, _ = openvino.PLUGIN.ort_providers(INTEL)
    assert provider.options_at("float16") == {"device_type": "GPU.1", "precision": "FP16"}
    assert provider.options_at("float32") == {"device_type": "GPU.1", "precision": "FP32"}


def test_compatible_combinations_are_supported(bert):
    for precision in ("float32", "float16", "int8", "int4"):
        assert PLUGIN.supports(CPU, bert, precision) is None


def test_float16_on_a_cpu_without_native_support_is_refused(bert):
    def cpu_with(*native):
        return dataclasses.replace(CPU, facts=Readings(values={"native_precisions": list(native)}))

    why = PLUGIN.supports(cpu_with("float32", "int8"), bert, "float16")
    assert why == "ONNX Runtime converts float16 to float32 on this CPU, which does not compute at it"
    assert PLUGIN.supports(cpu_with("float32", "float16"), bert, "float16") is None
    assert PLUGIN.supports(cpu_with("float32"), bert, "int8") is None


def test_bfloat16_on_the_cpu_is_refused_with_the_reason(bert):
    why = PLUGIN.supports(CPU, bert, "bfloat16")
    assert why == "CPUExecutionProvider has no kernels for bfloat16"
    assert "NVIDIA's tensor cores" in (PLUGIN.supports(CPU, bert, "tf32") or "")


def test_a_build_without_the_provider_is_refused_with_its_install_command(bert, built_with):
    built_with()
    why = PLUGIN.supports(GPU, bert, "float32")
    assert "cuda:0 needs ONNX Runtime with CUDAExecutionProvider " in why
    assert ": pip install 'onnxruntime-gpu[cuda,cudnn]'. Found: " in why
    assert why.endswith("with CPUExecutionProvider")
    built_with("CUDAExecutionProvider")
    assert PLUGIN.supports(GPU, bert, "tf32") is None
    assert PLUGIN.supports(GPU, bert, "bfloat16").startswith("graphs are exported at ")


def test_older_amd_provider_is_used_without_the_newer_one(built_with):
    amd = Device(type="rocm", selector="rocm:0", found=True)
    built_with("ROCMExecutionProvider")
    assert ort_runtime.provider_of(amd).name == "ROCMExecutionProvider"
    built_with("MIGraphXExecutionProvider", "ROCMExecutionProvider")
    assert ort_runtime.provider_of(amd).name == "MIGraphXExecutionProvider"


def test_non_default_provider_is_part_of_the_mode(bert, built_with):
    amd = Device(type="rocm", selector="rocm:0", found=True)
    built_with("MIGraphXExecutionProvider", "ROCMExecutionProvider")
    assert "provider" not in PLUGIN.mode(amd, bert, {"provider": "migraphx"})
    assert PLUGIN.mode(amd, bert, {"provider": "rocm"})["provider"] == "rocm"
    built_with("ROCMExecutionProvider")
    assert PLUGIN.mode(amd, bert, {})["provider"] == "rocm"
    with pytest.raises(UnsupportedError, match="provider 'cuda': ONNX Runtime has migraphx, rocm for rocm:0"):
        PLUGIN.mode(amd, bert, {"provider": "cuda"})


def test_a_device_without_a_provider_is_refused(bert):
    null = Device(type="null", selector="null", found=True)
    assert PLUGIN.supports(null, bert, "float32") == "ONNX Runtime has no provider for null"
    with pytest.raises(UnsupportedError, match="no provider for null"):
        ort_runtime.provider_of(null)


def test_the_mode_is_complete_and_has_the_memory_of_inputs_and_outputs(bert, gpt2, built_with):
    built_with("CUDAExecutionProvider", "CoreMLExecutionProvider")
    assert PLUGIN.mode(CPU, bert, {}) == {"io_mode": "host"}
    assert PLUGIN.mode(GPU, bert, {}) == {"io_mode": "device"}
    assert PLUGIN.mode(GPU, bert, {"io_mode": "host"}) == {"io_mode": "host"}
    assert PLUGIN.mode(CPU, gpt2, {}) == {"io_mode": "host", "cache": "dynamic"}
    apple = Device(type="mps", selector="mps", found=True)
    assert PLUGIN.mode(apple, bert, {}) == {"io_mode": "host"}
    with pytest.raises(UsageError, match="cannot bind to the memory of mps"):
        PLUGIN.mode(apple, bert, {"io_mode": "device"})


@pytest.mark.parametrize(
    "options", [{"attention": "sdpa"}, {"io_mode": "gpu"}, {"cache": "dynamic"}, {"quantization": "static"}]
)
def test_options_it_does_not_have_are_refused(bert, options):
    with pytest.raises(UsageError):
        PLUGIN.mode(CPU, bert, options)


def test_quantization_is_named_where_there_is_one():
    mode = {"io_mode": "host"}
    assert PLUGIN.mode_at("float32", mode) == mode
    assert PLUGIN.mode_at("int8", mode) == {**mode, "quantization": "dynamic"}
    assert PLUGIN.mode_at("int4", mode) == {**mode, "quantization": "weight-only"}
    with pytest.raises(UsageError, match="int8 uses dynamic quantization"):
        PLUGIN.mode_at("int8", {**mode, "quantization": "weight-only"})
    with pytest.raises(UsageError, match="float16 is not quantized"):
        PLUGIN.mode_at("float16", {**mode, "quantization": "dynamic"})


def test_quantization_of_a_given_file_is_the_files_own(bert, built_with):
    """A product of packed weights takes 8-bit activations or floats, whatever the bits of its weights."""
    built_with("CUDAExecutionProvider")
    given = dataclasses.replace(bert, source="file", config={**bert.config, "activations": "int8"})
    for device, precision, method in ((CPU, "int4", "dynamic"), (CPU, "int8", "dynamic"), (GPU, "int4", "weight-only")):
        mode = PLUGIN.mode_at(precision, PLUGIN.mode(device, given, {}))
        assert mode == {"io_mode": mode["io_mode"], "quantization": method}
    given = dataclasses.replace(bert, source="file", config={**bert.config, "activations": "float"})
    assert PLUGIN.mode_at("int8", PLUGIN.mode(CPU, given, {}))["quantization"] == "weight-only"
    with pytest.raises(UsageError, match="int8 uses weight-only quantization"):
        PLUGIN.mode_at("int8", PLUGIN.mode(CPU, given, {"quantization": "dynamic"}))


def test_captured_graphs_are_for_one_forward_pass_on_a_provider_that_captures(bert, gpt2, built_with):
    built_with("CUDAExecutionProvider", "MIGraphXExecutionProvider")
    mode = PLUGIN.mode(GPU, bert, {"cuda_graph": "on"})
    assert mode == {"io_mode": "device", "cuda_graph": "on"}
    assert (PLUGIN.runs_at_once(mode), PLUGIN.runs_at_once({"io_mode": "device"})) == (False, True)
    assert PLUGIN.mode(GPU, bert, {"cuda_graph": "off", "fusion": "none"}) == {"io_mode": "device"}
    with pytest.raises(UsageError, match="single forward passes, not text-generation, whose shapes grow"):
        PLUGIN.mode(GPU, gpt2, {"cuda_graph": "on"})
    with pytest.raises(UsageError, match="fixed addresses in device memory: use --io-mode device"):
        PLUGIN.mode(GPU, bert, {"cuda_graph": "on", "io_mode": "host"})
    with pytest.raises(UsageError, match="MIGraphXExecutionProvider cannot capture CUDA graphs"):
        PLUGIN.mode(Device(type="rocm", selector="rocm:0", found=True), bert, {"cuda_graph": "on"})


def test_waiting_for_the_device_once_is_refused_with_the_reason(gpt2):
    with pytest.raises(UsageError, match="token_sync 'end': ONNX Runtime waits for the device after every"):
        PLUGIN.mode(CPU, gpt2, {"token_sync": "end"})


def test_sessions_of_captured_graphs_have_fixed_sizes_and_the_providers_option():
    settings = ort_runtime.SessionSettings(
        provider=cuda.ORT_PROVIDER, precision="float32", num_threads=1, is_replayed=True
    )
    assert settings.provider_options["enable_cuda_graph"] == "1"
    assert at_sizes(settings, {"batch": 2}).dimensions == {"batch": 2}
    assert "enable_cuda_graph" not in dataclasses.replace(settings, is_replayed=False).provider_options


MEASURE = """
import json, sys
from contextlib import nullcontext
import benchmarking.sweep.run.worker
from benchmarking.core import plugins
from benchmarking.core.records import Cell, Point, from_json
cell, point = (from_json(kind, fields, "argument") for kind, fields in zip((Cell, Point), json.loads(sys.argv[1])))
runtime = plugins.load("benchmarking.runtimes", cell.runtime)
runtime.import_libraries()
handle = plugins.load("benchmarking.devices", "cpu").open(cell.device)
session = runtime.open(cell, handle, lambda name: nullcontext(), (point,))
operation = session.operation(point)
output = operation.run(lambda name: None)
report = {"problem": operation.problem(output), "output": operation.arrays(output)["last_hidden_state"].tolist()}
report |= {"session": dict(session.verified), "operation": dict(operation.verified())}
report["heavy"] = sorted({"torch", "transformers", "onnx"} & set(sys.modules))
print(json.dumps(report))
"""


@pytest.fixture(scope="module")
def measured(build_cache: Path) -> tuple[Mapping[str, Any], dict[str, Any]]:
    """tiny-bert exported here and called in a separate process, as in a sweep."""
    from benchmarking.builds.store import BuildStore

    cell = Cell(
        workload=resolve("tiny-bert"),
        device=CPU,
        requested_device="cpu",
        runtime="onnxruntime",
        runtime_mode={"io_mode": "host"},
        num_threads=2,
    )
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BENCHHOUSE_CACHE_DIR", str(build_cache))
        facts = PLUGIN.prepare(cell, (POINT,), BuildStore(), "if_needed")
        argument = json.dumps([to_json(cell), to_json(POINT)])
        command = [sys.executable, "-c", MEASURE, argument]
        done = subprocess.run(command, capture_output=True, text=True, env=dict(os.environ), check=False)
    assert done.returncode == 0, done.stderr
    return facts, json.loads(done.stdout)


def test_measuring_process_imports_no_torch(measured):
    assert measured[1]["heavy"] == []


def test_the_settings_and_nodes_of_a_session_are_read_back(measured):
    facts, report = measured
    session = report["session"]
    assert facts["kind"] == "onnx"
    assert session["providers"] == ["CPUExecutionProvider"]
    assert (session["num_threads"], session["io_mode"]) == (2, "host")
    assert session["parameters_by_dtype"]["float32"] > 200_000
    assert session["model_size_bytes"] > 4 * session["parameters_by_dtype"]["float32"]
    assert report["operation"]["nodes_on_cpu_unasked"] == 0
    assert report["operation"]["compute_types"].keys() == {"float"}


def test_the_output_is_the_eager_models(measured, open_eager):
    import numpy as np

    operation = open_eager("tiny-bert").operation(POINT)
    expected = operation.arrays(operation.run(lambda name: None))["last_hidden_state"]
    assert measured[1]["problem"] is None
    assert np.abs(np.array(measured[1]["output"]) - expected).max() < 1e-4


@pytest.mark.slow
@pytest.mark.forked_children
def test_requests_in_flight_share_one_session(build_cache, monkeypatch, capsys):
    from benchmarking.run_hardware_benchmark import main

    monkeypatch.setenv("BENCHHOUSE_CACHE_DIR", str(build_cache))
    # Calls of 10 ms: on a busy machine the gaps between shorter ones would take longer than what overlaps.
    grid = ["--batch-sizes", "2", "--sequence-lengths", "512", "--concurrency", "1,3", "--num-threads", "1"]
    calls = ["--iterations", "30", "--warmup-iterations", "3", "--launches", "1", "--quiet", "--json"]
    command = ["--model-id", "tiny-bert", "--weights", "random", "--device", "cpu", "--runtime", "onnxruntime"]
    assert main([*command, *grid, *calls]) == 0
    (record,) = json.loads(capsys.readouterr().out)
    alone, together = record["results"]
    assert (alone["point"]["concurrency"], together["point"]["concurrency"]) == (1, 3)
    launch = together["extra"]["launches"][0]
    measured = [samples for samples in together["samples"] if samples["phase"] == "measure"]
    (wall,) = [samples["values"] for samples in measured if samples["metric"] == "latency_wall"]
    assert len(wall) == together["iterations"] == 30
    assert together["metrics"]["throughput_samples_per_sec"] == pytest.approx(2 * 30 / launch["requests_wall_ms"] * 1e3)
    assert launch["requests_wall_ms"] < sum(wall)  # some ran at the same time
    assert (launch["verified"]["requests"], launch["verified"]["requests_agree"]) == (3, True)
    assert together["metrics"]["output_error"] < 1e-5

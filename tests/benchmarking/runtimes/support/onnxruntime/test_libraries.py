"""The libraries of NVIDIA's providers in the installed ONNX Runtime: what they link, the options that they accept, and
why they do not load here."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from benchmarking.core.child_process import OWN_PYTHON, environment, run_program
from benchmarking.core.errors import BenchhouseError, UnsupportedError
from benchmarking.core.records import Cell, Device, Precision, Readings
from benchmarking.devices import cuda
from benchmarking.runtimes import tensorrt
from benchmarking.runtimes.support.onnxruntime import ort_runtime
from benchmarking.workloads.support.resolve import resolve
from tests.helpers.nvidia_stubs import PARSED, build_stubs, needed

HAS_WHEEL = ort_runtime.provider_library("tensorrt") is not None and sys.platform == "linux"
NVIDIA_WHEEL = pytest.mark.skipif(not HAS_WHEEL, reason="onnxruntime-gpu for Linux is not installed")
GPU = Device(type="cuda", selector="cuda:0", found=True, name="Test GPU", driver="580.1")

OPEN = """
import json, sys, onnxruntime
path, name, options = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
onnxruntime.InferenceSession(path, providers=[(name, options), ("CPUExecutionProvider", {})], enable_fallback=0)
"""

PRINTED = """\
\x1b[0;93m2026-11-22 15:52:34.419 [W:onnxruntime:Default, onnxruntime_pybind_state.cc:856 operator()] No registered \
plugin EP device found for 'CUDAExecutionProvider' with device_id=0\x1b[m
\x1b[1;31m2026-11-22 15:52:34.419 [E:onnxruntime:Default, provider_bridge_ort.cc:2458 operator()] \
/onnxruntime_src/onnxruntime/core/session/provider_bridge_ort.cc:2043 onnxruntime::Provider& \
onnxruntime::ProviderLibrary::Get() [ONNXRuntimeError] : 1 : FAIL : Failed to load library \
/venv/onnxruntime/capi/libonnxruntime_providers_cuda.so with error: libcublasLt.so.13: cannot open shared object file: \
No such file or directory
\x1b[m
\x1b[0;93m2026-11-22 15:52:34.419 [W:onnxruntime:Default, onnxruntime_pybind_state.cc:1295 \
CreateExecutionProviderFactoryInstance] Failed to create CUDAExecutionProvider. Require cuDNN 9.* and CUDA 13.*. \
Please install all dependencies as mentioned in the GPU requirements page\x1b[m
"""
"""Printed by onnxruntime-gpu 1.31.1 on a machine without CUDA."""


@pytest.fixture(scope="module")
def stubs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("stubs")
    found = [ort_runtime.provider_library(name) for name in ("cuda", "tensorrt")]
    build_stubs(folder, tuple(path for path in found if path is not None))
    return folder


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    value = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [1]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Identity", ["x"], ["y"])], "g", value[:1], value[1:])
    path = tmp_path_factory.mktemp("model") / "model.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))
    return path


def answer_of(stubs: Path, model: Path, name: str, options: dict[str, str]) -> str:
    """The real provider's option parser: `PARSED`, or its error."""
    found = environment({"LD_LIBRARY_PATH": str(stubs)})
    done = run_program((*OWN_PYTHON, "-c", OPEN, str(model), name, json.dumps(options)), env=found, limit_s=60)
    return done.stdout + done.stderr


def engine_options(folder: Path, precision: Precision) -> dict[str, str]:
    cell = Cell(
        workload=resolve("tiny-bert"), device=GPU, requested_device="cuda:0", runtime="tensorrt", precision=precision
    )
    return tensorrt.engine_settings(cell, {"batch": 2}, folder).provider_options


@NVIDIA_WHEEL
@pytest.mark.parametrize("precision", tensorrt.PRECISIONS)
def test_the_providers_own_parser_accepts_the_options_of_engines(stubs, model, tmp_path, precision):
    options = engine_options(tmp_path / "builds" / "tensorrt" / "a", precision)
    assert answer_of(stubs, model, tensorrt.PROVIDER, options).strip() == PARSED


@NVIDIA_WHEEL
def test_provider_parser_refuses_values_of_other_providers(stubs, model):
    """The fakes reach the real parser, which names the key and the accepted values."""
    said = answer_of(stubs, model, tensorrt.PROVIDER, {"trt_timing_cache_enable": "1"})
    assert "'trt_timing_cache_enable' should be 'True' or 'False'" in said
    assert PARSED not in said


@NVIDIA_WHEEL
@pytest.mark.parametrize("precision", ["float32", "tf32"])
def test_the_parser_of_cuda_accepts_its_options(stubs, model, precision):
    assert PARSED in answer_of(stubs, model, cuda.ORT_PROVIDER.name, cuda.ORT_PROVIDER.options_at(precision))
    refused = answer_of(stubs, model, cuda.ORT_PROVIDER.name, {"use_tf32": "sometimes"})
    assert 'Failed to parse provider option "use_tf32"' in refused


@NVIDIA_WHEEL
@pytest.mark.parametrize("provider", ["cuda", "tensorrt"])
def test_linked_versions_are_those_of_the_library_itself(provider):
    names = needed(ort_runtime.provider_library(provider))
    versions = {name.partition(".so.")[0]: int(name.partition(".so.")[2]) for name in names}
    assert ort_runtime.linked(provider) == ort_runtime.Linked(
        cuda=versions["libcudart"], tensorrt=versions.get("libnvinfer")
    )
    from onnxruntime.capi import build_and_package_info

    assert str(versions["libcudart"]) == build_and_package_info.cuda_version.partition(".")[0]


@pytest.mark.parametrize(
    ("content", "expected", "package"),
    [
        (b"\0libcublas.so.13\0libnvinfer.so.10\0libcudart.so.13\0", (13, 10), "'tensorrt-cu13>=10,<11'"),
        (b"\0nvinfer_10.dll\0cudart64_12.dll\0", (12, 10), "'tensorrt-cu12>=10,<11'"),
        (b"\0libnvinfer_plugin.so.8\0", (None, None), "tensorrt"),
    ],
)
def test_versions_are_read_from_elf_files_and_dlls(tmp_path, content, expected, package):
    (tmp_path / "library").write_bytes(content)
    found = ort_runtime.linked_by(tmp_path / "library")
    assert (found.cuda, found.tensorrt) == expected
    assert found.tensorrt_package == package


@pytest.mark.parametrize(("version", "is_usable"), [("10.13.3.9", True), ("11.4.0.106", False), (None, False)])
def test_another_major_version_of_tensorrt_counts_as_missing(version, is_usable):
    why_not = tensorrt._why_not_installed(version, ort_runtime.Linked(cuda=13, tensorrt=10))
    assert (why_not is None) == is_usable
    if why_not is not None:
        assert why_not.endswith("on a machine with an NVIDIA GPU, pip install 'tensorrt-cu13>=10,<11'")
        assert (version or "not installed") in why_not


def test_driver_older_than_the_linked_cuda_is_refused_in_the_plan(monkeypatch):
    monkeypatch.setattr(ort_runtime, "linked", lambda provider: ort_runtime.Linked(cuda=13))

    def gpu(version: str) -> Device:
        facts = Readings(values={"cuda_driver_version": version})
        return Device(type="cuda", selector="cuda:0", found=True, name="Test GPU", driver="550.54", facts=facts)

    why_not = ort_runtime.built_provider(gpu("12.4"), cuda.PLUGIN.ort_providers(GPU))
    assert why_not == (
        "onnxruntime-gpu needs CUDA 13; driver 550.54 of cuda:0 supports CUDA 12.4: update the NVIDIA driver, or "
        "install an onnxruntime-gpu for CUDA 12"
    )
    assert ort_runtime.why_not_driver(gpu("13.0"), "cuda") is None
    assert ort_runtime.why_not_driver(GPU, "cuda") is None


def test_the_reason_is_the_library_that_was_not_found():
    assert ort_runtime.reason_in(PRINTED) == (
        "libcublasLt.so.13: cannot open shared object file: No such file or directory"
    )
    assert ort_runtime.with_packages(PRINTED, "'a[b]'").endswith("No such file or directory: pip install 'a[b]'")
    assert ort_runtime.reason_in("a warning\n") is None
    assert ort_runtime.reason_in("[E:onnxruntime:, x.cc:1 f] first\n[E:onnxruntime:, x.cc:2 f] second\n") == "second"


def test_only_text_printed_since_is_read(tmp_path):
    """stderr is a file here, as in a worker."""
    with (tmp_path / "stderr").open("w+b") as file:
        file.write(b"before\n")
        file.flush()
        original = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            printed = ort_runtime.StderrCapture()
            os.write(2, b"[E:onnxruntime:, x.cc:1 f] why\n")
            text = printed.text()
        finally:
            os.dup2(original, 2)
            os.close(original)
    assert text == "[E:onnxruntime:, x.cc:1 f] why\n"
    assert (tmp_path / "stderr").read_bytes() == b"before\n[E:onnxruntime:, x.cc:1 f] why\n"


@NVIDIA_WHEEL
@pytest.mark.parametrize("provider", ["cuda", "tensorrt"])
def test_provider_load_error_includes_printed_output(model, tmp_path, provider):
    if any(entry.ep_name == "CUDAExecutionProvider" for entry in onnxruntime.get_ep_devices()):
        pytest.skip("this machine has a GPU that ONNX Runtime can use")
    settings = ort_runtime.SessionSettings(provider=cuda.ORT_PROVIDER, precision="float32", num_threads=1)
    if provider == "tensorrt":
        cell = Cell(
            workload=resolve("tiny-bert"),
            device=GPU,
            requested_device="cuda:0",
            runtime="tensorrt",
            precision="float32",
            num_threads=1,
        )
        settings = tensorrt.engine_settings(cell, {}, tmp_path / "builds" / "tensorrt" / "a")
    with (tmp_path / "stderr").open("w+b") as file:
        original = os.dup(2)
        os.dup2(file.fileno(), 2)
        try:
            with pytest.raises((BenchhouseError, UnsupportedError)) as caught:
                ort_runtime.open_graph(model, settings)
        finally:
            os.dup2(original, 2)
            os.close(original)
    assert "lib" in str(caught.value)
    assert ".so.13: cannot open shared object file: No such file or directory: pip install" in str(caught.value)
    assert "'onnxruntime-gpu[cuda,cudnn]'" in str(caught.value)
    assert ("tensorrt-cu13>=10,<11" in str(caught.value)) == (provider == "tensorrt")

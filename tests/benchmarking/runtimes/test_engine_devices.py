"""Inference engines on accelerators: which devices they take, what their libraries answer, and what they are told.

The libraries are the installed ones. What they list of GPUs is made here; everything else is their own.
"""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarking.core import plugins
from benchmarking.core.errors import BenchhouseError, UnsupportedError, UsageError
from benchmarking.core.records import Device, Precision, Readings, Workload
from benchmarking.devices import cuda, rocm
from benchmarking.devices.support.handles import combine_devices, open_device
from benchmarking.runtimes import llamacpp, onnxruntime_genai, openvino_genai
from benchmarking.runtimes.support.engines import llama_cpp_python
from benchmarking.runtimes.support.engines.engine_runtime import compute_in_float32, why_not_available
from benchmarking.runtimes.support.engines.engine_session import EngineSettings
from benchmarking.runtimes.support.engines.llama_cpp_python import (
    GgmlDevice,
    LlamaModel,
    Placement,
    check_memory,
    check_offloaded,
    placement,
)
from benchmarking.runtimes.support.engines.weight_files import gguf_build
from tests.helpers.engines import CPU, POINT, installed, opened

H100 = "NVIDIA H100 80GB HBM3"


def gpu(selector: str = "cuda:0", name: str = H100, missing: str | None = None, **facts: Any) -> Device:
    """A GPU; `missing` says why it has no sensors, as in a container without NVML."""
    reasons = {} if missing is None else {cuda.SENSORS: missing}
    return Device(
        type=selector.partition(":")[0],
        selector=selector,
        found=True,
        name=name,
        precisions=("float32", "float16", "bfloat16", "int8", "int4"),
        facts=Readings(values=facts, missing=reasons),
    )


PROCESSOR = GgmlDevice(name="CPU", description="Intel(R) Xeon(R) Processor", type=0)
CUDA0 = GgmlDevice(name="CUDA0", description="NVIDIA H100 80GB HBM3", type=1, address="0000:1b:00.0", free_bytes=80)
CUDA1 = GgmlDevice(name="CUDA1", description="NVIDIA H100 80GB HBM3", type=1, address="0000:1c:00.0", free_bytes=80)
RADEON = GgmlDevice(name="Vulkan0", description="AMD Radeon RX 7900 XTX (RADV NAVI31)", type=1)
ARC = GgmlDevice(name="Vulkan1", description="Intel(R) Arc(tm) A770 Graphics (DG2)", type=1)
INTEGRATED = GgmlDevice(name="Vulkan2", description="AMD Radeon Graphics (RADV RAPHAEL)", type=2)
SOFTWARE = GgmlDevice(name="Vulkan0", description="llvmpipe (LLVM 15.0.6, 256 bits)", type=1)


@pytest.mark.parametrize(
    ("name", "runs_on"),
    [
        ("llamacpp", {"cuda", "rocm", "mps", "xpu"}),
        ("ctranslate2", {"cuda"}),
        ("onnxruntime-genai", {"cuda"}),
        ("openvino-genai", {"openvino"}),
        ("mlx", {"mps"}),
    ],
)
def test_each_engine_names_the_devices_that_it_runs_on(name: str, runs_on: set[str]) -> None:
    runtime = installed(name)
    for kind in ("cuda", "rocm", "mps", "xpu", "openvino", "qnn"):
        why_not = runtime.why_not_on(Device(type=kind, selector=kind, found=True))
        assert (why_not is None) == (kind in runs_on), (kind, why_not)
        assert why_not is None or all(one in why_not for one in ("the CPU", *runs_on))
    assert runtime.why_not_on(CPU) is None


NO_NVML = "libnvidia-ml.so.1 is not here"


@pytest.mark.parametrize(
    ("name", "device", "answer"),
    [
        (
            "llamacpp",
            gpu(missing=NO_NVML),
            r"no backend for cuda:0 here: it lists CPU: .*pip install xllamacpp .*/whl/cu",
        ),
        (
            "ctranslate2",
            gpu(missing=NO_NVML),
            r"CTranslate2 [\d.]+ cannot use cuda:0: CUDA failed with error|finds no GPU",
        ),
        ("onnxruntime-genai", gpu(missing=NO_NVML), r"onnxruntime-genai: Cuda interface not available|not been built"),
        ("mlx", Device(type="mps", selector="mps", found=True), r"mlx [\d.]+ cannot use Metal.*pip install"),
        ("openvino-genai", Device(type="openvino", selector="openvino:GPU", found=True), r"OpenVINO lists CPU"),
        ("llamacpp", gpu(uuid="GPU-1a2b"), r"cannot monitor device 'cuda:0'"),
    ],
)
def test_an_accelerator_is_refused_with_the_librarys_own_reason(name: str, device: Device, answer: str) -> None:
    """Each library is asked in a process of its own; no stand-in takes part."""
    installed(name)
    found = why_not_available(name, device)
    assert found is not None
    import re

    assert re.search(answer, found), found


PIP = "pip install xllamacpp --force-reinstall --index-url https://xorbitsai.github.io/xllamacpp/whl"


@pytest.mark.parametrize(
    ("vendor", "facts", "start"),
    [
        ("nvidia", {}, f"{PIP}/cu128, or CMAKE_ARGS="),
        ("nvidia", {"cuda_driver_version": "12.9"}, f"{PIP}/cu128, or CMAKE_ARGS="),
        ("nvidia", {"cuda_driver_version": "13.2"}, f"{PIP}/cu132, or CMAKE_ARGS="),
        ("amd", {"gfx_target": "gfx1100"}, f"{PIP}/rocm-7.2.4, or CMAKE_ARGS="),
        ("amd", {"gfx_target": "gfx942"}, 'xllamacpp has no wheel for gfx942: CMAKE_ARGS="-DGGML_HIP=on" pip install'),
    ],
)
def test_the_advised_llama_cpp_is_one_that_runs_on_the_gpu(vendor: str, facts: dict[str, Any], start: str) -> None:
    assert llama_cpp_python.advice(vendor, gpu(**facts)).startswith(start)


def test_a_device_without_layers_for_it_is_never_replaced(llama: Workload) -> None:
    runtime = installed("llamacpp")
    assert "no backend for cuda:0" in runtime.supports(gpu(missing=NO_NVML), llama, "float16")
    assert runtime.supports(CPU, llama, "float32") is None


@pytest.mark.parametrize(
    ("device", "listed", "expected"),
    [
        (gpu(), (CUDA0, PROCESSOR), (["CUDA0"], 0)),
        (gpu(pci_address="0000:1c:00"), (CUDA0, CUDA1), (["CUDA1"], 1)),
        (gpu("rocm:0", "AMD Radeon RX 7900 XTX"), (ARC, RADEON, INTEGRATED, PROCESSOR), (["Vulkan0"], 1)),
        (gpu("xpu:0", "Intel(R) Arc(TM) A770 Graphics"), (RADEON, ARC), (["Vulkan1"], 1)),
        (gpu("rocm:0", "AMD Radeon Graphics"), (INTEGRATED, PROCESSOR), (["Vulkan2"], 0)),
        (gpu("mps", "Apple M2 Max"), (GgmlDevice(name="MTL0", description="Apple M2 Max", type=1),), (["MTL0"], 0)),
        (combine_devices([gpu("cuda:0"), gpu("cuda:1")]), (CUDA0, CUDA1, PROCESSOR), (["CUDA0", "CUDA1"], 0)),
        (
            gpu("cuda:0"),
            (CUDA0, GgmlDevice(name="Vulkan0", description="same", type=1, address=CUDA0.address)),
            (["CUDA0"], 0),
        ),
    ],
)
def test_the_requested_gpu_is_found_among_those_that_llama_cpp_lists(
    device: Device, listed: tuple[GgmlDevice, ...], expected: tuple[list[str], int]
) -> None:
    placed = placement(device, listed, 33, None)
    assert ([one.name for one in placed.devices], placed.main) == expected
    assert (placed.layers, placed.is_on_gpu) == (33, True)
    assert placement(device, listed, 33, 8).layers == 8
    with pytest.raises(UnsupportedError, match="--gpu-layers 0 leaves nothing to"):
        placement(device, listed, 33, 0)


@pytest.mark.parametrize(
    ("device", "listed", "why"),
    [
        (gpu("rocm:0", "AMD Instinct MI300X"), (CUDA0,), "no backend for rocm:0 here: it lists CUDA0: NVIDIA H100"),
        (gpu("rocm:0", "AMD Instinct MI300X"), (RADEON,), "none has its name. It lists Vulkan0: AMD Radeon RX 7900"),
        (gpu(), (SOFTWARE,), "none has its name"),
        (gpu(), (CUDA0, CUDA1), "2 have its name"),
        (
            combine_devices([gpu("cuda:0", pci_address="0000:1b:00"), gpu("cuda:1", pci_address="0000:1c:00")]),
            (CUDA0, CUDA1, GgmlDevice(name="CUDA2", description="x", type=1)),
            "would use CUDA2: x beside cuda:0,cuda:1",
        ),
    ],
)
def test_a_gpu_that_llama_cpp_does_not_list_is_refused(
    device: Device, listed: tuple[GgmlDevice, ...], why: str
) -> None:
    with pytest.raises(UnsupportedError, match=why):
        placement(device, listed, 33, None)


def test_layers_on_the_cpu_go_to_a_software_gpu_only_and_are_marked() -> None:
    assert placement(CPU, (SOFTWARE, PROCESSOR), 3, None) == Placement(total_layers=3)
    placed = placement(CPU, (SOFTWARE, PROCESSOR), 3, 2)
    assert placed.facts["is_simulated"] is True
    assert (placed.layers, placed.facts["compute_devices"]) == (2, [SOFTWARE.label])
    with pytest.raises(UnsupportedError, match=r"which is CUDA0: .*: use --device for it"):
        placement(CPU, (CUDA0, PROCESSOR), 3, 2)
    with pytest.raises(UnsupportedError, match=r"but llama\.cpp lists none"):
        placement(CPU, (PROCESSOR,), 3, 2)


@pytest.mark.usefixtures("engine_cache")
def test_llama_cpps_own_parameters_say_which_layers_go_where(llama: Workload, tmp_path: Path) -> None:
    xllamacpp = pytest.importorskip("xllamacpp")
    gguf_build(llama, "F32")[1](tmp_path)
    modes = xllamacpp.llama_split_mode

    def parameters(placed: Placement, **settings: Any) -> Any:
        server = llamacpp.InProcessServer.__new__(llamacpp.InProcessServer)
        LlamaModel.__init__(server, tmp_path / "model.gguf", EngineSettings(**settings), [POINT])
        server.placed = placed
        return server._parameters(tmp_path / "model.gguf", None)

    one = parameters(Placement(devices=(CUDA1,), main=1, layers=2, total_layers=3))
    assert (one.n_gpu_layers, one.main_gpu, one.split_mode) == (2, 1, modes.LLAMA_SPLIT_MODE_NONE)
    assert (one.no_op_offload, one.no_kv_offload) == (False, False)
    two = Placement(devices=(CUDA0, CUDA1), layers=3, total_layers=3)
    rows = parameters(two, split_mode="row", tensor_split=(3.0, 1.0))
    assert (rows.n_gpu_layers, rows.main_gpu, rows.split_mode) == (3, 0, modes.LLAMA_SPLIT_MODE_ROW)
    assert rows.tensor_split[:3] == [3.0, 1.0, 0.0]
    assert parameters(two).split_mode == modes.LLAMA_SPLIT_MODE_LAYER
    on_cpu = parameters(Placement(total_layers=3))
    assert (on_cpu.n_gpu_layers, on_cpu.speculative.draft.n_gpu_layers, on_cpu.main_gpu) == (0, 0, -1)
    assert (on_cpu.no_op_offload, on_cpu.no_kv_offload) == (True, True)


def test_llama_cpps_answer_is_compared_with_the_request() -> None:
    placed = Placement(devices=(CUDA0,), layers=33, total_layers=33)
    line = "load_tensors: offloaded {}/33 layers to GPU\n"
    assert check_offloaded(line.format(33), placed) == {"gpu_layers_reported": 33}
    assert check_offloaded("", Placement(total_layers=33)) == {}
    with pytest.raises(BenchhouseError, match=r"requested 33 layers on CUDA0: .*, but llama.cpp offloaded 12 of 33"):
        check_offloaded(line.format(12), placed)
    with pytest.raises(BenchhouseError, match=r"requested 0 layers on the CPU, but llama\.cpp offloaded 33"):
        check_offloaded(line.format(33), Placement(total_layers=33))
    with pytest.raises(BenchhouseError, match="reports no offloaded layers"):
        check_offloaded("", placed)


def test_a_gpu_whose_memory_did_not_take_the_layers_is_a_mismatch() -> None:
    placed = Placement(devices=(CUDA0,), layers=33, total_layers=33)

    def free(number: int | None) -> tuple[GgmlDevice, ...]:
        return (GgmlDevice(name="CUDA0", description="", type=1, free_bytes=number),)

    check_memory(free(10_000), free(9_000), placed, 1_000)
    check_memory(free(10_000), free(10_000), placed, 1_000)  # a backend that does not count
    check_memory(free(None), free(None), placed, 1_000)
    with pytest.raises(BenchhouseError, match="took 0 MB of its memory"):
        check_memory(free(10_000_000_000), free(9_999_900_000), placed, 1_000_000_000)


@pytest.mark.parametrize(
    ("options", "error"),
    [
        ({"split_mode": "row"}, "--split-mode needs several GPUs, such as --device cpu:0,cpu:1"),
        ({"tensor_split": "3,1"}, "--tensor-split needs several GPUs"),
        ({"tensor_split": "3,x"}, "expected one share for each GPU"),
        ({"gpu_layers": "many"}, "--gpu-layers takes a whole number"),
    ],
)
def test_settings_that_the_devices_do_not_allow_are_usage_errors(
    options: dict[str, str], error: str, llama: Workload
) -> None:
    with pytest.raises(UsageError, match=error):
        installed("llamacpp").mode(CPU, llama, options)


def test_the_ways_to_offload_all_layers_are_one_series(llama: Workload) -> None:
    runtime = installed("llamacpp")
    for value in ("all", "-1", "99", "3"):
        assert runtime.mode(gpu(), llama, {"gpu_layers": value}) == runtime.mode(gpu(), llama, {})
    assert runtime.mode(gpu(), llama, {"gpu_layers": "2"})["gpu_layers"] == 2
    assert runtime.mode(CPU, llama, {"gpu_layers": "0"}) == runtime.mode(CPU, llama, {})
    two = combine_devices([gpu("cuda:0"), gpu("cuda:1")])
    assert runtime.mode(two, llama, {"tensor_split": "3,1"})["tensor_split"] == "3,1"
    with pytest.raises(UsageError, match="has 3 shares for 2 GPUs"):
        runtime.mode(two, llama, {"tensor_split": "3,1,1"})


def test_a_process_sees_the_gpus_of_its_engine_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    for plugin in (cuda.CudaDevice, rocm.RocmDevice):
        monkeypatch.setattr(plugin, "monitor", lambda self, device: SimpleNamespace(close=lambda: None))
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    several = combine_devices([gpu("cuda:1", uuid="GPU-b"), gpu("cuda:0", uuid="GPU-a")])
    open_device(llamacpp.PLUGIN, cuda.PLUGIN, several)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-b,GPU-a"
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "2,3")
    open_device(llamacpp.PLUGIN, cuda.PLUGIN, gpu("cuda:1"))
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "3"  # without a UUID, the second of those visible
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "")
    monkeypatch.setenv("HIP_VISIBLE_DEVICES", "1")
    open_device(llamacpp.PLUGIN, rocm.PLUGIN, gpu("rocm:1", unique_id="0x77ab"))
    assert os.environ["ROCR_VISIBLE_DEVICES"] == "GPU-77ab"
    assert "HIP_VISIBLE_DEVICES" not in os.environ  # its number 1 is number 0 now


@pytest.mark.usefixtures("engine_cache")
def test_the_pipelines_compiled_device_and_types_are_read_back(llama: Workload) -> None:
    with opened("openvino-genai", llama, precision="float16") as (session, _):
        assert session.verified["engine_devices"] == "CPU"
        assert (session.verified["compute_type"], session.verified["kv_cache_type"]) == ("f32", "f16")
    with pytest.raises(BenchhouseError, match="requested GPU, but OpenVINO GenAI compiled the model for CPU"):
        openvino_genai.read_back("Model: LLM\n  EXECUTION_DEVICES: CPU\n", "GPU")
    assert openvino_genai.read_back("  EXECUTION_DEVICES: (GPU.0)\n", "GPU")["EXECUTION_DEVICES"] == "(GPU.0)"


@pytest.mark.parametrize(("flags", "activations"), [(["avx2"], None), (["avx2", "avx512_vnni"], "int8")])
def test_a_pipelines_activations_are_stated_where_it_quantizes_them(
    flags: list[str], activations: str | None, llama: Workload
) -> None:
    cpu = replace(CPU, facts=Readings(values={"cpu_capabilities": flags}))
    plugin, engine = openvino_genai.PLUGIN, SimpleNamespace(SchedulerConfig=SimpleNamespace)
    quantized = plugin.mode_at("int8", plugin.mode(cpu, llama, {}))
    assert quantized == {"quantization": "Q8_0", **({"activations": activations} if activations else {})}
    assert "activations" not in plugin.mode_at("float16", plugin.mode(cpu, llama, {}))
    settings = EngineSettings(activations=activations)
    told = openvino_genai.pipeline_properties(engine, "CPU", settings, [POINT])
    assert told.get("DYNAMIC_QUANTIZATION_GROUP_SIZE") == (32 if activations else None)


def test_a_pipeline_on_an_npu_has_fixed_lengths_and_no_types(llama: Workload) -> None:
    engine = pytest.importorskip("openvino_genai")
    npu = openvino_genai.pipeline_properties(engine, "NPU", EngineSettings(), [POINT])
    assert npu == {"MAX_PROMPT_LEN": 24, "MIN_RESPONSE_LEN": 12}
    on_gpu = openvino_genai.pipeline_properties(engine, "GPU.1", EngineSettings(threads=2), [POINT])
    assert (on_gpu["INFERENCE_PRECISION_HINT"], "INFERENCE_NUM_THREADS" in on_gpu) == ("f16", False)
    device = Device(type="openvino", selector="openvino:NPU", found=True)
    with pytest.raises(UnsupportedError, match="--kv-cache-type: OpenVINO GenAI chooses the type itself on an NPU"):
        openvino_genai.PLUGIN.mode(device, llama, {"kv_cache_type": "f32"})
    auto = Device(type="openvino", selector="openvino:AUTO", found=True)
    assert "runs on one device: name it instead of openvino:AUTO" in openvino_genai.PLUGIN.supports(
        auto, None, "float16"
    )


def test_a_graphs_provider_is_the_devices_or_the_named_one() -> None:
    plugin = onnxruntime_genai.PLUGIN
    assert plugin.floats_on(gpu()) == ("float32", "float16", "bfloat16")
    assert plugin.floats_on(CPU) == ("float32",)
    assert onnxruntime_genai.provider_on(gpu(), {}).name == "cuda"
    assert onnxruntime_genai.provider_on(gpu(), {"provider": "directml"}).name == "DML"
    with pytest.raises(UnsupportedError, match=r"--provider openvino: onnxruntime-genai has cuda, directml for cuda:0"):
        onnxruntime_genai.provider_on(gpu(), {"provider": "openvino"})
    with pytest.raises(UnsupportedError, match="has none to choose from for cpu"):
        onnxruntime_genai.provider_on(CPU, {"provider": "directml"})


@pytest.mark.parametrize(
    ("name", "precision", "device", "expected"),
    [
        ("llamacpp", "float16", gpu(), set()),
        ("ctranslate2", "float32", CPU, set()),
        ("ctranslate2", "float32", gpu(), {"NVIDIA_TF32_OVERRIDE=0"}),
        ("mlx", "float32", gpu("mps", "Apple M5"), {"MLX_ENABLE_TF32=0"}),
        (
            "llamacpp",
            "float32",
            gpu("xpu:0", "Intel(R) Arc(TM) A770 Graphics"),
            {"GGML_VK_DISABLE_F16=1", "GGML_VK_DISABLE_COOPMAT=1", "GGML_VK_DISABLE_COOPMAT2=1"},
        ),
    ],
)
def test_float32_on_a_gpu_is_computed_in_float32(
    monkeypatch: pytest.MonkeyPatch, name: str, precision: Precision, device: Device, expected: set[str]
) -> None:
    monkeypatch.setattr(os, "environ", {})  # what is set stays in here
    cell: Any = SimpleNamespace(precision=precision, device=device)
    compute_in_float32(cell, plugins.load(plugins.RUNTIMES, name).exact_float32)
    assert {f"{variable}={value}" for variable, value in os.environ.items()} == expected


def test_mlx_still_reads_the_variable_of_its_tf32() -> None:
    mlx = pytest.importorskip("mlx")
    header = Path(next(iter(mlx.__path__))) / "include/mlx/utils.h"
    assert 'get_var("MLX_ENABLE_TF32", 1)' in header.read_text()


def test_layers_are_offloaded_to_a_software_gpu(llama: Workload, eager: Any, engine_cache: None) -> None:
    """Runs with a Vulkan build of llama-cpp-python and a software Vulkan driver (GGML_VK_VISIBLE_DEVICES=0)."""
    from tests.helpers.engines import called, prompts_at

    pytest.importorskip("llama_cpp", reason="pip install llama-cpp-python, built with -DGGML_VULKAN=on")
    if not any(one.is_software for one in llama_cpp_python.listed_by_binding()):
        pytest.skip("llama.cpp lists no software GPU")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(llamacpp, "is_installed", lambda name: name != llamacpp.MAIN)
        for layers in ("1", "all"):
            with opened("llamacpp", llama, gpu_layers=layers) as (session, operation):
                assert called(operation) == eager(prompts_at(llama, POINT))
                facts = session.verified
            assert facts["gpu_layers_reported"] == facts["gpu_layers"] == (1 if layers == "1" else 3)
            assert facts["is_simulated"] is True

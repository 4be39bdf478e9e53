"""The runtimes that compile graphs for one shape, qnn and tensorrt, with stand-ins for ONNX Runtime's sessions."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from benchmarking.builds.store import BuildStore
from benchmarking.core.errors import BenchhouseError, UnsupportedError, UsageError
from benchmarking.core.records import Cell, Device, Point, Readings
from benchmarking.devices import cuda, rocm
from benchmarking.devices.support.handles import open_device
from benchmarking.devices.support.torch_gpu import WatchedGpuHandle
from benchmarking.graphs import exported_model as graphs
from benchmarking.graphs.bundle import Bundle, Graph, Tensor
from benchmarking.measure.context import PROFILES
from benchmarking.runtimes import qnn, tensorrt
from benchmarking.runtimes.eager import PLUGIN as EAGER
from benchmarking.runtimes.support.onnxruntime import ort_runtime as ort_runtime
from benchmarking.sweep.plan.request import Request, _unsupported_reason
from benchmarking.workloads.support.resolve import resolve

GPU = Device(
    type="cuda",
    selector="cuda:1",
    found=True,
    name="Test GPU",
    driver="580.1",
    facts=Readings(values={"compute_capability": "9.0", "uuid": "GPU-1a2b"}),
)
NPU = Device(type="qnn", selector="qnn", found=True, name="Test NPU", precisions=("float16", "int8"))
IDS = Tensor(name="input_ids", dtype="int64", shape=("batch", "sequence"))
OUT = Tensor(name="y", dtype="float32", shape=("batch", "sequence", 8))
GRAPH = Graph(file="model.onnx", inputs=(IDS,), outputs=(OUT,), feeds={"input_ids": "inputs.input_ids"}, result="y")
BUNDLE = Bundle(kind="forward", graphs={"model": GRAPH}, exporter="by hand")
POINT = Point(batch_size=2, sequence_length=16)


BURST = {"qnn_backend": "htp", "performance_mode": "burst"}


def cell_of(runtime, device, precision="float16", **mode):
    return Cell(
        workload=resolve("tiny-bert"),
        device=device,
        requested_device=device.selector,
        runtime=runtime,
        runtime_mode=mode,
        precision=precision,
        num_threads=1,
    )


class Sessions:
    """Replaces `open_graph`: records the request and writes a compiler's files."""

    def __init__(self, monkeypatch, writes=None, nodes=(("X", 3),)):
        self.opened = []
        self._writes = writes
        self._nodes = nodes
        monkeypatch.setattr(ort_runtime, "open_graph", self)

    def __call__(self, path, settings, profile=None):
        self.opened.append((path, settings))
        if self._writes is not None:
            self._writes(settings).write_bytes(b"compiled")
        parts = [
            SimpleNamespace(ep_name=name, get_nodes=lambda count=count: [None] * count) for name, count in self._nodes
        ]
        return SimpleNamespace(get_provider_graph_assignment_info=lambda: parts)


def qnn_handle(backend="htp"):
    entry = SimpleNamespace(ep_name="QNNExecutionProvider")
    return SimpleNamespace(
        provider="QNNExecutionProvider",
        backends={backend: f"/qnn/{backend}.so"},
        provider_devices=lambda: (entry,),
    )


def test_free_dimensions_are_those_of_the_inputs_at_the_point():
    cell = cell_of("qnn", NPU, **BURST)
    assert graphs.sizes_at(cell, POINT, BUNDLE) == {"batch": 2, "sequence": 16}


def test_unknown_dimension_is_an_error():
    unknown = Graph(file="m.onnx", inputs=(Tensor(name="z", dtype="float32", shape=("depth",)),), outputs=())
    with pytest.raises(BenchhouseError, match="no input of the model has dimension depth"):
        graphs.sizes_of(Bundle(kind="forward", graphs={"model": unknown}, exporter=""), {"a": np.zeros(1)})


def test_each_shape_device_and_setting_has_its_own_build():
    cell = cell_of("qnn", NPU, **BURST)
    keys = [
        graphs.FixedShapes(kind="qnn", cell=cell, depends_on=depends).key(POINT, sizes)
        for sizes, depends in (({"b": 1}, {"device": "a"}), ({"b": 2}, {"device": "a"}), ({"b": 1}, {"device": "b"}))
    ]
    assert len({key.digest for key in keys}) == 3


@pytest.mark.parametrize("runtime", [qnn.PLUGIN, tensorrt.PLUGIN])
def test_generation_is_refused_because_its_shapes_grow(runtime):
    device = NPU if runtime.name == "qnn" else GPU
    why = runtime.supports(device, resolve("tiny-gpt2"), "float16")
    assert why.startswith(
        f"runtime {runtime.name} compiles graphs for fixed shapes: it supports single forward passes, not text-gen"
    )
    assert runtime.supports(device, resolve("tiny-bert"), "float16") is None


def test_other_devices_and_precisions_are_refused_with_the_reason():
    bert = resolve("tiny-bert")
    assert qnn.PLUGIN.supports(GPU, bert, "float16") == "runtime qnn runs on device qnn, not on cuda"
    assert "calibration data" in qnn.PLUGIN.supports(NPU, bert, "int8")
    assert "not on qnn" in tensorrt.PLUGIN.supports(NPU, bert, "float16")
    assert tensorrt.PLUGIN.supports(GPU, bert, "int8") == "runtime tensorrt supports float32, tf32, float16, not int8"


def test_performance_mode_ignored_by_qnn_is_refused():
    bert = resolve("tiny-bert")
    assert qnn.PLUGIN.mode(NPU, bert, {}) == BURST
    balanced = qnn.PLUGIN.mode(NPU, bert, {"performance_mode": "balanced"})
    assert balanced == {**BURST, "performance_mode": "balanced"}
    with pytest.raises(UsageError, match="performance_mode 'fast': runtime qnn has burst, balanced"):
        qnn.PLUGIN.mode(NPU, bert, {"performance_mode": "fast"})


def test_context_is_compiled_without_cpu_fallback(monkeypatch, tmp_path):
    sessions = Sessions(monkeypatch, lambda settings: Path(settings.entries["ep.context_file_path"]))
    settings = qnn._settings(cell_of("qnn", NPU, **BURST), qnn_handle())
    facts = qnn.compile_contexts(Path("/bundle"), BUNDLE, settings, tmp_path)
    ((path, session_settings),) = sessions.opened
    assert path == Path("/bundle/model.onnx")
    assert (
        session_settings.entries["session.disable_cpu_ep_fallback"]
        == session_settings.entries["ep.context_enable"]
        == "1"
    )
    assert session_settings.provider_options == {"backend_path": "/qnn/htp.so", "htp_performance_mode": "burst"}
    assert facts == {"assigned_nodes": {"model": {"X": 3}}, "dimensions": {}}


def test_missing_context_means_nothing_was_compiled(monkeypatch, tmp_path):
    Sessions(monkeypatch)
    settings = qnn._settings(cell_of("qnn", NPU, **BURST), qnn_handle())
    with pytest.raises(UnsupportedError, match="QNN made no context for graph 'model'"):
        qnn.compile_contexts(Path("/bundle"), BUNDLE, settings, tmp_path)


def test_only_the_tensor_processor_has_a_performance_mode():
    settings = qnn._settings(cell_of("qnn", NPU, qnn_backend="gpu"), qnn_handle("gpu"))
    assert settings.provider_options == {"backend_path": "/qnn/gpu.so"}


def test_engines_are_built_once_for_a_shape_and_found_again(monkeypatch, tmp_path):
    sessions = Sessions(monkeypatch, lambda settings: Path(settings.provider_options[tensorrt.CACHE_PATH], "a.engine"))
    cell = cell_of("tensorrt", GPU, io_mode="device")
    store = BuildStore(tmp_path)
    monkeypatch.setattr(graphs, "ensure_bundle", lambda *arguments: {"kind": "onnx"})
    monkeypatch.setattr(graphs, "find_bundle", lambda cell, point, store: Path("/bundle"))
    monkeypatch.setattr(graphs, "read_bundle", lambda folder: BUNDLE)

    def compiled_into(found, out):
        settings = tensorrt.engine_settings(cell, found.sizes, out)
        return tensorrt.build_engines(found.folder, found.bundle, settings, out)

    engines = graphs.FixedShapes(kind="tensorrt", cell=cell, depends_on={"device": "Test GPU"})
    points = (POINT, Point(batch_size=4, sequence_length=16))
    first = engines.ensure(points, store, "if_needed", compiled_into)
    again = engines.ensure(points, store, "if_needed", compiled_into)
    assert [session_settings.dimensions["batch"] for _, session_settings in sessions.opened] == [2, 4]
    assert [build["is_new"] for build in first["tensorrt"]] == [True, True]
    assert [build["is_new"] for build in again["tensorrt"]] == [False, False]
    assert again["tensorrt_build_s"] == first["tensorrt_build_s"]
    assert [build["engines"] for build in again["tensorrt"]] == [1, 1]


def test_half_precision_is_enabled_for_engines_with_cuda_as_fallback(tmp_path):
    settings = tensorrt.engine_settings(cell_of("tensorrt", GPU), {"batch": 2}, tmp_path)
    assert settings.provider_options["trt_fp16_enable"] == "True"
    assert (settings.provider_options["trt_engine_cache_path"], settings.fallbacks) == (
        str(tmp_path),
        ("CUDAExecutionProvider",),
    )
    plain = tensorrt.engine_settings(cell_of("tensorrt", GPU, "float32"), {}, tmp_path)
    assert "trt_fp16_enable" not in plain.provider_options


def test_engines_of_all_shapes_share_kernel_timings(tmp_path):
    one, other = (tmp_path / "builds" / "tensorrt" / name for name in ("a", "b"))
    paths = {
        tensorrt.engine_settings(cell_of("tensorrt", GPU), {}, folder).provider_options["trt_timing_cache_path"]
        for folder in (one, other)
    }
    assert paths == {str(tmp_path / "builds" / "tensorrt-timings")}
    assert (tmp_path / "builds" / "tensorrt-timings").is_dir()


def test_no_engine_is_an_error(monkeypatch, tmp_path):
    Sessions(monkeypatch)
    settings = tensorrt.engine_settings(cell_of("tensorrt", GPU), {}, tmp_path)
    with pytest.raises(BenchhouseError, match="TensorRT built no engine for model"):
        tensorrt.build_engines(Path("/bundle"), BUNDLE, settings, tmp_path)


def test_engines_rebuilt_at_load_are_an_error(tmp_path):
    (tmp_path / "a.engine").touch()
    tensorrt.check_engines_were_used(tmp_path, 1)
    (tmp_path / "b.engine").touch()
    with pytest.raises(BenchhouseError, match=r"instead of loading those in .* \(expected 1, found 2\)"):
        tensorrt.check_engines_were_used(tmp_path, 1)


def test_tf32_is_kept_out_of_float32_engines(monkeypatch):
    monkeypatch.setenv(tensorrt.TF32_OVERRIDE, "1")
    monkeypatch.delitem(sys.modules, "tensorrt", raising=False)
    monkeypatch.setattr(tensorrt.importlib, "import_module", lambda name: monkeypatch.setitem(sys.modules, name, None))
    tensorrt.load_tensorrt("float32")
    assert os.environ[tensorrt.TF32_OVERRIDE] == "0"
    with pytest.raises(
        UnsupportedError, match="already loaded in this process: start the process with NVIDIA_TF32_OVERRIDE=1"
    ):
        tensorrt.load_tensorrt("tf32")


def test_a_missing_package_is_named_with_its_install_command(monkeypatch):
    monkeypatch.setattr(tensorrt.shared.OrtRuntime, "missing", lambda self: None)
    monkeypatch.setattr(tensorrt.shared, "linked", lambda name: tensorrt.shared.Linked(cuda=13, tensorrt=10))
    monkeypatch.setattr(tensorrt.shared, "provider_library", lambda name: None)
    assert tensorrt.PLUGIN.missing().endswith("built without TensorRT: pip install 'onnxruntime-gpu[cuda,cudnn]'")
    monkeypatch.setattr(tensorrt.shared, "provider_library", lambda name: Path("/x"))
    monkeypatch.setattr(tensorrt, "_tensorrt_version", lambda: None)
    assert tensorrt.PLUGIN.missing().endswith("pip install 'tensorrt-cu13>=10,<11'")
    monkeypatch.setattr(tensorrt, "_tensorrt_version", lambda: "10.13")
    assert tensorrt.PLUGIN.missing() is None
    monkeypatch.setattr(qnn.importlib.util, "find_spec", lambda name: None)
    assert qnn.PLUGIN.missing().endswith("pip install --no-deps onnxruntime-qnn")


@pytest.mark.parametrize("runtime", ["tensorrt", "qnn"])
def test_no_install_command_is_given_on_a_device_that_the_runtime_never_supports(monkeypatch, runtime):
    plugin = {"tensorrt": tensorrt.PLUGIN, "qnn": qnn.PLUGIN}[runtime]
    monkeypatch.setattr(type(plugin), "missing", lambda self: "not installed: pip install something")
    cpu = Device(type="cpu", selector="cpu", found=True, precisions=("float32",))
    request = Request(model_id="tiny-bert", device="cpu", runtime=runtime, settings=PROFILES["quick"])
    why_not = _unsupported_reason(request, cpu, resolve("tiny-bert"))
    assert why_not is not None
    assert why_not.endswith("not on cpu")
    assert "pip install" not in why_not


@pytest.fixture
def unwatched(monkeypatch: pytest.MonkeyPatch) -> None:
    for plugin in (cuda.CudaDevice, rocm.RocmDevice):
        monkeypatch.setattr(plugin, "monitor", lambda self, device: SimpleNamespace())


def test_gpu_without_torch_is_the_only_visible_one(monkeypatch, unwatched):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    handle = open_device(tensorrt.PLUGIN, cuda.PLUGIN, GPU)
    assert isinstance(handle, WatchedGpuHandle)
    assert os.environ["CUDA_VISIBLE_DEVICES"] == "GPU-1a2b"
    assert (handle.torch_name, handle.timer()) == (None, None)
    assert handle.peak_memory().missing["device_allocated_peak_bytes"].startswith("not_supported")


def test_amd_gpu_is_selected_by_unique_id_only(monkeypatch, unwatched):
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "")
    identified = Device(type="rocm", selector="rocm:1", found=True, facts=Readings(values={"unique_id": "0x77ab"}))
    rocm.PLUGIN.watch(identified)
    assert os.environ["ROCR_VISIBLE_DEVICES"] == "GPU-77ab"
    first, second = (Device(type="rocm", selector=f"rocm:{number}", found=True) for number in range(2))
    for visible, refused in ((None, second), ("0,1", second), ("1,0", first)):
        monkeypatch.delenv("ROCR_VISIBLE_DEVICES")
        if visible is not None:
            monkeypatch.setenv("ROCR_VISIBLE_DEVICES", visible)
        with pytest.raises(UnsupportedError, match="make it the only visible GPU with ROCR_VISIBLE_DEVICES"):
            rocm.PLUGIN.watch(refused)
        monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "1")
    rocm.PLUGIN.watch(second)  # as it was told
    monkeypatch.setenv("ROCR_VISIBLE_DEVICES", "0,1")
    rocm.PLUGIN.watch(first)


def test_a_runtime_on_torch_opens_the_device_through_it():
    opened = []
    plugin = SimpleNamespace(open=lambda device: opened.append(device), watch=None)
    open_device(EAGER, plugin, GPU)
    assert opened == [GPU]

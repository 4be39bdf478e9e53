"""Settings that OpenVINO silently replaces are detected, on real models and on fake answers."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from benchmarking.core.errors import BenchhouseError, OutOfMemoryError, UnsupportedError
from benchmarking.core.records import Cell, Device, Point, Readings
from benchmarking.devices.openvino import OpenVinoHandle, device_name
from benchmarking.runtimes.support.openvino import compile as compiling
from benchmarking.runtimes.support.openvino import openvino_session
from benchmarking.workloads.support.resolve import resolve

POINT = Point(batch_size=1)


@pytest.fixture(scope="module")
def openvino() -> Any:
    pytest.importorskip("openvino")
    from benchmarking.devices.openvino import import_openvino

    return import_openvino()


@pytest.fixture(scope="module")
def core(openvino: Any) -> Any:
    return openvino.Core()


@pytest.fixture(scope="module")
def product(openvino: Any) -> Any:
    """x times a matrix of 64 x 64."""
    from openvino import opset13 as ops

    weights = np.random.default_rng(0).standard_normal((64, 64)).astype(np.float32)
    x = ops.parameter([-1, 64], np.float32, name="x")
    return openvino.Model([ops.relu(ops.matmul(x, ops.constant(weights), False, False))], [x], "product")


def cell(selector="cpu", precision="float32", **changes):
    device = Device(type=selector.partition(":")[0], selector=selector, found=True)
    mode = {"hint": "latency", "dynamic": "true", **changes.pop("mode", {})}
    return Cell(
        workload=resolve("tiny-bert", weights="random"),
        device=device,
        requested_device=selector,
        runtime="openvino",
        runtime_mode=mode,
        precision=precision,
        **changes,
    )


class FakeCompiled:
    """A compiled model with these properties; any other raises as in OpenVINO."""

    def __init__(self, graph=(), **properties):
        self.properties = properties
        self.graph = graph

    def get_property(self, name):
        if name not in self.properties:
            raise RuntimeError(f"Exception from src: Unsupported property {name}")
        return self.properties[name]

    def get_runtime_model(self):
        return SimpleNamespace(get_ops=lambda: self.graph)


class FakeCore:
    def __init__(self, compiled):
        self.compiled = compiled
        self.compiled_with = None

    def compile_model(self, model, name, properties):
        self.compiled_with = (name, properties)
        if isinstance(self.compiled, Exception):
            raise self.compiled
        return self.compiled


def gpu(**changes):
    given = {"EXECUTION_DEVICES": ["GPU.0"], "PERFORMANCE_HINT": "LATENCY", "INFERENCE_PRECISION_HINT": "f16"}
    return FakeCompiled(**{**given, **changes})


def node(layer, kernel, precision):
    information = {"layerType": layer, "primitiveType": kernel, "runtimePrecision": precision}
    runtime_info = {name: SimpleNamespace(value=value) for name, value in information.items()}
    return SimpleNamespace(get_rt_info=lambda: runtime_info)


@pytest.mark.parametrize(
    ("precision", "hint", "capability"), [("float16", "f16", "FP16"), ("bfloat16", "bf16", "BF16")]
)
def test_16_bit_hint_ignored_by_the_cpu_is_refused(core, product, precision, hint, capability):
    if capability in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES"):
        pytest.skip(f"this processor computes in {precision}")
    with pytest.raises(
        UnsupportedError,
        match=f"does not support {precision} and would silently run another precision: it lists .*FP32",
    ):
        compiling.check_capabilities(core, "CPU", precision)
    ignored = f"requested INFERENCE_PRECISION_HINT {hint} on OpenVINO's CPU, but the compiled model has (?:f32|bf16)"
    with pytest.raises(UnsupportedError, match=ignored):
        compiling.compile_graph(core, product, cell(precision=precision), POINT, has_states=False)


@pytest.mark.parametrize(("precision", "hint"), [("float16", "f16"), ("bfloat16", "bf16")])
def test_mismatched_hint_is_refused_on_any_device(precision, hint):
    fake = FakeCore(gpu(INFERENCE_PRECISION_HINT="f32"))
    with pytest.raises(
        UnsupportedError, match=f"requested INFERENCE_PRECISION_HINT {hint} on OpenVINO's GPU, .*has f32"
    ):
        compiling.compile_graph(fake, None, cell("openvino:GPU", precision), POINT, has_states=False)
    assert fake.compiled_with[1]["INFERENCE_PRECISION_HINT"] == hint


def test_kv_cache_has_the_requested_precision_instead_of_8_bits(core, product):
    by_default = core.compile_model(product, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    requested = {"KV_CACHE_PRECISION": "f32"}
    if compiling.read_back(by_default, requested)["kv_cache_precision"] == "f32":
        pytest.skip("this version keeps the cache in float32 by itself")
    ours = compiling.compile_graph(core, product, cell(), POINT, has_states=True)
    assert ours.facts["kv_cache_precision"] == "f32"
    eight_bits = compiling.read_back(by_default, requested)
    with pytest.raises(
        UnsupportedError, match="KV_CACHE_PRECISION f32 on OpenVINO's CPU, but the compiled model has u8"
    ):
        compiling.check(eight_bits, requested, "CPU")


def test_execution_on_another_device_is_refused_except_for_auto(openvino):
    with pytest.raises(UnsupportedError, match="requested OpenVINO's GPU, but the model runs on CPU"):
        compiling.compile_graph(
            FakeCore(gpu(EXECUTION_DEVICES=["CPU"])), None, cell("openvino:GPU", "float16"), POINT, has_states=False
        )
    with pytest.raises(UnsupportedError, match=r"the model runs on GPU.0, CPU"):
        compiling.check_devices(["GPU.0", "CPU"], "GPU")
    with pytest.raises(UnsupportedError, match="runs on nothing"):
        compiling.check_devices(None, "NPU")
    compiling.check_devices(["(CPU)"], "AUTO")
    text = openvino.OVAny("NPU").value  # as the bindings convert a plugin's string, which the NPU's returns
    compiling.check_devices(text, "NPU")
    with pytest.raises(UnsupportedError, match="but the model runs on NPU"):
        compiling.check_devices(text, "GPU")
    compiling.check_devices(["GPU.1"], "GPU.1")


def test_auto_never_computes_on_the_processor_first_and_reports_its_choice(core, product):
    properties = compiling.properties(cell("openvino:AUTO"), POINT, has_states=False)
    assert (properties["ENABLE_STARTUP_FALLBACK"], properties["ENABLE_RUNTIME_FALLBACK"]) == (False, False)
    ours = compiling.compile_graph(core, product, cell("openvino:AUTO", num_threads=1), POINT, has_states=False)
    assert ours.facts["execution_devices"] == ["CPU"]
    assert (ours.facts["num_threads"], ours.facts["inference_precision"]) == (1, "f32")


@pytest.mark.parametrize("selector", ["cpu", "openvino:AUTO"])
def test_the_number_of_requests_is_set_and_read_back(core, product, selector):
    point, throughput = Point(batch_size=1, concurrency=3), {"hint": "throughput"}
    ours = compiling.compile_graph(core, product, cell(selector, mode=throughput), point, has_states=False)
    assert ours.requested["PERFORMANCE_HINT_NUM_REQUESTS"] == ours.facts["hinted_requests"] == 3
    alone = compiling.compile_graph(core, product, cell(selector), POINT, has_states=False)
    assert "hinted_requests" not in alone.facts
    with pytest.raises(
        UnsupportedError, match=r"PERFORMANCE_HINT_NUM_REQUESTS 4 on OpenVINO's .*, but the compiled model has 3"
    ):
        compiling.check(ours.facts, {"PERFORMANCE_HINT_NUM_REQUESTS": 4}, "AUTO" if ":" in selector else "CPU")


def test_threads_are_verified(core, product):
    ours = compiling.compile_graph(core, product, cell(num_threads=1), POINT, has_states=False)
    assert ours.facts["num_threads"] == 1
    with pytest.raises(
        UnsupportedError, match="INFERENCE_NUM_THREADS 3 on OpenVINO's CPU, but the compiled model has 2"
    ):
        compiling.check({"execution_devices": ["CPU"], "num_threads": 2}, {"INFERENCE_NUM_THREADS": 3}, "CPU")
    with pytest.raises(UnsupportedError, match="--num-threads is for CPUs only, not for OpenVINO's NPU"):
        compiling.properties(cell("openvino:NPU", num_threads=2), POINT, has_states=False)


def test_activations_are_quantized_only_with_dynamic_quantization(core, product):
    for method, size in (("weight-only", 0), ("dynamic", 32)):
        ours = compiling.compile_graph(
            core, product, cell(precision="int8", mode={"quantization": method}), POINT, has_states=False
        )
        assert ours.facts["dynamic_quantization_group_size"] == size
    assert (
        "dynamic_quantization_group_size"
        not in compiling.compile_graph(core, product, cell(), POINT, has_states=False).facts
    )
    assert (
        compiling.properties(cell("openvino:GPU", "int8"), POINT, has_states=False)["INFERENCE_PRECISION_HINT"] == "f16"
    )


@pytest.mark.parametrize("selector", ["cpu", "openvino:CPU"])
@pytest.mark.parametrize(("flags", "is_refused"), [(["avx2"], True), (["avx2", "avx512_vnni"], False), (None, False)])
def test_quantized_activations_without_dot_products_of_8_bits_are_refused(monkeypatch, selector, flags, is_refused):
    """Device cpu has its own facts, also if this machine plans for another one."""
    known, none = Readings(values={} if flags is None else {"cpu_capabilities": flags}), Readings()
    is_own = selector == "cpu"
    monkeypatch.setattr(compiling, "host_facts", lambda: none if is_own else known)
    cpu = replace(cell(selector).device, facts=known if is_own else none)
    compiling.check_dot_products(cpu, "weight-only")
    compiling.check_dot_products(cell("openvino:GPU").device, "dynamic")
    if is_refused:
        with pytest.raises(UnsupportedError, match="this CPU has no 8-bit dot products"):
            compiling.check_dot_products(cpu, "dynamic")
    else:
        compiling.check_dot_products(cpu, "dynamic")


def test_property_missing_on_read_back_is_refused():
    with pytest.raises(
        UnsupportedError, match="PERFORMANCE_HINT LATENCY on OpenVINO's CPU, but the compiled model does not report it"
    ):
        compiling.check({"execution_devices": ["CPU"]}, {"PERFORMANCE_HINT": "LATENCY"}, "CPU")


def test_a_compile_error_is_one_line_and_out_of_memory_has_its_own_error():
    trouble = RuntimeError("Exception from src/core.cpp:1:\nCheck failed\n[GPU] no kernel for Foo\n")
    with pytest.raises(
        BenchhouseError, match=r"^OpenVINO cannot compile tiny-bert for GPU: \[GPU\] no kernel for Foo$"
    ):
        compiling.compile_graph(FakeCore(trouble), None, cell("openvino:GPU", "float16"), POINT, has_states=False)
    full = RuntimeError("clCreateBuffer\nCL_OUT_OF_HOST_MEMORY")
    with pytest.raises(OutOfMemoryError, match="out of memory while compiling for GPU"):
        compiling.compile_graph(FakeCore(full), None, cell("openvino:GPU", "float16"), POINT, has_states=False)


def test_kernels_are_read_from_the_run_and_a_cpu_has_no_fallback(core, product):
    ours = compiling.compile_graph(core, product, cell(), POINT, has_states=False)
    request = ours.model.create_infer_request()
    request.infer([np.ones((3, 64), np.float32)])
    found = openvino_session.nodes_of(ours.model)
    facts = openvino_session.node_facts(found, "CPU")
    assert facts["matrix_nodes_by_precision"] == {"f32": 1}
    assert facts["nodes"] == len(found) >= 1
    assert "nodes_on_cpu_unasked" not in facts
    openvino_session.check_kernels(found, "f32", "CPU")
    with pytest.raises(
        UnsupportedError, match="requested bf16 on OpenVINO's CPU, but its matrix products are computed in f32"
    ):
        openvino_session.check_kernels(found, "bf16", "CPU")


def test_nodes_on_the_cpu_are_counted_without_shape_arithmetic():
    graph = (
        node("Input", "", "FP16"),
        node("FullyConnected", "fully_connected_gpu_bf_tiled__f16", "FP16"),
        node("Softmax", "softmax_cpu_impl__f16", "FP16"),
        node("Gather", "gather_cpu_impl__i64", "I64"),
    )
    facts = openvino_session.node_facts(openvino_session.nodes_of(FakeCompiled(graph)), "GPU")
    assert (facts["nodes"], facts["nodes_on_cpu_unasked"]) == (3, 1)
    assert facts["nodes_by_precision"] == {"f16": 2, "i64": 1}
    assert facts["matrix_kernels"] == {"FullyConnected fully_connected_gpu_bf_tiled__f16": 1}


def test_a_plugin_without_an_execution_graph_is_a_reason():
    class Without(FakeCompiled):
        def get_runtime_model(self):
            raise RuntimeError("Not Implemented")

    assert openvino_session.nodes_of(Without()) == "not_supported: the plugin does not provide an execution graph"


def test_openvinos_cpu_has_the_warm_up_and_checks_of_device_cpu():
    assert OpenVinoHandle("CPU", None).torch_name == "cpu"
    assert OpenVinoHandle("GPU.0", None).torch_name is None
    assert device_name(Device(type="cpu", selector="cpu", found=True)) == "CPU"
    assert device_name(Device(type="openvino", selector="openvino:GPU.1", found=True)) == "GPU.1"

"""OpenVINO's devices on answers of its property interface."""

from types import SimpleNamespace

import pytest

from benchmarking.core.device_contracts import STATE_NAMES
from benchmarking.core.errors import BenchhouseError
from benchmarking.devices import openvino

LAPTOP = {
    "CPU": {
        "FULL_DEVICE_NAME": "Intel(R) Core(TM) Ultra 7 155H",
        "OPTIMIZATION_CAPABILITIES": ["FP32", "INT8", "BIN", "EXPORT_IMPORT"],
        "DEVICE_ARCHITECTURE": "intel64",
        "RANGE_FOR_STREAMS": (1, 22),
    },
    "GPU.0": {
        "FULL_DEVICE_NAME": "Intel(R) Arc(TM) Graphics (iGPU)",
        "OPTIMIZATION_CAPABILITIES": ["FP32", "BIN", "FP16", "INT8", "EXPORT_IMPORT"],
        "GPU_DEVICE_TOTAL_MEM_SIZE": 16_000_000_000,
        "GPU_EXECUTION_UNITS_COUNT": 128,
        "DEVICE_TYPE": SimpleNamespace(name="INTEGRATED"),
    },
    "GPU.1": {
        "FULL_DEVICE_NAME": "Intel(R) Arc(TM) A770 Graphics (dGPU)",
        "OPTIMIZATION_CAPABILITIES": ["FP32", "BIN", "FP16", "INT8"],
    },
    "NPU": {
        "FULL_DEVICE_NAME": "Intel(R) AI Boost",
        "OPTIMIZATION_CAPABILITIES": ["FP16", "INT8", "EXPORT_IMPORT"],
        "NPU_DRIVER_VERSION": 2_020_101,
        "NPU_DEVICE_ALLOC_MEM_SIZE": 77,
    },
    "AUTO": {"OPTIMIZATION_CAPABILITIES": ["FP32", "FP16", "INT8"]},
}


def recorded(answers):
    """The module openvino, its Core answering from a dictionary; like the real one, it raises RuntimeError."""

    def get_property(name, key):
        if key not in answers.get(name, {}):
            raise RuntimeError(f"Exception from src/inference/src/cpp/core.cpp:232:\nUnsupported property {key}")
        return answers[name][key]

    core = SimpleNamespace(available_devices=[name for name in answers if name != "AUTO"], get_property=get_property)
    return SimpleNamespace(__version__="2026.4.1-22982-e213a147257", Core=lambda: core)


def test_devices_are_in_order_of_preference():
    devices = openvino.OpenVinoDevice(recorded(LAPTOP)).probe()
    assert [device.selector for device in devices] == [
        "openvino:GPU.0",
        "openvino:GPU.1",
        "openvino:NPU",
        "openvino:CPU",
        "openvino:AUTO",
    ]
    assert [device.count for device in devices] == [2, 2, 1, 1, 1]


def test_facts_are_the_properties_of_the_kind():
    gpu, _, npu, cpu, auto = openvino.OpenVinoDevice(recorded(LAPTOP)).probe()
    assert (gpu.name, gpu.vendor, gpu.driver) == ("Intel(R) Arc(TM) Graphics (iGPU)", "Intel", "OpenVINO 2026.4.1")
    assert gpu.memory_bytes == 16_000_000_000
    assert gpu.facts.values["execution_units"] == 128
    assert gpu.facts.values["device_kind"] == "INTEGRATED"
    assert npu.facts.values["npu_driver"] == 2_020_101
    assert npu.memory_bytes is None
    assert cpu.facts.values["streams_range"] == [1, 22]
    assert "execution_units" not in cpu.facts.missing
    assert auto.name == "AUTO over CPU, GPU.0, GPU.1, NPU"


def test_precisions_are_the_devices_capabilities():
    gpu, _, npu, cpu, _ = openvino.OpenVinoDevice(recorded(LAPTOP)).probe()
    assert cpu.precisions == ("float32", "int8", "int4")
    assert gpu.precisions == ("float32", "float16", "int8", "int4")
    assert npu.precisions == ("float16", "int8", "int4")
    assert npu.facts.values["native_precisions"] == ["float16", "int8"]


def test_unresponsive_device_is_found_with_reasons():
    gpu, _ = openvino.OpenVinoDevice(recorded({"GPU": {}})).probe()
    assert gpu.name == "OpenVINO GPU"
    assert gpu.precisions == ()
    assert gpu.facts.missing["FULL_DEVICE_NAME"].startswith("not_supported: OpenVINO does not report FULL_DEVICE_NAME")


def test_a_missing_package_is_the_reason(monkeypatch):
    def refuse():
        raise ImportError("No module named 'openvino'")

    monkeypatch.setattr(openvino, "import_openvino", refuse)
    (device,) = openvino.OpenVinoDevice().probe()
    assert device.why_not.startswith('package openvino is missing: pip install "benchhouse[measure]" (No module named')


def test_core_that_fails_to_start_has_its_last_line():
    def explode():
        raise RuntimeError("Exception from core.cpp:1:\nCannot load library libtbb.so\n")

    (device,) = openvino.OpenVinoDevice(SimpleNamespace(__version__="2026.4", Core=explode)).probe()
    assert device.why_not == "OpenVINO 2026.4 failed to start: Cannot load library libtbb.so"


def test_core_without_devices_is_not_found():
    (device,) = openvino.OpenVinoDevice(recorded({})).probe()
    assert device.why_not.startswith("OpenVINO 2026.4.1-22982-e213a147257 lists no device")


def test_an_open_device_has_openvinos_name():
    plugin = openvino.OpenVinoDevice(recorded(LAPTOP))
    handles = [plugin.open(device) for device in plugin.probe()]
    assert [handle.openvino_name for handle in handles] == ["GPU.0", "GPU.1", "NPU", "CPU", "AUTO"]
    assert handles[0].torch_name is None
    assert handles[2].memory_in_use().values == {"device_used_bytes": 77}
    assert handles[0].memory_in_use().values == {}
    assert set(handles[0].state().missing) == set(STATE_NAMES)


def test_opening_a_device_that_is_gone_is_an_error():
    gpu = openvino.OpenVinoDevice(recorded(LAPTOP)).probe()[0]
    with pytest.raises(BenchhouseError, match=r"'openvino:GPU.0' is no longer available: OpenVINO lists CPU"):
        openvino.OpenVinoDevice(recorded({"CPU": {}})).open(gpu)


def test_devices_that_compute_on_the_processor_share_its_lock():
    devices = openvino.OpenVinoDevice(recorded(LAPTOP)).probe()
    locks = [openvino.PLUGIN.lock_name(device) for device in devices]
    assert locks == ["openvino-GPU.0", "openvino-GPU.1", "openvino-NPU", "cpu", "cpu"]


@pytest.mark.parametrize(
    ("name", "vendor"),
    [("AMD EPYC", "AMD"), ("Intel(R) Xeon(R)", "Intel"), ("Apple M2", "Apple"), ("Zhaoxin KX", "unknown")],
)
def test_vendor_of_a_processor_is_in_its_name(name, vendor):
    device = openvino.OpenVinoDevice(recorded({"CPU": {"FULL_DEVICE_NAME": name}})).probe()[0]
    assert device.vendor == vendor

"""The QNN device on fakes of ONNX Runtime and its plugin."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from benchmarking.core.errors import BenchhouseError
from benchmarking.core.records import Readings
from benchmarking.devices import qnn

HOST = Readings(values={"cpu_model": "Snapdragon(R) X Elite - X1E80100", "memory_bytes": 32_000_000_000})


class RefusedError(Exception):
    pass


STATE = SimpleNamespace(
    Fail=RefusedError, InvalidArgument=RefusedError, NotImplemented=RefusedError, RuntimeException=RefusedError
)


def hardware(kind, description=None):
    metadata = {"Description": description} if description else {}
    device = SimpleNamespace(type=f"OrtHardwareDeviceType.{kind}", metadata=metadata)
    return SimpleNamespace(ep_name=qnn.PROVIDER, ep_vendor="Qualcomm", ep_metadata={"version": "0.1.0"}, device=device)


class Runtime:
    """onnxruntime; it lists the plugin's devices once the library was registered."""

    __version__ = "1.31.1"
    capi = SimpleNamespace(onnxruntime_pybind11_state=STATE)

    def __init__(self, offered, refuses=False):
        self.offered = offered
        self.refuses = refuses
        self.registered = []

    def register_execution_provider_library(self, name, path):
        if self.refuses:
            raise RefusedError("Failed to load library")
        self.registered.append((name, path))

    def get_ep_devices(self):
        cpu = SimpleNamespace(ep_name="CPUExecutionProvider")
        return [cpu, *self.offered] if self.registered else [cpu]


@pytest.fixture
def plugin(plant: Callable[[dict[str, Any]], Path]) -> SimpleNamespace:
    """onnxruntime_qnn of a wheel without the CPU backend."""
    root = plant({"libQnnHtp.so": "", "libQnnGpu.so": ""})
    return SimpleNamespace(
        __version__="2.7.0",
        get_library_path=lambda: str(root / "libonnxruntime_providers_qnn.so"),
        get_qnn_htp_path=lambda: str(root / "libQnnHtp.so"),
        get_qnn_gpu_path=lambda: str(root / "libQnnGpu.so"),
        get_qnn_cpu_path=lambda: str(root / "libQnnCpu.so"),
    )


@pytest.fixture
def snapdragon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qnn.platform, "system", lambda: "Windows")
    monkeypatch.setattr(qnn.platform, "machine", lambda: "ARM64")
    monkeypatch.setattr(qnn, "host_facts", lambda: HOST)


@pytest.fixture
def x86(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(qnn.platform, "system", lambda: "Linux")
    monkeypatch.setattr(qnn.platform, "machine", lambda: "x86_64")


def test_npu_of_a_snapdragon_is_found(plugin, snapdragon):
    name = "Snapdragon(R) X Elite - Qualcomm(R) Hexagon(TM) NPU"
    runtime = Runtime([hardware("GPU"), hardware("NPU", name)])
    (device,) = qnn.QnnDevice(runtime, plugin).probe()
    assert (device.selector, device.name, device.vendor) == ("qnn", name, "Qualcomm")
    assert device.driver == "QNN plugin 2.7.0"
    assert not device.simulated
    assert device.facts.values["backends"] == ["htp", "gpu"]
    assert device.facts.values["provider_devices"] == ["NPU", "GPU"]
    assert device.precisions == ("float16", "int8", "float32")  # the GPU's backend has the last
    assert device.memory_bytes == 32_000_000_000
    assert runtime.registered == [(qnn.PROVIDER, plugin.get_library_path())]


def test_x86_emulator_is_marked(plugin, x86):
    (device,) = qnn.QnnDevice(Runtime([hardware("CPU")]), plugin).probe()
    assert device.simulated
    assert device.name.startswith("Qualcomm HTP emulator on ")
    assert device.facts.values["backends"] == ["htp"]  # the GPU's library is there and has no emulator
    assert device.precisions == ("float16", "int8")
    assert qnn.PLUGIN.lock_name(device) == "cpu"


def test_a_library_is_registered_once(plugin, x86):
    runtime = Runtime([hardware("CPU")])
    device = qnn.QnnDevice(runtime, plugin)
    device.probe()
    device.probe()
    assert len(runtime.registered) == 1


def test_unloadable_plugin_is_reported(plugin, x86):
    (device,) = qnn.QnnDevice(Runtime([], refuses=True), plugin).probe()
    assert device.why_not == "onnxruntime 1.31.1 cannot load the QNN plugin: Failed to load library"


def test_a_plugin_without_a_device_is_not_found(plugin, snapdragon):
    (device,) = qnn.QnnDevice(Runtime([]), plugin).probe()
    assert device.why_not == "the QNN plugin lists no device on this ARM64 machine"


def test_a_plugin_without_backends_is_not_found(plugin, x86, tmp_path):
    for path in tmp_path.glob("libQnn*"):
        path.unlink()
    (device,) = qnn.QnnDevice(Runtime([hardware("CPU")]), plugin).probe()
    assert device.why_not.startswith(f"no QNN backend library in {tmp_path}")


def test_missing_packages_are_the_reason_with_their_install_command(x86, monkeypatch):
    real = qnn.importlib.import_module

    def without(*names):
        def load(name):
            if name in names:
                raise ImportError(f"No module named {name!r}")
            return Runtime([]) if name == "onnxruntime" else real(name)

        monkeypatch.setattr(qnn.importlib, "import_module", load)
        return qnn.QnnDevice().probe()[0].why_not

    assert "package onnxruntime is missing: pip install onnxruntime onnxruntime-qnn" in without("onnxruntime")
    assert without("onnxruntime_qnn") == (
        "package onnxruntime-qnn is missing: pip install --no-deps onnxruntime-qnn "
        "(works with the installed onnxruntime 1.31.1)"
    )


def test_old_packages_are_the_reason(plugin, x86):
    (device,) = qnn.QnnDevice(SimpleNamespace(__version__="1.20.0"), plugin).probe()
    assert device.why_not == "onnxruntime 1.20.0 does not support plugins: pip install 'onnxruntime>=1.23'"
    (device,) = qnn.QnnDevice(Runtime([]), SimpleNamespace(__version__="1.19")).probe()
    assert "too old to be a plugin" in device.why_not


def test_macos_has_no_qnn(monkeypatch):
    monkeypatch.setattr(qnn.platform, "system", lambda: "Darwin")
    assert qnn.QnnDevice().probe()[0].why_not == "QNN needs Windows or Linux; this is Darwin"


def test_an_open_device_has_the_arguments_of_a_session(plugin, snapdragon):
    npu = hardware("NPU")
    runtime = Runtime([hardware("GPU"), npu])
    device = qnn.QnnDevice(runtime, plugin)
    handle = device.open(device.probe()[0])
    assert handle.backends == {"htp": plugin.get_qnn_htp_path(), "gpu": plugin.get_qnn_gpu_path()}
    assert handle.provider_devices() == (npu,)
    assert runtime.registered == [(qnn.PROVIDER, plugin.get_library_path())]
    assert handle.state().missing["clock_hz"] == "not_supported: QNN does not report it"


def test_opening_without_backends_is_an_error(plugin, x86, tmp_path):
    device = qnn.QnnDevice(Runtime([hardware("CPU")]), plugin)
    (found,) = device.probe()
    for path in tmp_path.glob("libQnn*"):
        path.unlink()
    with pytest.raises(BenchhouseError, match="'qnn' is no longer available: its backend libraries are gone"):
        device.open(found)

"""DirectML as a provider of ONNX Runtime on a fake Windows: used by name only, on the requested GPU."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnxruntime
import pytest

from benchmarking.core.errors import UnsupportedError, UsageError
from benchmarking.core.records import Device, Workload
from benchmarking.devices.cpu import ORT_PROVIDER as CPU_PROVIDER
from benchmarking.devices.support import ort_providers as directml
from benchmarking.runtimes.onnxruntime import PLUGIN
from benchmarking.runtimes.support.onnxruntime import ort_runtime as ort_runtime
from benchmarking.runtimes.support.onnxruntime.ort_runtime import SessionSettings, open_graph
from benchmarking.workloads.support.resolve import resolve

GEFORCE, ARC = "NVIDIA GeForce RTX 4090", "Intel(R) Arc(TM) A770 Graphics"
NVIDIA = Device(type="cuda", selector="cuda:0", found=True, name=GEFORCE)
INTEL = Device(type="openvino", selector="openvino:GPU", found=True, name=f"{ARC} (dGPU)")
NAMED = {"provider": "directml"}


def entry(vendor_id, description, number=0, provider=directml.NAME):
    metadata = {"Description": description, "DxgiAdapterNumber": str(number)}
    return SimpleNamespace(ep_name=provider, device=SimpleNamespace(vendor_id=vendor_id, metadata=metadata))


INTEL_ENTRY, NVIDIA_ENTRY = entry(0x8086, ARC), entry(0x10DE, GEFORCE, 1)


@pytest.fixture
def bert() -> Workload:
    return resolve("tiny-bert", weights="random")


@pytest.fixture
def windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Windows whose ONNX Runtime is built with DirectML, and lists two adapters."""
    monkeypatch.setattr(directml.platform, "system", lambda: "Windows")
    listed = [directml.NAME, "CPUExecutionProvider"]
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: listed)
    entries = [INTEL_ENTRY, NVIDIA_ENTRY, entry(0x10DE, GEFORCE, provider="CUDAExecutionProvider")]
    monkeypatch.setattr("onnxruntime.get_ep_devices", lambda: entries)


def test_directml_is_taken_by_name_and_named_in_the_series(bert, windows):
    for device in (NVIDIA, INTEL):
        assert PLUGIN.supports(device, bert, "float16") is None
        assert PLUGIN.mode(device, bert, NAMED) == {"io_mode": "host", "provider": "directml"}
        with pytest.raises(UnsupportedError, match=r"--provider directml is available"):
            PLUGIN.mode(device, bert, {})
    with pytest.raises(UsageError, match="DmlExecutionProvider cannot bind to the memory of cuda:0"):
        PLUGIN.mode(NVIDIA, bert, {**NAMED, "io_mode": "device"})


def test_outside_windows_directml_is_refused_with_the_reason(bert, windows, monkeypatch):
    monkeypatch.setattr(directml.platform, "system", lambda: "Linux")
    assert "needs ONNX Runtime with CUDAExecutionProvider" in PLUGIN.supports(NVIDIA, bert, "float32")
    with pytest.raises(UnsupportedError, match=r"^DirectML is part of Windows; this is Linux$"):
        PLUGIN.mode(NVIDIA, bert, NAMED)
    with pytest.raises(UnsupportedError, match="provider 'directml': ONNX Runtime has cpu for cpu"):
        PLUGIN.mode(Device(type="cpu", selector="cpu", found=True), bert, NAMED)


def test_windows_without_the_package_has_its_install_command(bert, windows, monkeypatch):
    monkeypatch.setattr("onnxruntime.get_available_providers", lambda: ["CPUExecutionProvider"])
    with pytest.raises(
        UnsupportedError, match=r"DmlExecutionProvider \(onnxruntime-directml\): pip install onnxruntime-d"
    ):
        PLUGIN.mode(NVIDIA, bert, NAMED)


def test_precisions_without_kernels_are_refused_by_name(bert, windows):
    assert PLUGIN.supports(NVIDIA, bert, "tf32").startswith("tf32 is a mode of NVIDIA's tensor cores, which Dml")
    with pytest.raises(UnsupportedError, match="provider directml supports float32, float16, int8, int4, not bfloat16"):
        PLUGIN.mode_at("bfloat16", NAMED)
    assert PLUGIN.mode_at("int8", NAMED) == {**NAMED, "quantization": "dynamic"}


def test_adapter_matches_the_devices_vendor_and_name(windows):
    assert directml.adapters(NVIDIA) == (NVIDIA_ENTRY,)
    assert directml.adapters(INTEL) == (INTEL_ENTRY,)


@pytest.mark.parametrize(
    ("entries", "problem"),
    [
        ([], r"the adapter of cuda:0 \(NVIDIA GeForce RTX 4090\): no adapter has this name. Found: none$"),
        ([INTEL_ENTRY], r"no adapter has this name. Found: Intel\(R\) Arc\(TM\) A770 Graphics$"),
        ([entry(0x8086, GEFORCE)], "no adapter has this name"),
        ([NVIDIA_ENTRY, entry(0x10DE, GEFORCE, 2)], "2 adapters have this name"),
    ],
)
def test_an_ambiguous_adapter_is_refused(entries, problem):
    with pytest.raises(UnsupportedError, match=problem):
        directml.adapter_of(NVIDIA, entries)


def test_onnx_runtime_without_adapter_listing_is_too_old(windows, monkeypatch):
    monkeypatch.delattr("onnxruntime.get_ep_devices")
    with pytest.raises(UnsupportedError, match=r"pip install 'onnxruntime-directml>=1.23'"):
        directml.adapters(NVIDIA)


class Options:
    """The used part of onnxruntime.SessionOptions."""

    def __init__(self):
        self.entries = {}

    def add_session_config_entry(self, key, value):
        self.entries[key] = value

    def get_session_config_entry(self, key):
        return self.entries[key]

    def add_provider_for_devices(self, devices, options):
        self.entries["devices"] = (devices, options)


class Session:
    """onnxruntime.InferenceSession on the providers in `runs_on`."""

    runs_on = (directml.NAME, "CPUExecutionProvider")

    def __init__(self, path, options, **more):
        self.options, self.more = options, more

    def get_providers(self):
        return list(self.runs_on)

    def get_provider_options(self):
        return {}

    def get_session_options(self):
        return self.options


@pytest.fixture
def session_of(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., Any]:

    monkeypatch.setattr(onnxruntime, "SessionOptions", Options)
    monkeypatch.setattr(onnxruntime, "InferenceSession", Session)

    def opened(provider, **settings):
        how = SessionSettings(provider=provider, precision="float32", num_threads=1, **settings)
        return open_graph(tmp_path / "model.onnx", how), how

    return opened


def test_sessions_are_sequential_without_a_memory_pattern_on_that_adapter(session_of):
    session, settings = session_of(directml.DIRECTML, plugin_devices=(NVIDIA_ENTRY,))
    assert session.options.entries["devices"] == ([NVIDIA_ENTRY], {})
    assert session.more == {"enable_fallback": 0}
    facts = ort_runtime.session_facts(session, settings)
    assert (facts["execution_mode"], facts["memory_pattern"]) == ("sequential", False)
    assert facts["provider_devices"] == [{"Description": GEFORCE, "DxgiAdapterNumber": "1"}]


def test_session_that_fell_back_to_the_cpu_is_refused(session_of, monkeypatch):
    monkeypatch.setattr(Session, "runs_on", ("CPUExecutionProvider",))
    with pytest.raises(UnsupportedError, match=r"requested DmlExecutionProvider, but .* pip install onnxr"):
        session_of(directml.DIRECTML, plugin_devices=(NVIDIA_ENTRY,))


def test_other_providers_keep_their_memory_pattern(session_of, monkeypatch):
    monkeypatch.setattr(Session, "runs_on", ("CPUExecutionProvider",))
    session, settings = session_of(CPU_PROVIDER)
    facts = ort_runtime.session_facts(session, settings)
    assert facts["memory_pattern"] is True
    assert "provider_devices" not in facts

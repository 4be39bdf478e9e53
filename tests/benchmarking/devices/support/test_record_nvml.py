"""The recorder of NVML, whose recordings the tests replay."""

from __future__ import annotations

import importlib.util
import json
from types import ModuleType

import pytest

from benchmarking.devices import cuda
from benchmarking.devices.support import nvml as nvml_module
from benchmarking.devices.support import torch_gpu
from benchmarking.devices.support.torch_gpu import TorchBuild
from tests.helpers.paths import FIXTURES

SCRIPT = FIXTURES / "devices" / "record_nvml.py"


@pytest.fixture
def recorder() -> ModuleType:
    spec = importlib.util.spec_from_file_location("record_nvml", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.mark.parametrize("name", ["nvml_2x_h100.json", "nvml_rtx_2080_ti.json"])
def test_recording_a_recording_is_idempotent(recorder, nvml, monkeypatch, name):
    monkeypatch.setattr(torch_gpu, "torch_build", lambda: TorchBuild(version="2.13.0+cu110", cuda="11.0"))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    played = nvml(name)
    recorded = nvml(name)
    recorded.recording = json.loads(json.dumps(recorder.record(nvml(name))))
    for before, after in zip(cuda.CudaDevice(played).probe(), cuda.CudaDevice(recorded).probe(), strict=True):
        assert (after.name, after.memory_bytes, after.driver) == (before.name, before.memory_bytes, before.driver)
        unnamed = ("uuid", "pci_address")
        assert {k: v for k, v in after.facts.values.items() if k not in unnamed} == {
            k: v for k, v in before.facts.values.items() if k not in unnamed
        }
        assert after.facts.missing == before.facts.missing
        states = [
            nvml_module.NvmlMonitor(nvml_module.Nvml(module), device.facts.values["uuid"], own_pid=1).state()
            for module, device in ((played, before), (recorded, after))
        ]
        assert states[0].missing == states[1].missing
        assert {k: v for k, v in states[0].values.items() if k != "foreign_pids"} == {
            k: v for k, v in states[1].values.items() if k != "foreign_pids"
        }


def test_facts_that_identify_the_machine_are_not_recorded(recorder, nvml):
    text = json.dumps(recorder.record(nvml()))
    assert "5f1c7d0e" not in text
    assert "00000000:18:00.0" not in text
    assert recorder.record(nvml())["devices"][1]["nvmlDeviceGetUUID"] == "GPU-00000000-0000-4000-8000-000000000001"


def test_without_a_driver_the_reason_is_one_line(recorder, monkeypatch, tmp_path, capsys):
    def refuse():
        raise nvml_module.NvmlError("the NVIDIA driver is not installed: install it if there is a GPU")

    monkeypatch.setattr(nvml_module, "load_module", refuse)
    assert recorder.main([str(tmp_path / "gpu.json")]) == 1
    assert capsys.readouterr().err == (
        "record_nvml: the NVIDIA driver is not installed: install it if there is a GPU\n"
    )
    assert not (tmp_path / "gpu.json").exists()

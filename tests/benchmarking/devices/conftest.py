"""Vendors' libraries that answer from files, and machines made of files (see tests/fixtures/devices/README.md)."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import IntEnum
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.helpers.paths import FIXTURES

DEVICES = FIXTURES / "devices"


@pytest.fixture
def recorded_text() -> Callable[[str], str]:
    """The text of a recording by file name."""
    return lambda name: (DEVICES / name).read_text()


@pytest.fixture
def plant(tmp_path: Path) -> Callable[[dict[str, Any]], Path]:
    """Writes files (path -> content) under a root, and gives the root."""

    def write(files: dict[str, Any]) -> Path:
        for name, content in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{content}\n")
        return tmp_path

    return write


class RecordedNvml:
    """The module pynvml, its answers those of a recording; constants and errors are the package's own."""

    def __init__(self, recording: dict[str, Any], init_error: int | None = None) -> None:
        self.recording = recording
        self.init_error = init_error
        self.is_shut_down = False

    def __getattr__(self, name: str) -> Any:
        import pynvml

        if name.startswith(("nvmlDeviceGet", "nvmlSystemGet")):
            return lambda *arguments: self._answer(name, *arguments)
        return getattr(pynvml, name)

    def nvmlInit(self) -> None:  # noqa: N802
        if self.init_error is not None:
            raise self.NVMLError(self.init_error)

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.is_shut_down = True

    def nvmlDeviceGetCount(self) -> int:  # noqa: N802
        return len(self.recording["devices"])

    def nvmlDeviceGetHandleByIndex(self, index: int) -> dict[str, Any]:  # noqa: N802
        return self.recording["devices"][index]

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> dict[str, Any]:  # noqa: N802
        for device in self.recording["devices"]:
            if device["nvmlDeviceGetUUID"] == uuid:
                return device
        raise self.NVMLError(self.NVML_ERROR_NOT_FOUND)

    def _answer(self, name: str, *arguments: Any) -> Any:
        source, keys = (
            (arguments[0], arguments[1:]) if name.startswith("nvmlDevice") else (self.recording["system"], ())
        )
        answer = source[name]
        for key in keys:
            answer = answer[str(key)] if not (isinstance(answer, dict) and "error" in answer) else answer
        return self._value(answer)

    def _value(self, answer: Any) -> Any:
        if isinstance(answer, dict) and "error" in answer:
            raise self.NVMLError(answer["error"])
        if isinstance(answer, dict):
            return SimpleNamespace(**answer)
        if isinstance(answer, list):
            return [self._value(entry) for entry in answer]
        return answer


@pytest.fixture
def nvml() -> Callable[..., RecordedNvml]:
    """A recorded pynvml by file name."""
    return lambda name="nvml_2x_h100.json", **options: RecordedNvml(json.loads((DEVICES / name).read_text()), **options)


class SmiError(Exception):
    def __init__(self, err_code: int) -> None:
        super().__init__(f"Error code:\n\t{err_code} | AMDSMI_STATUS")
        self.err_code = err_code


class RecordedAmdSmi:
    """The module amdsmi for one GPU, its answers those of a recording; enumerations numbered as in the package."""

    AmdSmiException = SmiError
    AmdSmiClkType = IntEnum("AmdSmiClkType", {"GFX": 0, "MEM": 4})
    AmdSmiTemperatureType = IntEnum("AmdSmiTemperatureType", {"EDGE": 0, "HOTSPOT": 1})
    AmdSmiTemperatureMetric = IntEnum("AmdSmiTemperatureMetric", {"CURRENT": 0})
    AmdSmiMemoryType = IntEnum("AmdSmiMemoryType", {"VRAM": 0})

    def __init__(self, recording: dict[str, Any]) -> None:
        self.recording = recording

    def amdsmi_init(self) -> None:
        return None

    def amdsmi_shut_down(self) -> None:
        return None

    def amdsmi_get_processor_handles(self) -> list[str]:
        return ["handle"]

    def __getattr__(self, name: str) -> Any:
        if name not in self.recording:
            raise AttributeError(name)
        return lambda handle, *keys: self._answer(self.recording[name], keys)

    def _answer(self, answer: Any, keys: tuple[Any, ...]) -> Any:
        if keys and isinstance(answer, dict):
            answer = answer[str(int(keys[0]))]
        if isinstance(answer, dict) and "error" in answer:
            raise SmiError(answer["error"])
        return answer


@pytest.fixture
def amdsmi() -> RecordedAmdSmi:
    return RecordedAmdSmi(json.loads((DEVICES / "amdsmi_mi300x.json").read_text()))


@pytest.fixture
def kfd(plant: Callable[[dict[str, Any]], Path], recorded_text: Callable[[str], str]) -> Path:
    """The /sys of a machine with one MI300X, as the kernel's amdgpu driver shows it."""
    gpu = "sys/class/drm/renderD128/device"
    nodes = "sys/class/kfd/kfd/topology/nodes"
    root = plant(
        {
            f"{nodes}/0/properties": recorded_text("kfd_cpu_properties.txt"),
            f"{nodes}/0/name": "",
            f"{nodes}/1/properties": recorded_text("kfd_mi300x_properties.txt"),
            f"{nodes}/1/name": "ip discovery",
            f"{gpu}/product_name": "AMD Instinct MI300X OAM",
            f"{gpu}/unique_id": "348a2b8f6c1d5e00",
            f"{gpu}/mem_info_vram_total": 206141652992,
            f"{gpu}/mem_info_vram_used": 297807872,
            f"{gpu}/current_compute_partition": "SPX",
            f"{gpu}/current_link_width": 16,
            f"{gpu}/max_link_width": 16,
            f"{gpu}/hwmon/hwmon3/name": "amdgpu",
            f"{gpu}/hwmon/hwmon3/freq1_input": 2104000000,
            f"{gpu}/hwmon/hwmon3/freq2_input": 1300000000,
            f"{gpu}/hwmon/hwmon3/temp2_input": 47000,
            f"{gpu}/hwmon/hwmon3/power1_input": 213000000,
            f"{gpu}/hwmon/hwmon3/power1_cap": 750000000,
            f"{gpu}/hwmon/hwmon3/power1_cap_default": 750000000,
            "dev/kfd": "",
        }
    )
    return root / "sys"


class FakeTorch:
    """The part of torch that GPU handles use, and a record of what was called."""

    __version__ = "2.13.0+fake"

    def __init__(self, gpus: list[Any]) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.cuda = SimpleNamespace(
            is_available=lambda: bool(gpus),
            device_count=lambda: len(gpus),
            get_device_properties=lambda index: gpus[index],
            synchronize=self._note("synchronize"),
            empty_cache=self._note("empty_cache"),
            reset_peak_memory_stats=self._note("reset_peak_memory_stats"),
            max_memory_allocated=lambda index: 1_000_000,
            max_memory_reserved=lambda index: 2_097_152,
            device=self._device,
            Event=FakeEvent,
        )

    def _note(self, name: str) -> Callable[..., None]:
        return lambda *arguments: self.calls.append((name, arguments))

    def _device(self, index: int) -> Any:
        from contextlib import nullcontext

        self.calls.append(("device", index))
        return nullcontext()


class FakeEvent:
    """An event whose pair is always 1.5 ms apart."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.is_recorded = False

    def record(self) -> None:
        self.is_recorded = True

    def elapsed_time(self, end: FakeEvent) -> float:
        assert self.is_recorded
        assert end.is_recorded
        return 1.5


@pytest.fixture
def fake_torch() -> Callable[[list[Any]], FakeTorch]:
    return FakeTorch

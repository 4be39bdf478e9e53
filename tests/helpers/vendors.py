"""Vendors' libraries that answer from recordings (see tests/fixtures/devices/README.md), and the part of torch that GPU
handles use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import IntEnum
from types import SimpleNamespace
from typing import Any


class RecordedNvml:
    """The module pynvml with recorded answers, and with the constants and errors of the package."""

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
        device: dict[str, Any] = self.recording["devices"][index]
        return device

    def nvmlDeviceGetHandleByUUID(self, uuid: str) -> dict[str, Any]:  # noqa: N802
        devices: list[dict[str, Any]] = self.recording["devices"]
        for device in devices:
            if device["nvmlDeviceGetUUID"] == uuid:
                return device
        raise self.NVMLError(self.NVML_ERROR_NOT_FOUND)

    def nvmlDeviceGetMemoryInfo(self, handle: dict[str, Any], version: int | None = None) -> Any:  # noqa: N802
        return self._answer(f"nvmlDeviceGetMemoryInfo{'' if version is None else '_v2'}", handle)

    def nvmlDeviceGetFieldValues(self, handle: dict[str, Any], numbers: list[int]) -> Any:  # noqa: N802
        """The package's own structures, as the driver fills them."""
        import pynvml

        values = (pynvml.c_nvmlFieldValue_t * len(numbers))()
        for value, number in zip(values, numbers, strict=True):
            recorded = handle["nvmlDeviceGetFieldValues"].get(str(number), {"error": pynvml.NVML_ERROR_NOT_SUPPORTED})
            value.fieldId = number
            if isinstance(recorded, dict):
                value.nvmlReturn = recorded["error"]
                continue
            value.valueType = pynvml.NVML_VALUE_TYPE_UNSIGNED_LONG_LONG
            value.value.ullVal = recorded
        return values

    def nvmlDeviceGetProcessUtilization(self, handle: dict[str, Any], since_us: int) -> Any:  # noqa: N802
        """The samples since then; a recorded time counts from 1970, so that 0 gives all."""
        return self._value(handle["nvmlDeviceGetProcessUtilization"])

    def _answer(self, name: str, *arguments: Any) -> Any:
        source, keys = (
            (arguments[0], arguments[1:]) if name.startswith("nvmlDevice") else (self.recording["system"], ())
        )
        answer = source.get(name, {"error": self.NVML_ERROR_NOT_SUPPORTED})
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


class SmiError(Exception):
    def __init__(self, err_code: int) -> None:
        super().__init__(f"Error code:\n\t{err_code} | AMDSMI_STATUS")
        self.err_code = err_code


class RecordedAmdSmi:
    """The module amdsmi for one GPU with recorded answers; enumerations are numbered as in the package."""

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
            current_stream=lambda index: ("stream", index),
            Event=FakeEvent,
            get_arch_list=lambda: ["sm_80", "sm_90", "compute_90"],
        )

    def _note(self, name: str) -> Callable[..., None]:
        return lambda *arguments: self.calls.append((name, arguments))

    @contextmanager
    def _device(self, name: str) -> Iterator[None]:
        """The current GPU until the end of the context."""
        self.calls.append(("device", name))
        yield
        self.calls.append(("left", name))


class FakeEvent:
    """An event whose pair is always 1.5 ms apart."""

    def __init__(self, enable_timing: bool) -> None:
        assert enable_timing
        self.is_recorded = False

    def record(self, stream: object) -> None:
        assert stream is not None
        self.is_recorded = True

    def elapsed_time(self, end: FakeEvent) -> float:
        assert self.is_recorded
        assert end.is_recorded
        return 1.5

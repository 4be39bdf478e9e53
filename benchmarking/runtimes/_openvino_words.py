"""What OpenVINO says, in plain words: its values as JSON, its errors as one line."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from benchmarking.records import Json

OUT_OF_MEMORY_TEXTS = (
    "out of memory",
    "out_of_memory",
    "out_of_host_memory",
    "out_of_device_memory",
    "bad_alloc",
    "bad allocation",
    "cl_mem_object_allocation_failure",
    "exceeded max size of memory",
    "can not allocate",
)
"""How OpenVINO's plugins word a failed allocation: C++'s own, OpenCL's, Level Zero's and the GPU plugin's."""


def plain(value: Any) -> Json:
    """A property's value as JSON: types become their short names ("f32"), enumerations their members' names."""
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(entry) for entry in value]
    if hasattr(value, "get_type_name"):
        return str(value.get_type_name())
    return str(getattr(value, "name", value))


def last_line(error: BaseException) -> str:
    """The last line of what OpenVINO said, which is the reason; those before it say where in its sources."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[-1] if lines else type(error).__name__


def is_out_of_memory(error: BaseException) -> bool:
    """Whether this is how Python, or OpenVINO on any device, says that memory ran out."""
    text = str(error).lower()
    return isinstance(error, MemoryError) or any(part in text for part in OUT_OF_MEMORY_TEXTS)

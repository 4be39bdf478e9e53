"""The Windows calls that list, open and ask energy meters (cfgmgr32.h, fileapi.h, ioapiset.h)."""

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Callable
from typing import Any

from benchmarking.devices._reading import UnreadableError
from benchmarking.records import FAILED, NO_PERMISSION, NOT_SUPPORTED

GUID_DEVICE_ENERGY_METER = uuid.UUID("45bd8344-7ed6-49cf-a440-c276c933b053")
PRESENT = 0
"""CM_GET_DEVICE_INTERFACE_LIST_PRESENT."""
CR_SUCCESS = 0
GENERIC_READ, SHARE_READ_WRITE, OPEN_EXISTING = 0x80000000, 0x3, 3
INVALID_HANDLE = ctypes.c_void_p(-1).value
ERROR_ACCESS_DENIED = 5


class WindowsMeters:
    """Energy meters of this machine. Give the libraries to play them."""

    def __init__(self, cfgmgr32: Any = None, kernel32: Any = None, last_error: Callable[[], int] | None = None) -> None:
        self._cfgmgr32 = cfgmgr32 or _library("cfgmgr32")
        self._kernel32 = kernel32 or _library("kernel32")
        self._last_error: Callable[[], int] = last_error or ctypes.get_last_error  # type: ignore[attr-defined,unused-ignore]
        self._kernel32.CreateFileW.restype = ctypes.c_void_p

    def paths(self) -> list[str]:
        """The meters' device paths: a list of texts, each ended by a zero, the last by two."""
        guid = (ctypes.c_ubyte * 16)(*GUID_DEVICE_ENERGY_METER.bytes_le)
        length = ctypes.c_ulong()
        self._configured(self._cfgmgr32.CM_Get_Device_Interface_List_SizeW(ctypes.byref(length), guid, None, PRESENT))
        buffer = (ctypes.c_uint16 * max(1, length.value))()
        self._configured(
            self._cfgmgr32.CM_Get_Device_Interface_ListW(guid, None, buffer, ctypes.c_ulong(len(buffer)), PRESENT)
        )
        return [path for path in bytes(buffer).decode("utf-16-le").split("\0") if path]

    def open(self, path: str) -> int:
        """A handle of a meter. Raises UnreadableError."""
        handle = self._kernel32.CreateFileW(path, GENERIC_READ, SHARE_READ_WRITE, None, OPEN_EXISTING, 0, None)
        if handle in (None, INVALID_HANDLE):
            raise UnreadableError(self._reason("CreateFileW of an energy meter"))
        return int(handle)

    def control(self, handle: int, code: int, size: int) -> bytes:
        """What DeviceIoControl answers, at most `size` bytes. Raises UnreadableError."""
        buffer, returned = ctypes.create_string_buffer(size), ctypes.c_ulong()
        done = self._kernel32.DeviceIoControl(
            ctypes.c_void_p(handle), code, None, 0, buffer, size, ctypes.byref(returned), None
        )
        if not done:
            raise UnreadableError(self._reason(f"DeviceIoControl 0x{code:x} of an energy meter"))
        return buffer.raw[: returned.value]

    def close(self, handle: int) -> None:
        """Let a handle go."""
        self._kernel32.CloseHandle(ctypes.c_void_p(handle))

    def _configured(self, result: int) -> None:
        if result != CR_SUCCESS:
            raise UnreadableError(f"{FAILED}: the list of energy meters: CONFIGRET {result}")

    def _reason(self, what: str) -> str:
        code = self._last_error()
        return f"{NO_PERMISSION if code == ERROR_ACCESS_DENIED else FAILED}: {what}: error {code}"


def _library(name: str) -> Any:
    """A system library. Raises UnreadableError anywhere but on Windows."""
    load: Any = getattr(ctypes, "WinDLL", None)
    if load is None:
        raise UnreadableError(f"{NOT_SUPPORTED}: energy meters are Windows'")
    return load(name, use_last_error=True)

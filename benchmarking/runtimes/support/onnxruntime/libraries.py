"""The shared libraries of ONNX Runtime's providers for NVIDIA GPUs: the versions they link, whether the driver supports
them, and what ONNX Runtime printed if one failed to load."""

from __future__ import annotations

import importlib.util
import mmap
import os
import re
import stat
from functools import cache
from pathlib import Path

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import Device

CUDA_RUNTIME = re.compile(rb"cudart(?:\.so\.|64_)(\d{2})")
"""Names among a library's dependencies: libcudart.so.13, cudart64_13.dll."""
TENSORRT = re.compile(rb"nvinfer(?:\.so\.|_)(\d+)")
"""libnvinfer.so.10, nvinfer_10.dll."""
STDERR = 2
COLOURS = re.compile(r"\x1b\[[\d;]*m")
NOT_LOADED = re.compile(r"Failed to load library \S+ with error: (?P<why>[^\n]+)")
ERROR_LINE = re.compile(r"\[E:onnxruntime:[^\]]*\] (?P<why>[^\n]+)")
TENSORRT_LINE = re.compile(r"\[(?:E|ERROR)\] (?P<why>[^\n]+)")
"""Line format of TensorRT's logger."""
CUDA_PACKAGES = "'onnxruntime-gpu[cuda,cudnn]'"
"""Requirement for pip: the provider and NVIDIA's libraries in the versions that it links."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Linked:
    """Major versions of NVIDIA's libraries that a provider's library depends on; None if it does not depend on one."""

    cuda: int | None = None
    tensorrt: int | None = None

    @property
    def tensorrt_package(self) -> str:
        """The requirement for pip of the TensorRT that it links: "'tensorrt-cu13>=10,<11'"."""
        name = "tensorrt" if self.cuda is None else f"tensorrt-cu{self.cuda}"
        return name if self.tensorrt is None else f"'{name}>={self.tensorrt},<{self.tensorrt + 1}'"


def provider_library(provider: str) -> Path | None:
    """The library of a provider ("cuda", "tensorrt") in the installed ONNX Runtime, without importing it."""
    spec = importlib.util.find_spec("onnxruntime")
    if spec is None or spec.origin is None:
        return None
    return next((Path(spec.origin).parent / "capi").glob(f"*onnxruntime_providers_{provider}.*"), None)


@cache
def linked(provider: str) -> Linked:
    """The versions that the installed provider links, read from its library's list of dependencies."""
    path = provider_library(provider)
    return Linked() if path is None else linked_by(path)


def linked_by(path: Path) -> Linked:
    """The same for a library file. The names appear in it as text, in ELF files as in DLLs."""
    with path.open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as content:
        return Linked(cuda=_major(CUDA_RUNTIME, content), tensorrt=_major(TENSORRT, content))


def _major(name: re.Pattern[bytes], content: mmap.mmap) -> int | None:
    match = name.search(content)
    return None if match is None else int(match[1])


def why_not_driver(device: Device, provider: str) -> str | None:
    """None, or why the device's driver is too old for the CUDA that a provider links."""
    version, needed = str(device.facts.values.get("cuda_driver_version", "")), linked(provider).cuda
    if needed is None or not version or int(version.partition(".")[0]) >= needed:
        return None
    return (
        f"onnxruntime-gpu needs CUDA {needed}; driver {device.driver} of {device.selector} supports CUDA {version}: "
        f"update the NVIDIA driver, or install an onnxruntime-gpu for CUDA {version.partition('.')[0]}"
    )


class StderrCapture:
    """What this process prints on stderr from now on, if that is a file, as in every worker; otherwise nothing.

    ONNX Runtime's C++ code prints there why it does not use a provider, without raising an error. The file is only
    read, since the supervisor reads it too if the process dies.
    """

    def __init__(self) -> None:
        self._start = _size(STDERR)

    def text(self) -> str:
        """The text so far."""
        end = _size(STDERR)
        return "" if end <= self._start else _read(STDERR, self._start, end).decode(errors="replace")


def _size(descriptor: int) -> int:
    """Bytes in a file; 0 for a terminal or a pipe."""
    status = os.fstat(descriptor)
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _read(descriptor: int, start: int, end: int) -> bytes:
    """A part of an open file, without moving its position; nothing if it is open for writing only."""
    try:
        if hasattr(os, "pread"):
            return os.pread(descriptor, end - start, start)
        position = os.lseek(descriptor, 0, os.SEEK_CUR)
        os.lseek(descriptor, start, os.SEEK_SET)
        content = os.read(descriptor, end - start)
        os.lseek(descriptor, position, os.SEEK_SET)
    except OSError:  # "2>file" of a shell
        return b""
    return content


def reason_in(text: str) -> str | None:
    """Why a provider was not used, from the output of ONNX Runtime and TensorRT: the library that could not be loaded,
    else the last error, else None."""
    plain = COLOURS.sub("", text)
    for line in (NOT_LOADED, TENSORRT_LINE, ERROR_LINE):
        if matches := line.findall(plain):
            return str(matches[-1]).strip()
    return None


def with_packages(text: str, packages: str) -> str | None:
    """The reason in a printed text, with the packages to install if a library could not be loaded."""
    failed_to_load = NOT_LOADED.search(COLOURS.sub("", text)) is not None
    return f"{reason_in(text)}: pip install {packages}" if failed_to_load else reason_in(text)

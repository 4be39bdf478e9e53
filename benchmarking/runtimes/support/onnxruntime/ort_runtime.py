"""Shared base of the runtimes on ONNX Runtime: requirements, a device's execution provider with its shared libraries,
and sessions, which are opened with explicit settings and rejected if they differ from the request.

Of the libraries for NVIDIA GPUs: the versions that they link, whether the driver supports them, and what ONNX Runtime
printed if one failed to load.
"""

from __future__ import annotations

import importlib.util
import math
import mmap
import os
import re
import stat
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any

from benchmarking.core import plugins
from benchmarking.core.contracts import Option, Runtime
from benchmarking.core.errors import BenchhouseError, OutOfMemoryError, UnsupportedError, first_line, is_out_of_memory
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.plugins import are_all_assumed, how_to_install, is_installed, version_of
from benchmarking.core.records import Cell, Device, Json, Precision, Scalar
from benchmarking.devices.support.host import host_facts, int_fact
from benchmarking.devices.support.ort_providers import OrtProvider
from benchmarking.graphs import exported_model as graphs

IO_MODE = Option("io_mode", "memory that holds a call's inputs and outputs", values=("device", "host"))
PROVIDER = Option(
    "provider", "execution provider of ONNX Runtime, such as directml on Windows", default="the device's own"
)
CPU = "CPUExecutionProvider"
"""The provider that every ONNX Runtime has."""
ASSIGNMENT = "session.record_ep_graph_assignment_info"
SPINNING = "session.intra_op.allow_spinning"
NVIDIA = {"CUDAExecutionProvider": "cuda", "TensorrtExecutionProvider": "tensorrt"}
"""The providers that load NVIDIA's libraries, with the word in the name of their own library."""
ERRORS = (
    *("EPFail", "EngineError", "Fail", "InvalidArgument", "InvalidGraph", "InvalidProtobuf", "ModelLoaded"),
    *("ModelRequiresCompilation", "NoModel", "NoSuchFile", "NotFound", "NotImplemented", "RuntimeException"),
)
"""ONNX Runtime's exceptions, which share no base class; a version may lack some."""


class OrtRuntime(Runtime):
    """A runtime that runs a model's exported graphs in ONNX Runtime, in a process without torch."""

    prepares = True
    needs_no_torch = True
    libraries: tuple[str, ...] = ("onnxruntime",)

    def missing(self) -> str | None:
        if not is_installed("onnxruntime"):
            return f"not installed: onnxruntime: {how_to_install()}"
        return graphs.missing()


def installed_version(distributions: Sequence[str]) -> str | None:
    """The version of the first of these distributions that is installed; None if none is."""
    return next((version for name in distributions if (version := version_of(name)) is not None), None)


def providers_of(device: Device) -> tuple[OrtProvider, ...]:
    """The providers that drive a device; empty if ONNX Runtime has none."""
    if device.type not in plugins.names(plugins.DEVICES):
        return ()
    return plugins.device_kind(device.type).ort_providers(device)


def built_provider(device: Device, providers: Sequence[OrtProvider], word: Scalar | None = None) -> OrtProvider | str:
    """The named provider of a device, or its first possible default, if the installed ONNX Runtime has it; otherwise
    the reason.

    A built-in provider may still fail to load: `open_graph` checks what the session runs on.
    """
    candidates = [one for one in providers if (not one.on_request_only if word is None else one.word == word)]
    if not candidates:
        words = ", ".join(provider.word for provider in providers)
        return f"provider {word!r}: ONNX Runtime has {words} for {device.selector}"
    first = candidates[0]
    if first.name == CPU or are_all_assumed():
        return first
    why_not = None if first.why_not_here is None else first.why_not_here()
    if first.name in NVIDIA:
        why_not = why_not_driver(device, NVIDIA[first.name])
    if why_not is not None:
        return why_not
    import onnxruntime

    built = onnxruntime.get_available_providers()
    if (provider := next((candidate for candidate in candidates if candidate.name in built), None)) is not None:
        return provider
    requirement = " or ".join(f"{candidate.name} ({candidate.install})" for candidate in candidates)
    others = [one.word for one in providers if one.name in built and one not in candidates]
    choose = f" (--provider {others[0]} is available)" if others else ""
    return (
        f"{device.selector} needs ONNX Runtime with {requirement}: pip install {first.install}. "
        f"Found: onnxruntime {onnxruntime.__version__} with {', '.join(built)}{choose}"
    )


def provider_of(device: Device, word: Scalar | None = None) -> OrtProvider:
    """The provider for a device: the named one, or the device's default. Raises UnsupportedError if there is none."""
    providers = providers_of(device)
    if not providers:
        raise UnsupportedError(f"ONNX Runtime has no provider for {device.type}")
    provider = built_provider(device, providers, word)
    if isinstance(provider, str):
        raise UnsupportedError(provider)
    return provider


def possible_provider(device: Device, providers: Sequence[OrtProvider]) -> OrtProvider | str:
    """The device's default provider if available, else one that is available by name, else the reason."""
    default = built_provider(device, providers)
    if isinstance(default, OrtProvider):
        return default
    by_name = (built_provider(device, providers, provider.word) for provider in providers if provider.on_request_only)
    return next((one for one in by_name if isinstance(one, OrtProvider)), default)


def why_not_precision(device: Device, provider: OrtProvider, precision: Precision) -> str | None:
    """None, or why a provider does not run graphs at a precision."""
    native = device.facts.values.get("native_precisions")
    if provider.name == CPU and precision == "float16" and isinstance(native, list) and precision not in native:
        return f"ONNX Runtime converts {precision} to float32 on this CPU, which does not compute at it"
    if precision == "tf32" and precision not in provider.precisions:
        return f"tf32 is a mode of NVIDIA's tensor cores, which {provider.name} does not use"
    if precision not in provider.precisions:
        return f"{provider.name} has no kernels for {precision}"
    if precision not in graphs.PRECISIONS:
        return f"graphs are exported at {', '.join(graphs.PRECISIONS)}, not at {precision}"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    provider: OrtProvider
    precision: Precision
    num_threads: int
    fallbacks: tuple[str, ...] = ()
    """Providers for nodes that the requested one does not take, tried before the CPU's."""
    dimensions: Mapping[str, int] = field(default_factory=dict)
    """Sizes of free dimensions by name, for providers that need fixed sizes."""
    plugin_devices: tuple[Any, ...] = ()
    """ONNX Runtime's entries for the device, for a provider that is a plugin."""
    extra_options: Mapping[str, str] = field(default_factory=dict)
    """Options of the provider in addition to those for its device and precision."""
    is_replayed: bool = False
    """Whether the provider captures a call's kernels and replays them as one graph, with all `dimensions` fixed."""
    entries: Mapping[str, str] = field(default_factory=dict)
    """Entries of the session configuration."""
    quantizes_activations: bool = False
    """Whether products with quantized weights quantize their activations too."""

    @property
    def provider_options(self) -> dict[str, str]:
        replayed = {self.provider.replay_option: "1"} if self.is_replayed and self.provider.replay_option else {}
        return {**self.provider.options_at(self.precision), **self.extra_options, **replayed}


OPTIMISED_WEIGHTS = "session.optimized_model_external_initializers_file_name"


def open_graph(
    path: Path, settings: SessionSettings, *, profile: Path | None = None, optimised: Path | None = None
) -> Any:
    """A session of an ONNX file on the requested provider. `profile` is the prefix of its profile's file name;
    `optimised` is a file for the graph that it runs, with the weights next to it.

    Raises UnsupportedError if the session would run without that provider: if it fails to load, ONNX Runtime only
    prints the reason and uses the CPU.
    """
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = settings.num_threads
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = settings.provider.has_memory_pattern
    options.log_severity_level = 3  # errors only; at lower levels every graph transformer prints
    for name, size in settings.dimensions.items():
        options.add_free_dimension_override_by_name(name, size)
    for key, value in {SPINNING: "1", ASSIGNMENT: "1", **settings.entries}.items():
        options.add_session_config_entry(key, value)
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
    if optimised is not None:
        options.optimized_model_filepath = str(optimised)
        options.add_session_config_entry(OPTIMISED_WEIGHTS, f"{optimised.name}.data")
    if settings.provider.name in NVIDIA:
        onnxruntime.preload_dlls()  # CUDA's libraries from pip packages, if the system has none
    fallbacks = [(name, {"device_id": "0"}) for name in settings.fallbacks]
    listed = [(settings.provider.name, settings.provider_options), *fallbacks]
    listed += [] if settings.provider.name == CPU else [(CPU, {})]
    providers: dict[str, Any] = {} if settings.plugin_devices else {"providers": listed}
    printed = StderrCapture()
    try:
        if settings.plugin_devices:
            options.add_provider_for_devices(list(settings.plugin_devices), settings.provider_options)
        session = onnxruntime.InferenceSession(str(path), options, **providers, enable_fallback=0)
    except error_types() as error:
        doing = f"loading {path.name} on {settings.provider.name}"
        reason = with_packages(printed.text(), settings.provider.install)
        raise translate_error(doing, error, reason) from error
    _check_providers(session, settings, reason_in(printed.text()))
    return session


def num_threads(cell: Cell) -> int:
    """The requested number of threads, else the default here."""
    return cell.num_threads or default_num_threads()


def default_num_threads() -> int:
    """The physical cores that this process may use: ONNX Runtime's default, limited by CPU affinity and quota."""
    facts = host_facts()
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = facts.values.get("cgroup_cpu_quota_cores")
    limits = [allowed, int_fact(facts, "cpu_cores") or allowed]
    limits += [math.ceil(quota)] if isinstance(quota, int | float) else []
    return max(1, min(limits))


def session_facts(session: Any, settings: SessionSettings) -> dict[str, Json]:
    """The session's settings, as far as it reports them."""
    options = session.get_session_options()
    # The metadata of the devices that a plugin's session was given.
    entries: list[Json] = [dict(sorted(dict(entry.device.metadata).items())) for entry in settings.plugin_devices]
    return {
        "providers": list[Json](session.get_providers()),
        "provider_options": dict(session.get_provider_options().get(settings.provider.name, {})),
        "num_threads": options.intra_op_num_threads,
        "num_interop_threads": options.inter_op_num_threads,
        "graph_optimization": _word(options.graph_optimization_level).removeprefix("ORT_ENABLE_").lower(),
        "execution_mode": _word(options.execution_mode).removeprefix("ORT_").lower(),
        "memory_pattern": options.enable_mem_pattern,
        "allow_spinning": options.get_session_config_entry(SPINNING) == "1",
        **({"provider_devices": entries} if entries else {}),
    }


def assigned_nodes(session: Any) -> dict[str, int] | None:
    """Nodes by provider after partitioning; None if ONNX Runtime is too old to report them (before 1.23)."""
    if not hasattr(session, "get_provider_graph_assignment_info"):
        return None
    counts: Counter[str] = Counter()
    for part in session.get_provider_graph_assignment_info():
        counts[part.ep_name] += len(part.get_nodes())
    return dict(sorted(counts.items()))


def error_types() -> tuple[type[Exception], ...]:
    """The exceptions that ONNX Runtime raises; RuntimeError comes from its C++ code."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    return (*(getattr(state, name) for name in ERRORS if hasattr(state, name)), MemoryError, RuntimeError)


def translate_error(doing: str, error: BaseException, printed: str | None = None) -> BenchhouseError:
    """This project's error for an exception of ONNX Runtime, with the reason that it only printed."""
    if is_out_of_memory(error):
        return OutOfMemoryError(f"out of memory while {doing}: {_message(error)}")
    if type(error).__name__ == "NotImplemented":
        return UnsupportedError(f"{doing}: ONNX Runtime lacks a kernel: {_message(error)}")
    reason = "" if printed is None or printed in str(error) else f" ({printed})"
    return BenchhouseError(f"{doing}: ONNX Runtime failed: {_message(error)}{reason}")


def _message(error: BaseException) -> str:
    """The error's message without the location and code in front: "... [ONNXRuntimeError] : 1 : FAIL : "."""
    text = first_line(error) or type(error).__name__
    code, separator, message = text.rpartition("[ONNXRuntimeError] : ")[2].rpartition(" : ")
    return message if separator and code.partition(" : ")[0].isdigit() else text


def _check_providers(session: Any, settings: SessionSettings, printed: str | None = None) -> None:
    """Raise UnsupportedError if a session does not run on the requested provider; `printed` is the reason that ONNX
    Runtime printed."""
    requested, used = settings.provider.name, list(session.get_providers())
    if not used or used[0] != requested:
        why = "the provider is not built in, or its libraries fail to load" if printed is None else printed
        raise UnsupportedError(
            f"requested {requested}, but the ONNX Runtime session runs on {', '.join(used)}: {why}: "
            f"pip install {settings.provider.install}"
        )
    nodes = assigned_nodes(session)
    if requested != CPU and nodes and not nodes.get(requested):
        raise UnsupportedError(
            f"requested {requested}, but it took no node of the graph in ONNX Runtime: all nodes run on "
            f"{', '.join(nodes)}"
        )


def _word(member: object) -> str:
    """The name of a member of an enumeration."""
    return str(getattr(member, "name", member)).rpartition(".")[2]


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
        """The text so far; none if the file is open for writing only. Its position is not moved."""
        size = _size(STDERR) - self._start
        if size <= 0:
            return ""
        try:
            if hasattr(os, "pread"):
                return os.pread(STDERR, size, self._start).decode(errors="replace")
            position = os.lseek(STDERR, 0, os.SEEK_CUR)
            os.lseek(STDERR, self._start, os.SEEK_SET)
            content = os.read(STDERR, size)
            os.lseek(STDERR, position, os.SEEK_SET)
        except OSError:  # "2>file" of a shell
            return ""
        return content.decode(errors="replace")


def _size(descriptor: int) -> int:
    """Bytes in a file; 0 for a terminal or a pipe."""
    status = os.fstat(descriptor)
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


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

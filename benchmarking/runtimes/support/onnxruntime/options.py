"""ONNX Runtime sessions: opened with every setting explicit, and refused when they are not what was requested."""

from __future__ import annotations

import logging
import math
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarking.core.errors import BenchhouseError, OutOfMemoryError, UnsupportedError, first_line, is_out_of_memory
from benchmarking.core.records import Cell, Json, Precision
from benchmarking.devices.support.host import host_facts, int_fact
from benchmarking.devices.support.ort_providers import OrtProvider

CPU = "CPUExecutionProvider"
ASSIGNMENT = "session.record_ep_graph_assignment_info"
SPINNING = "session.intra_op.allow_spinning"
NVIDIA = ("CUDAExecutionProvider", "TensorrtExecutionProvider")
ERRORS = (
    "EPFail",
    "EngineError",
    "Fail",
    "InvalidArgument",
    "InvalidGraph",
    "InvalidProtobuf",
    "ModelLoaded",
    "ModelRequiresCompilation",
    "NoModel",
    "NoSuchFile",
    "NotFound",
    "NotImplemented",
    "RuntimeException",
)
"""ONNX Runtime's exceptions, which share no base class; a version may lack some."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionSettings:
    """The settings of sessions."""

    provider: OrtProvider
    precision: Precision
    num_threads: int
    fallbacks: tuple[str, ...] = ()
    """Providers for the nodes that the requested one does not take, before the CPU's."""
    dimensions: Mapping[str, int] = field(default_factory=dict)
    """Sizes of free dimensions by name, for providers that need fixed ones."""
    plugin_devices: tuple[Any, ...] = ()
    """ONNX Runtime's entries of the device, for a provider that is a plugin."""
    extra_options: Mapping[str, str] = field(default_factory=dict)
    """Options of the provider besides those of its device and precision."""
    entries: Mapping[str, str] = field(default_factory=dict)
    """Entries of the session configuration."""

    @property
    def provider_options(self) -> dict[str, str]:
        """All options of the requested provider."""
        return {**self.provider.options_at(self.precision), **self.extra_options}


def open_graph(path: Path, settings: SessionSettings, *, profile: Path | None = None) -> Any:
    """A session of an ONNX file on the requested provider; `profile` is the prefix of its profile's file name.

    Raises UnsupportedError when the session would run without that provider: when it does not load, ONNX Runtime only
    prints a line and uses the CPU.
    """
    import onnxruntime

    options = _session_options(settings, profile)
    if settings.provider.name in NVIDIA:
        onnxruntime.preload_dlls()  # CUDA's libraries from pip packages, when the system has none
    with ort_errors(f"loading {path.name} on {settings.provider.name}"):
        if settings.plugin_devices:
            options.add_provider_for_devices(list(settings.plugin_devices), settings.provider_options)
            session = onnxruntime.InferenceSession(str(path), options, enable_fallback=0)
        else:
            session = onnxruntime.InferenceSession(
                str(path), options, providers=_providers(settings), enable_fallback=0
            )
    _check_providers(session, settings)
    return session


def num_threads(cell: Cell) -> int:
    """The requested number of threads, else the default here."""
    return cell.num_threads or default_num_threads()


def default_num_threads() -> int:
    """The physical cores that this process may use: ONNX Runtime's default, but within the CPU affinity and quota."""
    facts = host_facts()
    allowed = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    quota = facts.values.get("cgroup_cpu_quota_cores")
    limits = [allowed, int_fact(facts, "cpu_cores") or allowed]
    limits += [math.ceil(quota)] if isinstance(quota, int | float) else []
    return max(1, min(limits))


def in_force(session: Any, settings: SessionSettings) -> dict[str, Json]:
    """The session's settings, read back where it reports them."""
    options = session.get_session_options()
    return {
        "providers": list[Json](session.get_providers()),
        "provider_options": dict(session.get_provider_options().get(settings.provider.name, {})),
        "num_threads": options.intra_op_num_threads,
        "num_interop_threads": options.inter_op_num_threads,
        "graph_optimization": _word(options.graph_optimization_level).removeprefix("ORT_ENABLE_").lower(),
        "execution_mode": _word(options.execution_mode).removeprefix("ORT_").lower(),
        "memory_pattern": options.enable_mem_pattern,
        "allow_spinning": options.get_session_config_entry(SPINNING) == "1",
        **_provider_devices(settings),
    }


def _provider_devices(settings: SessionSettings) -> dict[str, Json]:
    """ONNX Runtime's metadata of the devices that a plugin's session was given."""
    entries: list[Json] = [dict(sorted(dict(entry.device.metadata).items())) for entry in settings.plugin_devices]
    return {"provider_devices": entries} if entries else {}


def assigned_nodes(session: Any) -> dict[str, int] | None:
    """Nodes by provider after partitioning; None where ONNX Runtime is too old to report them (1.23)."""
    if not hasattr(session, "get_provider_graph_assignment_info"):
        return None
    counts: Counter[str] = Counter()
    for part in session.get_provider_graph_assignment_info():
        counts[part.ep_name] += len(part.get_nodes())
    return dict(sorted(counts.items()))


@contextmanager
def ort_errors(doing: str) -> Iterator[None]:
    """Inside, ONNX Runtime's exceptions become this project's errors, with the first line of their message."""
    try:
        yield
    except error_types() as error:
        raise translate_error(doing, error) from error


def error_types() -> tuple[type[Exception], ...]:
    """The exceptions that ONNX Runtime raises; RuntimeError comes from its C++ code."""
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    return (*(getattr(state, name) for name in ERRORS if hasattr(state, name)), MemoryError, RuntimeError)


def translate_error(doing: str, error: BaseException) -> BenchhouseError:
    """This project's error for an exception of ONNX Runtime."""
    if is_out_of_memory(error):
        return OutOfMemoryError(f"out of memory while {doing}: {_message(error)}")
    if type(error).__name__ == "NotImplemented":
        return UnsupportedError(f"{doing}: ONNX Runtime has no kernel for it: {_message(error)}")
    return BenchhouseError(f"{doing}: ONNX Runtime failed: {_message(error)}")


def _message(error: BaseException) -> str:
    """Its message without the source location and code before it: "... [ONNXRuntimeError] : 1 : FAIL : "."""
    text = first_line(error) or type(error).__name__
    code, found, message = text.rpartition("[ONNXRuntimeError] : ")[2].rpartition(" : ")
    return message if found and code.partition(" : ")[0].isdigit() else text


def _session_options(settings: SessionSettings, profile: Path | None) -> Any:
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_ENABLE_ALL
    options.execution_mode = onnxruntime.ExecutionMode.ORT_SEQUENTIAL
    options.intra_op_num_threads = settings.num_threads
    options.inter_op_num_threads = 1
    options.enable_mem_pattern = settings.provider.has_memory_pattern
    options.log_severity_level = 3  # errors; at lower levels every graph transformer prints
    for name, size in settings.dimensions.items():
        options.add_free_dimension_override_by_name(name, size)
    for key, value in {SPINNING: "1", ASSIGNMENT: "1", **settings.entries}.items():
        options.add_session_config_entry(key, value)
    if profile is not None:
        options.enable_profiling = True
        options.profile_file_prefix = str(profile)
    return options


def _providers(settings: SessionSettings) -> list[tuple[str, dict[str, str]]]:
    wanted: list[tuple[str, dict[str, str]]] = [(settings.provider.name, settings.provider_options)]
    wanted += [(name, {"device_id": "0"}) for name in settings.fallbacks]
    return wanted if settings.provider.name == CPU else [*wanted, (CPU, {})]


def _check_providers(session: Any, settings: SessionSettings) -> None:
    wanted, found = settings.provider.name, list(session.get_providers())
    if not found or found[0] != wanted:
        raise UnsupportedError(
            f"asked ONNX Runtime for {wanted}, but the session runs on {', '.join(found)}: the provider is not "
            f"built in or its libraries do not load (it printed why): pip install {settings.provider.install}"
        )
    nodes = assigned_nodes(session)
    if wanted != CPU and nodes and not nodes.get(wanted):
        raise UnsupportedError(
            f"asked ONNX Runtime for {wanted}, which is the session's first provider but took no node of the graph: "
            f"all of them went to {', '.join(nodes)}"
        )


def _word(member: object) -> str:
    """The name of a member of an enumeration."""
    return str(getattr(member, "name", member)).rpartition(".")[2]

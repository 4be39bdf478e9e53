"""Profiles: where the time and the memory of a call go, by module and by operator; and the kind of each module.

Profiles are separate from latency results, with their own files and tables, because a profiler slows calls down. All
times are means over the profiled calls, in ms per call, unless a field states otherwise. The exclusive times of all
modules, including `OUTSIDE`, sum to `Breakdown.host_ms`.

There is no table of models for the kinds (attention, feed-forward, normalisation, ...). The innermost module with a
telling type, class name or name in its parent decides; otherwise the structure does: in a numbered layer with
attention, modules with weights outside the attention are the feed-forward network, and weights after the last layer are
the head. Everything else is `other`. Modules are described without torch, so this works for torch models and for
modules named in an exported graph.

Format versions
    1  first published format
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import field
from typing import Any, Literal

from benchmarking.core.codec import from_json
from benchmarking.core.errors import FormatError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.records import Doubt, Json, Number, Point, PositiveCount, Run

FORMAT, FORMAT_VERSION = "benchhouse-profile", 1

EMBEDDING, ATTENTION, FEED_FORWARD, NORMALISATION = "embedding", "attention", "feed_forward", "normalisation"
MIXER, CONVOLUTION, HEAD, OTHER = "mixer", "convolution", "head", "other"
KINDS = (EMBEDDING, ATTENTION, FEED_FORWARD, NORMALISATION, MIXER, CONVOLUTION, HEAD, OTHER)
"""The role of a module. A mixer replaces attention in state-space models; `other` is a module without a known role."""

TRACE_FILE = "trace.json"
"""Name of the trace of the last profiled call, in a profiler's folder."""

COMPILE_S = "compile_s"
"""Key of a breakdown's details: the compile time in seconds before the profiled calls."""

KERNEL_TIME = "kernel_time"
"""Key of a breakdown's missing values: why the times of operators are not those of their kernels."""

OUTSIDE = ""
"""The path of time outside all modules, in the call's own code, such as a generation loop."""
Bound = Literal["compute", "memory"]
COMPUTE: Bound = "compute"
MEMORY: Bound = "memory"
NAME_PATTERNS = (
    (ATTENTION, re.compile(r"rotary|(^|_)rope(_|$)", re.IGNORECASE)),  # tables of positions, which attention applies
    (NORMALISATION, re.compile(r"norm(alization)?(\d*d)?$|(^|_)(ln|norm)(_?\w)?$", re.IGNORECASE)),
    (EMBEDDING, re.compile(r"embed(ding)?s?$", re.IGNORECASE)),
    (ATTENTION, re.compile(r"(attention|attn)\d*$", re.IGNORECASE)),
    (MIXER, re.compile(r"(mixer|ssm|mamba\d?)$", re.IGNORECASE)),
    (
        FEED_FORWARD,
        re.compile(r"(mlp|feed_?forward|ffn|experts?|moe|moe_?block|router)\d*$|(^|_)ff$|FF$", re.IGNORECASE),
    ),
    (HEAD, re.compile(r"(^|_)(lm_)?head$|LMHead$|^(classifier|score|qa_outputs|pooler)$|Pooler$|ClassificationHead$")),
)
"""Suffixes of a module's class or of its name in its parent, by kind."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleTime:
    """The time and memory of a module in a call, over all its calls."""

    module: str
    """Its path in the model ("encoder.layer.0.attention"), or `OUTSIDE`."""
    class_name: str | None = None
    kind: str
    layer: str | None = None
    """The path of the layer it is in: up to the first numbered part. None outside of layers."""
    calls: Number
    inclusive_ms: Number
    """On the host, including nested modules; a module nested in itself counts once."""
    exclusive_ms: Number
    """On the host, excluding nested modules."""
    outside_operators_ms: Number | None = None
    """The part of the exclusive time outside operators: Python, and the framework between operators."""
    device_inclusive_ms: Number | None = None
    """On an accelerator: the times of the kernels that it launched. None on a processor."""
    device_exclusive_ms: Number | None = None
    inclusive_samples_ms: tuple[Number, ...] = ()
    """`inclusive_ms` of each profiled call; where an accelerator computes, `device_inclusive_ms`."""
    allocations: Number | None = None
    """Allocations by the module itself."""
    allocated_bytes: Number | None = None
    """Bytes of these allocations, including freed ones."""
    peak_bytes: Number | None = None
    """Peak bytes allocated above the use at its start, including nested modules."""
    flops: Number | None = None
    """Counted FLOPs of its own operators, two per multiply-add."""
    bytes_accessed: Number | None = None
    """Bytes that its own operators read and write, without any cache between them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorTime:
    """The time of an operator in one module, over all its calls there."""

    module: str
    operator: str
    """As the runtime names it: "aten::addmm", "FusedMatMul"."""
    kind: str
    layer: str | None = None
    placed: str
    """Where it ran, as the runtime says: "cpu", "cuda", "CPUExecutionProvider"."""
    calls: Number
    exclusive_ms: Number
    """On the host, excluding nested operators."""
    inclusive_ms: Number
    device_ms: Number | None = None
    """The times of the kernels that it launched itself; None on a processor."""
    device_inclusive_ms: Number | None = None
    """The times of the kernels launched by it and by nested operators."""
    flops: Number | None = None
    """Counted FLOPs; None for an operator without a formula, such as an element-wise one."""
    bytes_accessed: Number | None = None
    bound: Bound | None = None
    """Whether it is limited by FLOPs or bytes at the device's measured peak rates; None if these are unknown."""

    @property
    def work_ms(self) -> float:
        """The time of its work: on the accelerator if there is one, else on the host."""
        return self.inclusive_ms if self.device_inclusive_ms is None else self.device_inclusive_ms


@dataclass(frozen=True, slots=True, kw_only=True)
class Breakdown:
    """A profiler's breakdown of the profiled calls."""

    host_ms: Number
    """A call by the profiler's clock."""
    modules: tuple[ModuleTime, ...] = ()
    """In the order of the model, `OUTSIDE` last."""
    operators: tuple[OperatorTime, ...] = ()
    """The longest first."""
    metrics: Mapping[str, Number] = field(default_factory=dict)
    """operator_calls, kernel_launches, device_busy_ms, device_idle_ms, largest_gap_ms, peak_bytes, allocated_bytes,
    allocations, graph_count, graph_break_count, flops, bytes_accessed."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Metric -> why it is unknown."""
    details: Mapping[str, Json] = field(default_factory=dict)
    """Phases of the call, reasons of graph breaks, how operators were matched to modules."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CallProfile:
    """The report of a worker: alternating calls with and without the profiler."""

    profiler: str = ""
    """The profiler, as the runtime names it."""
    breakdown: Breakdown
    latency_ms: tuple[Number, ...]
    """Calls without the profiler."""
    profiled_ms: tuple[Number, ...]
    """Calls with it, by the same clock, excluding the start and readout of the profiler."""
    tokenize_ms: tuple[Number, ...] = ()
    """Preparing the inputs of one call; empty without a tokenizer or processor."""
    missing: Mapping[str, str] = field(default_factory=dict)
    window: Mapping[str, Json] = field(default_factory=dict)
    """Counters and states of the machine and the device during the calls, as in a measurement."""
    doubts: tuple[Doubt, ...] = ()

    @property
    def total_ms(self) -> tuple[float, ...]:
        """Input preparation plus call, per round; empty if nothing is tokenized."""
        return tuple(a + b for a, b in zip(self.tokenize_ms, self.latency_ms, strict=True)) if self.tokenize_ms else ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfileSettings:
    """How a worker profiles."""

    num_runs: PositiveCount
    """Rounds, each of one call without and one with the profiler."""
    folder: str
    """Folder of its traces."""
    texts: tuple[str, ...] = ()
    """Texts to tokenize in place of the built-in one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """A profile of one point: the content of a profile's file."""

    format: str = FORMAT
    format_version: int = FORMAT_VERSION
    profile_id: str
    """UUIDv7."""
    run: Run
    """A run without results: what was profiled, where, and with which versions."""
    point: Point
    call: CallProfile
    peaks: Mapping[str, Number] = field(default_factory=dict)
    """The device's measured peak rates: copy_bytes_per_sec, and flops_per_sec by precision."""


class CallProfiler(ABC):
    """A runtime's profiler around single calls of one operation."""

    @abstractmethod
    def run(self, *, is_kept: bool = True) -> int:
        """Run one complete call under the profiler. Returns its nanoseconds, excluding the start and readout of the
        profiler. Calls that are not kept are excluded from the breakdown."""

    @abstractmethod
    def breakdown(self) -> Breakdown:
        """The breakdown of the kept calls. Called once, after them."""


def profile_from_json(data: Any, where: str) -> Profile:
    """A profile of this format. Raises FormatError for any other file, and for one of a newer program."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise FormatError(f'{where}: not a benchhouse profile (no "format": "{FORMAT}")')
    version = data.get("format_version")
    if version != FORMAT_VERSION:
        raise FormatError(f"{where}: expected format_version {FORMAT_VERSION}, found {version!r}: upgrade benchhouse")
    return from_json(Profile, data, where)


def in_layer(path: str) -> str | None:
    """The path of the layer that a module is in, up to its first numbered part: "encoder.layer.0" of
    "encoder.layer.0.attention"; None outside of layers."""
    parts = path.split(".")
    number = next((index for index, part in enumerate(parts) if part.isdecimal()), None)
    return None if number is None else ".".join(parts[: number + 1])


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleTraits:
    """What is known about a module besides its path."""

    class_name: str
    is_lookup: bool = False
    """Whether it is a lookup table."""
    is_convolution: bool = False
    is_activation: bool = False
    has_weights: bool = False
    """Whether it, or a module inside it, has a matrix."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleInfo:
    path: str
    class_name: str
    kind: str
    layer: str | None


def classify_modules(modules: Mapping[str, ModuleTraits]) -> dict[str, ModuleInfo]:
    """Modules by path, in the model's order, with their kinds. The whole model may be among them as the path ""."""
    own: dict[str, str | None] = {}  # given by a module's type and names; None if they reveal nothing
    for path, module in modules.items():
        texts = (module.class_name, path.rpartition(".")[2])
        named = (kind for text in texts for kind, pattern in NAME_PATTERNS if pattern.search(text))
        own[path] = EMBEDDING if module.is_lookup else next(named, None)
    own[""] = None  # the whole model's name reveals nothing about its parts
    by_names: dict[str, str | None] = {}  # that of the innermost module around a path that has one
    for path in modules:
        around = [kind for enclosing in _enclosing_paths(path) if (kind := own.get(enclosing)) is not None]
        is_position = bool(around) and around[0] == EMBEDDING and ATTENTION in around  # lookups belong to the attention
        by_names[path] = ATTENTION if is_position else around[0] if around else None
    attending = [path for path in modules if by_names[path] == ATTENTION]
    holders = {parent for path in attending for parent in _enclosing_paths(path)}
    attended = {layer for path in attending if (layer := in_layer(path)) is not None}
    last = max((index for index, path in enumerate(modules) if in_layer(path) is not None), default=-1)
    result: dict[str, ModuleInfo] = {}
    for index, (path, module) in enumerate(modules.items()):
        kind = by_names[path]
        if kind is None:
            is_part = in_layer(path) in attended and path not in holders  # in a layer, but not around its attention
            if is_part and (module.has_weights or module.is_activation):
                kind = FEED_FORWARD
            elif module.is_convolution:
                kind = CONVOLUTION
            elif index > last and module.has_weights:
                kind = HEAD
        parent = result.get(path.rpartition(".")[0])
        if kind is None and parent is not None and parent.kind in (FEED_FORWARD, HEAD):
            kind = parent.kind
        result[path] = ModuleInfo(path=path, class_name=module.class_name, kind=kind or OTHER, layer=in_layer(path))
    return result


def _enclosing_paths(path: str) -> list[str]:
    """A path and those around it: "a.b.c", "a.b", "a"."""
    parts = path.split(".")
    return [".".join(parts[:count]) for count in range(len(parts), 0, -1)]

"""The words everybody shares: what was asked, what was found, what was measured, what is doubtful.

All records are frozen and keyword-only, hold JSON-able values, and go to JSON and back without loss (`to_json`,
`from_json`). A value that could not be measured is None, with its reason in a `missing` mapping; never 0, NaN or -1.

Format history
    1  first published format

2026-11-21: a torch module that is handed over has weights "given" and, unless its configuration names one, no family.
Calling it pretrained, or a member of the nearest family, would be a guess that a query takes for a fact.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import types
import typing
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal, TypeVar, Union, get_args, get_origin

from benchmarking.errors import FormatError

FORMAT = "benchhouse-run"
FORMAT_VERSION = 1

Json = None | bool | int | float | str | list[Any] | dict[str, Any]
Scalar = bool | int | float | str

Family = Literal[
    "encoder-only",
    "decoder-only",
    "encoder-decoder",
    "vision",
    "vision-text",
    "speech",
    "multimodal",
    "diffusion",
    "mixture-of-experts",
    "state-space",
    "rag",
]
Precision = Literal["float32", "tf32", "bfloat16", "float16", "int8", "int4"]
Status = Literal["ok", "failed", "skipped", "timed_out"]
Validity = Literal["valid", "noisy", "throttled", "invalid"]
Severity = Literal["info", "noisy", "throttled", "invalid"]
Phase = Literal["warmup", "measure"]
WeightsKind = Literal["pretrained", "random", "given"]

FAMILIES: tuple[Family, ...] = get_args(Family)
PRECISIONS: tuple[Precision, ...] = get_args(Precision)

# Reasons a value is missing. Detail may follow after a colon: "no_permission: /sys/class/powercap".
NOT_SUPPORTED = "not_supported"
NO_PERMISSION = "no_permission"
NOT_APPLICABLE = "not_applicable"
TOO_FEW_SAMPLES = "too_few_samples"
NOT_RUN = "not_run"
FAILED = "failed"
COUNTER_STALE = "counter_stale"


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """Named values read from a machine, and the reason for each one that could not be read.

    The unit is part of the name (`memory_bytes`, `clock_hz`, `temperature_c`).
    """

    values: Mapping[str, Json] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)

    def __or__(self, other: Readings) -> Readings:
        """Both together; on the same name `other` wins, and a value beats a reason."""
        values = {**self.values, **other.values}
        missing = {name: why for name, why in {**self.missing, **other.missing}.items() if name not in values}
        return Readings(values=values, missing=missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device as it was found, or the reason why it was not."""

    type: str
    """Plugin name: cpu, cuda, rocm, mps, openvino, qnn, null."""
    selector: str
    """What `--device` takes to mean exactly this one: "cpu", "cuda:0", "openvino:GPU"."""
    found: bool
    why_not: str | None = None
    """What is missing and what to do about it; None when found."""
    name: str | None = None
    """The vendor's name of the model: "NVIDIA H100 80GB HBM3"."""
    vendor: str | None = None
    driver: str | None = None
    """Driver version, where there is a driver."""
    count: int = 1
    """Devices of this very model in the machine."""
    memory_bytes: int | None = None
    """Device memory; for a CPU and for unified memory, the machine's (or its cgroup's limit, if lower)."""
    simulated: bool = False
    """True for an emulator, whose numbers are never ranked as the device's."""
    facts: Readings = field(default_factory=Readings)
    """Everything else that was found: compute capability, power cap, MIG, capabilities, backends."""
    precisions: tuple[Precision, ...] = ()
    """Precisions the hardware runs, whatever a runtime may make of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """The machine and device a run belongs to. Same `hardware_id`, comparable numbers."""

    hardware_id: str
    """First 16 hex digits of the SHA-256 of `hashed_keys`' canonical JSON."""
    hash_version: int
    hashed_keys: Mapping[str, Json]
    """What the id is made of: device model and count, CPU model, cores, NUMA, memory class. Never clocks or hosts."""
    device: Device
    cpu_model: str | None = None
    cpu_cores: int | None = None
    """Physical cores."""
    cpu_threads: int | None = None
    """Logical processors."""
    memory_bytes: int | None = None
    """The machine's memory."""
    host: Readings = field(default_factory=Readings)
    """The rest about the host: NUMA nodes, SMT, cgroup quota, operating system, virtual machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """An architecture family, a model configuration, a task: what is run, whatever it is run on."""

    model_id: str
    """As it was asked for: hub name, folder, or catalog name."""
    family: Family | None
    """None for a torch module whose configuration names none."""
    task: str
    """Hugging Face's task name: feature-extraction, text-generation, text2text-generation, ..."""
    source: Literal["catalog", "local", "hub", "module"]
    """Where the configuration came from; "module" is a torch module handed to `benchmark_model`."""
    config: Mapping[str, Json]
    """The model's configuration, as transformers' `to_diff_dict` gives it, with `model_type`."""
    config_hash: str
    """SHA-256 of the configuration's canonical JSON."""
    weights: WeightsKind
    """Pretrained where they were found (or demanded), else seeded random ones; "given" with a module."""
    weights_reason: str | None = None
    """Why the weights are random although they were not asked to be."""
    seed: int = 0
    path: str | None = None
    """Folder with the configuration and weights, for source local and hub."""
    revision: str | None = None
    """Hub commit; for a local folder the SHA-256 of its weight files' names and sizes; None in the catalog."""
    parameter_count: int | None = None
    """Exact, from the shapes of the parameters, counting shared ones once. None before the model was built."""
    max_sequence_length: int | None = None
    """Longest sequence the model takes; None when it has no limit (relative positions)."""
    vocab_size: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One place on the grid."""

    batch_size: int
    sequence_length: int | None = None
    """Tokens of the prompt or input; None for families without tokens."""
    new_tokens: int | None = None
    """Tokens generated per sequence; None when nothing is generated."""
    concurrency: int = 1
    """Requests in flight."""
    axes: Mapping[str, int | float] = field(default_factory=dict)
    """Further axes of the family: image_size, audio_seconds, steps, documents, top_k."""

    @property
    def label(self) -> str:
        """Short and unique within a grid: "b1 s128 n16"."""
        parts = [f"b{self.batch_size}"]
        parts += [f"s{self.sequence_length}"] if self.sequence_length is not None else []
        parts += [f"n{self.new_tokens}"] if self.new_tokens is not None else []
        parts += [f"c{self.concurrency}"] if self.concurrency != 1 else []
        return " ".join(parts + [f"{name}={value}" for name, value in sorted(self.axes.items())])


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A workload on a device and a runtime at a precision: everything of a sweep but the grid."""

    workload: Workload
    device: Device
    requested_device: str
    """What `--device` said: "auto", "cuda", ..."""
    runtime: str
    runtime_mode: Mapping[str, Scalar] = field(default_factory=dict)
    """The runtime's own settings that make a different series: attention, cache, compile mode, dynamic."""
    precision: Precision = "float32"
    num_threads: int | None = None
    """Intra-op threads that were asked for; None leaves the choice to the runtime (what it chose is in the run)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """The raw values of one metric in one launch, in the order they were taken."""

    launch: int
    """From 0."""
    phase: Phase
    metric: str
    """latency_wall, latency_device, time_to_first_token, inter_token_latency, ..."""
    unit: str
    """"ms" for every time."""
    started_at: str
    """UTC, ISO 8601, of the first sample."""
    values: tuple[float, ...]
    inner_loops: int = 1
    """Calls per sample: above 1 each value is the mean of a block of calls too short to time alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A reason not to take a number at its face, with the evidence."""

    kind: str
    severity: Severity
    evidence: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchLoad:
    """What one fresh worker process spent before its first point."""

    launch: int
    stages_s: Mapping[str, float]
    """Seconds by stage: spawn, import, device_init, weights_read, to_device; their sum is the load time."""
    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    """weights_bytes, rss_base_bytes, peak_rss_load_bytes, ..."""
    verified: Mapping[str, Json] = field(default_factory=dict)
    """What really runs, read back: parameter dtypes, devices, attention, threads."""
    missing: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """One launch at one point: what a worker sends home."""

    point: Point
    launch: int
    status: Status
    error: str | None = None
    started_at: str
    """UTC, ISO 8601."""
    finished_at: str
    samples: tuple[Samples, ...] = ()
    first_call_ms: float | None = None
    warmup_calls: int = 0
    steady: bool | None = None
    """True when the warm-up became steady, False when it did not, None when calls are too slow to judge."""
    stop_reason: str | None = None
    """target, max_samples, max_time, plateau, fixed; None when nothing was measured."""
    relative_half_width: float | None = None
    """Of the 95 % interval at the stop, from batch means; None below 20 samples."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Values with one reading a launch: memory_*_bytes, energy_*_j, flops, tokenize_ms, compile_s."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Metric -> reason, for each one that could not be had."""
    window: Mapping[str, Json] = field(default_factory=dict)
    """Differences and states over the latency pass: steal, pressure, run-queue wait, clocks, temperatures."""
    doubts: tuple[Doubt, ...] = ()
    extra: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """A point over all its launches."""

    result_id: str
    """UUIDv7."""
    point: Point
    status: Status
    error: str | None = None
    validity: Validity | None = None
    """None unless status is ok."""
    doubts: tuple[Doubt, ...] = ()
    launches: int = 0
    """Launches that measured this point."""
    iterations: int = 0
    """Timed samples, all launches."""
    warmup_iterations: int = 0
    stop_reason: str | None = None
    """The launches' common reason, or "mixed"."""
    ci_scope: Literal["between", "within"] | None = None
    """Whether the interval speaks of launches (3 or more) or only of the samples inside them."""
    metrics: Mapping[str, float] = field(default_factory=dict)
    """Every number of the point by column name (latency_median_ms, throughput_samples_per_sec, ...)."""
    missing: Mapping[str, str] = field(default_factory=dict)
    samples: tuple[Samples, ...] = ()
    extra: Mapping[str, Json] = field(default_factory=dict)
    """Evidence and details: the launches' windows, statistics and errors."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """Where a run comes from."""

    tool_version: str
    command: tuple[str, ...]
    """The arguments as typed, secrets never among them."""
    host: str
    git_commit: str | None = None
    """Of the working folder's repository at the start of the run."""
    git_branch: str | None = None
    git_dirty: bool | None = None
    git_commit_time: str | None = None
    """UTC, ISO 8601: the history is ordered by it where there is one."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """python, torch, transformers, onnxruntime, openvino, cuda, ..."""
    tags: Mapping[str, str] = field(default_factory=dict)
    description: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """One cell swept over its grid: the content of one spooled file."""

    format: str = FORMAT
    format_version: int = FORMAT_VERSION
    run_id: str
    """UUIDv7."""
    session_id: str
    """UUIDv7 of the command that made it; a batch shares one."""
    status: Status
    error: str | None = None
    started_at: str
    """UTC, ISO 8601."""
    finished_at: str
    cell: Cell
    hardware: Hardware
    provenance: Provenance
    settings: Mapping[str, Json] = field(default_factory=dict)
    """What governed the measuring: profile, iterations, launches, limits, seed."""
    environment: Readings = field(default_factory=Readings)
    """The machine's state at the start: governor, turbo, affinity, quota, relevant environment variables."""
    loads: tuple[LaunchLoad, ...] = ()
    results: tuple[Result, ...] = ()


Record = TypeVar("Record")


def to_json(record: Any) -> Any:
    """The record as JSON-able values. Raises FormatError on NaN or infinity, which JSON and the warehouse refuse."""
    if dataclasses.is_dataclass(record) and not isinstance(record, type):
        return {f.name: to_json(getattr(record, f.name)) for f in dataclasses.fields(record)}
    if isinstance(record, Mapping):
        return {str(key): to_json(value) for key, value in record.items()}
    if isinstance(record, list | tuple):
        return [to_json(value) for value in record]
    if isinstance(record, float) and not math.isfinite(record):
        raise FormatError(f"a record may not hold {record}: store None and a reason instead")
    return record


def from_json(kind: type[Record], data: Any, where: str = "") -> Record:
    """A record of `kind` from what `to_json` gave. Raises FormatError that names the first field that does not fit."""
    return typing.cast(Record, _read(kind, data, where or kind.__name__))


def dumps(record: Any) -> str:
    """One line of JSON."""
    return json.dumps(to_json(record), ensure_ascii=False, allow_nan=False, separators=(",", ":"))


def canonical_hash(value: Any) -> str:
    """SHA-256 (hex) of the value's canonical JSON: sorted keys, no spaces, UTF-8."""
    text = json.dumps(to_json(value), sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def run_from_json(data: Any, where: str) -> Run:
    """A Run of this or an older format. Raises FormatError for a foreign file or one written by a newer program."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise FormatError(f'{where}: not a benchhouse run (no "format": "{FORMAT}")')
    version = data.get("format_version")
    if not isinstance(version, int) or version < 1:
        raise FormatError(f"{where}: format_version is {version!r}, expected a number from 1 to {FORMAT_VERSION}")
    if version > FORMAT_VERSION:
        raise FormatError(
            f"{where}: format {version} is newer than this program knows ({FORMAT_VERSION}): upgrade benchhouse"
        )
    return from_json(Run, data, where)


@cache
def _hints(kind: Any) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _read(kind: Any, data: Any, where: str) -> Any:
    """`data` read as `kind`; the few shapes the records are made of, nothing more."""
    origin = get_origin(kind)
    if kind is Any:
        return data
    if dataclasses.is_dataclass(kind):
        return _read_record(kind, data, where)
    if origin in (Union, types.UnionType):
        return _read_union(kind, data, where)
    if origin is Literal:
        return _expect(data in get_args(kind), data, where, f"one of {', '.join(map(str, get_args(kind)))}")
    if origin is tuple:
        _expect(isinstance(data, list), data, where, "a list")
        return tuple(_read(get_args(kind)[0], value, f"{where}[{i}]") for i, value in enumerate(data))
    if origin is not None and issubclass(origin, Mapping):
        _expect(isinstance(data, dict), data, where, "an object")
        return {key: _read(get_args(kind)[1], value, f"{where}.{key}") for key, value in data.items()}
    if origin is list:
        return _expect(isinstance(data, list), data, where, "a list")
    if kind is float:
        _expect(isinstance(data, int | float) and not isinstance(data, bool), data, where, "a number")
        return float(data)
    if kind is int:
        return _expect(isinstance(data, int) and not isinstance(data, bool), data, where, "a whole number")
    name = {type(None): "null", str: "text", bool: "true or false"}.get(kind, str(kind))
    return _expect(isinstance(data, kind), data, where, name)


def _read_record(kind: Any, data: Any, where: str) -> Any:
    _expect(isinstance(data, dict), data, where, "an object")
    hints = _hints(kind)
    unknown = sorted(data.keys() - hints.keys())
    if unknown:
        raise FormatError(f"{where}: unknown field {unknown[0]!r}")
    try:
        return kind(**{name: _read(hints[name], value, f"{where}.{name}") for name, value in data.items()})
    except TypeError as error:
        required = [f.name for f in dataclasses.fields(kind) if f.default is f.default_factory is dataclasses.MISSING]
        missing = sorted(set(required) - data.keys())
        raise FormatError(f"{where}: missing field {missing[0]!r}" if missing else f"{where}: {error}") from error


def _read_union(kind: Any, data: Any, where: str) -> Any:
    """The first alternative that fits, exact types before numbers that would be converted."""
    options = sorted(get_args(kind), key=lambda option: option is float)
    for option in options:
        try:
            return _read(option, data, where)
        except FormatError:
            if len([o for o in options if o is not type(None)]) == 1 and data is not None and option is not type(None):
                raise
    names = " or ".join(getattr(option, "__name__", str(option)) for option in options)
    raise FormatError(f"{where}: expected {names}, found {_short(data)}")


def _expect(fits: bool, data: Any, where: str, what: str) -> Any:
    if not fits:
        raise FormatError(f"{where}: expected {what}, found {_short(data)}")
    return data


def _short(data: Any) -> str:
    text = json.dumps(data, ensure_ascii=False, default=str)
    return text if len(text) <= 60 else text[:57] + "..."

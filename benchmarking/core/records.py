"""The words everybody shares: what was asked, what was found, what was measured, what is doubtful.

All records are frozen and keyword-only, hold JSON-able values, and go to JSON and back without loss (`to_json`,
`from_json`). A value that could not be measured is None, with its reason in a `missing` mapping; never 0, NaN or -1.

Format history
    1  first published format

2026-11-21: a torch module that is handed over has weights "given" and, unless its configuration names one, no family.
Calling it pretrained, or a member of the nearest family, would be a guess that a query takes for a fact.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, get_args

from benchmarking.core.axes import AXES, POINT_FIELDS
from benchmarking.core.codec import canonical_hash as canonical_hash
from benchmarking.core.codec import dumps as dumps
from benchmarking.core.codec import from_json as from_json
from benchmarking.core.codec import to_json as to_json
from benchmarking.core.errors import FormatError

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
Precision = Literal["float32", "tf32", "bfloat16", "float16", "int8", "int4", "other", "unknown"]
Status = Literal["ok", "failed", "skipped", "timed_out"]
Validity = Literal["valid", "noisy", "throttled", "invalid"]
Severity = Literal["info", "noisy", "throttled", "invalid"]
Phase = Literal["warmup", "measure"]
WeightsKind = Literal["pretrained", "random", "given"]
Rebuild = Literal["if_needed", "always", "never"]

FAMILIES: tuple[Family, ...] = get_args(Family)
PRECISIONS: tuple[Precision, ...] = get_args(Precision)[:6]
"""What can be asked for. Another tool's numbers may be of "other" precisions, which their runtime mode tells, and of
"unknown" ones."""
REBUILDS: tuple[Rebuild, ...] = get_args(Rebuild)

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
    """None for a bench, and for a torch module whose configuration names none."""
    task: str
    """Hugging Face's task name: feature-extraction, text-generation, text2text-generation, ..."""
    source: Literal["catalog", "local", "hub", "module", "bench", "import"]
    """Where the configuration came from; "module" is a torch module handed to `benchmark_model`, "bench" a class that
    somebody wrote, whose file is `path`; "import" another tool's file."""
    config: Mapping[str, Json]
    """The model's configuration, as transformers' `to_diff_dict` gives it, with `model_type`."""
    config_hash: str
    """SHA-256 of the configuration's canonical JSON."""
    weights: WeightsKind
    """Pretrained where they were found (or demanded), else seeded random ones; "given" with a module or a bench."""
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
    """Further axes of the family: image_size (pixels a side), audio_seconds, steps (of denoising), documents (of the
    corpus), top_k (documents retrieved)."""

    @property
    def label(self) -> str:
        """Short and unique within a grid: "b1 s128 n16"."""
        parts = [f"{AXES[name].letter}{value}" for name, value in self.stated.items()]
        return " ".join(parts + [f"{name}={value}" for name, value in sorted(self.axes.items())])

    @classmethod
    def from_columns(cls, row: Mapping[str, Any]) -> Point:
        """The point of a row with the columns `POINT_COLUMNS`."""
        return cls(**{name: row[name] for name in POINT_FIELDS}, axes=json.loads(row["axes"]))

    @property
    def stated(self) -> dict[str, int]:
        """Its values on the axes that are fields, without those that are None or go without saying."""
        values = {name: getattr(self, name) for name in POINT_FIELDS}
        return {name: value for name, value in values.items() if value not in (None, AXES[name].implied)}

    def value(self, axis: str) -> float | None:
        """Its value on an axis, None where it has none."""
        value: float | None = getattr(self, axis) if axis in POINT_FIELDS else self.axes.get(axis)
        return value


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
    cpu_list: str | None = None
    """Logical processors the measuring process is bound to, as Linux lists them ("0-3,8"); None for no binding."""

    @property
    def subject(self) -> str:
        """What is measured, in tables: the model's id, with the variant of a benchmark of one's own behind it."""
        variant = self.runtime_mode.get("variant")
        return self.workload.model_id if variant is None else f"{self.workload.model_id} [{variant}]"


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
class Preparation:
    """What was done for a cell before its first launch, in a process of its own."""

    build: Mapping[str, Json] = field(default_factory=dict)
    """What the runtime says of the build that its launches load: kind, digest, build_s, size_bytes, is_new, exporter,
    ...; empty for a runtime that loads the model itself."""
    references: Mapping[str, str] = field(default_factory=dict)
    """Point label -> digest of the build with the reference's outputs."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Point label -> why there is no reference to compare its output with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchLoad:
    """What one fresh worker process spent before its first point."""

    launch: int
    stages_s: Mapping[str, float]
    """Seconds by stage: spawn, import, device_init, tokenizer (where there is one), weights_read, to_device; their sum
    is the load time."""
    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    """weights_bytes, rss_base_bytes, peak_rss_load_bytes, ..."""
    verified: Mapping[str, Json] = field(default_factory=dict)
    """What really runs, read back: parameter dtypes, devices, attention, threads. Of pretrained weights also what they
    were read from: `weights_file_bytes`, and `page_cache` (warm, cold, mixed or unknown) before the reading; of a
    tokenizer or processor its class and what it is fed with."""
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
class Origin:
    """What is to be known of numbers that another tool measured."""

    format: str
    """Name of the file's format."""
    tool_version: str | None = None
    definition: str
    """Whose definitions the metrics follow, by name: numbers of two definitions are never of one series."""
    definitions: Mapping[str, str] = field(default_factory=dict)
    """Metric -> what it means there, in words."""
    kept: Mapping[str, Json] = field(default_factory=dict)
    """The fields of the file that have no place in a record, under their own names."""


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
    preparation: Preparation | None = None
    """None for a cell that needs none: the reference itself, and what has no output to compare."""
    loads: tuple[LaunchLoad, ...] = ()
    results: tuple[Result, ...] = ()
    origin: Origin | None = None
    """Where another tool measured it; None for our own."""

    @property
    def is_simulated(self) -> bool:
        """Whether an emulator, a software adapter or a script ran in the device's place, as far as was seen before or
        read back: such numbers are never ranked as the device's."""
        return self.cell.device.simulated or any(load.verified.get("is_simulated") is True for load in self.loads)


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

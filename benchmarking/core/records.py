"""The records shared by all packages: requests, devices, measurements, results and doubts.

Records are frozen and keyword-only, hold JSON values, and convert to JSON and back without loss (`to_json`,
`from_json`). A value that could not be measured is None, or absent from a mapping, with its reason under `missing`;
never 0, NaN or -1.

Format versions
    1  first published format

2026-11-21: a torch module passed to `benchmark_model` has weights "given" and, unless its configuration names one, no
family. Recording it as pretrained, or under the nearest family, would store a guess as a fact.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping
from dataclasses import field, replace
from statistics import median
from typing import Annotated, Any, Literal, get_args

from benchmarking.core import plugins
from benchmarking.core.axes import AXES, POINT_FIELDS
from benchmarking.core.codec import Range
from benchmarking.core.codec import canonical_hash as canonical_hash
from benchmarking.core.codec import dumps as dumps
from benchmarking.core.codec import from_json as from_json
from benchmarking.core.codec import json_text as json_text
from benchmarking.core.codec import to_json as to_json
from benchmarking.core.errors import FormatError, UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import LaunchFacts
from benchmarking.core.quality import Quality

FORMAT = "benchhouse-run"
FORMAT_VERSION = 1

Json = None | bool | int | float | str | list[Any] | dict[str, Any]
Scalar = bool | int | float | str

# Number types of the records, with the ranges of the warehouse's columns.
INT32_MOST, INT64_MOST = 2**31 - 1, 2**63 - 1
Count = Annotated[int, Range(0, INT32_MOST)]
PositiveCount = Annotated[int, Range(1, INT32_MOST)]
Size = Annotated[int, Range(0, INT64_MOST)]
PositiveSize = Annotated[int, Range(1, INT64_MOST)]
Whole = Annotated[int, Range(-INT64_MOST, INT64_MOST)]
NUMBER_RANGE = Range(-1e300, 1e300)
Number = Annotated[float, NUMBER_RANGE]
"""A measured number, limited so that sums and statistics of any samples are finite too."""
AxisValue = Annotated[int | float, NUMBER_RANGE]

Family = str
"""The name of an architecture family, which is the name of its plugin."""
Precision = Literal["float32", "tf32", "bfloat16", "float16", "float8_e4m3", "int8", "int4", "other", "unknown"]
Status = Literal["ok", "failed", "skipped", "timed_out"]
Validity = Literal["valid", "noisy", "throttled", "invalid"]
Severity = Literal["info", "noisy", "throttled", "invalid"]
Phase = Literal["warmup", "measure"]
TokenCounter = Literal["tokenizer", "chunks", "hidden"]
WeightsKind = Literal["pretrained", "random", "given"]
WeightsChoice = Literal["auto", "pretrained", "random"]
Rebuild = Literal["if_needed", "always", "never"]

COUNTS_CALLS = "counts_calls"
"""Key of a given module's configuration: its inputs do not show how many items a call holds."""
PRECISIONS: tuple[Precision, ...] = get_args(Precision)[:-2]
"""The precisions that can be requested. Another tool's results may also be "other" (named in their runtime mode) or
"unknown"."""
PROTOTYPE = "torchao has its kernels as a prototype only, for GPUs of compute capability 10.0 with mslk"
UNAVAILABLE: Mapping[str, str] = {"mxfp4": PROTOTYPE, "nvfp4": PROTOTYPE}
"""Known but unavailable precision -> the reason."""


def available(precision: str) -> str:
    """Returns the precision unchanged. Raises UsageError with the reason if it is known but unavailable."""
    if precision in UNAVAILABLE:
        raise UsageError(f"precision {precision}: {UNAVAILABLE[precision]}; use one of {', '.join(PRECISIONS)}")
    return precision


WEIGHTS_CHOICES: tuple[WeightsChoice, ...] = get_args(WeightsChoice)
REBUILDS: tuple[Rebuild, ...] = get_args(Rebuild)

# Reasons for a missing value. A detail may follow after a colon: "no_permission: /sys/class/powercap".
NOT_SUPPORTED = "not_supported"
NO_PERMISSION = "no_permission"
NOT_APPLICABLE = "not_applicable"
TOO_FEW_SAMPLES = "too_few_samples"
NOT_RUN = "not_run"
FAILED = "failed"
COUNTER_STALE = "counter_stale"

LOOP = "loop"
"""The key of a load in `Cell.runtime_mode`: "open" for requests on a schedule, "closed" for a fixed number in flight,
"not stated" for a file of another tool that says neither.
Open and closed loops are separate series. The other keys of a load are there too; the offered rate is in the
point's axes as `REQUEST_RATE`."""
REQUEST_RATE = "request_rate"
SCENARIO = "scenario"
"""The key of an MLPerf scenario in `Cell.runtime_mode`: single-stream, multi-stream, offline or server."""
LOADED_SCENARIOS = ("server", "interactive")
"""The scenarios that send queries on a schedule; imported ones have no `LOOP`."""
SERVER = "server"
"""The runtime of a load on a server whose engine is not stated."""
MAX_REQUESTS = 200_000
"""Maximum requests per level and repetition, which are held in memory at about 1 kB each with 64 tokens."""
MAX_ARRIVALS = 4_000_000
"""Maximum chunk arrivals kept per level and repetition; beyond it, only the first of each request is kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Readings:
    """Named values read from a machine, and the reason for each value that could not be read.

    The unit is part of the name (`memory_bytes`, `clock_hz`, `temperature_c`).
    """

    values: Mapping[str, Json] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def known(cls, values: Mapping[str, Json], why_not: str) -> Readings:
        """The values, of which those that are None are missing for this reason."""
        return cls(
            values={name: value for name, value in values.items() if value is not None},
            missing={name: why_not for name, value in values.items() if value is None},
        )

    def only(self, names: Collection[str]) -> Readings:
        """Those of these names."""
        return Readings(
            values={name: self.values[name] for name in names if name in self.values},
            missing={name: self.missing[name] for name in names if name in self.missing},
        )

    def __or__(self, other: Readings) -> Readings:
        """Both combined: `other` wins on the same name, and a value wins over a reason."""
        values = {**self.values, **other.values}
        missing = {name: why for name, why in {**self.missing, **other.missing}.items() if name not in values}
        return Readings(values=values, missing=missing)


@dataclass(frozen=True, slots=True, kw_only=True)
class Device:
    """A device that was found, or the reason why it was not found."""

    type: str
    """The name of the device plugin."""
    selector: str
    """The value of `--device` that selects exactly this device: "cpu", "cuda:0", "openvino:GPU"."""
    found: bool
    why_not: str | None = None
    """What is missing and how to fix it; None when found."""
    name: str | None = None
    """The vendor's model name: "NVIDIA H100 80GB HBM3"."""
    vendor: str | None = None
    driver: str | None = None
    """Driver version; None without a driver."""
    count: PositiveCount = 1
    """Devices of the same model in the machine."""
    memory_bytes: Size | None = None
    """Device memory; for a CPU or unified memory, the machine's memory or its cgroup's lower limit."""
    simulated: bool = False
    """True for an emulator, whose results are never ranked."""
    facts: Readings = field(default_factory=Readings)
    """Further facts: compute capability, power cap, MIG, capabilities, backends."""
    precisions: tuple[Precision, ...] = ()
    """Precisions that the hardware supports; a runtime may support fewer."""

    @property
    def own_name(self) -> str:
        """What follows the kind in its selector: "0", "GPU.1"; empty for the only device of a kind."""
        return self.selector.partition(":")[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class Hardware:
    """The machine and device of a run. Runs with the same `hardware_id` are comparable."""

    hardware_id: str
    """First 16 hex digits of the SHA-256 of `hashed_keys`' canonical JSON."""
    hash_version: Count
    hashed_keys: Mapping[str, Json]
    """What the id is computed from: device model and count, CPU model, cores, NUMA, memory class; never clocks or
    host names."""
    device: Device
    cpu_model: str | None = None
    cpu_cores: PositiveCount | None = None
    """Physical cores."""
    cpu_threads: PositiveCount | None = None
    """Logical processors."""
    memory_bytes: Size | None = None
    """The machine's memory."""
    host: Readings = field(default_factory=Readings)
    """Further facts about the host: NUMA nodes, SMT, cgroup quota, operating system, virtual machine."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """The work to run, independent of device and runtime: a model's configuration, its architecture family, a task."""

    model_id: str
    """As requested: hub name, folder, or catalog name."""
    family: Family | None
    """None for a user-written benchmark, a graph in a file, and a torch module whose configuration names none."""
    task: str
    """Hugging Face task name: feature-extraction, text-generation, text2text-generation, ..."""
    source: Literal["catalog", "local", "hub", "module", "bench", "import", "file", "server"]
    """Where the configuration came from. "module": a torch module passed to `benchmark_model`; "bench": a user-written
    benchmark, in the file `path`; "import": another tool's file; "file": graphs, or a model of an engine,
    in the file or folder `path`; "server": what a server under load calls by this name, without a configuration."""
    config: Mapping[str, Json]
    """The model's configuration as in transformers' `to_diff_dict`, with `model_type`."""
    config_hash: str
    """SHA-256 of the configuration's canonical JSON."""
    weights: WeightsKind
    """Pretrained if found or required, else seeded random; "given" for a torch module or user-written benchmark."""
    weights_reason: str | None = None
    """Why the weights are random without a request for it."""
    seed: Whole = 0
    path: str | None = None
    """Folder with the configuration and weights, for the sources local and hub; the file of a benchmark."""
    revision: str | None = None
    """Hub commit; for a local folder the SHA-256 of its weight files' names and sizes, for an exported one
    that of its bundle.json; None in the catalog."""
    parameter_count: Size | None = None
    """Exact, from the parameters' shapes, shared ones counted once. None until the model is built."""
    max_sequence_length: PositiveSize | None = None
    """Longest supported sequence; None without a limit (relative positions)."""
    vocab_size: PositiveSize | None = None

    @property
    def counts_calls(self) -> bool:
        """Whether every call counts as one item."""
        return self.counts_calls_at()

    def counts_calls_at(self, point: Point | None = None) -> bool:
        """Whether the call at a point (by default, every call) counts as one item, because the inputs of a given module
        do not show how many it holds."""
        recorded = self.config.get("calls")
        calls = [call for call in recorded if isinstance(call, dict)] if isinstance(recorded, list) else []
        if point is not None:
            found = [(call, call.get("point")) for call in calls]
            calls = [call for call, at in found if isinstance(at, dict) and at.get("axes", {}) == dict(point.axes)]
        unknown = bool(calls) and all(call.get("is_batch_known") is False for call in calls)
        return self.source == "module" and (unknown or self.config.get(COUNTS_CALLS) is True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Point:
    """One point of the grid: a value on each axis."""

    batch_size: PositiveCount
    sequence_length: PositiveCount | None = None
    """Tokens of the prompt or input; None without tokens."""
    new_tokens: PositiveCount | None = None
    """Tokens generated per sequence; None when nothing is generated."""
    concurrency: PositiveCount = 1
    """Requests in flight."""
    axes: Mapping[str, AxisValue] = field(default_factory=dict)
    """Further axes, by name: those of the family (see `core.axes`) or a user-written benchmark's own."""

    @property
    def label(self) -> str:
        """Short and unique within a grid: "b1 s128 n16"."""
        parts = [f"{AXES[name].letter}{value}" for name, value in self.stated.items()]
        return " ".join(parts + [f"{name}={value}" for name, value in sorted(self.axes.items())])

    @classmethod
    def from_columns(cls, row: Mapping[str, Any]) -> Point:
        """The point in a row with the columns `POINT_COLUMNS`."""
        return cls(**{name: row[name] for name in POINT_FIELDS}, axes=json.loads(row["axes"]))

    @property
    def stated(self) -> dict[str, int]:
        """Its values on the axes that are fields, excluding None and implied values."""
        values = {name: getattr(self, name) for name in POINT_FIELDS}
        return {name: value for name, value in values.items() if value not in (None, AXES[name].implied)}

    def value(self, axis: str) -> float | None:
        """Its value on an axis; None if it has none."""
        value: float | None = getattr(self, axis) if axis in POINT_FIELDS else self.axes.get(axis)
        return value


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A workload on a device, in a runtime, at a precision: everything in a sweep except the grid."""

    workload: Workload
    device: Device
    requested_device: str
    """The value of `--device`: "auto", "cuda", ..."""
    runtime: str
    runtime_mode: Mapping[str, Scalar] = field(default_factory=dict)
    """The runtime's settings that distinguish a series: attention, cache, compile mode, ..."""
    precision: Precision = "float32"
    num_threads: PositiveCount | None = None
    """Requested intra-op threads; None leaves the choice to the runtime, which the run records."""
    cpu_list: str | None = None
    """Logical processors that the process is bound to, in Linux's notation ("0-3,8"); None without a binding."""

    @property
    def subject(self) -> str:
        """The name of the measured subject in tables: the model id, with the variant and the settings of a user-written
        benchmark in brackets."""
        variant, name = self.runtime_mode.get("variant"), self.workload.model_id
        words = [] if variant is None else [str(variant)]
        own = [item for item in self.settings.items() if item[0] not in self.runtime_mode]
        words += [f"{key} {value}" for key, value in own if (key, value) != ("model_id", name)]
        return f"{name} [{', '.join(words)}]" if words else name

    @property
    def settings(self) -> dict[str, Scalar]:
        """The runtime's settings, and those of a user-written benchmark, which are in its workload's config."""
        own = bench_settings(self.workload.config) if self.workload.source == "bench" else {}
        return {**self.runtime_mode, **own}


BENCH_FIELDS = ("model_id", "compile_mode", "compile_options", "generation_config")
"""Fields of a benchmark's config that distinguish series if they are set, in the workload's config."""


def bench_settings(config: Mapping[str, Any]) -> dict[str, Scalar]:
    """What distinguishes a user-written benchmark's configs besides the variant, by name, from the workload's config:
    its fields, and its `options`. Mappings are JSON."""
    fields = {name: value for name in BENCH_FIELDS if (value := config.get(name))}
    options = given if isinstance(given := config.get("options"), Mapping) else {}
    return {
        name: json.dumps(value, sort_keys=True, ensure_ascii=False) if isinstance(value, Mapping) else value
        for name, value in {**fields, **options, **fields}.items()  # fields come first
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """The raw values of one metric in one launch, in the order they were measured."""

    launch: Count
    """From 0."""
    phase: Phase
    metric: str
    """latency_wall, latency_device, time_to_first_token, inter_token_latency, tokenize, ..."""
    unit: str
    """"ms" for every time."""
    started_at: str
    """UTC, ISO 8601, of the first sample."""
    values: tuple[Number, ...]
    inner_loops: PositiveCount = 1
    """Calls per sample. Above 1, each value is the mean of a block of calls that are too short to time alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Requests:
    """The requests of one launch under load, as one tuple per field, all of the same length, in the order of the
    scheduled starts.

    Times are in ms from `started_at`, by the generator's clock. The time of an event that did not happen is None.
    """

    launch: Count
    phase: Phase
    started_at: str
    """UTC, ISO 8601, at time 0."""
    intended_ms: tuple[Number, ...]
    """Scheduled time in an open loop; in a closed loop, the time at which the previous request ended."""
    sent_ms: tuple[Number | None, ...]
    first_token_ms: tuple[Number | None, ...]
    """Arrival of the first chunk with output."""
    token_ms: tuple[tuple[Number, ...], ...]
    """Arrival of each chunk with output. A chunk is not always one token: `tokens_out` is the server's count. Empty if
    there were too many arrivals to keep."""
    end_ms: tuple[Number | None, ...]
    """End of the response ([DONE], or the reason for finishing if there is none), or of the failed attempt."""
    tokens_in: tuple[Size | None, ...]
    """Prompt tokens as counted by the server; None without a count."""
    tokens_out: tuple[Size | None, ...]
    """Output tokens, counted as in `tokens_counted_by`; None without a count."""
    cached_tokens: tuple[Size | None, ...]
    """Prompt tokens that the server took from its prefix cache; None if it does not report them."""
    error: tuple[str | None, ...]
    """Kind of the error: refused, http_429, truncated, ...; None for a request that succeeded."""
    detail: tuple[str | None, ...]
    """The error message."""
    meets_limits: tuple[bool | None, ...]
    """Whether it succeeded within every limit of the SLO; None without an SLO."""
    conversation: tuple[Count | None, ...]
    """Number of the conversation that it belongs to; None for a single request."""
    turn: tuple[Count | None, ...]
    """Its position in the conversation, from 0; None for a single request."""
    last_token_ms: tuple[Number | None, ...] = ()
    """Arrival of the last output. This field and those below were added later: None for each request if not given."""
    closed_ms: tuple[Number | None, ...] = ()
    """End of the body of the response, which a server may hold open after the end of the response."""
    tokens_counted_by: tuple[TokenCounter | None, ...] = ()
    """What counted `tokens_out`: None for the server or the runtime itself, or another tool's count; "hidden" for a
    server that did not stream them all, so that there is one for each chunk or more after the first output."""

    def __post_init__(self) -> None:
        for name in ("last_token_ms", "closed_ms", "tokens_counted_by"):
            if not getattr(self, name):
                object.__setattr__(self, name, (None,) * len(self))

    def __len__(self) -> int:
        return len(self.intended_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubt:
    """A reason not to take a number at face value, with the evidence; the kinds are in `core.doubts`."""

    kind: str
    severity: Severity
    evidence: Mapping[str, Json] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class StandIn:
    """A smaller point of the same model, at which the output is compared in place of a point's own."""

    point: Point
    why: str
    """Why there is no reference at the point itself: too slow, or too large for the memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Preparation:
    """The artifacts prepared for a cell before its first launch, in a separate process."""

    build: Mapping[str, Json] = field(default_factory=dict)
    """The build that the launches load: kind, digest, build_s, size_bytes, is_new, exporter, ...; empty for a runtime
    that loads the model itself."""
    references: Mapping[str, str] = field(default_factory=dict)
    """Point label -> digest of the stored reference outputs."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Point label -> why there is no reference output."""
    stand_ins: Mapping[str, StandIn] = field(default_factory=dict)
    """Point label -> the smaller point that its reference is of, where it is not the point itself."""
    quality_reference: str | None = None
    """Digest of the stored reference of the quality."""
    why_no_quality_reference: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class LaunchLoad:
    """The time and memory that a fresh worker process spent on loading, before its first point."""

    launch: Count
    stages_s: Mapping[str, Number]
    """Seconds by stage: spawn, import, device_init, tokenizer (if there is one), weights_read, to_device; their sum is
    the load time."""
    memory_bytes: Mapping[str, int] = field(default_factory=dict)
    """weights_bytes, rss_base_bytes, peak_rss_load_bytes, ..."""
    verified: Mapping[str, Json] = field(default_factory=dict)
    """What really runs, read back: parameter dtypes, devices, attention, threads. For pretrained weights also
    `weights_file_bytes` and the state of the `page_cache` before reading (warm, cold, mixed or unknown); for a
    tokenizer or processor its class and inputs."""
    missing: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The report of a worker on one launch at one point."""

    point: Point
    launch: Count
    status: Status
    error: str | None = None
    started_at: str
    """UTC, ISO 8601."""
    finished_at: str
    samples: tuple[Samples, ...] = ()
    first_call_ms: Number | None = None
    warmup_calls: int = 0
    steady: bool | None = None
    """Whether the warm-up reached a steady state; None if the calls are too slow to decide."""
    stop_reason: str | None = None
    """Why the timed calls ended: target, max_samples, max_time, plateau or fixed; None without a measurement."""
    relative_half_width: float | None = None
    """Of the 95 % confidence interval at the end, from batch means; None below 20 samples."""
    metrics: Mapping[str, Number] = field(default_factory=dict)
    """Values with one reading per launch: memory_*_bytes, energy_*_j, flops, compile_s."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Metric -> why it was not measured."""
    window: Mapping[str, Json] = field(default_factory=dict)
    """Counters and states during the latency pass: steal, pressure, run-queue wait, clocks, temperatures."""
    doubts: tuple[Doubt, ...] = ()
    extra: LaunchFacts = field(default_factory=LaunchFacts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Performance:
    """The headline numbers of a result: latency and throughput."""

    mean_latency: Number | None
    """Mean over the calls; None without a measurement."""
    throughput: Number | None
    """Items (sequences, images, rows of a batch) per second, in consecutive calls."""
    latency_units: str = "milliseconds"
    throughput_units: str = "items per second"


@dataclass(frozen=True, slots=True, kw_only=True)
class Result:
    """One point, over all its launches."""

    result_id: str
    """UUIDv7."""
    point: Point
    status: Status
    error: str | None = None
    validity: Validity | None = None
    """None unless status is ok."""
    doubts: tuple[Doubt, ...] = ()
    launches: Count = 0
    """Number of launches that measured this point."""
    iterations: Size | None = 0
    """Timed samples of all launches; None if another tool's file does not state them."""
    warmup_iterations: Size | None = 0
    """None if another tool's file does not state them."""
    stop_reason: str | None = None
    """The launches' common stop reason, or "mixed"."""
    ci_scope: Literal["between", "within"] | None = None
    """Whether the confidence interval covers the variation between launches (3 or more), or only the variation of calls
    within these processes ("within")."""
    pooled_quantiles: tuple[str, ...] = ()
    """The metrics whose percentile is computed from the pooled samples of all launches, since one launch has too
    few."""
    metrics: Mapping[str, Number] = field(default_factory=dict)
    """The point's numbers by column name (latency_median_ms, throughput_samples_per_sec, ...)."""
    missing: Mapping[str, str] = field(default_factory=dict)
    samples: tuple[Samples, ...] = ()
    requests: tuple[Requests, ...] = ()
    """The requests of a load on a server; empty for calls of a model."""
    extra: Mapping[str, Json] = field(default_factory=dict)
    """Details and evidence: each launch's windows, statistics and errors."""

    @property
    def performance(self) -> Performance:
        mean_ms, per_s = (self.metrics.get(name) for name in ("latency_mean_ms", "throughput_samples_per_sec"))
        return Performance(mean_latency=mean_ms, throughput=per_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class Provenance:
    """The origin of a run: command, host, commit, versions, tags."""

    tool_version: str
    command: tuple[str, ...]
    """The arguments as typed, without secrets."""
    host: str
    git_commit: str | None = None
    """Commit of the working folder's repository at the start of the run."""
    git_branch: str | None = None
    git_dirty: bool | None = None
    git_commit_time: str | None = None
    """UTC, ISO 8601. Histories are ordered by it when it is known."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """python, torch, transformers, onnxruntime, openvino, cuda, ..."""
    tags: Mapping[str, str] = field(default_factory=dict)
    description: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """The source of results measured by another tool."""

    format: str
    """Name of the file format."""
    tool_version: str | None = None
    definition: str
    """Name of the definitions of the metrics. Results with different definitions are separate series."""
    definitions: Mapping[str, str] = field(default_factory=dict)
    """Metric -> its meaning in that tool."""
    kept: Mapping[str, Json] = field(default_factory=dict)
    """Fields of the file without an equivalent in the records, under their original names."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Run:
    """A cell measured over its grid: the content of a run file."""

    format: str = FORMAT
    format_version: int = FORMAT_VERSION
    run_id: str
    """UUIDv7."""
    session_id: str
    """UUIDv7 of the command that made the run; shared by all runs of a batch."""
    status: Status
    error: str | None = None
    started_at: str
    """UTC, ISO 8601."""
    finished_at: str | None
    """None if another tool's file does not state it."""
    cell: Cell
    hardware: Hardware
    provenance: Provenance
    settings: Mapping[str, Json] = field(default_factory=dict)
    """The measurement settings: profile, iterations, launches, limits, seed."""
    environment: Readings = field(default_factory=Readings)
    """The machine's state at the start: governor, turbo, affinity, quota, relevant environment variables."""
    preparation: Preparation | None = None
    """None for a cell that needs no preparation: the reference itself, or a cell without comparable output."""
    loads: tuple[LaunchLoad, ...] = ()
    results: tuple[Result, ...] = ()
    quality: Quality | None = None
    """None if it was not requested."""
    origin: Origin | None = None
    """For results of another tool; None for our own."""

    @property
    def load_time_s(self) -> float | None:
        """Seconds from a fresh process to a loaded model: the sum of all stages, median over the launches; None without
        a load."""
        return median(sum(load.stages_s.values()) for load in self.loads) if self.loads else None

    @property
    def performance(self) -> Performance:
        found = next((result for result in self.results if result.status == "ok"), None)
        return Performance(mean_latency=None, throughput=None) if found is None else self.performance_of(found)

    def performance_of(self, result: Result) -> Performance:
        """Mean latency and throughput of one of its results, in calls per second if a call's items are unknown."""
        found = result.performance
        return (
            replace(found, throughput_units="calls per second")
            if self.cell.workload.counts_calls_at(result.point)
            else found
        )

    @property
    def is_load(self) -> bool:
        """Whether it is a load on a server rather than calls of a model."""
        return LOOP in self.cell.runtime_mode

    @property
    def is_simulated(self) -> bool:
        """Whether an emulator, software adapter or script ran instead of the device, as found before or read back
        during the run. Such results are never ranked."""
        return self.cell.device.simulated or any(load.verified.get("is_simulated") is True for load in self.loads)


def run_from_json(data: Any, where: str) -> Run:
    """A run of this or an older format. Raises FormatError for any other file, and for one of a newer program or with a
    family that this one does not have."""
    if not isinstance(data, dict) or data.get("format") != FORMAT:
        raise FormatError(f'{where}: not a benchhouse run (no "format": "{FORMAT}")')
    version = data.get("format_version")
    if not isinstance(version, int) or version < 1:
        raise FormatError(f"{where}: format_version is {version!r}, expected a number from 1 to {FORMAT_VERSION}")
    if version > FORMAT_VERSION:
        raise FormatError(f"{where}: format {version} is newer than the supported {FORMAT_VERSION}: upgrade benchhouse")
    run = from_json(Run, data, where)
    plugins.check_family(run.cell.workload.family, f"{where}.cell.workload.family")
    return run

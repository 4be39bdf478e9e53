"""The metrics of a result: measuring, storing, comparing, printing and drawing all derive from this table.

A new metric with a column needs one entry here, one migration that adds the column, and code that measures it.
Metrics without an entry (of a user-written benchmark or another tool) are stored in the column other_metrics; those of
a benchmark or workload bring their unit and direction with them (`CustomMetric`).

Vendor calls and columns have other units, converted by the constants and functions at the top. Everything in
between is in s, B, J, W, Hz, and integer ns from the clock.

What else is known of a point in one launch are its `LaunchFacts`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal, TypedDict, get_args

from benchmarking.core.errors import UsageError
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.sample_statistics import PERCENTILES


class LaunchFacts(TypedDict, total=False):
    """The work of a call, how each pass measured, and why the launch failed, by the names under which this is stored:
    as the `launches` of a result, without those of a failed launch. A fact that was not established is absent, so that
    unknown differs from none."""

    # The work of a call, from which rates are computed; None for none.
    items_per_call: int | None
    tokens_per_call: float | None
    prompt_tokens_per_call: int | None
    new_tokens: int | None
    requests_in_flight: int
    """Only if there are several at a time."""
    requests_wall_ms: float
    """Wall time of all timed requests in flight, the denominator of their throughput."""

    # The latency pass and its warm-up.
    calibration_ms: list[float]
    """Single calls before those in blocks."""
    warmup_samples_counted: int
    """Steady samples of the warm-up that count as timed ones."""
    cold_cache_bytes: int
    """Flushed before each timed call."""
    throttled_try: dict[str, Any]
    """A pass that heat or power throttled, and that was repeated."""
    budget: dict[str, Any]
    """The time budget, and the settings that it changed."""

    # The other passes.
    pipelined_calls: int
    pipelined_rounds_s: list[float]
    memory_calls: int
    peak_rss_method: str
    """high_water_mark, sampled_10ms or process_lifetime."""
    device_memory_peaks_by_device: dict[str, Any]
    device_memory_interval_s: float
    device_memory_readings: int
    monitored_calls: int
    monitored_s: float
    monitor_interval_s: float
    usage: dict[str, float]
    """Mean and maximum of each reading of the device and the processors."""
    traced_calls: int
    kernel_ms_per_call: float
    kernels_per_call: float
    energy_method: Any
    energy_method_by_domain: dict[str, Any]
    energy_j_by_window: dict[str, Any]
    energy_j_per_call_by_window: dict[str, Any]
    energy_idle_w_by_domain: dict[str, Any]
    power_mean_w_by_domain: dict[str, Any]
    energy_calls: list[int]
    energy_calls_per_s: list[float]
    energy_gpu_j_per_call_by_device: dict[str, Any]
    energy_counter_dropped: Any
    """A counter whose reading fell."""
    compile_method: str
    """counter, or upper_bound: the first call less a steady one."""
    verified: dict[str, Any]
    """What the calls actually ran on."""
    output_errors: dict[str, Any]
    """The errors of each output, if a call has several."""
    flops_source: str
    """reference, if the runtime does not count them."""
    custom_metrics: dict[str, Any]
    """Unit and direction of each metric of the operation's own."""

    # A failure.
    traceback: str | None
    """Of a bug; None for an expected error."""
    out_of_memory: bool
    device_lost: bool


NS_PER_S = 1_000_000_000
NS_PER_MS = 1_000_000
NS_PER_US = 1_000
MS_PER_S = 1000.0
HZ_PER_MHZ = 1_000_000
HZ_PER_KHZ = 1_000
BYTES_PER_MB = 1_000_000
BYTES_PER_KIB = 1024
BYTES_PER_MIB = 1024**2
BYTES_PER_GIB = 1024**3

LATENCY_WALL = "latency_wall"
"""Raw metric: wall time of a call."""
LATENCY_REQUEST = "latency_request"
"""Raw metric: a request's latency by the runtime's own clock, if it has one."""
TIME_TO_FIRST_TOKEN = "time_to_first_token"  # noqa: S105 - the name of a metric
STATED_PER_TOKEN = "stated_time_per_token"  # noqa: S105 - the name of a metric
"""Raw metric: the latency of a call over the tokens that it states to have generated."""


def ns_to_ms(duration_ns: float) -> float:
    return duration_ns / NS_PER_MS


def ns_to_s(duration_ns: float) -> float:
    return duration_ns / NS_PER_S


def bytes_to_mb(size_bytes: float) -> float:
    """Megabytes (10^6 bytes) of a size in bytes."""
    return size_bytes / BYTES_PER_MB


Source = Literal["samples", "reading", "first_call", "verified", "load_memory", "load_time", "derived", "custom"]
"""Where a launch's value comes from: raw samples; one reading (`Measurement.metrics`); the first call; values read back
by an operation or session (`verified`); memory or time of the load (`LaunchLoad`). A derived metric is computed
from the result's median latency and a reading or another column. A custom one is a `CustomMetric`, without a column."""
Statistic = Literal[
    "mean", "median", "sd", "mad", "min", "p25", "p75", "p90", "p95", "p99", "max", "ci_low", "ci_high", "rate"
]
OverLaunches = Literal["median", "most"]
Direction = Literal["lower", "higher"]

NO_EXPERTS = "not a mixture of experts"
NOT_READ_BACK = "the runtime does not report it"


PER_SECOND = re.compile(r"_((tokens|samples)_)?per_sec$")
"""Suffixes of a column that repeat its unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    column: str
    """The column in benchmark_results and the key in `Result.metrics`."""
    source: Source
    of: str
    """What it is computed from: the raw metric of the samples, or the name of the reading."""
    statistic: Statistic = "median"
    """How a launch's samples are summarized: a field of `sample_statistics.Statistics`; or "rate", work per second,
    inversely proportional to their mean, or where it is not judged to their median."""
    over_launches: OverLaunches = "median"
    """How the launches' readings are combined; samples are combined by `sample_statistics.over_launches`."""
    unit: str = ""
    """Unit of the values; empty for counts and ratios."""
    better: Direction | None = None
    """Which direction is better; None for a neutral fact."""
    is_judged: bool = False
    """Whether comparisons, gates and histories can use it; it then has a value for each launch."""
    not_applicable: str | None = None
    """Why it is missing in families or runtimes without it; None when every call may have it."""
    heading: str = ""
    """Heading of its column in tables of results; empty when tables omit it."""
    title: str = ""
    """Title of a chart's axis, with the unit; empty when no chart draws it."""

    @property
    def is_in_bytes(self) -> bool:
        """Whether launches report it in bytes although the column is in MB."""
        return self.of.endswith("_bytes") and self.unit == "MB" and self.source != "custom"

    @property
    def is_percentile(self) -> bool:
        """Whether it is a percentile above the quartiles, which may be computed from the pooled samples of all
        launches."""
        return self.source == "samples" and self.statistic in PERCENTILES

    @property
    def words(self) -> str:
        """Its name with its unit, for display: "latency p99 (ms)"."""
        if self.title:
            return self.title
        ending = f"_{self.unit.lower().replace('/', 'per_')}"
        name = PER_SECOND.sub("", self.column.removesuffix(ending)).replace("_", " ")
        return f"{name} ({self.unit})" if self.unit else name

    @property
    def noun(self) -> str:
        """Its name within a sentence, without its unit: "median latency per call"."""
        name = self.words.removesuffix(f" ({self.unit})")
        named, _, statistic = f"{name[0].lower()}{name[1:]}".partition(", ")
        return f"{statistic} {named}".strip()

    def is_worse(self, relative_change: float) -> bool:
        """Whether a change (after / before - 1) is for the worse."""
        return relative_change > 0 if self.better == "lower" else relative_change < 0


def _time(column: str, of: str, statistic: Statistic = "median", **further: Any) -> Metric:
    return Metric(column=column, source="samples", of=of, statistic=statistic, unit="ms", better="lower", **further)


def _latency(column: str, statistic: Statistic, **further: Any) -> Metric:
    """A statistic of the calls' wall times."""
    return _time(column, LATENCY_WALL, statistic, **further)


def _rate(column: str, of: str, unit: str, **further: Any) -> Metric:
    """Work per second, from a raw metric that is a time."""
    return Metric(column=column, source="samples", of=of, statistic="rate", unit=unit, better="higher", **further)


def _phase(column: str, heading: str = "") -> Metric:
    """The time that a call spends in one phase."""
    return _time(column, f"phase_{column.removesuffix('_ms')}", heading=heading)


def _reading(column: str, unit: str = "", better: Direction | None = None, **further: Any) -> Metric:
    """A value with one reading per launch."""
    return Metric(column=column, source="reading", of=column, unit=unit, better=better, **further)


def _memory(column: str, of: str, source: Source = "reading", **further: Any) -> Metric:
    return Metric(column=column, source=source, of=of, unit="MB", better="lower", **further)


def _read_back(column: str, *, unit: str = "", over: OverLaunches = "most") -> Metric:
    """A number that a runtime reads back. Counts are the largest of any launch, since a single deviation matters."""
    better: Direction | None = "lower" if unit else None
    further: dict[str, Any] = {"over_launches": over, "not_applicable": NOT_READ_BACK}
    return Metric(column=column, source="verified", of=column, unit=unit, better=better, **further)


_ALL = (
    _latency("latency_mean_ms", "mean"),
    _latency("latency_median_ms", "median", is_judged=True, heading="median ms", title="Latency per call, median (ms)"),
    _latency("latency_std_ms", "sd"),
    _latency("latency_mad_ms", "mad"),
    _latency("latency_min_ms", "min"),
    _latency("latency_p25_ms", "p25"),
    _latency("latency_p75_ms", "p75"),
    _latency("latency_p90_ms", "p90", is_judged=True, heading="p90 ms"),
    _latency("latency_p95_ms", "p95", is_judged=True),
    _latency("latency_p99_ms", "p99", is_judged=True, heading="p99 ms"),
    _latency("latency_max_ms", "max"),
    _latency("latency_ci_low_ms", "ci_low"),
    _latency("latency_ci_high_ms", "ci_high"),
    _time("latency_device_median_ms", "latency_device", is_judged=True),
    _reading("host_gap_ms", "ms", "lower"),
    _rate("throughput_samples_per_sec", LATENCY_WALL, "items/s", is_judged=True, heading="items/s"),
    _rate("throughput_tokens_per_sec", LATENCY_WALL, "tokens/s", is_judged=True, heading="tokens/s"),
    _reading("throughput_pipelined", "items/s", "higher"),
    _time(
        "time_to_first_token_ms",
        "time_to_first_token",
        is_judged=True,
        heading="TTFT ms",
        title="Time to first token, median (ms)",
    ),
    _time("time_to_first_token_p90_ms", "time_to_first_token", "p90", is_judged=True),
    _time("time_to_first_token_p99_ms", "time_to_first_token", "p99", is_judged=True),
    _time("time_to_first_token_ci_low_ms", "time_to_first_token", "ci_low"),
    _time("time_to_first_token_ci_high_ms", "time_to_first_token", "ci_high"),
    _time(
        "time_per_output_token_ms",
        "time_per_output_token",
        is_judged=True,
        heading="TPOT ms",
        title="Time per token after the first, median (ms)",
    ),
    _time("time_per_output_token_p90_ms", "time_per_output_token", "p90", is_judged=True),
    _time("time_per_output_token_p99_ms", "time_per_output_token", "p99", is_judged=True),
    _time("time_per_output_token_ci_low_ms", "time_per_output_token", "ci_low"),
    _time("time_per_output_token_ci_high_ms", "time_per_output_token", "ci_high"),
    _time("inter_token_latency_p50_ms", "inter_token_latency", is_judged=True),
    _time("inter_token_latency_p90_ms", "inter_token_latency", "p90", is_judged=True),
    _time("inter_token_latency_p99_ms", "inter_token_latency", "p99", is_judged=True),
    _time("inter_token_latency_ci_low_ms", "inter_token_latency", "ci_low"),
    _time("inter_token_latency_ci_high_ms", "inter_token_latency", "ci_high"),
    _rate("prefill_tokens_per_sec", "time_to_first_token", "tokens/s"),
    _rate("decode_tokens_per_sec", "time_per_output_token", "tokens/s"),
    _phase("retrieve_ms", "retrieve ms"),
    _phase("image_encode_ms", "image enc ms"),
    _phase("encode_ms", "encode ms"),
    _phase("prefill_ms"),
    _phase("decode_ms"),
    _phase("step_ms", "step ms"),
    Metric(column="first_call_ms", source="first_call", of="first_call_ms", unit="ms", better="lower", is_judged=True),
    Metric(column="real_time_factor", source="derived", of="audio_seconds_per_call", better="lower", heading="RTF"),
    Metric(column="achieved_flops_per_sec", source="derived", of="flops", unit="FLOP/s", better="higher"),
    _reading("time_to_ready_s", "s", "lower"),
    _reading("compile_s", "s", "lower", is_judged=True, heading="compile s"),
    _time("tokenize_ms", "tokenize", is_judged=True),
    Metric(column="total_ms", source="derived", of="tokenize_ms", unit="ms", better="lower", heading="total ms"),
    _reading("flops", "FLOP"),
    _reading("bytes_accessed", "B"),
    _reading("audio_seconds_per_call", "s", not_applicable="no audio"),
    _reading("active_parameter_count", not_applicable=NO_EXPERTS),
    _reading("expert_load_imbalance", better="lower", not_applicable=NO_EXPERTS),
    _reading("output_error", better="lower", heading="error"),
    _reading("output_max_abs_error", better="lower"),
    _reading("output_cosine_similarity", better="higher"),
    _reading("output_equal_token_share", better="higher"),
    _reading("energy_soc_j_per_call", "J", "lower"),
    _reading("energy_gpu_j_per_call", "J", "lower"),
    _reading("energy_cpu_pkg_j_per_call", "J", "lower"),
    _reading("energy_dram_j_per_call", "J", "lower"),
    _reading("energy_idle_w", "W"),
    _reading("power_mean_w", "W", "lower"),
    _reading("power_peak_w", "W", "lower"),
    _reading("utilization_mean_percent", "%"),
    _reading("utilization_max_percent", "%"),
    _memory(
        "memory_device_process_peak_mb",
        "device_process_peak_bytes",
        is_judged=True,
        title="Peak device memory of the process (MB)",
    ),
    _memory("memory_device_reserved_peak_mb", "device_reserved_peak_bytes", title="Peak device memory reserved (MB)"),
    _memory(
        "memory_device_allocated_peak_mb",
        "device_allocated_peak_bytes",
        is_judged=True,
        title="Peak device memory allocated (MB)",
    ),
    _memory(
        "memory_peak_rss_infer_mb",
        "peak_rss_infer_bytes",
        is_judged=True,
        title="Peak resident memory of the process (MB)",
    ),
    _memory("memory_device_used_mean_mb", "device_used_mean_bytes"),
    _memory("memory_rss_mean_mb", "rss_mean_bytes"),
    _memory("memory_device_global_delta_mb", "device_global_delta_bytes"),
    _memory("memory_weights_mb", "weights_bytes", source="load_memory"),
    _memory("memory_rss_base_mb", "rss_base_bytes", source="load_memory"),
    _memory("memory_peak_rss_load_mb", "peak_rss_load_bytes", source="load_memory"),
    _memory("model_size_mb", "model_size_bytes", source="load_memory"),
    _read_back("compile_cold_s", unit="s", over="median"),
    _read_back("compile_warm_s", unit="s", over="median"),
    _read_back("graph_count"),
    _read_back("graph_break_count"),
    _read_back("recompile_count"),
    _read_back("nodes"),
    _read_back("nodes_on_cpu_unasked"),
)

METRICS: Mapping[str, Metric] = {metric.column: metric for metric in _ALL}
"""By column of benchmark_results."""
LOAD_TIME = Metric(column="load_time_s", source="load_time", of="stages_s", unit="s", better="lower", is_judged=True)
"""Load time of a launch. All points of a run share it, so its column is in benchmark_runs."""

PEAK_MEMORY: tuple[str, ...] = tuple(name for name, metric in METRICS.items() if metric.unit == "MB" and metric.title)
"""Columns with peak memory in order of preference: the first that was measured is the result's peak memory (on a CPU,
the process's)."""
PEAK_MEMORY_SQL = f"coalesce({', '.join(f'nullif({name}, 0)' for name in PEAK_MEMORY)})"
"""The peak memory, of these columns."""
ENERGY: tuple[str, ...] = tuple(name for name, metric in METRICS.items() if metric.unit == "J")
"""Columns with the energy of a call, in order of preference: the whole chip, then its parts."""
ENERGY_PARTS: Mapping[str, str] = {
    "energy_soc_j_per_call": "whole chip",
    "energy_gpu_j_per_call": "GPU",
    "energy_cpu_pkg_j_per_call": "CPU packages",
    "energy_dram_j_per_call": "memory modules",
}
"""What each of them covers."""


def peak_memory_column(values: Mapping[str, Any]) -> str | None:
    """The column of the peak memory; None without any. A 0 was not measured: tools write it for a process unknown to
    the driver."""
    return next((name for name in PEAK_MEMORY if values.get(name)), None)


def energy_per_item(values: Mapping[str, float | None], items: int) -> tuple[float | None, str | None]:
    """J per item and the parts it covers, from the energy of a call by column: of the whole chip if that was measured,
    otherwise the sum of measured parts; None without any. A part of 0 was not measured."""
    parts: Sequence[str] = [name for name in ENERGY if values.get(name)]
    parts = parts[:1] if parts and parts[0] == ENERGY[0] else parts
    if not parts:
        return None, None
    total = sum(value for name in parts if (value := values[name]) is not None)
    return total / items, " + ".join(ENERGY_PARTS[name] for name in parts)


LATENCY: Mapping[str, Statistic] = {
    m.column: m.statistic for m in _ALL if m.of == LATENCY_WALL and m.statistic != "rate"
}
"""Columns about the wall time of calls -> their statistic."""
OF_SINGLE_CALLS: tuple[str, ...] = tuple(
    name for name, statistic in LATENCY.items() if statistic not in ("mean", "median", "ci_low", "ci_high")
)
"""Columns without a value if calls are timed in blocks, whose means vary less. The mean is then over calls, the median
over the means of blocks."""
SERVICE_TIMES: Mapping[str, str] = {
    name: name.replace("latency", "service_time").replace("median", "p50") for name in LATENCY
}
"""Latency of a request from its intended start -> name of the same time from sending."""
DESCRIBED: Mapping[str, tuple[Metric, ...]] = {
    name: tuple(m for m in _ALL if m.source == "samples" and m.of == name and m.statistic != "rate")
    for name in dict.fromkeys(m.of for m in _ALL if m.statistic == "ci_low")
}
"""Raw metric -> its statistics, for the raw metrics whose median has an interval."""
JUDGED: Mapping[str, Metric] = {metric.column: metric for metric in (*_ALL, LOAD_TIME) if metric.is_judged}
"""The metrics by which results are compared, by column of the view all_results."""
DEFAULT_METRIC = "latency_median_ms"


def from_source(source: Source) -> dict[str, Metric]:
    return {name: metric for name, metric in METRICS.items() if metric.source == source}


LOAD_RATES = {"throughput_samples_per_sec": "requests_per_sec", "throughput_tokens_per_sec": "output_tokens_per_sec"}
"""Column of a rate -> the reading that a repetition of a load has for it. Requests overlap, so their rate does not
follow from their latency."""
THROUGHPUT_AT_MEDIAN = "throughput_at_median"
"""Items per second if every call took as long as the median one, in other_metrics. The throughput is the mean over all
calls, so the two differ if few calls are slow."""
OVERLAPPING = "not_applicable: requests overlap, so their rate does not follow from their latency"
"""Why a load, or a point with requests in flight, has no throughput at the median."""
CUSTOM_METRICS = "custom_metrics"
"""The key, in a measurement's and a result's details, of units and directions: name -> {"unit", "better"}."""
CUSTOM_NAME = re.compile(r"[a-z][a-z0-9_]{0,62}")
"""Names are valid unquoted as a column, a JSON key and a command-line word."""
MAX_UNIT_CHARACTERS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CustomMetric:
    """A metric of a launch without a column, from a user-written benchmark or a workload.

    Stored in `other_metrics` under its name, as the median over the launches. With a direction, it is compared, gated
    and followed over time as the metrics with a column are. Raises UsageError for an invalid value.
    """

    name: str
    """Lower-case letters, digits and "_"; not the name of a column."""
    value: float
    """Finite. Only values above 0 are compared, since comparisons are ratios."""
    unit: str = ""
    """Empty for counts and ratios."""
    better: Direction | None = None
    """The better direction; None for a neutral fact, which is shown but never compared."""

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not CUSTOM_NAME.fullmatch(self.name):
            raise UsageError(f"a metric's name takes at most 63 lower-case letters, digits and _: got {self.name!r}")
        if self.name in METRICS or self.name == LOAD_TIME.column:
            raise UsageError(f"metric {self.name} is measured by benchhouse: choose another name")
        if isinstance(self.value, bool) or not isinstance(self.value, int | float) or not math.isfinite(self.value):
            raise UsageError(f"metric {self.name} takes a finite number: got {self.value!r}")
        if self.better not in (None, *get_args(Direction)):
            raise UsageError(f"metric {self.name}: better is 'lower', 'higher' or None: got {self.better!r}")
        if not isinstance(self.unit, str) or not self.unit.isprintable() or len(self.unit) > MAX_UNIT_CHARACTERS:
            raise UsageError(f"metric {self.name}: a unit has at most {MAX_UNIT_CHARACTERS} characters: {self.unit!r}")


def custom_metric(name: str, unit: str, better: Direction | None) -> Metric:
    """The metric of a custom number, as comparisons, gates and histories use it."""
    return Metric(
        column=name, source="custom", of=name, unit=unit, better=better, is_judged=better is not None, heading=name
    )


UNITS_BY_ENDING: Mapping[str, tuple[str, Direction]] = {
    "_per_sec": ("/s", "higher"),
    "_ms": ("ms", "lower"),
    "_s": ("s", "lower"),
    "_mb": ("MB", "lower"),
    "_j": ("J", "lower"),
    "_w": ("W", "lower"),
}
"""Suffix of a name -> unit and direction, for other tools' metrics, whose files have neither. The first match wins."""
YIELD = re.compile(
    r"(?:^|_)(?:per_(?P<per>s|ms|j|w)|(?:[kmgt]i?b|bytes|[kmgt]?flops?|ops|toks?|tokens|reqs?|requests|samples|items|imgs?"
    r"|images|frames|rows|it)_s)$"
)
"""The end of a name of what a second, a joule or a watt yields, of which more is better: tokens_per_j, tok_s, gb_s."""
UNWANTED = re.compile(
    r"(?:^|_)(?:std(?:dev|ev)?|errors?|fail(?:s|ed|ures?)?|miss(?:es|ed)?|faults?|drop(?:s|ped)?|evictions?|preemptions?"
    r"|retries|timeouts?|rejected|stalls?|energy|joules|cost)_"
)
"""Part of the name of what is better lower, also per second: a standard deviation, whatever it is of, and errors."""


def metric_by_ending(name: str) -> Metric | None:
    """The metric of a number stored without unit and direction, derived from its name; None if that is not possible."""
    found = next((each for ending, each in UNITS_BY_ENDING.items() if name.endswith(ending)), None)
    if (rate := YIELD.search(name)) is not None:
        per = rate["per"] or "s"
        found = f"/{per.upper() if per in 'jw' else per}", "higher"
    if found is None:
        return None
    return custom_metric(name, found[0], "lower" if UNWANTED.search(name) else found[1])

"""The numbers of a result in the words of a Benchmark Report: times in seconds with their statistics, and lengths.

Own results have them in columns, and their raw samples have the rest. Imported ones have many under names that their
tools use: time_to_first_token_avg_ms, mean_ttft_ms, ttft_average_ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from benchmarking.core.metrics import MS_PER_S
from benchmarking.core.records import Result
from benchmarking.core.sample_statistics import describe
from benchmarking.core.scenario_file import raw_values

WORDS = {
    "mean": ("mean", "avg", "average"),
    "mode": ("mode",),
    "stddev": ("stddev", "std", "std_dev", "stdev"),
    "min": ("min", "minimum"),
    "p0p1": ("p0p1", "p0.1"),
    **{name: (name,) for name in ("p1", "p5", "p10", "p25")},
    "p50": ("median", "p50"),
    **{name: (name,) for name in ("p75", "p90", "p95", "p99")},
    "p99p9": ("p99p9", "p99.9", "p999"),
    "max": ("max", "maximum"),
}
"""Statistic of a report -> the words that name it in a metric, in the report's order."""
OF_SAMPLES = {"mean": "mean", "stddev": "sd", "min": "min", "p25": "p25", "p50": "median"} | {
    name: name for name in ("p75", "p90", "p95", "p99", "max")
}
"""Statistic of a report -> field of `Statistics`."""


@dataclass(frozen=True, slots=True)
class Time:
    """A latency of a report."""

    name: str
    unit: str
    columns: Mapping[str, str]
    """Its statistic -> our column."""
    called: tuple[str, ...]
    """The names that tools have for it."""
    samples: str | None = None
    """Our raw samples of it."""


def _of_tokens(name: str) -> dict[str, str]:
    return {"p50": f"{name}_ms", "p90": f"{name}_p90_ms", "p99": f"{name}_p99_ms"}


LATENCY = Time(
    "request_latency",
    "s",
    {its: f"latency_{words[0]}_ms" for its, words in WORDS.items()} | {"stddev": "latency_std_ms"},
    ("request_latency", "e2el", "e2e_latency", "latency"),
    "latency_wall",
)
FIRST = Time(
    "time_to_first_token",
    "s",
    _of_tokens("time_to_first_token"),
    ("time_to_first_token", "ttft"),
    "time_to_first_token",
)
EACH = Time(
    "time_per_output_token",
    "s/token",
    _of_tokens("time_per_output_token"),
    ("time_per_output_token", "tpot"),
    "time_per_output_token",
)
FROM_SENDING = replace(LATENCY, columns={}, called=("service_time",))
"""The latency of an imported load whose tool counts from sending."""
GAP = Time("inter_token_latency", "s/token", {}, ("inter_token_latency", "itl"), "inter_token_latency")
NORMALIZED = Time("normalized_time_per_output_token", "s/token", {}, ("normalized_time_per_output_token",))


@dataclass(frozen=True, slots=True)
class Numbers:
    """The metrics of a result, and the names of those that were asked for and found."""

    result: Result
    means_ms: Mapping[str, float]
    """Mean of the raw samples by metric, where samples were compacted."""
    used: set[str] = field(default_factory=set)

    def first_of(self, names: Iterable[str]) -> float | None:
        """The value of the first metric that the result has."""
        for name in names:
            if (value := self.result.metrics.get(name)) is not None:
                self.used.add(name)
                return value
        return None

    @property
    def others(self) -> list[str]:
        """The names of the metrics that were not taken."""
        return [name for name, value in self.result.metrics.items() if value is not None and name not in self.used]


def latencies(numbers: Numbers) -> tuple[dict[str, dict[str, Any]], list[str]]:
    """The latencies of a report by name, and the names of those without a mean, which a report requires.

    Where a tool's inter-token latency is a request's mean gap between tokens, its median is our time per output token,
    so its other statistics belong there too.
    """
    metrics = numbers.result.metrics
    gap_is_each = (
        EACH.columns["p50"] in metrics
        and _has(metrics, GAP, "mean")
        and not _has(metrics, GAP, "p50")
        and not metrics.keys() & set(_names(replace(EACH, columns={}), "mean"))
    )
    between_tokens = (replace(EACH, called=(*EACH.called, *GAP.called)),) if gap_is_each else (EACH, GAP)
    times: dict[str, dict[str, Any]] = {}
    without_mean: list[str] = []
    is_from_sending = "service_time_p50_ms" in metrics and "latency_median_ms" not in metrics
    for time in (FIRST, *between_tokens, NORMALIZED, FROM_SENDING if is_from_sending else LATENCY):
        before = set(numbers.used)
        of_samples = _of_samples(numbers, time)
        stated = {its: numbers.first_of(_names(time, its)) for its in WORDS}
        known = {its: of_samples.get(its) if value is None else value for its, value in stated.items()}
        seconds = {its: ms / MS_PER_S for its, ms in known.items() if ms is not None}
        if "mean" in seconds:
            times[time.name] = {"units": time.unit, **seconds}
        elif seconds:
            without_mean.append(time.name)
            numbers.used.intersection_update(before)
    return times, without_mean


def _has(metrics: Mapping[str, float], time: Time, statistic: str) -> bool:
    return not metrics.keys().isdisjoint(_names(time, statistic))


def _names(time: Time, statistic: str) -> Iterator[str]:
    """The metrics that may have a statistic of a time: our column, then a tool's names."""
    known = [time.columns[statistic]] if statistic in time.columns else []
    for called in time.called:
        for word in WORDS[statistic]:
            known += [f"{called}_{word}_ms", f"{word}_{called}_ms"]
    for name in known:
        yield from (name, f"stated_{name}")


def _of_samples(numbers: Numbers, time: Time) -> dict[str, float | None]:
    """The statistics of all launches together. Samples of blocks of calls, and compacted ones, have only a mean."""
    if time.samples is None:
        return {}
    if time.samples in numbers.means_ms:
        return {"mean": numbers.means_ms[time.samples]}
    raw = raw_values(numbers.result, time.samples)
    if not raw:
        return {}
    known = describe(raw)
    is_in_blocks = any(samples.inner_loops > 1 for samples in numbers.result.samples if samples.metric == time.samples)
    return {"mean": known.mean} if is_in_blocks else {its: getattr(known, of) for its, of in OF_SAMPLES.items()}


def lengths(numbers: Numbers, fixed: int | None, counts: Iterable[int | None], called: Iterable[str]) -> dict[str, Any]:
    """The statistics of a number of tokens; empty if it is unknown.

    `fixed` is the length of all requests, `counts` the length of each that succeeded, and `called` the names that
    tools have for it.
    """
    counts_known = list(counts)
    if counts_known and None not in counts_known:
        known = describe([float(count) for count in counts_known if count is not None])
        statistics = {its: getattr(known, name) for its, name in OF_SAMPLES.items()}
    elif fixed is not None:
        statistics = {"mean": float(fixed), "min": fixed, "max": fixed}
    else:
        names = list(called)
        statistics = {
            its: numbers.first_of(f"{name}_{word}{end}" for name in names for word in words for end in ("", "_tokens"))
            for its, words in WORDS.items()
        }
    stated = {its: value for its, value in statistics.items() if value is not None}
    return {"units": "count", **stated} if "mean" in stated else {}

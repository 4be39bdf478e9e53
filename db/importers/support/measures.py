"""Metrics and samples from the raw values in a foreign file, with the same statistics as our own measurements; and why
a metric is missing: the file does not state it, or states it in a way that is not read.

A launch is a process of the other tool. A tool that times a block of calls has one value per block, the mean call.
"not_stated" is the reason only if no unread field of the file looks like the metric.
"""

from __future__ import annotations

import math
import re
import statistics
from array import array
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

from benchmarking.core.codec import is_number
from benchmarking.core.doubts import KINDS, SEVERITIES, doubt, of_slow_calls, validity
from benchmarking.core.errors import FormatError
from benchmarking.core.metrics import LATENCY, MS_PER_S, OF_SINGLE_CALLS, OVERLAPPING, THROUGHPUT_AT_MEDIAN
from benchmarking.core.records import (
    NOT_APPLICABLE,
    TOO_FEW_SAMPLES,
    Doubt,
    Json,
    Phase,
    Point,
    Result,
    Run,
    Samples,
    Severity,
    Status,
)
from benchmarking.core.run_file import LargeSamples
from benchmarking.core.sample_statistics import TAIL_MIN_SAMPLES, LaunchStatistics, describe, over_launches, slow_calls
from benchmarking.core.text import listed
from db.importers.support.files import LeftOut
from db.importers.support.reading import INT32_MAX
from db.rows import NEVER_NEGATIVE

MS_PER_UNIT = {"ns": 1e-6, "us": 1e-3, "ms": 1.0, "s": MS_PER_S}
"""Unit of a time -> milliseconds in it."""
MS_PER_WORD = MS_PER_UNIT | {"sec": MS_PER_S, "seconds": MS_PER_S, "milliseconds": 1.0}
"""The same for the words of files that state their units."""
IMPOSSIBLE_BELOW_0 = (
    *NEVER_NEGATIVE,
    "stated_latency_",
    "service_time_",
    "total_tokens_",
    "peak_memory_",
    "memory_peak_",
    *("cpu_time_", "cpu_user_", "cpu_system_", "end_to_end_", "enqueue_", "h2d_", "gpu_compute_", "d2h_"),
    *("items_per_", "bytes_per_", "calls_per_", "queries_per_", "inferences_per_", "object_size_", "process_peak_"),
)
"""Prefixes of metrics that no importer takes a negative number for."""
HIDDEN = f"{NOT_APPLICABLE}: the mean of a block of calls hides how they vary"
LARGE = 10_000
"""Minimum raw values of a launch that are kept in an array; fewer are a tuple."""
NEVER_0 = [name for name, statistic in LATENCY.items() if statistic not in ("sd", "mad")]
"""Statistics of calls that take some time, however short."""
UNRESOLVED = "left_out: 0 in the file: shorter than the tool resolves"
MEDIAN_NOT_STATED = "not_stated: the file does not say"
OF_CALLS = ("latency", "time_to_first_token", "time_per_output_token")
"""Metrics with one value per call or request."""
TAIL_COLUMNS = {f"{name}_p{round(100 * q)}_ms": least for name in OF_CALLS for q, least in TAIL_MIN_SAMPLES.items()}
"""Column -> minimum number of values behind it."""
SAME_RATE = 0.02
"""Relative difference up to which a throughput is that of the mean call."""
NEEDS_BOTH = "not_stated: it needs the median and the mean latency"
OTHER_RATE = "not_stated: the throughput is not items over the mean latency"
BATCH_NOT_STATED = doubt("batch_size_not_stated", "info", batch_size_stored=1)
NO_STATISTICS = LaunchStatistics(values={}, pooled=frozenset(), scope=None)


def foreign_result(
    point: Point,
    *,
    metrics: Mapping[str, float | None] | None = None,
    stated: Mapping[str, float | None] | None = None,
    samples: Sequence[Samples] = (),
    iterations: float | None = None,
    launches: int = 1,
    warmup_iterations: int | None = None,
    doubts: Sequence[Doubt] = (),
    missing: Mapping[str, str] | None = None,
    kept: Mapping[str, Json] | None = None,
    status: Status = "ok",
    error: str | None = None,
    is_load: bool = False,
    inner_loops: int = 1,
) -> Result:
    """A result of another tool. Its run sets the id, and the times of samples that have none; samples without values
    are left out.

    `metrics` have the warehouse's names and units, None if the file has no such number. The latency columns are
    computed from samples of latency_wall, if any: `metrics` take precedence over them, and they take precedence over
    the `stated` statistics, which are then kept, as are those of blocks of `inner_loops` calls that hide how calls
    vary. A stated tail of too few values is renamed. A missing median gets a
    reason. A number that cannot be (a negative time) is left out with a reason. Slow calls are a doubt, except among
    the requests of a load, which share a queue. Raises FormatError for values whose statistics are beyond double
    precision.
    """
    metrics, stated = (metrics or {}, stated or {}) if status == "ok" else ({}, {})
    samples = [one for one in samples if len(one.values) and status == "ok"]
    samples, negative = _not_negative(samples)
    if not any(doubt.kind == "negative_time" for doubt in doubts):
        doubts = (*doubts, *negative)
    calls = [own for own in samples if own.phase == "measure" and own.metric == "latency_wall" and own.values]
    of_launches = [own.values for own in calls]
    sample_count = sum(map(len, of_launches)) or int(iterations or 0)
    summary = latency_metrics(of_launches) if calls else NO_STATISTICS
    hidden = OF_SINGLE_CALLS if inner_loops > 1 or any(own.inner_loops > 1 for own in calls) else ()
    if not hidden and not is_load:
        doubts = (*doubts, *_slow_calls(of_launches))
    computed = {
        column: summary.values[name]
        for column, name in LATENCY.items()
        if name in summary.values and column not in hidden
    }
    reasons = {column: TOO_FEW_SAMPLES for column in LATENCY if calls and column not in computed}
    reasons |= dict.fromkeys(hidden, HIDDEN)
    known = {name: value for name, value in metrics.items() if value is not None}
    stated_values = {name: value for name, value in stated.items() if value is not None}
    replaced = {name: stated_values[name] for name in stated_values if name in {*computed, *known, *hidden}}
    others = {name: value for name, value in stated_values.items() if name not in replaced}
    supported, unsupported = supported_tails(others, sample_count or None)
    all_metrics = {**supported, **computed, **known}
    reasons |= unsupported | dict(missing or {})
    for name, value in list(all_metrics.items()):
        if not math.isfinite(value) or (value < 0 and name.startswith(IMPOSSIBLE_BELOW_0)):
            reasons[name] = f"left_out: {all_metrics.pop(name):g} in the file, which cannot be"
        elif value == 0 and name in NEVER_0 and not is_load:
            del all_metrics[name]
            reasons[name] = UNRESOLVED
    if UNRESOLVED in reasons.values():
        doubts = (*doubts, doubt("below_resolution", "noisy"))
    if "throughput_samples_per_sec" in all_metrics:
        at_median = OVERLAPPING if is_load else _at_median(all_metrics, point)
        if isinstance(at_median, str):
            reasons[THROUGHPUT_AT_MEDIAN] = at_median
        else:
            all_metrics[THROUGHPUT_AT_MEDIAN] = at_median
    if "latency_median_ms" not in all_metrics:
        reasons.setdefault("latency_median_ms", MEDIAN_NOT_STATED)
    return Result(
        result_id="",
        point=point,
        status=status,
        error=error,
        validity=validity(doubts) if status == "ok" else None,
        doubts=tuple(doubts) if status == "ok" else (),
        launches=0 if status != "ok" else len(calls) or launches,
        iterations=sample_count or (None if status == "ok" else 0),
        warmup_iterations=warmup_iterations,
        metrics=all_metrics,
        missing={column: reason for column, reason in reasons.items() if column not in all_metrics},
        samples=tuple(samples),
        extra={"kept": {**(kept or {}), **({"stated": dict[str, Json](replaced)} if replaced else {})}},
        ci_scope=summary.scope,
        pooled_quantiles=tuple(
            column for column in computed if LATENCY[column] in summary.pooled and metrics.get(column) is None
        ),
    )


def as_exported(result: Result, kinds: Iterable[object], stated: str | None) -> Result:
    """The result with the doubts, by kind, and at least the validity that an export of ours states.

    The table has the severity of a kind that we raise. A kind of another importer, whose severity an export does not
    state, has the stated validity, unless another doubt explains it.
    """
    if result.status != "ok":
        return result
    known = {one.kind for one in result.doubts}
    new = [kind for kind in dict.fromkeys(one for one in kinds if isinstance(one, str)) if kind and kind not in known]
    source = "an export of benchhouse"
    doubts = [*result.doubts, *(doubt(kind, source=source) for kind in new if kind in KINDS)]
    worst = max((one.severity for one in doubts), key=SEVERITIES.index, default="info")
    severity: Severity = next((one for one in SEVERITIES if one == stated), "info")
    is_explained = SEVERITIES.index(worst) >= SEVERITIES.index(severity)
    severity = "info" if is_explained else severity
    others = [kind for kind in new if kind not in KINDS] or ([] if is_explained else ["stated_validity"])
    doubts += [doubt(kind, severity, source=source) for kind in others]
    return replace(result, doubts=tuple(doubts), validity=validity(doubts))


def _slow_calls(launches: Sequence[Sequence[float]]) -> list[Doubt]:
    """The doubt about slow calls, if half of the launches have it: that of the worst one."""
    found = [(slow_calls(_plain(values)), len(values)) for values in launches]
    much = [one for one in found if one[0].is_much]
    if not much or 2 * len(much) < len(found):
        return []
    doubt = of_slow_calls(*max(much, key=lambda one: one[0].time_share))
    return [] if doubt is None else [doubt]


def _at_median(metrics: Mapping[str, float], point: Point) -> float | str:
    """The throughput if every call took as long as the median one, or why it is unknown."""
    rate, middle, mean = map(metrics.get, ("throughput_samples_per_sec", "latency_median_ms", "latency_mean_ms"))
    if rate is None or not middle or not mean:
        return NEEDS_BOTH
    if abs(rate * mean / MS_PER_S / (point.batch_size * point.concurrency) - 1) > SAME_RATE:
        return OTHER_RATE
    return rate * mean / middle


def _not_negative(samples: Sequence[Samples]) -> tuple[Sequence[Samples], list[Doubt]]:
    """The samples without negative times, which no warehouse stores, and a doubt for each metric that had some."""
    kept, doubts = [], list[Doubt]()
    for sample in samples:
        values: Any = sample.values
        least = values.least if isinstance(values, LargeSamples) else min(values, default=0.0)
        if least >= 0 or not sample.metric.startswith(NEVER_NEGATIVE):
            kept.append(sample)
            continue
        plain = _array(_plain(values))
        doubts += negative_times(sample.metric, plain)
        if rest := array("d", (value for value in plain if value >= 0)):
            kept.append(measured(sample.metric, rest, **{name: getattr(sample, name) for name in OF_SAMPLES}))
    return kept, doubts


OF_SAMPLES = ("unit", "launch", "phase", "started_at", "inner_loops")


def latency_metrics(launches: Sequence[Sequence[float]]) -> LaunchStatistics:
    """The statistics over launches, from each launch's raw latencies in ms.

    Raises FormatError for values whose statistics are beyond double precision.
    """
    import numpy as np

    arrays = [_plain(values) for values in launches]
    with np.errstate(over="ignore", invalid="ignore"):
        statistics_found = over_launches(arrays, [describe(values) for values in arrays])
    if not all(math.isfinite(value) for value in statistics_found.values.values()):
        raise FormatError(f"latencies up to {statistics_found.values['max']:g} ms are too large to describe")
    return statistics_found


def _plain(values: Sequence[float]) -> Any:
    """The values in a form that numpy uses without a copy."""
    return values.numbers if isinstance(values, LargeSamples) else values


def in_ms(values_s: Iterable[float] | None) -> array[float]:
    """Seconds converted to ms; empty for None."""
    return array("d", (value * MS_PER_S for value in values_s or ()))


def _array(values: Sequence[float]) -> array[float]:
    return values if isinstance(values, array) else array("d", values)


def median_of(values: Sequence[float]) -> float:
    """The median. Python's own would convert an array into a list of objects."""
    if not isinstance(values, array | LargeSamples):
        return statistics.median(values)
    import numpy as np

    return float(np.median(_plain(values)))


def supported_tails(metrics: Mapping[str, float], values: float | None) -> tuple[dict[str, float], dict[str, str]]:
    """The metrics, with tails of too few values renamed to stated_COLUMN, and the reasons for the missing columns.

    `values` is the number of values; None if the file does not state it, and then the tails stay.
    """
    unsupported = [
        column
        for column, minimum in TAIL_COLUMNS.items()
        if column in metrics and values is not None and values < minimum
    ]
    renamed = {f"stated_{name}" if name in unsupported else name: value for name, value in metrics.items()}
    return renamed, dict.fromkeys(unsupported, TOO_FEW_SAMPLES)


def block(launch: int, values_ms: Sequence[float], *, phase: Phase = "measure", inner_loops: int = 1) -> Samples:
    """A launch's raw latencies in ms, each the mean of `inner_loops` calls."""
    return measured("latency_wall", values_ms, launch=launch, phase=phase, inner_loops=min(inner_loops, INT32_MAX))


def measured(metric: str, values_ms: Sequence[float], *, unit: str = "ms", **others: Any) -> Samples:
    """Raw values of one launch, in the order of measurement; `others` are fields of `Samples`."""
    known = {"launch": 0, "phase": "measure", "started_at": "", **others}
    values: Any = tuple(values_ms) if len(values_ms) < LARGE else LargeSamples(_array(values_ms))
    return Samples(metric=metric, unit=unit, values=values, **known)


def of_launches(metric: str, values_ms: Sequence[float], stated: object) -> list[Samples]:
    """Raw values of all launches, launch by launch: an export of ours states the number of values of each one and the
    calls per value (`core.scenario_file.facts`); without that they are of one launch."""
    pairs = [one for one in stated if isinstance(one, list) and len(one) == 2] if isinstance(stated, list) else []
    is_whole = all(type(number) is int and number > 0 for one in pairs for number in one)
    if not is_whole or sum(count for count, _ in pairs) != len(values_ms):
        pairs = [[len(values_ms), 1]]
    ends = [*accumulate((count for count, _ in pairs), initial=0)]
    return [
        measured(metric, values_ms[start:end], launch=launch, inner_loops=min(loops, INT32_MAX))
        for launch, ((start, end), (_, loops)) in enumerate(zip(pairwise(ends), pairs, strict=True))
    ]


def medians(samples: Iterable[Samples]) -> dict[str, float | None]:
    """The median of the values of each metric, in its column; None without values."""
    return {f"{one.metric}_ms": median_of(one.values) if len(one.values) else None for one in samples}


def negative_times(metric: str, values_ms: Sequence[float]) -> tuple[Doubt, ...]:
    """A doubt if times are negative: the tool subtracted too much."""
    below = sum(value < 0 for value in values_ms)
    if not below:
        return ()
    return (doubt("negative_time", "invalid", metric=metric, n=below, of=len(values_ms), min_ms=min(values_ms)),)


WORDS: Mapping[str, re.Pattern[str]] = {
    "latency_median_ms": re.compile(r"e2e|latenc|elapsed|duration_of_request"),
    "time_to_first_token_ms": re.compile(r"ttft|first_?token"),
    "time_per_output_token_ms": re.compile(r"tpot|per_?output_?token"),
    "inter_token_latency_p50_ms": re.compile(r"(^|[^a-z])itls?([^a-z]|$)|inter_?token"),
    "throughput_samples_per_sec": re.compile(r"request.*(throughput|per_sec|/s)|qps"),
    "throughput_tokens_per_sec": re.compile(r"throughput|tokens?_?(per_?|/)s|tok_?s\b|tps"),
}
"""Metric -> the names that tools give it."""
OTHER_METRICS: Mapping[str, re.Pattern[str]] = {
    "latency_median_ms": re.compile(
        r"ttft|first_?token|tpot|per_?output_?token|itl|inter_?token|queue|schedul|throughput"
    ),
    "throughput_tokens_per_sec": re.compile(r"request|sample|qps"),
}
"""Metric -> words of names that look like it, but mean another one."""
NOT_MEASURED = re.compile(
    r"(send_)?duration_m?s|(num|total|max|sent|probe|cached)_(?!\w*per_sec)\w+|\w+_(requests|sequences)|\w*(prompt|output)_tokens\w*"
    r"|model_size_mb|concurrency_mean|\w*_token_count\w*|prompt_len\w*|output_len\w*|request_concurrency\w*"
    r"|schedule_delay\w*|request_dispatch_delay\w*|achieved_rate_per_sec|run_number"
)
"""Metrics that describe a load but measure nothing."""
OURS = ("stated", "gaps_per_request", "errors", "aggregates", "left_out", "replaced", "entries", "warnings")
"""Keys of `kept` that hold what was read."""
MAX_FIELDS = 5
RANK: tuple[Status, ...] = ("ok", "skipped", "timed_out", "failed")


NO_NUMBER = "no latency, rate or throughput that is understood"


def without_numbers(run: Run) -> Run:
    """The run, in which each result that succeeded but has no measured number has failed, with the unread fields that
    look like one."""
    results = list(run.results)
    for place, result in enumerate(results):
        if result.status == "ok" and not result.samples and all(map(NOT_MEASURED.fullmatch, result.metrics)):
            names = list(dict.fromkeys(name for column in WORDS for name in _alike(column, run, result)))
            stated = result.extra.get("kept")
            kept = {**(stated if isinstance(stated, dict) else {}), **result.metrics}
            results[place] = replace(
                result,
                status="failed",
                error=f"{NO_NUMBER}: the file has {listed(names, 8)}" if names else NO_NUMBER,
                validity=None,
                doubts=(),
                launches=0,
                metrics={},
                extra={**result.extra, "kept": kept},
            )
    if tuple(results) == run.results:
        return run
    status = max((result.status for result in results), key=RANK.index)
    error = run.error or next(result.error for result in results if result.error)
    return replace(run, results=tuple(results), status=status, error=error)


def with_reasons(run: Run, left_out: Sequence[LeftOut]) -> Run:
    """The run with the reasons for missing metrics, and with what was left out of the file while it was read."""
    sizes: dict[str, Json] = {one.place: one.problem for one in left_out if one.is_size}
    of_sizes = (doubt("size_left_out", "noisy", **sizes),) if sizes else ()
    results = list(run.results)
    for place, result in enumerate(results):
        if result.status != "ok":
            continue
        missing, doubts = dict(result.missing), (*result.doubts, *of_sizes)
        for column in WORDS:
            if column in result.metrics or missing.get(column, MEDIAN_NOT_STATED) != MEDIAN_NOT_STATED:
                continue
            wrong = next((one for one in left_out if _looks_like(column, one.place.rpartition(".")[2])), None)
            if wrong is not None:
                missing[column] = f"left_out: {wrong.text}"
            elif names := _alike(column, run, result):
                shown = ", ".join(names[:MAX_FIELDS])
                missing[column] = f"not_read: {shown} may be it, in a form or unit that is not known"
        results[place] = replace(result, missing=missing, doubts=doubts, validity=validity(doubts))
    origin = run.origin
    if left_out and origin is not None:
        texts: list[Json] = [one.text for one in left_out]
        origin = replace(origin, kept={**origin.kept, "left_out": texts})
    return replace(run, results=tuple(results), origin=origin)


def _alike(column: str, run: Run, result: Result) -> list[str]:
    """The unread fields with numbers that look like the metric."""
    kept: list[Any] = [result.extra.get("kept"), None if run.origin is None else run.origin.kept]
    return list(dict.fromkeys(name for values in kept for name in _numeric(values) if _looks_like(column, name)))


def _looks_like(column: str, name: str) -> bool:
    word = name.lower().replace(" ", "_").replace("-", "_")
    another = OTHER_METRICS.get(column)
    return bool(WORDS[column].search(word)) and not (another and another.search(word))


def _numeric(values: Any, depth: int = 0) -> Iterator[str]:
    """The names of fields that are numbers, or objects and lists of them."""
    if not isinstance(values, Mapping) or depth > 3:
        return
    for name, value in values.items():
        if depth == 0 and name in OURS:
            continue
        if isinstance(value, Mapping):
            if any(map(is_number, value.values())):
                yield name
            yield from _numeric(value, depth + 1)
        elif isinstance(value, list):
            if value and is_number(value[0]):
                yield name
            elif value and isinstance(value[0], Mapping):
                yield from _numeric(value[0], depth + 1)
        elif is_number(value):
            yield name

"""The result of a level from its requests: latencies with intervals, throughput, goodput and doubts.

Latencies of an open loop count from the scheduled start. Counting from the time of sending would omit the time that a
request waited for slow predecessors, and hide stalls from all percentiles (coordinated omission).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import chain, groupby, pairwise, product
from statistics import fmean, median
from types import MappingProxyType
from typing import Any

from benchmarking.core.doubts import doubt, failed_requests, validity
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.load_doubts import (
    LATE,
    LEAST_GOOD,
    REQUIRED,
    SHARE_IN_TIME,
    achieved_share,
    correlation,
    late_generator,
    lateness,
    over_saturated,
    prefix_cache_hit,
    rate_not_achieved,
)
from benchmarking.core.metrics import LATENCY_WALL, LOAD_RATES, METRICS, MS_PER_S, OVERLAPPING, THROUGHPUT_AT_MEDIAN
from benchmarking.core.provenance import utc_now, uuid7
from benchmarking.core.records import (
    MAX_REQUESTS,
    NOT_APPLICABLE,
    NOT_SUPPORTED,
    REQUEST_RATE,
    TOO_FEW_SAMPLES,
    Doubt,
    Json,
    Measurement,
    Point,
    Requests,
    Result,
    Samples,
)
from benchmarking.core.sample_statistics import (
    MIN_LAUNCHES_FOR_BETWEEN,
    TAIL_MIN_SAMPLES,
    between_launches_interval,
    between_repetitions_interval,
    drift,
    percentile_intervals,
    quantile,
)
from benchmarking.core.text import number
from benchmarking.core.verdicts.words import MIN_CHANGE
from benchmarking.load.connections import NO_SOCKET
from benchmarking.load.generator import HOPELESS, Level, omission_advice
from benchmarking.load.load_statistics import about_window, rates_of, window_of
from benchmarking.load.observer import Observed
from benchmarking.load.traffic import TOGETHER_MS, Traffic, per_token_ms, share_in_time, why_unknown
from benchmarking.measure.aggregate import summarise

TAILS = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99, "p999": 0.999}
LEAST = {0.5: 6, **TAIL_MIN_SAMPLES, 0.999: 1000}
"""Minimum number of requests for a percentile."""
MOST_OF_CAPACITY = 0.5
"""Maximum share of the generator's capacity, above which its own queueing adds to the latencies."""
LEAST_REUSED = 0.5
"""Share of a prompt that must come from a cache for the request to count as a hit. A prompt that was sent before has
more; all prompts share a start token, and in a chat the beginning of its template."""
HELD_OPEN_MS, HELD_OPEN_SHARE = 20.0, 0.05
"""Median time for which bodies may stay open after the end of their responses, also as a share of the median
latency."""
DRIFT, DRIFT_Z = 0.1, 3.3
"""Relative change of the median latency from the first third of a level to the last, and its standard errors."""
OTHER_INPUT_LENGTH = 0.2
"""Maximum difference of the server's count of prompt tokens from the requested length, as a share of it."""
MOST_AT_ONCE = 0.1
"""Maximum share of responses that may arrive in a single piece although they have several tokens, and of tokens that
may arrive with the one before."""
TOTALS = ("requests_per_sec", "output_tokens_per_sec", "goodput_requests_per_sec")
"""Rates that are also stored from the first start to the last end, with the prefix "total_"."""
RATES = (*TOTALS, *(f"total_{name}" for name in TOTALS), "input_tokens_per_sec", "goodput_tokens_per_sec")
"""Rates of a level that are means over its repetitions."""
CORRELATED = f"{TOO_FEW_SAMPLES}: requests share a queue, and an interval needs many times its correlation"
GOODPUT = ("goodput_requests_per_sec", "goodput_share", "goodput_tokens_per_sec")
OF_MEDIAN = ("latency", "time_to_first_token", "time_per_output_token")
"""Times with columns for the interval of their median."""
SERVER_COSTS = ("server_start_", "server_memory_", "server_device_memory_", "server_energy_")
"""Beginnings of metrics of a server that are better lower."""
NO_CUSTOM = frozenset({*LOAD_RATES.values(), *(metric.of for metric in METRICS.values() if metric.source == "reading")})
"""Metrics of a repetition that have columns of their own."""
UNITS = {"_mb": "MB", "_percent": "%", "_w": "W", "_ms": "ms", "_s": "s"}
"""End of a metric's name -> its unit."""
MAY_BE_CORRELATED, FEWEST_OF_ALL = 0.9, 3.0
"""The percentile up to which repetitions give an interval whatever their queues do, and the independent requests that
have to lie above higher ones, in all of them: with fewer, the intervals of p99 cover 64 to 92 %."""
OF_TOKENS = ("time_per_output_token", "inter_token_latency")


@dataclass(frozen=True, slots=True, kw_only=True)
class Series:
    """The times of successful requests in ms, in the order of their scheduled starts."""

    latency: tuple[float, ...]
    service_time: tuple[float, ...]
    time_to_first_token: tuple[float, ...]
    time_per_output_token: tuple[float, ...]
    inter_token_latency: tuple[float, ...]

    @classmethod
    def of(cls, requests: Requests) -> Series:
        rows = zip(
            *(requests.intended_ms, requests.sent_ms, requests.first_token_ms, requests.end_ms),
            *(requests.error, requests.token_ms),
            strict=True,
        )
        done = [
            (at, sent, first, end, per_token_ms(requests, place), tokens)
            for place, (at, sent, first, end, error, tokens) in enumerate(rows)
            if error is None and sent is not None and end is not None
        ]
        return cls(
            latency=tuple(end - at for at, _, _, end, *_ in done),
            service_time=tuple(end - sent for _, sent, _, end, *_ in done),
            time_to_first_token=tuple(first - at for at, _, first, *_ in done if first is not None),
            time_per_output_token=tuple(per_token for *_, per_token, _ in done if per_token is not None),
            inter_token_latency=tuple(b - a for *_, tokens in done for a, b in pairwise(tokens)),
        )

    def of_queries(self, samples: int) -> Series:
        """The times of queries of this many requests each, all successful; a query ends with its last request."""
        if samples == 1:
            return self
        places = range(0, len(self.latency), samples)
        longest = tuple(max(self.latency[place : place + samples]) for place in places)
        return replace(self, latency=longest, service_time=(), time_to_first_token=())


def point_of(traffic: Traffic, level: Level) -> Point:
    """The point of a level on a server. Fixed lengths are axes; random ones belong to the series."""
    is_drawn = traffic.file is not None
    point = Point(
        batch_size=1,
        sequence_length=None if is_drawn else traffic.lengths_in.fixed,
        new_tokens=None if is_drawn else traffic.lengths_out.fixed,
        concurrency=level.concurrency or 1,
    )
    return level_point(point, level)


def level_point(point: Point, level: Level) -> Point:
    """The point of a call, with the offered rate of an open loop."""
    if level.rate is None or level.is_at_once:
        return point
    return replace(point, axes={**point.axes, REQUEST_RATE: float(level.rate)})


def result_of(
    traffic: Traffic,
    level: Level,
    repetitions: Sequence[Requests | Measurement],
    *,
    point: Point | None = None,
    samples: int = 1,
    limits: Mapping[str, float] = MappingProxyType({}),
    observed: Mapping[int, Observed] = MappingProxyType({}),
    facts: Mapping[str, Json] = MappingProxyType({}),
    slots: int | None = None,
    capacity_per_s: float | None = None,
    shares_processors: bool = False,
) -> Result:
    """The result of a level from its repetitions, each a launch: its requests, or a measurement if it failed.

    `point` replaces the point of the traffic, `samples` is the number of requests per query, `limits` are those that
    the requests were judged by, and `observed` is what else is known of each launch; `slots` as in `about`.
    """
    point = point_of(traffic, level) if point is None else point
    measured = [
        repetition
        if isinstance(repetition, Measurement)
        else _measurement(
            traffic,
            level,
            repetition,
            point,
            samples=samples,
            limits=limits,
            observed=observed.get(repetition.launch, Observed()),
            slots=slots,
            capacity_per_s=capacity_per_s,
            shares_processors=shares_processors,
        )
        for repetition in repetitions
    ]
    made = summarise(uuid7(), point, measured, ())
    done = tuple(repetition for repetition in repetitions if isinstance(repetition, Requests))
    metrics = {**made.metrics, **_of_all(done, measured)}
    metrics |= {column: metrics.pop(name) for column, name in LOAD_RATES.items() if name in metrics}
    missing = {name: why for name, why in made.missing.items() if name not in metrics}
    if (why_not := why_unknown(done, limits)) is not None:
        metrics = {name: value for name, value in metrics.items() if name not in GOODPUT}
        missing |= dict.fromkeys(GOODPUT, f"{NOT_SUPPORTED}: {why_not}")
    ok = [measurement for measurement in measured if measurement.status == "ok"]
    launches = {measurement.launch for measurement in ok}
    series = [Series.of(requests).of_queries(samples) for requests in done if requests.launch in launches]
    of_queues = [correlation(requests, level.rate) for requests in done] if _has_schedule(level) else []
    over_all = _over_repetitions(
        *(series, [measurement.metrics for measurement in ok], made.ci_scope),
        max((one for one in of_queues if one is not None), default=None),
    )
    for name, at in over_all.items():
        if at is not None:
            metrics[name] = at
            missing.pop(name, None)
        elif metrics.pop(name, None) is not None:
            missing[name] = CORRELATED
    extra = dict(made.extra)
    if isinstance(custom := extra.get("custom_metrics"), dict):
        units = {name: {"unit": "ms", "better": None} for name in over_all if name in metrics and name not in METRICS}
        extra["custom_metrics"] = {**custom, **units}
    for column, why in _beyond(done).items():
        if metrics.pop(column, None) is not None:
            missing[column] = why
    about_level: dict[str, Json] = {**facts, **({"is_at_once": True} if level.is_at_once else {})}
    if limits and traffic.required_share != LEAST_GOOD:
        about_level[REQUIRED] = traffic.required_share
    if limits and any(one.kind == LATE for one in made.doubts):
        in_time = math.fsum(len(requests) * share_in_time(requests, limits) for requests in done)
        about_level[SHARE_IN_TIME] = in_time / max(sum(map(len, done)), 1)
    doubts = made.doubts
    if made.status == "failed" and done:  # what is known of a level without any success
        extra["custom_metrics"] = {name: {"unit": _unit(name), "better": _better(name)} for name in metrics}
    elif kinds := _kinds(done):
        share = metrics["requests_failed"] / metrics["requests_sent"]
        ended = slots is None and level.rate is None and any(map(_has_given_up, done))
        given_up: dict[str, Json] = {"ended_after_failures": HOPELESS} if ended else {}
        doubts = (*doubts, failed_requests(share, failed_share=share, **given_up, **kinds))
    return replace(
        made,
        doubts=doubts,
        validity=validity(doubts) if made.status == "ok" else made.validity,
        metrics=metrics,
        missing=missing,
        pooled_quantiles=tuple(name for name in made.pooled_quantiles if name in metrics),
        ci_scope=made.ci_scope if "latency_ci_low_ms" in metrics else None,
        requests=done,
        extra={**extra, "load": about_level},
    )


def _over_repetitions(
    series: Sequence[Series], ok: Sequence[Mapping[str, float]], scope: str | None, correlation: float | None
) -> dict[str, float | None]:
    """Each percentile above the median of several repetitions, and the ends of all 95 % intervals, of which `ok` has
    those of each repetition; None where an end is unknown.

    Most of a few repetitions have no long queue, and their median would hide the tail: a percentile above the median is
    that of the requests of all. Intervals are between three or more repetitions; of two, they reach over both. The
    interval of calls (`scope` "within") does not allow for the correlation of requests, so this one of the median
    replaces it."""
    found = dict[str, float | None]()
    for name, (word, q) in product(Series.__dataclass_fields__, TAILS.items()):
        times, low, high = [getattr(one, name) for one in series], None, None
        column, has_all = f"{name}_{word}", all(len(each) >= LEAST[q] for each in times)
        are_several = has_all and len(times) >= MIN_LAUNCHES_FOR_BETWEEN
        if q > 0.5 and has_all and len(times) > 1:
            found[f"{column}_ms"] = quantile([*chain.from_iterable(times)], q)
        if q > 0.5 and are_several:
            independent = sum(map(len, times)) * (1 - q) / max(correlation or 1.0, 1.0)
            if q <= MAY_BE_CORRELATED or independent >= FEWEST_OF_ALL:
                low, high = between_repetitions_interval(times, q) or (None, None)
        elif are_several and min(medians := [quantile(each, q) for each in times]) > 0:
            low, high = between_launches_interval(medians)
        elif ok and all(f"{column}_ci_low_ms" in each for each in ok):
            low = min(each[f"{column}_ci_low_ms"] for each in ok)
            high = max(each[f"{column}_ci_high_ms"] for each in ok)
        found |= {f"{column}_ci_low_ms": low, f"{column}_ci_high_ms": high}
        if word == "p50" and name in OF_MEDIAN and scope == "within":
            found |= {f"{name}_ci_low_ms": low, f"{name}_ci_high_ms": high}
    return found


def _beyond(done: Sequence[Requests]) -> dict[str, str]:
    """The percentiles in which requests count that got no answer, since they timed out, were refused or failed, and why
    they are unknown: those of the other requests are too short. With these as the longest, a percentile is a higher one
    of the others, which hardly differs where few failed. More than half fail only in invalid levels, whose median is
    that of the others."""
    failed = [
        first
        for requests in done
        for first, error in zip(requests.first_token_ms, requests.error, strict=True)
        if error is not None
    ]
    if not failed:
        return {}
    found, series, total = dict[str, str](), [Series.of(requests) for requests in done], sum(map(len, done))
    for name in ("latency", "service_time", "time_to_first_token", "time_per_output_token"):
        count = failed.count(None) if name == "time_to_first_token" else len(failed)
        known = sorted(value for one in series for value in getattr(one, name))
        for word, q in (*TAILS.items(), ("max", 1.0)):
            if q <= 0.5 or count == 0:
                continue
            why = f"{NOT_SUPPORTED}: {count} of {total} requests failed"
            if count > (1 - q) * total + 1e-9:
                why += ", so this time of theirs has no value"
            elif not known:
                continue
            else:
                others, of_all = quantile(known, q), quantile(known, min(1.0, q * (len(known) + count) / len(known)))
                if of_all <= (1 + MIN_CHANGE) * others:
                    continue
                why += f": it is {number(others)} ms without them, and {number(of_all)} ms with them as the longest"
            found |= {f"{name}_{word}{end}_ms": why for end in ("", "_ci_low", "_ci_high")}
    return found


def _of_all(done: Sequence[Requests], measured: Sequence[Measurement]) -> dict[str, float]:
    """The numbers and shares of all requests of a level, and its mean rates, which are 0 in a repetition without a
    success: a median would leave out what fails, or misses the limits, in fewer than half of the repetitions."""
    if not done:
        return {}
    met = [one for requests in done for one in requests.meets_limits]
    found: dict[str, float] = {
        "requests_sent": len(met),
        "requests_failed": sum(error is not None for requests in done for error in requests.error),
    }
    if None not in met:
        found["goodput_share"] = met.count(True) / max(len(met), 1)
    launches = {requests.launch for requests in done}
    nothing = [0.0 for one in measured if one.status == "failed" and one.launch in launches]
    for name in RATES:
        if known := [one.metrics[name] for one in measured if name in one.metrics]:
            found[name] = fmean([*known, *nothing])
    return found


def _measurement(
    traffic: Traffic,
    level: Level,
    requests: Requests,
    point: Point,
    *,
    samples: int,
    limits: Mapping[str, float],
    observed: Observed,
    slots: int | None,
    capacity_per_s: float | None,
    shares_processors: bool,
) -> Measurement:
    whole = Series.of(requests)
    series = whole.of_queries(samples)
    of_launch: dict[str, Any] = {"launch": requests.launch, "started_at": requests.started_at}
    if not series.latency:
        kinds = ", ".join(f"{count} {kind}" for kind, count in _kinds([requests]).items())
        why = f"none of {len(requests)} requests succeeded: {kinds}"
        told = zip(requests.error, requests.detail, strict=True)
        if (first := next(((kind, detail) for kind, detail in told if kind and detail), None)) is not None:
            why += f": {first[1]}{omission_advice(*first)}"
        return Measurement(**of_launch, point=point, status="failed", error=why, finished_at=utc_now())
    metrics, missing = _metrics(requests, whole, series, level, limits)
    metrics |= observed.metrics
    missing[THROUGHPUT_AT_MEDIAN] = OVERLAPPING
    is_steady = samples == 1 and not level.is_at_once
    doubts = about(traffic, level, requests, whole, slots=slots, is_window_expected=is_steady)
    found = [*doubts, *observed.doubts]
    done_per_s = metrics["requests_per_sec"]
    asked_per_s = max(done_per_s, _asked_per_s(requests, level, metrics["duration_s"]))
    if capacity_per_s is not None and asked_per_s > MOST_OF_CAPACITY * capacity_per_s:
        known_per_s = max(capacity_per_s, done_per_s)  # measured in a second, in which other programs may have run
        found.append(doubt("slow_generator", capacity_per_s=known_per_s, requests_per_sec=asked_per_s))
    if shares_processors:
        found.append(doubt("shared_processors"))
    custom = {name: {"unit": _unit(name), "better": _better(name)} for name in metrics if name not in NO_CUSTOM}
    names = {
        LATENCY_WALL: series.latency,
        "time_to_first_token": series.time_to_first_token,
        "time_per_output_token": series.time_per_output_token,
        "inter_token_latency": series.inter_token_latency,
    }
    return Measurement(
        **of_launch,
        point=point,
        status="ok",
        finished_at=utc_now(),
        stop_reason="fixed",
        samples=tuple(
            Samples(**of_launch, phase="measure", metric=name, unit="ms", values=values)
            for name, values in names.items()
            if values
        )
        + observed.samples,
        metrics=metrics,
        missing=missing,
        doubts=tuple(found),
        extra={"custom_metrics": custom},
    )


def _metrics(
    requests: Requests, whole: Series, series: Series, level: Level, limits: Mapping[str, float]
) -> tuple[dict[str, float], dict[str, str]]:
    """The metrics of one repetition, excluding those that `summarise` computes from samples, and why some are missing.
    `whole` contains the requests, `series` their queries."""
    window = window_of(requests, level) if series is whole else None
    done = {place: 1.0 for place, error in enumerate(requests.error) if error is None}
    # From the first scheduled start to the last end.
    span_s = max((max(end for end in requests.end_ms if end is not None) - min(requests.intended_ms)) / MS_PER_S, 1e-6)
    found: dict[str, float] = {
        "requests_sent": len(requests),
        "requests_failed": len(requests) - len(done),
        "duration_s": span_s,
    }
    offered_s = level.starts_s(requests)
    total_s = max(span_s, offered_s)  # after the last start, or burst, as long passes as after the others
    total = rates_of(requests, done, total_s, sum(whole.service_time) / MS_PER_S / total_s)
    rates = total if window is None else window.rates
    found |= {name: value for name, value in rates.items() if value is not None}
    found |= {f"total_{name}": value for name in TOTALS if (value := total[name]) is not None}
    if window is not None:
        found["steady_window_s"] = window.seconds
    missing = {
        name: f"{NOT_APPLICABLE}: the server did not report the tokens of all requests"
        for name in ("output_tokens_per_sec", "input_tokens_per_sec")
        if rates[name] is None
    }
    if (why := why_unknown([requests], limits)) is not None:
        missing |= dict.fromkeys(GOODPUT, f"{NOT_SUPPORTED}: {why}")
    elif None not in requests.meets_limits:
        found["goodput_share"] = requests.meets_limits.count(True) / len(requests)
    late = lateness(requests)
    if level.is_open and late:
        found |= {"lateness_p50_ms": quantile(late, 0.5), "lateness_p95_ms": quantile(late, 0.95)}
    if not series.time_to_first_token:
        why = "several requests are one query" if series is not whole else "nothing is generated"
        missing |= dict.fromkeys(("time_to_first_token", "service_time"), f"{NOT_APPLICABLE}: {why}")
    if all(one is None for one in requests.first_token_ms):
        missing |= dict.fromkeys(("output_tokens_per_sec", *OF_TOKENS), f"{NOT_APPLICABLE}: nothing is generated")
    elif done and {requests.tokens_out[place] for place in done} <= {0, 1}:
        missing |= dict.fromkeys(OF_TOKENS, f"{NOT_APPLICABLE}: no response has a second token")
    elif not series.time_per_output_token and any((requests.tokens_out[place] or 0) > 1 for place in done):
        missing["time_per_output_token"] = f"{NOT_SUPPORTED}: the tokens of each response arrived in one piece"
    of_queue = correlation(requests, level.rate) if _has_schedule(level) else None
    for name in Series.__dataclass_fields__:
        percentiles, too_few = tails(name, getattr(series, name), of_queue)
        found |= percentiles
        missing |= too_few if getattr(series, name) else {}
    return found, missing


def _asked_per_s(requests: Requests, level: Level, took_s: float) -> float:
    """The requests that the generator had to send per second, whatever became of them. A closed loop, and requests that
    start at once, ask for as many as it sent in the time that they took."""
    span_s = (max(requests.intended_ms) - min(requests.intended_ms)) / MS_PER_S
    if _has_schedule(level):
        return len(requests) / max(span_s, level.starts_s(requests))
    return len(requests) / took_s


def _has_schedule(level: Level) -> bool:
    return level.rate is not None and not level.is_at_once


def tails(
    name: str, values: Sequence[float], correlation: float | None = None
) -> tuple[dict[str, float], dict[str, str]]:
    """Percentiles of a time with 95 % intervals (`NAME_p99_ms`, `NAME_p99_ci_low_ms`), and why some are missing.

    `values` are in the order of time. Requests share a queue, so an interval needs many more of them than independent
    values would: see `core.sample_statistics`, also for `correlation`.
    """
    ordered, found, missing = sorted(values), dict[str, float](), dict[str, str]()
    enough = {word: q for word, q in TAILS.items() if len(ordered) >= LEAST[q]}
    intervals = percentile_intervals(values, tuple(enough.values()), correlation)
    for word, q in TAILS.items():
        column = f"{name}_{word}_ms"
        if word not in enough:
            missing[column] = TOO_FEW_SAMPLES
            continue
        if column not in METRICS and not (word == "p50" and name != "service_time"):
            found[column] = quantile(ordered, q)
        if (interval := intervals[q]) is not None:
            found |= {f"{name}_{word}_ci_low_ms": interval[0], f"{name}_{word}_ci_high_ms": interval[1]}
        else:
            missing[f"{name}_{word}_ci_low_ms"] = missing[f"{name}_{word}_ci_high_ms"] = CORRELATED
    return found, {name: why for name, why in missing.items() if name not in METRICS}


def about(
    traffic: Traffic,
    level: Level,
    requests: Requests,
    series: Series,
    *,
    slots: int | None,
    is_window_expected: bool,
) -> Sequence[Doubt]:
    """The doubts about one repetition. `is_window_expected`: the load should reach a steady state. `slots`: the calls
    that a model in the generator's process runs at once, None for a server. With one, the generator is late only during
    a call, for which the request would have had to wait anyway."""
    found: list[Doubt] = []
    window, is_varying = window_of(requests, level), traffic.is_varying
    saturated: Sequence[Doubt] = ()
    if level.rate is not None and not level.is_at_once:
        late, first_ms = lateness(requests), quantile(series.time_to_first_token or series.latency, 0.5)
        if late and slots != 1:
            found += late_generator(quantile(late, 0.95), first_ms)
        if (achieved := achieved_share(requests)) is not None:
            found += rate_not_achieved(level.rate, achieved)
        saturated = () if is_varying else over_saturated(requests, level.rate)
        if saturated and found and slots is None:  # what waited to be sent is no queue of the server
            sent_ms = tuple(
                at if sent is None else sent for at, sent in zip(requests.intended_ms, requests.sent_ms, strict=True)
            )
            saturated = over_saturated(replace(requests, intended_ms=sent_ms))
        found += [*saturated, *([doubt("varying_rate", arrivals=traffic.arrivals)] if is_varying else ())]
    elif level.rate is None and level.number is None and len(requests) + traffic.most_turns > MAX_REQUESTS:
        found.append(doubt("level_full", most_requests=MAX_REQUESTS))
    if is_window_expected:
        is_growing = any(one.kind == "over_saturated" for one in saturated)
        took_s = (max(filter(None, requests.end_ms), default=0.0) - min(requests.intended_ms)) / MS_PER_S
        timed = level if level.number is None else replace(level, duration_s=took_s)
        found += about_window(window, timed, is_growing=is_growing, is_varying=is_varying)
    if unsent := requests.error.count(NO_SOCKET):
        found.append(doubt("no_sockets", requests=unsent))
    pairs = [
        (cached, total)
        for cached, total in zip(requests.cached_tokens, requests.tokens_in, strict=True)
        if cached is not None and total
    ]
    if not traffic.may_hit_a_prefix:
        reused = sum(cached for cached, total in pairs if cached >= LEAST_REUSED * total)
        found += prefix_cache_hit(reused, sum(total for _, total in pairs))
    found += _chunks(requests, is_sent=slots is None)
    requested = traffic.lengths_out.fixed if traffic.file is None else None
    short = [
        count for count in requests.tokens_out if count is not None and requested is not None and count != requested
    ]
    if short:
        found.append(doubt("other_output_length", asked=requested, requests=len(short), tokens=short[0]))
    found += [*_held_open(requests, series), *_other_input_length(requests, traffic)]
    if any(one.kind == "warming_up" for one in found):
        return found
    may_slow = level.rate is None and is_window_expected and traffic.most_turns == 1
    return [*found, *_drifting(series, level.concurrency if may_slow else None)]


def _chunks(requests: Requests, *, is_sent: bool) -> Sequence[Doubt]:
    """The doubts about responses whose tokens did not arrive one by one: in fewer chunks, or, where they are sent, in
    chunks that something between the server and us held back and handed on together."""
    least_ms = TOGETHER_MS if is_sent else 0.0
    by_chunks, told = 0, list[tuple[int, int, int]]()  # of a response: chunks, pieces in which they arrived, tokens
    for first, last, tokens, count, counter, error in zip(
        *(requests.first_token_ms, requests.last_token_ms, requests.token_ms),
        *(requests.tokens_out, requests.tokens_counted_by, requests.error),
        strict=True,
    ):
        if error is not None or count is None:
            continue
        by_chunks += counter == "chunks"
        if tokens:
            pieces = 1 + sum(after - at >= least_ms for at, after in pairwise(tokens))
            told.append((len(tokens), pieces, count))
        elif first is not None and last is not None:  # a load with too many tokens to keep all times
            told.append((count, 1 if last - first < least_ms else count, count))
    found = [doubt("tokens_counted_as_chunks", requests=by_chunks)] if by_chunks else []
    unlike = [(pieces, count) for _, pieces, count in told if pieces != count]
    total, together = sum(count for *_, count in told), sum(chunks - pieces for chunks, pieces, _ in told)
    if unlike and (any(chunks != count for chunks, _, count in told) or together > MOST_AT_ONCE * total):
        at_once = sum(pieces == 1 for pieces, _ in unlike)
        evidence = {"requests": len(unlike), "at_once": at_once, "chunks": unlike[0][0], "tokens": unlike[0][1]}
        is_whole = at_once >= MOST_AT_ONCE * sum(one is None for one in requests.error)
        found.append(doubt("whole_replies", **evidence) if is_whole else doubt("chunks_not_tokens", **evidence))
    return found


def _drifting(series: Series, in_flight: int | None) -> Sequence[Doubt]:
    """The doubt about requests that became faster or slower during the level, beyond the chance of correlated ones.
    Slower ones are a doubt only where as many are `in_flight` all the time: in an open loop (None) they are those of a
    queue, and later turns are longer. The first ones and the last ones share the server with fewer."""
    found = drift(series.latency)
    if found is not None and found.relative_change <= -DRIFT and found.z <= -DRIFT_Z:
        return (doubt("warming_up", relative_change=found.relative_change, z=found.z),)
    if in_flight is None:
        return ()
    found = drift(series.latency[in_flight : len(series.latency) - in_flight], finds_trends=True)
    if found is None or found.relative_change < DRIFT or found.z < DRIFT_Z:
        return ()
    return (doubt("slowing_down", relative_change=found.relative_change, z=found.z),)


def _held_open(requests: Requests, series: Series) -> Sequence[Doubt]:
    """The doubt about bodies that stayed open long after the end of their responses."""
    held = [
        closed - end
        for closed, end, error in zip(requests.closed_ms, requests.end_ms, requests.error, strict=True)
        if closed is not None and end is not None and error is None
    ]
    limit_ms = max(HELD_OPEN_MS, HELD_OPEN_SHARE * median(series.latency))
    if not held or (typical := median(held)) <= limit_ms:
        return ()
    return (doubt("held_open", held_open_p50_ms=typical, latency_p50_ms=median(series.latency)),)


def prompt_tokens(requests: Iterable[Requests]) -> int | None:
    """The median number of prompt tokens, by the server's count; None if it reports none."""
    counts = [count for request in requests for count in request.tokens_in if count is not None]
    return round(median(counts)) if counts else None


def _other_input_length(requests: Requests, traffic: Traffic) -> Sequence[Doubt]:
    """The doubt about prompts of another length than requested, such as words that are several tokens."""
    asked, tokens = traffic.lengths_in.fixed, prompt_tokens([requests])
    if traffic.file is not None or any(requests.turn) or not asked or tokens is None:
        return ()
    if abs(tokens / asked - 1) <= OTHER_INPUT_LENGTH:
        return ()
    return (doubt("other_input_length", asked=asked, tokens=tokens),)


def _kinds(repetitions: Sequence[Requests]) -> dict[str, Json]:
    """Number of failed requests by kind of error, the most frequent first."""
    kinds = (kind for requests in repetitions for kind in requests.error if kind is not None)
    return dict(Counter(sorted(kinds)).most_common())


def _has_given_up(requests: Requests) -> bool:
    """Whether a closed loop ended because so many requests had failed in a row."""
    in_order = sorted(zip(requests.end_ms, requests.error, strict=True), key=lambda one: one[0] or 0.0)
    rows = groupby(error is not None for _, error in in_order)
    return any(has_failed and len(list(row)) >= HOPELESS for has_failed, row in rows)


def _unit(name: str) -> str:
    if name.endswith("_per_sec"):
        return "tokens/s" if "tokens" in name else "requests/s"
    if "_j_per_" in name:
        return "J"
    return next((unit for end, unit in UNITS.items() if name.endswith(end)), "")


def _better(name: str) -> str | None:
    if name.startswith("total_"):
        return None
    if name.endswith("_per_sec") or name == "goodput_share":
        return "higher"
    if name.startswith(SERVER_COSTS):
        return "lower"
    return "lower" if name.endswith("_ms") and "_ci_" not in name and "lateness" not in name else None

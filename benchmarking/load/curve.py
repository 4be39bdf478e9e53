"""The load curve: its knee, and the search for the highest rate within the limits."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from benchmarking.core.metrics import CUSTOM_METRICS
from benchmarking.core.provenance import uuid7
from benchmarking.core.records import FAILED, REQUEST_RATE, Json, Point, Result
from benchmarking.load.generator import Level

KNEE_SLOPE, KNEE_ERROR, KNEE_PEAK = 0.25, 0.5, 0.85
LEAST_GOOD = 0.99
"""Share of requests within the limits that a rate needs to meet them, as in MLPerf's server scenario."""
CLOSE = 0.05
"""The search ends when a rate that meets the limits and one that does not are this close together."""
HIGHEST_RATE = "highest_request_rate_per_sec"
"""The metric of a search."""
NOT_MET = frozenset({"over_saturated", "mlperf_invalid", "early_stopping_unmet"})
"""Doubts with which a rate does not meet the limits, no matter how many requests were within them."""


def facts_of(result: Result) -> Mapping[str, Json]:
    """Facts about the load of a level, other than its metrics."""
    facts = result.extra.get("load")
    return facts if isinstance(facts, dict) else {}


def offered(result: Result) -> float:
    """The offered load of a level: requests per second of an open loop, or requests in flight."""
    rate = result.point.axes.get(REQUEST_RATE)
    return float(result.point.concurrency if rate is None else rate)


def is_search(result: Result) -> bool:
    """Whether the result belongs to a search rather than a level."""
    return "searched_per_s" in facts_of(result)


def with_knee(results: Sequence[Result]) -> list[Result]:
    """The levels in order, with the knee of the curve marked."""
    ordered = sorted(results, key=offered)
    ok = [one for one in ordered if one.status == "ok"]
    place = knee([offered(one) for one in ok], [one.metrics["throughput_samples_per_sec"] for one in ok])
    if place is None:
        return ordered
    return [_marked(one, is_knee=True) if one is ok[place] else one for one in ordered]


def knee(loads: Sequence[float], achieved: Sequence[float]) -> int | None:
    """The index of the last level before throughput stops growing with load; None if it grows to the end.

    It is the interior level of the sorted curve at which two lines fit best, provided that they halve the squared error
    of one line, the second rises at most a quarter as fast as the first, and the level reaches 85 % of the peak
    (GuideLLM).
    """
    best: tuple[float, int] | None = None
    if len(loads) < 4:
        return None
    whole = _fit(loads, achieved)[1]
    for place in range(1, len(loads) - 1):
        rise, first = _fit(loads[: place + 1], achieved[: place + 1])
        tail, second = _fit(loads[place:], achieved[place:])
        fits = rise > 0 and tail <= KNEE_SLOPE * rise and first + second <= KNEE_ERROR * whole
        if fits and achieved[place] >= KNEE_PEAK * max(achieved) and (best is None or first + second < best[0]):
            best = first + second, place
    return None if best is None else best[1]


def _fit(x: Sequence[float], y: Sequence[float]) -> tuple[float, float]:
    """Slope of the regression line, and its squared error."""
    mean_x, mean_y = fmean(x), fmean(y)
    spread = sum((a - mean_x) ** 2 for a in x)
    slope = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True)) / spread if spread > 0 else 0.0
    return slope, sum((b - mean_y - slope * (a - mean_x)) ** 2 for a, b in zip(x, y, strict=True))


def meets(result: Result) -> bool:
    """Whether a rate meets the limits: 99 % of its requests do, the server kept up, and MLPerf's loadgen, if used,
    considers the test valid."""
    kinds = {one.kind for one in result.doubts}
    return result.metrics.get("goodput_share", 0.0) >= LEAST_GOOD and not kinds & NOT_MET


def search(
    measured: Callable[[Level], Result], lowest: Level, highest: float, say: Callable[[str], None]
) -> list[Result]:
    """Search for the highest rate that meets the limits. Returns the measured levels, then the outcome.

    Bisects between the rates of `lowest` and `highest`. The rate found is measured again; if that does not confirm it,
    the search continues below.
    """
    levels: dict[float, Result] = {}

    def is_met(rate: float) -> bool:
        levels[rate] = measured(replace(lowest, rate=rate))
        return meets(levels[rate])

    low: float | None = float(lowest.rate or 0)
    high, confirmed = highest, None
    if not is_met(float(lowest.rate or 0)):
        low = None
    elif is_met(high):
        low = high
    while low is not None and confirmed is None:
        while high / low - 1 > CLOSE:
            middle = float(f"{(low + high) / 2:.4g}")
            low, high = (middle, high) if is_met(middle) else (low, middle)
        say(f"confirming {low:g} requests/s")
        again = measured(replace(lowest, rate=low))
        if meets(again):
            confirmed, levels[low] = again, _marked(levels[low], is_highest_rate=True)
        else:
            levels[low], high = again, low
            low = max((rate for rate, one in levels.items() if rate < high and meets(one)), default=None)
    failing = [rate for rate, one in levels.items() if not meets(one)]
    facts: dict[str, Json] = {
        "searched_per_s": [lowest.rate, highest],
        "lowest_rate_not_met_per_s": min(failing, default=None),
    }
    return [*levels.values(), _found(confirmed, lowest, next(iter(levels.values())).point, facts)]


def _found(confirmed: Result | None, lowest: Level, point: Point, facts: Mapping[str, Json]) -> Result:
    """The outcome of a search, at a point without a rate, so that repeated searches are one series: the measurement
    that confirmed the highest rate, with the rate as a metric. A failed result if no rate met the limits."""
    point = replace(point, axes={name: value for name, value in point.axes.items() if name != REQUEST_RATE})
    if confirmed is None:
        return Result(
            result_id=uuid7(),
            point=point,
            status="failed",
            error=f"no rate of {lowest.rate:g} requests/s or more met the limits: search lower",
            missing={"latency_median_ms": f"{FAILED}: no rate met the limits"},
            extra={"load": dict(facts)},
        )
    found = {HIGHEST_RATE: offered(confirmed)}
    custom, launches = confirmed.extra.get(CUSTOM_METRICS), confirmed.extra.get("launches")
    assert isinstance(custom, dict)
    assert isinstance(launches, list)
    return replace(
        confirmed,
        point=point,
        metrics={**confirmed.metrics, **found},
        extra={
            **confirmed.extra,
            CUSTOM_METRICS: {**custom, HIGHEST_RATE: {"unit": "requests/s", "better": "higher"}},
            "launches": [_with_metrics(one, found) for one in launches],
            "load": {**facts_of(confirmed), **facts},
        },
    )


def _with_metrics(launch: Json, found: Mapping[str, float]) -> Json:
    """A launch's facts, with a further metric if it was measured."""
    if not isinstance(launch, dict) or not isinstance(metrics := launch.get("metrics"), dict):
        return launch
    return {**launch, "metrics": {**metrics, **found}}


def _marked(result: Result, **marks: bool) -> Result:
    return replace(result, extra={**result.extra, "load": {**facts_of(result), **marks}})

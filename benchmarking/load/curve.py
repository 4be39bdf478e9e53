"""The load curve: its knee, and the search for the highest rate within the limits."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from statistics import fmean

from benchmarking.core.metrics import CUSTOM_METRICS
from benchmarking.core.provenance import uuid7
from benchmarking.core.records import FAILED, NOT_SUPPORTED, REQUEST_RATE, Json, Point, Result
from benchmarking.load.generator import Level
from benchmarking.load.rate_posterior import Look, Posterior, look_of

KNEE_SLOPE, KNEE_ERROR, KNEE_PEAK = 0.25, 0.5, 0.85
LEAST_GOOD = 0.99
"""Share of requests within the limits that a rate needs to meet them, as in MLPerf's server scenario."""
CLOSE = 1.25
"""Bisection ends when a rate that meets the limits and one that does not differ by this factor."""
NEAR_DURATIONS = 2
"""Length of a level near the answer, in durations."""
LEAST_DURATIONS, MOST_DURATIONS = 15, 60
STEPS = (0.0, 1.5, -0.5)
"""Levels near the answer are at these distances from its median in turn, in units of the logit of the share outside the
limits, which shows the slope."""
FARTHEST = 1.5
"""Greatest factor between such a level and the median."""
MOST_ABOVE = 1.05
PRECISE = 0.032
"""Standard deviation of the answer's logarithm, including the model's error."""
CERTAIN = 0.99
MOST_INVALID = 8
COUNTED = frozenset({"failed_requests"})
"""Doubts that make a level invalid, but not a look: failed requests are outside the limits."""
HIGHEST_RATE = "highest_request_rate_per_sec"
"""The metric of a search."""
RATE_LOW, RATE_HIGH = "highest_request_rate_ci_low_per_sec", "highest_request_rate_ci_high_per_sec"
"""Its 95 % interval."""
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


def meets(result: Result) -> bool | None:
    """Whether a rate meets the limits: 99 % of its requests do, the server kept up, and MLPerf's loadgen, if used,
    considers the test valid. None if it is unknown how many requests do."""
    if any(one.kind in NOT_MET for one in result.doubts):
        return False
    share = result.metrics.get("goodput_share")
    return None if share is None else share >= LEAST_GOOD


def search(
    measured: Callable[[Level], Result], lowest: Level, highest: float, say: Callable[[str], None]
) -> list[Result]:
    """Search for the highest rate that meets the limits. Returns the measured levels, then the outcome.

    Bisection brackets the answer. Then levels of twice the duration near it are added until the posterior of all looks
    (`rate_posterior`) is narrow, or the levels took `MOST_DURATIONS` times the duration. Every level has fresh
    arrivals. The answer is the median of the posterior, or less if it could otherwise be more than 5 % too high with a
    probability above 10 %.
    """
    found = _Search(measured, lowest, highest)
    low, high = found.ends
    while high / low > CLOSE or not found.levels:
        middle = math.sqrt(low * high)
        low, high = (middle, high) if found.look(middle, 1) else (low, middle)
        if found.unknown is not None:
            return [*found.levels, found.failed(f"not found: {found.unknown}")]
    while found.spent < MOST_DURATIONS and found.looks and not found.is_precise():
        middle, step = found.posterior.quantile(0.5), STEPS[len(found.levels) % len(STEPS)]
        rate = found.allowed(middle * min(max(1 + step / found.posterior.slope, 1 / FARTHEST), FARTHEST))
        say(f"within the limits up to about {middle:.4g} requests/s, measuring {rate:.4g}/s")
        if found.look(rate, NEAR_DURATIONS) is None and found.is_stuck():
            break
    return [*found.levels, found.outcome()] if not found.looks else found.answered()


class _Search:
    """The levels of a search, and what follows from them."""

    def __init__(self, measured: Callable[[Level], Result], lowest: Level, highest: float) -> None:
        assert lowest.rate is not None
        self.ends = (float(lowest.rate), highest)
        self.levels: list[Result] = []
        self.looks: list[Look] = []
        self.used: list[Result] = []
        """The level of each look."""
        self.invalid: dict[float, str] = {}
        """Rate -> the doubts of an invalid level."""
        self.unknown: str | None = None
        """Why it is unknown whether requests meet the limits."""
        self.spent = 0.0
        self._posterior: Posterior | None = None
        self._measured, self._lowest = measured, lowest

    @property
    def posterior(self) -> Posterior:
        """The distribution of the answer, given the looks so far."""
        if self._posterior is None:
            self._posterior = Posterior(self.looks, *self.ends)
        return self._posterior

    def allowed(self, rate: float) -> float:
        """The nearest rate that can be measured: between the ends, and below the invalid levels, unless a higher one
        was valid, since then something else disturbed them."""
        least, most = self.ends
        valid = max((one.rate for one in self.looks), default=0.0)
        return min(max(rate, least), most, *(0.98 * one for one in self.invalid if one > valid))

    def look(self, rate: float, durations: int) -> bool | None:
        """Measure a rate for so many durations; returns whether it met the limits, None if the level was invalid."""
        rate = float(f"{self.allowed(rate):.4g}")
        while any(offered(one) == rate for one in self.levels):  # a run has a point once
            rate = float(f"{rate * 0.999:.6g}")
        number = self._lowest.number
        level = replace(
            self._lowest,
            rate=rate,
            number=None if number is None else number * durations,
            duration_s=self._lowest.duration_s * durations,
        )
        self.levels.append(result := self._measured(level))
        self.spent += durations
        wrong = sorted({one.kind for one in result.doubts if one.severity == "invalid"} - NOT_MET - COUNTED)
        is_met = meets(result)
        if result.status == "ok" and is_met is None:
            why = result.missing.get("goodput_share", "it is unknown how many requests met the limits")
            self.unknown = why.removeprefix(f"{NOT_SUPPORTED}: ")
            return None
        if result.status != "ok" or wrong:
            self.invalid[rate] = ", ".join(wrong) or str(result.error)
            return None
        is_unstable = any(one.kind in NOT_MET for one in result.doubts)
        self.looks.append(look_of(result.requests, rate, is_unstable=is_unstable))
        self.used.append(result)
        self._posterior = None
        return is_met

    def is_precise(self) -> bool:
        """Whether the answer is known well enough, or lies outside the searched rates."""
        posterior, (least, most) = self.posterior, self.ends
        if posterior.above(most) > CERTAIN or posterior.above(least) < 1 - CERTAIN:
            return True
        if self.spent < LEAST_DURATIONS:
            return False
        middle, low, high = (posterior.quantile(share) for share in (0.5, 0.16, 0.84))
        return posterior.quantile(0.1) * MOST_ABOVE >= middle and math.log(high / low) / 2 < PRECISE

    def is_stuck(self) -> bool:
        """Whether the last levels were all invalid."""
        return len(self.levels) - len(self.looks) > MOST_INVALID

    def answered(self) -> list[Result]:
        """The levels with the one nearest to the answer marked, then the outcome."""
        outcome = self.outcome()
        if (rate := outcome.metrics.get(HIGHEST_RATE)) is None:
            return [*self.levels, outcome]
        nearest = min(self.used, key=lambda one: abs(math.log(offered(one) / rate)))
        return [*(_marked(one, is_highest_rate=True) if one is nearest else one for one in self.levels), outcome]

    def outcome(self) -> Result:
        """The result of the search, at a point without a rate, so that repeated searches are one series: the level
        nearest to the answer, with the answer and its interval as metrics. Failed if no valid level met the limits."""
        if not self.looks:
            whys = ", ".join(dict.fromkeys(self.invalid.values()))
            return self.failed(f"not found: no level was valid ({whys})")
        least, most = self.ends
        posterior = self.posterior
        if posterior.above(least) < 0.5:
            return self.failed(f"no rate of {least:g} requests/s or more met the limits: search lower")
        measured_most = max(one.rate for one in self.looks) if self.invalid else most
        middle = min(posterior.quantile(0.5), most, measured_most)
        answer = float(f"{max(min(middle, posterior.quantile(0.1) * MOST_ABOVE), min(least, middle)):.4g}")
        low, high = (posterior.quantile(share) for share in (0.025, 0.975))
        is_highest = posterior.above(most) > 0.5
        metrics = {HIGHEST_RATE: answer, RATE_LOW: low, **({} if is_highest or self.invalid else {RATE_HIGH: high})}
        return _found(min(self.used, key=lambda one: abs(math.log(offered(one) / answer))), metrics, self._facts())

    def failed(self, error: str) -> Result:
        return Result(
            result_id=uuid7(),
            point=_without_rate(self.levels[0].point),
            status="failed",
            error=error,
            missing={"latency_median_ms": f"{FAILED}: {error}"},
            extra={"load": self._facts()},
        )

    def _facts(self) -> dict[str, Json]:
        least, most = self.ends
        not_met = [offered(one) for one in self.used if meets(one) is False]
        return {
            "searched_per_s": [least, most],
            "lowest_rate_not_met_per_s": min(not_met, default=None),
            "looks": [
                {"rate_per_s": one.rate, "requests": one.requests, "outside_limits": one.outside} for one in self.looks
            ],
            "invalid_levels": {f"{rate:g}": why for rate, why in self.invalid.items()},
        }


def _without_rate(point: Point) -> Point:
    return replace(point, axes={name: value for name, value in point.axes.items() if name != REQUEST_RATE})


def _found(level: Result, found: Mapping[str, float], facts: Mapping[str, Json]) -> Result:
    custom, launches = level.extra.get(CUSTOM_METRICS), level.extra.get("launches")
    assert isinstance(custom, dict)
    assert isinstance(launches, list)
    units = {name: {"unit": "requests/s", "better": "higher" if name == HIGHEST_RATE else None} for name in found}
    return replace(
        level,
        result_id=uuid7(),
        point=_without_rate(level.point),
        metrics={**level.metrics, **found},
        extra={
            **level.extra,
            CUSTOM_METRICS: {**custom, **units},
            "launches": [_with_metrics(one, found) for one in launches],
            "load": {**facts_of(level), **facts},
        },
    )


def _with_metrics(launch: Json, found: Mapping[str, float]) -> Json:
    """A launch's facts, with a further metric if it was measured."""
    if not isinstance(launch, dict) or not isinstance(metrics := launch.get("metrics"), dict):
        return launch
    return {**launch, "metrics": {**metrics, **found}}


def _marked(result: Result, **marks: bool) -> Result:
    return replace(result, extra={**result.extra, "load": {**facts_of(result), **marks}})

"""Speedup of one result over another at a point, with a confidence interval: of tables, charts and reports. Pure.

    between       with 3 or more common launches: launches with the same number are a round, in which slow drift of the
                  machine affects both. Speedup (the geometric mean of the rounds' ratios), interval and verdict are
                  those of every comparison (`core.verdicts.judging`)
    within        with fewer: the ratio b / o of the baseline's median latency and the other's, with an interval from
                  the two medians' own, which mostly cover only the calls within launches. On a log scale, the distance
                  to either end is the square root of the sum of the squares of the two distances in that direction (Zou
                  and Donner 2008, "MOVER"):
                  ln(b / o) - sqrt(ln(b / b_low)^2 + ln(o_high / o)^2), and + sqrt(ln(b_high / b)^2 + ln(o / o_low)^2).
                  The view runtime_comparison computes the same. It describes; it never judges

Worked examples are in the tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import exp, hypot, log
from statistics import median
from typing import Literal

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import DEFAULT_METRIC, METRICS
from benchmarking.core.records import Result
from benchmarking.core.verdicts.judging import Pair, judge
from benchmarking.core.verdicts.rounds import MIN_ROUNDS, ROUNDS_TO_PROVE
from benchmarking.core.verdicts.words import Judgement

FEW_LAUNCHES = f"fewer than {MIN_ROUNDS} launches in common: use --launches {ROUNDS_TO_PROVE}"


@dataclass(frozen=True, slots=True, kw_only=True)
class Median:
    """A median latency in ms with its 95 % interval, if it has one."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """A ratio of latencies: 2 means twice as fast as the baseline."""

    ratio: float
    low: float | None = None
    """End of the 95 % interval; None if there are too few samples."""
    high: float | None = None
    scope: Literal["between", "within"] | None = None
    """Whether the interval covers the spread between launches or only within them."""
    judgement: Judgement
    """The verdict on the other's latency against the baseline's."""


def speedups(pairs: Sequence[tuple[Result, Result]]) -> list[Speedup | None]:
    """The speedup of each second result over the first, judged as one comparison; None if either has no median above
    0."""
    rounds = []
    for baseline, other in pairs:
        base_medians, other_medians = launch_medians_ms(baseline), launch_medians_ms(other)
        common = sorted(base_medians.keys() & other_medians.keys())
        rounds.append(Pair(rounds=tuple((base_medians[number], other_medians[number]) for number in common)))
    judgements = judge(rounds, METRICS[DEFAULT_METRIC])
    return [
        speedup(judgement, _median(baseline), _median(other))
        for (baseline, other), judgement in zip(pairs, judgements, strict=True)
    ]


def speedup(judgement: Judgement, baseline: Median, other: Median) -> Speedup | None:
    """The speedup of a judgement of the other's latency against the baseline's; that of the medians if it has no
    interval. None if either median is unknown or not above 0."""
    if not baseline.value or not other.value or min(baseline.value, other.value) <= 0:
        return None
    if judgement.change is not None and judgement.low is not None and judgement.high is not None:
        # Of 12 digits, so that ratios that are equal but for rounding are equal.
        ends = (judgement.change, judgement.high, judgement.low)
        ratio, low, high = (float(f"{1 / (1 + change):.12g}") for change in ends)
        return Speedup(ratio=ratio, low=low, high=high, scope="between", judgement=judgement)
    ratio, change = baseline.value / other.value, other.value / baseline.value - 1
    unjudged = Judgement(
        verdict="not judged", reason=FEW_LAUNCHES, before=baseline.value, after=other.value, change=change
    )
    base, own = _distances(baseline), _distances(other)
    if base is None or own is None:
        return Speedup(ratio=ratio, judgement=unjudged)
    low, high = ratio * exp(-hypot(base[0], own[1])), ratio * exp(hypot(base[1], own[0]))
    return Speedup(ratio=ratio, low=low, high=high, scope="within", judgement=unjudged)


def launch_medians_ms(result: Result) -> dict[int, float]:
    """The median latency of each launch by its number, without values that are not above 0."""
    medians = {
        samples.launch: median(samples.values)
        for samples in result.samples
        if samples.phase == "measure" and samples.metric == "latency_wall" and samples.values
    }
    return {launch: value for launch, value in medians.items() if value > 0}


def _median(result: Result) -> Median:
    names = ("latency_median_ms", "latency_ci_low_ms", "latency_ci_high_ms")
    value, low, high = (result.metrics.get(name) for name in names)
    return Median(value=value, low=low, high=high)


def _distances(median: Median) -> tuple[float, float] | None:
    """Log distances from a median to the lower and upper end of its interval; None without an interval."""
    if not median.value or not median.low or not median.high or min(median.value, median.low, median.high) <= 0:
        return None
    return log(median.value / median.low), log(median.high / median.value)

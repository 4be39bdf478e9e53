"""Speedup of one runtime over another at the same point, with a confidence interval.

    between       with 3 or more common launches: launches with the same number are a round, in which slow drift of the
                  machine affects both. Speedup (the geometric mean of the rounds' ratios), interval and verdict are
                  those of every comparison (`core.verdicts.judging`)
    within        with fewer: the ratio b / o of the baseline's median latency and the other's, with an interval from
                  the two medians' own, which mostly cover only the calls within launches. On a log scale, the distance
                  to either end is the square root of the sum of the squares of the two distances in that direction (Zou
                  and Donner 2008, "MOVER"):
                  ln(b / o) - sqrt(ln(b / b_low)^2 + ln(o_high / o)^2), and + sqrt(ln(b_high / b)^2 + ln(o / o_low)^2)

Worked examples are in the tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import exp, fsum, hypot, log
from statistics import median
from typing import Literal

from benchmarking.core.metrics import DEFAULT_METRIC, METRICS
from benchmarking.core.records import Result
from benchmarking.core.verdicts.judging import Pair, judge
from benchmarking.core.verdicts.rounds import MIN_ROUNDS
from benchmarking.core.verdicts.words import Judgement

FEW_LAUNCHES = f"fewer than {MIN_ROUNDS} launches in common: use --launches"


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
        _speedup(baseline, other, judgement) for (baseline, other), judgement in zip(pairs, judgements, strict=True)
    ]


def _speedup(baseline: Result, other: Result, judgement: Judgement) -> Speedup | None:
    base_ms, other_ms = (result.metrics.get("latency_median_ms", 0.0) for result in (baseline, other))
    if base_ms <= 0 or other_ms <= 0:
        return None
    if judgement.change is not None and judgement.low is not None and judgement.high is not None:
        # Of 12 digits, so that ratios that are equal but for rounding are equal.
        ends = (judgement.change, judgement.high, judgement.low)
        ratio, low, high = (float(f"{1 / (1 + change):.12g}") for change in ends)
        return Speedup(ratio=ratio, low=low, high=high, scope="between", judgement=judgement)
    ratio = base_ms / other_ms
    change = 1 / ratio - 1
    unjudged = Judgement(verdict="not judged", reason=FEW_LAUNCHES, before=base_ms, after=other_ms, change=change)
    base, other_ends = _distances(baseline), _distances(other)
    if base is None or other_ends is None:
        return Speedup(ratio=ratio, judgement=unjudged)
    down, up = hypot(base[0], other_ends[1]), hypot(base[1], other_ends[0])
    low, high = ratio * exp(-down), ratio * exp(up)
    return Speedup(ratio=ratio, low=low, high=high, scope="within", judgement=unjudged)


def launch_medians_ms(result: Result) -> dict[int, float]:
    """The median latency of each launch by its number, without values that are not above 0."""
    medians = {
        samples.launch: median(samples.values)
        for samples in result.samples
        if samples.phase == "measure" and samples.metric == "latency_wall" and samples.values
    }
    return {launch: value for launch, value in medians.items() if value > 0}


def geometric_mean(ratios: Sequence[float]) -> float:
    """The mean of ratios: 0.5 and 2 give 1. Raises ValueError without ratios."""
    if not ratios:
        raise ValueError("no ratios to take the mean of")
    return exp(fsum(map(log, ratios)) / len(ratios))


def _distances(result: Result) -> tuple[float, float] | None:
    """Log distances from a median to the lower and upper end of its interval; None without an interval."""
    names = ("latency_ci_low_ms", "latency_median_ms", "latency_ci_high_ms")
    low, middle, high = (result.metrics.get(name, 0.0) for name in names)
    return (log(middle / low), log(high / middle)) if low > 0 and high > 0 else None

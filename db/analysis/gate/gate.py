"""The gate: judges the newest value of a series by the runs before it. Pure.

2026-11-21: a prediction interval, not the previous run and not a z-score: it accounts for the scatter of the series and
the number of runs, so that the share of false alarms is the stated one (tests/perf/gate.py prints it, for five kinds of
noise). The cost: no verdict below 10 runs. One false alarm in a hundred is still one a day in a project of a hundred
series, so `benchhouse check --confirm` measures again before it calls a series regressed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from benchmarking.core.metrics import Metric

DETECTOR = "prediction-interval"
DETECTOR_VERSION = "1"
Outcome = Literal["fine", "worse", "better", "not_enough_data"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """The gate's settings."""

    confidence: float = 0.99
    """Of the one-sided prediction interval: 1 - the share of false alarms with normal noise."""
    min_change: float = 0.02
    """Changes up to this share are fine, even significant ones: nobody acts on them."""
    min_points: int = 10
    """With fewer, the interval is too wide to be useful."""
    max_points: int = 40
    """Older ones are not used: the machine drifts, and the interval hardly becomes narrower."""


DEFAULTS = Parameters()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The judgement of a value; values are in the metric's unit."""

    outcome: Outcome
    value: float
    n: int
    """Runs before it that were used."""
    why: str | None = None
    """Why there is no verdict; None where there is one."""
    centre: float | None = None
    """Geometric mean of those runs; None without a verdict, like all below."""
    low: float | None = None
    """Ends of the interval, each one-sided at the stated confidence."""
    high: float | None = None
    relative_change: float | None = None
    """value / centre - 1."""


def judge(before: Sequence[float], value: float, metric: Metric, parameters: Parameters = DEFAULTS) -> Judgement:
    """Judge a value by those of the runs before it, oldest first: one for each run of one segment.

    Worse (or better) is a value beyond mean(x) +- t * sd(x) * sqrt(1 + 1/n), x the logarithms and t the quantile of
    Student's distribution with n - 1 degrees of freedom, that differs from the geometric mean by more than
    `min_change` (Hahn and Meeker, Statistical Intervals, 4.8: the prediction interval of one further value).
    """
    used = before[-parameters.max_points :]
    if (why := _why_not(used, value, parameters)) is not None:
        return Judgement(outcome="not_enough_data", value=value, n=len(used), why=why)
    centre, low, high = prediction_interval(used, parameters.confidence)
    change = value / centre - 1
    is_beyond = not low <= value <= high and abs(change) > parameters.min_change
    outcome: Outcome = "fine" if not is_beyond else "worse" if metric.is_worse(change) else "better"
    return Judgement(
        outcome=outcome, value=value, n=len(used), centre=centre, low=low, high=high, relative_change=change
    )


def prediction_interval(values: Sequence[float], confidence: float) -> tuple[float, float, float]:
    """The geometric mean, and the ends that one further value stays above, and below, each with `confidence`.

    Takes at least 2 values, all above 0. For equal values all three are the same.
    """
    import numpy as np
    from scipy.special import stdtrit

    logs = np.log(np.asarray(values, dtype=np.float64))
    n = len(logs)
    centre = float(logs.mean())
    reach = float(stdtrit(n - 1, confidence)) * float(logs.std(ddof=1)) * math.sqrt(1 + 1 / n)
    return math.exp(centre), math.exp(centre - reach), math.exp(centre + reach)


def _why_not(used: Sequence[float], value: float, parameters: Parameters) -> str | None:
    """Why the value cannot be judged; None where it can."""
    if len(used) < parameters.min_points:
        return f"{len(used)} run{'s' * (len(used) != 1)} before it, at least {parameters.min_points} required"
    if min((*used, value)) <= 0:
        return "a value is not above 0, so it has no logarithm"
    return None

"""The gate: judges the newest value of a series by the runs before it. Pure.

A prediction interval, not the previous run and not a z-score: it accounts for the scatter of the series and the number
of runs, so that the share of false alarms is the stated one (tests/perf/gate.py prints it, for eight kinds of noise).
The cost: no verdict below 10 runs. One false alarm in a hundred is still one a day in a project of a hundred
series, so `benchhouse check --confirm` measures again before it calls a series regressed.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from benchmarking.core.metrics import Metric
from benchmarking.core.student_t import quantile

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

DETECTOR = "prediction-interval"
DETECTOR_VERSION = "2"
SD_OF_MAD = 1.4826
"""Standard deviation over the median absolute deviation, for normal values."""
WINSORISED_SD = 1.06
"""By simulation: with it the share of false alarms of normal noise is that of the plain standard deviation."""
MIN_TO_CLIP = 5
"""Of fewer values, the median absolute deviation says too little."""
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
    min_points_after_change: int = 2
    """With fewer than `min_points` since a change of level: so many give the new level, and the runs before the change
    the variation."""
    clip_sd: float = 2.5
    """Largest distance of a run from the median, in robust standard deviations: one disturbed run must not hide a
    regression."""
    max_clipped: float = 0.2
    """Share of runs that are clipped at most. Where more are far away, that is how the series varies."""


DEFAULTS = Parameters()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The judgement of a value; values are in the metric's unit."""

    outcome: Outcome
    value: float
    n: int
    """Runs of its segment that were used."""
    borrowed: int = 0
    """Runs before the segment whose variation was used, where the segment is short."""
    why: str | None = None
    """Why there is no verdict; None where there is one."""
    centre: float | None = None
    """Geometric mean of those runs; None without a verdict, like all below."""
    low: float | None = None
    """Ends of the interval, each one-sided at the stated confidence."""
    high: float | None = None
    relative_change: float | None = None
    """value / centre - 1."""


def judge(
    before: Sequence[float],
    value: float,
    metric: Metric,
    parameters: Parameters = DEFAULTS,
    earlier: Sequence[Sequence[float]] = (),
) -> Judgement:
    """Judge a value by those of the runs before it, oldest first: one for each run of one segment.

    Worse (or better) is a value beyond m +- t * s * sqrt(1 + 1/n), m and s the mean and standard deviation of the
    logarithms, winsorised, and t the quantile of Student's distribution with n - 1 degrees of freedom, that differs
    from the geometric mean by more than `min_change` (Hahn and Meeker, Statistical Intervals, 4.8: the prediction
    interval of one further value). Of a segment that is still short, s is pooled with those of the `earlier` segments,
    each around its own mean, and the degrees of freedom are theirs together.
    """
    used = before[-parameters.max_points :]
    borrowed = _borrowed(used, earlier, parameters)
    if (why := _why_not(used, borrowed, value, parameters)) is not None:
        return Judgement(outcome="not_enough_data", value=value, n=len(used), why=why)
    centre, low, high = prediction_interval([used, *borrowed], parameters)
    change = value / centre - 1
    is_beyond = not low <= value <= high and abs(change) > parameters.min_change
    outcome: Outcome = "fine" if not is_beyond else "worse" if metric.is_worse(change) else "better"
    return Judgement(
        outcome=outcome,
        value=value,
        n=len(used),
        borrowed=sum(map(len, borrowed)),
        centre=centre,
        low=low,
        high=high,
        relative_change=change,
    )


def prediction_interval(
    segments: Sequence[Sequence[float]], parameters: Parameters = DEFAULTS
) -> tuple[float, float, float]:
    """The geometric mean of the first segment, and the ends that one further value of it stays above, and below.

    Each end has the confidence of the parameters. All values are above 0, and at least one segment has two. For equal
    values all three are the same.
    """
    import numpy as np

    logs = [_winsorised(np.log(np.asarray(segment, dtype=np.float64)), parameters) for segment in segments]
    centre, n = float(logs[0].mean()), len(logs[0])
    degrees = sum(len(each) - 1 for each in logs)
    squares = sum(float(((each - each.mean()) ** 2).sum()) for each in logs)
    reach = quantile(parameters.confidence, degrees) * math.sqrt(squares / degrees * (1 + 1 / n))
    return math.exp(centre), math.exp(centre - reach), math.exp(centre + reach)


def _winsorised(logs: Floats, parameters: Parameters) -> Floats:
    """The values clipped to the median and some robust standard deviations, and spread again by what that takes from
    the standard deviation of normal values; as they are where too many are far, or most are equal."""
    import numpy as np

    middle = np.median(logs)
    reach = parameters.clip_sd * SD_OF_MAD * float(np.median(np.abs(logs - middle)))
    clipped: Floats = np.clip(logs, middle - reach, middle + reach)
    if reach == 0 or len(logs) < MIN_TO_CLIP or (clipped != logs).mean() > parameters.max_clipped:
        return logs
    spread: Floats = clipped.mean() + WINSORISED_SD * (clipped - clipped.mean())
    return spread


def _borrowed(
    used: Sequence[float], earlier: Sequence[Sequence[float]], parameters: Parameters
) -> list[Sequence[float]]:
    """The newest runs of the earlier segments, up to `max_points` together, where the segment itself is short."""
    if not parameters.min_points_after_change <= len(used) < parameters.min_points:
        return []
    found: list[Sequence[float]] = []
    left = parameters.max_points - len(used)
    for segment in reversed(earlier):
        own = [value for value in segment if value > 0][-left:] if left > 1 else []
        if len(own) > 1:
            found.append(own)
            left -= len(own)
    return found


def _why_not(
    used: Sequence[float], borrowed: Sequence[Sequence[float]], value: float, parameters: Parameters
) -> str | None:
    """Why the value cannot be judged; None where it can."""
    if len(used) + sum(map(len, borrowed)) < parameters.min_points:
        return f"{len(used)} run{'s' * (len(used) != 1)} before it, at least {parameters.min_points} required"
    if min((*used, value)) <= 0:
        return "a value is not above 0, so it has no logarithm"
    return None

"""The gate: judges the newest value of a series by the runs before it. Pure.

It uses a prediction interval rather than the previous run or a z-score: the interval accounts for the scatter of the
series and the number of runs, so the false alarm rate is the stated one (tests/perf/gate.py prints it for eight kinds
of noise). The price: no verdict below 10 runs. One false alarm in a hundred is still one a day in a project with a
hundred series, so `benchhouse check --confirm` measures again before it reports a regression.
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
"""By simulation: gives normal noise the same false alarm rate as the plain standard deviation."""
MIN_TO_CLIP = 5
"""With fewer values, the median absolute deviation is too uncertain."""
Outcome = Literal["fine", "worse", "better", "not_enough_data"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """The gate's settings."""

    confidence: float = 0.99
    """Of the one-sided prediction interval: 1 - the false alarm rate with normal noise."""
    min_change: float = 0.02
    """Changes up to this fraction are fine, even significant ones: nobody acts on them."""
    min_points: int = 10
    """Minimum runs: with fewer, the interval is too wide to be useful."""
    max_points: int = 40
    """Maximum runs: machines drift, and more runs hardly make the interval narrower."""
    min_points_after_change: int = 2
    """Minimum runs since a change of level: with fewer than `min_points`, these give the new level, and the runs before
    the change give the variation."""
    clip_sd: float = 2.5
    """Maximum distance of a run from the median, in robust standard deviations: one disturbed run must not hide a
    regression."""
    max_clipped: float = 0.2
    """Maximum fraction of runs that are clipped. More outliers than that are a property of the series."""


DEFAULTS = Parameters()


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The judgement of a value; values are in the metric's unit."""

    outcome: Outcome
    value: float
    n: int
    """Number of runs of its segment that were used."""
    borrowed: int = 0
    """Number of runs before the segment whose variation was used, for a short segment."""
    why: str | None = None
    """Why there is no verdict; None if there is one."""
    centre: float | None = None
    """Geometric mean of those runs. None without a verdict, like all fields below."""
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
    """Judge a value by the runs before it: one value per run of one segment, oldest first.

    A value is worse (or better) if it lies beyond m +- t * s * sqrt(1 + 1/n) and differs from the geometric mean by
    more than `min_change`. m and s are the mean and standard deviation of the winsorised logarithms, t the quantile of
    Student's distribution with n - 1 degrees of freedom (Hahn and Meeker, Statistical Intervals, 4.8: the prediction
    interval of one further value). For a short segment, s is pooled with the `earlier` segments, each around its own
    mean, and the degrees of freedom are added up.
    """
    used = before[-parameters.max_points :]
    borrowed = _borrowed(used, earlier, parameters)
    if (reason := _why_not(used, borrowed, value, parameters)) is not None:
        return Judgement(outcome="not_enough_data", value=value, n=len(used), why=reason)
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
    """The geometric mean of the first segment, and the lower and upper end of the prediction interval.

    Each end has the confidence of the parameters. All values are above 0, and at least one segment has two. For equal
    values all three are equal.
    """
    import numpy as np

    logs = [_winsorised(np.log(np.asarray(segment, dtype=np.float64)), parameters) for segment in segments]
    centre, n = float(logs[0].mean()), len(logs[0])
    degrees = sum(len(values) - 1 for values in logs)
    squares = sum(float(((values - values.mean()) ** 2).sum()) for values in logs)
    reach = quantile(parameters.confidence, degrees) * math.sqrt(squares / degrees * (1 + 1 / n))
    return math.exp(centre), math.exp(centre - reach), math.exp(centre + reach)


def _winsorised(logs: Floats, parameters: Parameters) -> Floats:
    """The values, clipped to a few robust standard deviations around the median, then rescaled so that the standard
    deviation of normal values is kept. Unchanged if too many are outliers or most are equal."""
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
    """The newest runs of the earlier segments, up to `max_points` in total, if the segment itself is short."""
    if not parameters.min_points_after_change <= len(used) < parameters.min_points:
        return []
    borrowed: list[Sequence[float]] = []
    remaining = parameters.max_points - len(used)
    for segment in reversed(earlier):
        values = [value for value in segment if value > 0][-remaining:] if remaining > 1 else []
        if len(values) > 1:
            borrowed.append(values)
            remaining -= len(values)
    return borrowed


def _why_not(
    used: Sequence[float], borrowed: Sequence[Sequence[float]], value: float, parameters: Parameters
) -> str | None:
    """Why the value cannot be judged; None if it can."""
    if len(used) + sum(map(len, borrowed)) < parameters.min_points:
        return f"{len(used)} earlier run{'s' * (len(used) != 1)}, at least {parameters.min_points} required"
    if min((*used, value)) <= 0:
        return "a value is not positive, so it has no logarithm"
    return None

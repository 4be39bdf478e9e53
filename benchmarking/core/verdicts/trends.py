"""A slow, steady movement of a series: a verdict of its own, since no single run or commit is to blame for it. Pure.

The values of the newest runs are fitted by a straight line in the logarithm, x(k) = a + b k + e(k). Runs of
neighbouring nights resemble each other, which alone makes lines rise and fall: with the correlation r of neighbouring
residuals, corrected for its bias in short series, the error of the slope grows by sqrt((1 + r) / (1 - r)), and the
degrees of freedom shrink by the square of that. A trend is reported if

    - the slope is significant (t test, p at most 0.0001, in one of the windows),
    - both halves move in its direction, and a straight line fits better than the best single step, and
    - it amounts to 2 % over its window.

A step is left to the change points; a walk whose neighbours hardly differ has too few degrees of freedom for either.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.lazy_modules import np
from benchmarking.core.student_t import cumulative
from benchmarking.core.verdicts.words import MIN_CHANGE

WINDOWS = (60, 40, 30, 20)
"""Numbers of newest runs to look at: a trend may have begun recently."""
LEAST_RUNS = 20
MAX_P = 0.0001
RAMP_WINDOW, LEAST_RAMP = 30, 6
"""Newest runs that a ramp is fitted to, and runs that it takes at least."""
LEAST_DEGREES = 8.0
"""With fewer independent pieces of evidence, a walk looks like a trend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """A steady movement."""

    per_run: float
    """Relative change from one run to the next: 0.002 is 0.2 % more each time."""
    runs: int
    """Runs of the window."""
    change: float
    """Relative change over the window."""
    p_value: float


def find_trend(values: Sequence[float]) -> Trend | None:
    """The trend of the newest runs, given oldest first and above 0; None without one. The longest window counts."""
    logs = np.log(np.asarray(values, dtype=np.float64))
    for window in dict.fromkeys(min(each, len(logs)) for each in WINDOWS):
        if window < LEAST_RUNS:
            break
        if (found := _of_window(logs[-window:].tolist())) is not None:
            return found
    return None


def _of_window(logs: Sequence[float]) -> Trend | None:
    x = np.asarray(logs)
    n = len(x)
    places = np.arange(n) - (n - 1) / 2
    slope = float(places @ x / (places @ places))
    change = math.expm1(slope * (n - 1))
    if abs(change) < MIN_CHANGE:
        return None
    residuals = x - x.mean() - slope * places
    squares = float(residuals @ residuals)
    if squares <= 1e-18 * n:
        return Trend(per_run=math.expm1(slope), runs=n, change=change, p_value=0.0)
    correlation = float(residuals[1:] @ residuals[:-1]) / squares
    correlation = min(0.99, max(0.0, (correlation + 2 / n) / (1 - 4 / n)))
    inflation = (1 + correlation) / (1 - correlation)
    degrees = n / inflation - 2
    if degrees < LEAST_DEGREES:
        return None
    before, sums = np.arange(1, n), np.cumsum(x - x.mean())[:-1]
    explained = float((sums**2 * n / (before * (n - before))).max())  # by the best single step
    if squares >= float(((x - x.mean()) ** 2).sum()) - explained:
        return None
    for half in (x[: n // 2], x[n // 2 :]):  # both have to move in the direction of the slope
        if float((np.arange(len(half)) - (len(half) - 1) / 2) @ half) * slope <= 0:
            return None
    error = math.sqrt(squares / (n - 2) / float(places @ places) * inflation)
    p_value = 2 * cumulative(-abs(slope) / error, degrees)
    if p_value > MAX_P:
        return None
    return Trend(per_run=math.expm1(slope), runs=n, change=change, p_value=p_value)


def has_begun_to_move(values: Sequence[float], newest: int) -> float:
    """How clearly the values rose before the newest ones (negative: fell), in standard errors: the best fit of a level
    followed by a ramp, which begins at any run but the last few. The values are in units of their standard deviation.

    What is already on its way up when it crosses a limit is a trend: the run that crossed it is not to blame.
    """
    x = np.asarray(values, dtype=np.float64)[: len(values) - newest][-RAMP_WINDOW:]
    n = len(x)
    if n < RAMP_WINDOW // 2:
        return 0.0
    ramps = np.maximum(0, np.arange(n)[None, :] - np.arange(n - LEAST_RAMP)[:, None]).astype(np.float64)
    ramps -= ramps.mean(axis=1, keepdims=True)
    errors = ramps @ x / np.sqrt((ramps**2).sum(axis=1))
    return float(errors[np.argmax(np.abs(errors))])

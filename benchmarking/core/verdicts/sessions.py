"""What the history of a series says about sessions that are compared: their variation, and whether it knows their hour
and weekday. Pure. `db.analysis.compare.series_sessions` reads the history and estimates the variation."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime
from statistics import fmean, median

from benchmarking.core.lazy_dataclass import dataclass

MIN_SESSIONS = 5
"""With 4 differences, the interval is about ten times as wide as the scatter; with fewer it is useless."""
HOURS_ALIKE = 2.0
"""Sessions up to so many hours of the day apart are alike."""
LEAST_OF_AN_HOUR, LEAST_OF_A_WEEKDAY = 3, 1
"""Sessions of the history that show what an hour, or a weekday, does."""
SHOWN_ERRORS, SHOWN_CHANGE = 3.0, 0.01
"""An hour or weekday matters if its sessions are off by so many standard errors, and by so much."""
TIMES_AS_BUSY = 4.0
"""Ratio of the variance of a session's launches to that of the history's, from which the session counts as busier: by
chance, five launches reach it 1 time in 100."""
FAR_OFF, FAR_OFF_TIMES = 8.0, 2.0
"""Range of a level, in standard deviations by the median deviation, from which single sessions are far off (20 normal
ones reach it 1 time in 75), and the factor by which the next one may exceed the range."""
SD_OF_MEDIAN_ABSOLUTE = 1.4826
"""Standard deviation of normal values by their median absolute deviation."""
LEAST_DEVIATION = 0.002
"""Smaller deviations matter to nobody, as those of a coarse clock that repeats one value."""
MOST_DIGITS = 9
FEWEST_STEPS = 3
"""Distinct values from which the step of a clock shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionScatter:
    """The variation between sessions of a series, of logarithms of values: 0.0001 is a standard deviation of 1 %."""

    variance: float
    """s^2: variance of a single session."""
    walk: float
    """w^2: variance of the step from one session to the next."""
    degrees: float
    """Degrees of freedom of both."""
    sessions: int
    """Number of sessions it was estimated from."""
    stretches: tuple[tuple[float, ...], ...] = ()
    """Logarithms of the sessions between two changes of level, oldest first."""
    times: tuple[tuple[datetime, float], ...] = ()
    """Start of each session of the history in UTC, and its distance from the mean of its stretch."""
    launch_variance: float | None = None
    """Variance of the launches of a typical session; None if it is unknown."""

    @property
    def usual_difference(self) -> float:
        """The difference that two sessions of one level, however far apart, may have without a change.

        It is the largest one of the history: of n sessions whose order does not matter, two given ones are the lowest
        and the highest with a probability of 2 / (n (n - 1)), whatever their distribution. Where single sessions are
        far off, the next one may be further off than any before: then it is `FAR_OFF_TIMES` as large.
        """
        largest = 0.0
        for stretch in filter(None, self.stretches):
            centre, width = median(stretch), max(stretch) - min(stretch)
            deviation = SD_OF_MEDIAN_ABSOLUTE * median(abs(value - centre) for value in stretch)
            is_far_off = width > FAR_OFF * max(deviation, LEAST_DEVIATION)
            largest = max(largest, width * (FAR_OFF_TIMES if is_far_off else 1.0))
        return largest

    def times_as_busy(self, launch_variance: float) -> float:
        """By how much the launches of a session vary more than those of the history; 1 if no more than by chance."""
        if not self.launch_variance:
            return 1.0
        ratio = launch_variance / self.launch_variance
        return ratio if ratio > TIMES_AS_BUSY else 1.0


def why_other_times(
    before: Sequence[datetime], after: Sequence[datetime], scatters: tuple[SessionScatter, SessionScatter]
) -> str | None:
    """Why two sides that were measured at other hours, or on other weekdays, cannot be judged; None if they can.

    Each side has the history of its own series.
    """
    if not before or not after:
        return None
    sides = (before, after)
    if all(_hours_apart(one, other) > HOURS_ALIKE for one in before for other in after):
        words = " and ".join(f"{side[-1]:%H:%M}" for side in sides)
        alike = [
            [off for time, off in scatter.times if min(_hours_apart(time, one) for one in side) <= HOURS_ALIKE]
            for scatter, side in zip(scatters, sides, strict=True)
        ]
        return _why_not_known(f"they were measured at other hours ({words} UTC)", scatters, alike, LEAST_OF_AN_HOUR)
    days = [{one.weekday() for one in side} for side in sides]
    if not days[0] & days[1]:
        words = " and ".join(f"{side[-1]:%A}" for side in sides)
        alike = [
            [off for time, off in scatter.times if time.weekday() in own]
            for scatter, own in zip(scatters, days, strict=True)
        ]
        return _why_not_known(f"they were measured on other weekdays ({words})", scatters, alike, LEAST_OF_A_WEEKDAY)
    return None


def _why_not_known(
    what: str, scatters: tuple[SessionScatter, SessionScatter], alike: Sequence[Sequence[float]], least: int
) -> str | None:
    """Why the history does not rule out that the times explain a difference; `alike` are the distances of its sessions
    that are like each side's."""
    if not all(scatter.times for scatter in scatters):
        return None  # the times of its sessions are unknown
    if min(map(len, alike)) < least:
        return f"{what}, and the history has too few of them to tell whether that matters"
    error = math.sqrt(sum(scatter.variance / len(offs) for scatter, offs in zip(scatters, alike, strict=True)))
    difference = fmean(alike[1]) - fmean(alike[0])
    if abs(difference) > max(SHOWN_ERRORS * error, SHOWN_CHANGE):
        return f"{what}, which differ by {math.expm1(difference):+.1%} in the history"
    return None


def _hours_apart(one: datetime, other: datetime) -> float:
    """Hours between two times of the day, around the clock."""
    apart = abs(one.hour + one.minute / 60 - other.hour - other.minute / 60)
    return min(apart, 24 - apart)


def resolution(values: Sequence[float], all_values: Sequence[float]) -> float:
    """The step of the clock that the values show, relative to their mean; nearly 0 for values with many digits.

    It is the largest step of which all values (of both sides) are multiples, or, if they have fewer than three distinct
    values, one unit of their last digit; values that are all equal show no step above 1 %.
    """
    centre = fmean(values)
    for digits in range(MOST_DIGITS):
        scaled = [value * 10**digits for value in all_values]
        if all(abs(one - round(one)) < 1e-9 * max(1.0, abs(one)) for one in scaled):
            distinct = {round(one) for one in scaled}
            unit = math.gcd(*distinct) if len(distinct) >= FEWEST_STEPS else 1
            step = float(unit / 10**digits / centre)
            return min(step, 0.01) if len(distinct) == 1 else step
    return 0.0

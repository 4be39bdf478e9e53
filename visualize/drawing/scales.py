"""Axes: range, ticks and their labels, the same in image files and on pages."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from itertools import pairwise

from benchmarking.core.lazy_dataclass import dataclass

MOST_TICKS = 7
MOST_DECIMALS = 4
"""Most decimal places of a tick; smaller steps have an exponent, as in tables."""
MOST_WHOLE = 15
"""Most whole digits of a number, as a float has no more; larger ones have an exponent, or they would fill a picture."""
LEAST, LARGEST = 1e-130, 1e130
"""Range of the positive numbers of a log axis and of the distances of ticks, whose ratios and edges are floats, too."""
LEAST_SPAN = 1e-3
"""Smallest range of values that an axis shows in detail, as a share of the largest value: below it they are equal."""
LOG_EDGE = 0.06
"""Room at both ends of a log axis, as a share of its length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Axis:
    """An axis from `low` to `high`."""

    title: str = ""
    """Name, unit and better direction; lines are separated by a line break."""
    low: float = 0.0
    high: float = 1.0
    ticks: tuple[tuple[float, str], ...] = ()
    is_log: bool = False
    is_value: bool = False
    """Whether it has measured values; captions then say where it does not start at zero."""
    from_top: bool = False
    names: tuple[str, ...] = ()
    """Names of the places 0, 1, 2 ... instead of values."""
    has_grid: bool = True

    def share(self, value: float) -> float:
        """Where a value lies: 0 at the low end, 1 at the high end."""
        if self.is_log:
            value, low, high = (math.log(max(one, 1e-300)) for one in (value, self.low, self.high))
        else:
            low, high = self.low, self.high
        return (value - low) / (high - low) if high > low else 0.0

    def text(self, value: float) -> object:
        """A value for a table: the name or label of its place in one line, else the number."""
        found: object = value
        if self.names:
            found = self.names[round(value)] if 0 <= round(value) < len(self.names) else value
        elif not self.is_value:
            found = dict(self.ticks).get(value, value)
        return found.replace("\n", " ") if isinstance(found, str) else found


def number(value: float) -> str:
    """A number for a label, in three significant digits and all whole ones: 0.25, 4.56, 37.4, 1,234."""
    return f"{value:,.0f}" if value == 0 or 100 <= abs(value) < 10**MOST_WHOLE else f"{value:.3g}"


def spans_decade(values: Sequence[float]) -> bool:
    """Whether positive values span a factor of ten or more, which needs a log scale."""
    positive = [value for value in values if value > 0]
    return len(positive) == len(values) > 0 and max(positive) >= 10 * min(positive)


def grows_by_factors(sizes: Sequence[float]) -> bool:
    """Whether sizes (sorted, distinct) grow by factors (1, 2, 4) rather than by steps (8, 9, 10).

    Always true if they span a factor of 8, since small sizes would overlap on a linear axis.
    """
    if len(sizes) < 2:
        return False
    return sizes[-1] >= 8 * sizes[0] or all(after >= 1.5 * before for before, after in pairwise(sizes))


def value_axis(title: str, values: Sequence[float], *, room: float = 1.08, may_be_log: bool = True) -> Axis:
    """A log axis if the values span a factor of ten, else a linear one from 0 to `room` times the largest value."""
    if not values:
        return Axis(title=title, is_value=True)
    low, high = min(values), max(values)
    if may_be_log and spans_decade(values) and LEAST < low < high < LARGEST:
        edge = (high / low) ** LOG_EDGE
        return log_axis(title, low / edge, high * edge * max(room / 1.08, 1.0))
    low, high = min(low, 0.0), min(max(high, 0.0) * room, sys.float_info.max) or 1.0
    return Axis(title=title, low=low, high=high, ticks=ticks(low, high), is_value=True)


def log_axis(title: str, low: float, high: float) -> Axis:
    """A log axis of values, with ticks at 1, 2 and 5 times powers of ten; at powers only over three decades or more."""
    factors = (1, 2, 5) if high < 1000 * low else (1,)
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    each = 1 + max(0, len(powers) - 1) // 9
    at = [factor * 10.0**power for power in powers if power % each == 0 for factor in factors]
    labels = tuple((value, f"{value:,.10g}") for value in at if low <= value <= high)
    return Axis(title=title, low=low, high=high, ticks=labels, is_log=True, is_value=True)


def close_axis(title: str, values: Sequence[float]) -> Axis:
    """An axis around the values that need not start at 0, which would hide a change of 2 %."""
    low, high = min(values), max(values)
    is_flat = high - low <= LEAST_SPAN * max(abs(low), abs(high))
    margin = (0.05 * abs(high) or 1.0) if is_flat else 0.15 * (high - low)
    low, high = (low - margin if low < 0 else max(low - margin, 0.0)), high + 1.6 * margin
    return Axis(title=title, low=low, high=high, ticks=ticks(low, high), is_value=True)


def size_axis(title: str, sizes: Sequence[float], most: int = 8) -> Axis:
    """Ticks at the sizes (sorted, distinct) unless there are too many; a log2 scale if they grow by factors."""
    low, high = sizes[0], sizes[-1]
    at = sizes
    while len(at) > most:
        at = at[::2]
    labels = tuple((size, f"{size:,.15g}") for size in at)
    if grows_by_factors(sizes):
        return Axis(title=title, low=low / 2**0.35, high=high * 2**0.35, ticks=labels, is_log=True)
    margin = 0.06 * (high - low) or 0.5
    return Axis(title=title, low=low - margin, high=high + margin, ticks=labels)


def share_axis(title: str, high: float = 1.0) -> Axis:
    """Percentages from 0."""
    labels = tuple((place / 5, f"{place / 5:.0%}") for place in range(6))
    return Axis(title=title, low=0.0, high=high, ticks=labels)


def name_axis(names: Sequence[str], title: str = "", *, edge: float = 0.5, from_top: bool = False) -> Axis:
    """Places 0, 1, 2 ... with names."""
    labels = tuple((float(place), name) for place, name in enumerate(names))
    high = len(names) - 1 + edge
    return Axis(
        title=title, low=-edge, high=high, ticks=labels, from_top=from_top, names=tuple(names), has_grid=False
    )  # fmt: skip


def row_axis(names: Sequence[str]) -> Axis:
    """Rows from top to bottom."""
    return name_axis(names, edge=0.6, from_top=True)


def count_axis(title: str, count: int) -> Axis:
    """Whole numbers from 1 to `count`, from top to bottom."""
    step = max(1, _step(count, MOST_TICKS))
    at = [1, *range(int(step), count + 1, int(step))] if step > 1 else list(range(1, count + 1))
    labels = tuple((float(place), f"{place:,}") for place in dict.fromkeys(at))
    return Axis(title=title, low=0.5, high=count + 0.5, ticks=labels, from_top=True, has_grid=False)


def ticks(low: float, high: float, most: int = MOST_TICKS) -> tuple[tuple[float, str], ...]:
    """Multiples of 1, 2 or 5 times a power of ten within the range."""
    step = _step(high - low, most)
    if not step:
        return ()
    power = math.floor(math.log10(step) + 1e-9)
    digits = max(0, -power)
    places = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    factor = round(step / 10.0**power)
    figures = len(str(factor * max(map(abs, places), default=0)))  # digits that tell neighbours apart
    is_plain = digits <= MOST_DECIMALS and max(abs(low), abs(high)) < 10**MOST_WHOLE

    def label(value: float) -> str:
        return f"{value:,.{digits}f}" if is_plain else f"{value:.{figures}g}"

    return tuple((round(place * step, digits + 1), label(place * step)) for place in places)


def _step(span: float, most: int) -> float:
    """The distance of at most `most` ticks; 0 without a range that ticks could divide."""
    least = span / most
    if not LEAST < least < LARGEST:
        return 0.0
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))


TIME_STEPS = (1, 5, 15, 60, 300, 900, 3600, 3 * 3600, 6 * 3600, 12 * 3600, *(86400 * days for days in (1, 2, 5, 10)))
DAY_S = 86400.0
FIRST_S, LAST_S = (
    datetime(year, month, day, tzinfo=UTC).timestamp() for year, month, day in ((1, 1, 1), (9999, 12, 31))
)
"""The range of times that have a date."""


def time_axis(times: Sequence[float], title: str = "") -> Axis:
    """Times in seconds since 1970 (UTC), with ticks at whole minutes, hours, days, months or years."""
    first, last = min(times), max(times)
    margin = (last - first) * 0.04 or DAY_S / 2
    low, high = max(first - margin, FIRST_S), min(last + margin, LAST_S)
    if first == last:
        labels: tuple[tuple[float, str], ...] = ((first, _day(first, "%Y-%m-%d %H:%M")),)
    elif last - first > 6 * TIME_STEPS[-1]:
        begin, end = (datetime.fromtimestamp(value, UTC) for value in (low, high))
        start, count = 12 * begin.year + begin.month - 1, 12 * (end.year - begin.year) + end.month - begin.month
        each = next((one for one in (1, 2, 3, 6, 12, 24, 60) if count / one <= MOST_TICKS), 120)
        months = [month for month in range(start, start + count + 1) if month % each == 0]
        days = [datetime(month // 12, month % 12 + 1, 1, tzinfo=UTC) for month in months]
        form = "%Y" if each >= 12 else "%Y-%m"
        labels = tuple((day.timestamp(), day.strftime(form)) for day in days if low <= day.timestamp() <= high)
    else:
        step = next((one for one in TIME_STEPS if (last - first) / one <= MOST_TICKS - 1), TIME_STEPS[-1])
        form = "%m-%d" if step >= DAY_S else "%m-%d %H:%M" if last - first > DAY_S else "%H:%M"
        form = "%H:%M:%S" if step < 60 else form
        places = range(math.ceil(low / step), math.floor(high / step) + 1)
        labels = tuple(  # a new day is named
            (
                float(place * step),
                _day(place * step, "%m-%d" if form == "%H:%M" and place * step % DAY_S == 0 else form),
            )
            for place in places
        )
        if labels:  # the first tick says the year and the day
            of_day = "" if step >= DAY_S else " %H:%M:%S" if step < 60 else " %H:%M"
            labels = ((labels[0][0], _day(labels[0][0], f"%Y-%m-%d{of_day}")), *labels[1:])
        else:  # all in one second, as files that were imported together
            labels = ((first, _day(first, "%Y-%m-%d %H:%M:%S")),)
    return Axis(title=title, low=low, high=high, ticks=labels, has_grid=False)


def _day(seconds: float, form: str) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime(form)


def seconds_of(moment: datetime) -> float:
    """Seconds since 1970 of a time in UTC."""
    return moment.replace(tzinfo=UTC).timestamp() if moment.tzinfo is None else moment.timestamp()

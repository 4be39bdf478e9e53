"""The sessions of two sides of a comparison: how much they vary in a series' history, which of them count, and whether
their times explain a difference. Pure."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import pairwise
from operator import attrgetter
from statistics import geometric_mean, median

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.sample_statistics import SIGMA_PER_MAD
from benchmarking.core.text import grouped

MIN_SESSIONS = 5
"""With 4 differences, the interval is about ten times as wide as the scatter; with fewer it is useless."""
HOUR = timedelta(hours=1)
SITTING = 6 * HOUR
"""Sessions that began so close together tell nothing of what the machine does from day to day."""
HOURS_ALIKE = 2.0
"""Sessions up to so many hours of the day apart are alike."""
OTHER_HOURS, OTHER_WEEKDAYS = 0.2, 0.5
"""Shares of a side's sessions at hours, or on weekdays, that the other side lacks, up to which the sides are alike: of
five nights, 0.4 are on other weekdays than the next five."""
LEAST_OF_AN_HOUR, LEAST_OF_A_WEEKDAY = 3, 1
"""Sessions of the history that show what an hour, or a weekday, does."""
SHOWN_ERRORS, SHOWN_CHANGE = 3.0, 0.01
"""An hour or weekday matters if its sessions are off by so many standard errors, and by so much."""
FAR_OFF, FAR_OFF_TIMES = 8.0, 2.0
"""Range of a level, in standard deviations by the median deviation, from which single sessions are far off (20 normal
ones reach it 1 time in 75), and the factor by which the next one may exceed the range."""
LEAST_DEVIATION = 0.002
"""Smaller deviations matter to nobody, as those of a coarse clock that repeats one value."""


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
            deviation = SIGMA_PER_MAD * median(abs(value - centre) for value in stretch)
            is_far_off = width > FAR_OFF * max(deviation, LEAST_DEVIATION)
            largest = max(largest, width * (FAR_OFF_TIMES if is_far_off else 1.0))
        return largest


def why_other_times(
    before: Sequence[datetime], after: Sequence[datetime], scatters: tuple[SessionScatter, SessionScatter]
) -> str | None:
    """Why two sides that were measured at other hours, or on other weekdays, cannot be judged; None if they can.

    Each side has the history of its own series.
    """
    if not before or not after:
        return None
    sides = (before, after)
    hours = f"they were measured at other hours ({_apart_times(sides, is_same_hour, '%H:%M')} UTC)"
    days = f"they were measured on other weekdays ({_apart_times(sides, _is_same_weekday, '%A')})"
    return _why_not_known(hours, sides, scatters, is_same_hour, OTHER_HOURS, LEAST_OF_AN_HOUR) or _why_not_known(
        days, sides, scatters, _is_same_weekday, OTHER_WEEKDAYS, LEAST_OF_A_WEEKDAY
    )


def _apart_times(
    sides: tuple[Sequence[datetime], Sequence[datetime]], are_alike: Callable[[datetime, datetime], bool], form: str
) -> str:
    """For each side, the time of its newest session whose time is the rarest on the other side."""
    pairs = zip(sides, sides[::-1], strict=True)
    rarest = [min(reversed(own), key=lambda one: sum(are_alike(one, time) for time in other)) for own, other in pairs]
    return " and ".join(f"{one:{form}}" for one in rarest)


def _why_not_known(
    what: str,
    sides: tuple[Sequence[datetime], Sequence[datetime]],
    scatters: tuple[SessionScatter, SessionScatter],
    are_alike: Callable[[datetime, datetime], bool],
    most: float,
    least: int,
) -> str | None:
    """Why the history does not rule out that the times explain a difference; None if it does, or if at most a share of
    `most` of either side's sessions was at times that the other lacks. `least`: sessions that show what a time does.

    Each session counts by the part of its side that exceeds the other side's share of such times.
    """
    excesses = []
    for own, other in (sides, sides[::-1]):
        shares = [[sum(are_alike(one, time) for time in side) / len(side) for side in (own, other)] for one in own]
        excesses.append([max(0.0, 1 - of_other / of_own) / len(own) for of_own, of_other in shares])
    if max(map(sum, excesses)) <= most or not all(scatter.times for scatter in scatters):
        return None  # or the times of the history's sessions are unknown
    weights = dict[tuple[datetime, float], float]()
    for sign, side, own_excess, scatter in zip((-1, 1), sides, excesses, scatters, strict=True):
        unknown, found = 0.0, set[tuple[datetime, float]]()
        for one, excess in zip(side, own_excess, strict=True):
            known = [session for session in scatter.times if excess and are_alike(one, session[0])]
            unknown += 0.0 if known else excess
            found.update(known)
            for session in known:
                weights[session] = weights.get(session, 0.0) + sign * excess / len(known)
        if unknown > most or (sum(own_excess) > most and len(found) < least):
            return f"{what}, and the history has too few of them to tell whether that matters"
    difference = math.fsum(weight * off for (_, off), weight in weights.items())
    error = math.sqrt(
        max(scatter.variance for scatter in scatters) * math.fsum(weight**2 for weight in weights.values())
    )
    if abs(difference) > max(SHOWN_ERRORS * error, SHOWN_CHANGE):
        return f"{what}, which differ by {math.expm1(difference):+.1%} in the history"
    return None


def is_same_hour(one: datetime, other: datetime) -> bool:
    """Whether the times of day are alike."""
    apart = abs(one.hour + one.minute / 60 - other.hour - other.minute / 60)
    return min(apart, 24 - apart) <= HOURS_ALIKE  # around the clock


def _is_same_weekday(one: datetime, other: datetime) -> bool:
    return one.weekday() == other.weekday()


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """What one session measured for a point."""

    value: float
    """Value of the result, in the metric's unit."""
    launches: tuple[float, ...]
    """Value of each launch."""
    position: int = 0
    """Index in the time line of all sessions of both sides' series."""
    time: datetime | None = None
    """Start in UTC; None if it is unknown."""


def are_apart(before: Sequence[Session], after: Sequence[Session]) -> bool:
    """Whether most sessions of either side have none of the other within a sitting: the difference of the sides then
    includes what the machine does from day to day."""

    def alone(side: Sequence[Session], other: Sequence[Session]) -> int:
        times = [one.time for one in other if one.time is not None]
        return sum(one.time is not None and all(abs(one.time - time) > SITTING for time in times) for one in side)

    return 2 * alone(before, after) > len(before) or 2 * alone(after, before) > len(after)


def session_mean(values: Sequence[float]) -> float:
    """The geometric mean of a session's values; 0 without values, or with one that is not above 0."""
    if not values or min(values) <= 0:
        return 0.0
    return values[0] if min(values) == max(values) else geometric_mean(values)  # without an error of rounding


def of_common_sittings(sides: Sequence[Sequence[Session]]) -> list[tuple[Session, ...]]:
    """The sessions by which two sides that are not `are_apart` compare one by one, where a sitting has several of a
    side: those of the sittings that both have, and, unless both have these in the same shares, the first ones of each,
    as many of one side as of the other. With the rest, the difference would include what the machine does from day to
    day. The sessions of a sitting began within `SITTING` of the one before."""
    times = sorted(one.time for side in sides for one in side if one.time is not None)
    begins = [time for earlier, time in pairwise(times) if time - earlier > SITTING]
    in_order = (sorted(side, key=attrgetter("position")) for side in sides)
    before, after = (
        grouped((bisect_right(begins, one.time or datetime.max), one) for one in side) for side in in_order
    )
    common = sorted(before.keys() & after.keys())
    if not common or all(len(members) == 1 for members in (*before.values(), *after.values())):
        return [*map(tuple, sides)]
    counts = [(len(before[sitting]), len(after[sitting])) for sitting in common]
    are_even = all(one * counts[0][1] == other * counts[0][0] for one, other in counts)
    return [
        tuple(
            one
            for sitting, both in zip(common, counts, strict=True)
            for one in side[sitting][: None if are_even else min(both)]
        )
        for side in (before, after)
    ]


def of_sittings(groups: Sequence[Sequence[Session]]) -> list[tuple[Session, ...]]:
    """The sessions of each group, where those that began within a sitting of its first one are one session: its value
    is their geometric mean (0 with one that is not above 0), its position that of the first. Positions are renumbered,
    over all groups."""
    merged: list[list[Session]] = []
    for group in groups:
        sittings: list[list[Session]] = []
        for one in sorted(group, key=lambda one: one.time or datetime.max):
            begun = sittings[-1][0].time if sittings else None
            if begun is not None and one.time is not None and one.time - begun <= SITTING:
                sittings[-1].append(one)
            else:
                sittings.append([one])
        merged.append(
            [
                replace(
                    min(members, key=lambda one: one.position),
                    value=session_mean(values),
                    launches=tuple(value for member in members for value in member.launches),
                    time=members[0].time,
                )
                for members in sittings
                if (values := [member.value for member in members])
            ]
        )
    places = sorted({one.position for group in merged for one in group})
    number = {place: position for position, place in enumerate(places)}
    return [
        tuple(sorted((replace(one, position=number[one.position]) for one in group), key=lambda one: one.position))
        for group in merged
    ]

"""Error rates of `benchhouse compare` and `ab` by kind of noise: false changes and detected changes.

Sides are made of launches on one time line, as machines make them: a launch has an effect of its own, a session has
one that all its launches share, and levels drift. Noise may also come back every k launches, or follow the hour.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from statistics import median
from typing import TYPE_CHECKING

from benchmarking.commands.ab import DEFAULT_ROUNDS, MAX_ROUNDS, planned_looks
from benchmarking.core.metrics import DEFAULT_METRIC, JUDGED
from benchmarking.core.verdicts.judging import Pair, judge, log_variance
from benchmarking.core.verdicts.sessions import Session
from benchmarking.core.verdicts.words import MIN_CHANGE, Judgement
from benchmarking.sweep.run.command_turns import order
from db.analysis.compare.comparison import pair_of_sessions
from db.analysis.compare.stored_results import session_scatter

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Effects = Callable[[np.random.Generator, int], Floats]

LOOKS = planned_looks(DEFAULT_ROUNDS, MAX_ROUNDS)
LAUNCHES = 5
HISTORY = 20
QUIET = 0.005


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Shares of the pairs, from 0 to 1."""

    changed: float
    """Called faster or slower; with a true change, called slower."""
    equivalent: float
    rounds: float = 0.0
    """Measured on average."""


def normal(sd: float) -> Effects:
    """Independent normal effects."""
    return lambda rng, count: rng.normal(0.0, sd, count)


def t3(sd: float) -> Effects:
    """Heavy tails: Student's t with 3 degrees of freedom, of this standard deviation."""
    return lambda rng, count: sd / math.sqrt(3) * rng.standard_t(3, count)


def t2(scale: float) -> Effects:
    """Tails so heavy that the variance is infinite: Student's t with 2 degrees of freedom."""
    return lambda rng, count: scale * rng.standard_t(2, count)


def alternating(size: float, run: int, sd: float = QUIET) -> Effects:
    """Two levels that alternate after so many, as a setting that deploys turn on and off."""

    def effects(rng: np.random.Generator, count: int) -> Floats:
        import numpy as np

        drawn: Floats = size * ((np.arange(count) + rng.integers(2 * run)) // run % 2) + rng.normal(0.0, sd, count)
        return drawn

    return effects


def sawtooth(rise: float, length: int, sd: float = QUIET) -> Effects:
    """A steady rise until a reboot, after so many on average."""

    def effects(rng: np.random.Generator, count: int) -> Floats:
        import numpy as np

        drawn, age = np.empty(count), int(rng.integers(length))
        for place in range(count):
            age = 0 if rng.random() < 1 / length else age + 1
            drawn[place] = rise * age
        return drawn + rng.normal(0.0, sd, count)

    return effects


def twice(sd: float) -> Effects:
    """Every value occurs twice in a row, as of a file that is stored under two names."""
    return lambda rng, count: rng.normal(0.0, sd, count // 2 + 1).repeat(2)[:count]


def with_gaps(sd: float, rho: float) -> Effects:
    """A first-order autoregressive process, of which 14 values are missing after every 8."""

    def effects(rng: np.random.Generator, count: int) -> Floats:
        import numpy as np

        places = np.arange(count) + 14 * (np.arange(count) // 8)
        drawn: Floats = correlated(sd, rho)(rng, int(places[-1]) + 1)[places]
        return drawn

    return effects


def growing(first: float, last: float) -> Effects:
    """Variation that grows."""

    def effects(rng: np.random.Generator, count: int) -> Floats:
        import numpy as np

        drawn: Floats = rng.normal(0.0, 1.0, count) * np.linspace(first, last, count)
        return drawn

    return effects


def laplace(sd: float) -> Effects:
    """Exponential tails to both sides."""
    return lambda rng, count: rng.laplace(0.0, sd / math.sqrt(2), count)


def skewed(mean: float) -> Effects:
    """Only ever slower: exponential."""
    return lambda rng, count: rng.exponential(mean, count)


def two_levels(share: float, slower: float, sd: float) -> Effects:
    """A share of the launches is slower: another placement in memory, or a neighbour."""

    def effects(rng: np.random.Generator, count: int) -> Floats:
        slow = math.log1p(slower) * (rng.random(count) < share)
        drawn: Floats = rng.normal(0.0, sd, count) + slow
        return drawn

    return effects


def correlated(sd: float, rho: float) -> Effects:
    """A first-order autoregressive process: what a launch meets, the next one meets too."""

    def effects(rng: np.random.Generator, count: int) -> Floats:
        from scipy.signal import lfilter

        start = rng.normal(0.0, sd)
        shocks = rng.normal(0.0, sd * math.sqrt(1 - rho**2), count)
        drawn: Floats = lfilter([1.0], [1.0, -rho], shocks, zi=[rho * start])[0]
        return drawn

    return effects


def drift(size: float, sd: float = QUIET) -> Effects:
    """A straight line over all launches."""

    def effects(rng: np.random.Generator, count: int) -> Floats:
        import numpy as np

        drawn: Floats = np.linspace(0.0, size, count) + rng.normal(0.0, sd, count)
        return drawn

    return effects


def switch(size: float, sd: float = QUIET) -> Effects:
    """One step to another level, at any launch."""

    def effects(rng: np.random.Generator, count: int) -> Floats:
        import numpy as np

        drawn: Floats = size * (np.arange(count) >= rng.integers(count)) + rng.normal(0.0, sd, count)
        return drawn

    return effects


def walk(step: float, sd: float = QUIET) -> Effects:
    """A random walk."""
    return lambda rng, count: rng.normal(0.0, step, count).cumsum() + rng.normal(0.0, sd, count)


def wave(period: float, size: float, sd: float = QUIET) -> Effects:
    """A sine over the launches, of any phase."""

    def effects(rng: np.random.Generator, count: int) -> Floats:
        import numpy as np

        phase = rng.uniform(0, 2 * math.pi)
        drawn: Floats = size * np.sin(2 * math.pi * np.arange(count) / period + phase) + rng.normal(0.0, sd, count)
        return drawn

    return effects


def every(number: int, slower: float, sd: float = QUIET) -> Effects:
    """Every k-th launch is slower, from any of the first k on."""

    def effects(rng: np.random.Generator, count: int) -> Floats:
        import numpy as np

        first = rng.integers(number)
        drawn: Floats = math.log1p(slower) * (np.arange(count) % number == first) + rng.normal(0.0, sd, count)
        return drawn

    return effects


def coarse(step: float, sd: float = QUIET) -> Effects:
    """A clock whose steps give most launches the same value."""

    def effects(rng: np.random.Generator, count: int) -> Floats:
        import numpy as np

        level = rng.uniform(0, step)
        ticks = np.round((1 + level + rng.normal(0.0, sd, count)) / step) * step
        drawn: Floats = np.log(ticks)
        return drawn

    return effects


def hot(size: float, sd: float = QUIET) -> Effects:
    """A temperature that wanders (AR(.8)), above which the clocks fall: nothing up to a knee, and then ever slower."""

    def effects(rng: np.random.Generator, count: int) -> Floats:
        import numpy as np

        heat = correlated(1.0, 0.8)(rng, count)
        drawn: Floats = size * np.maximum(heat - 0.5, 0.0) + rng.normal(0.0, sd, count)
        return drawn

    return effects


def bursts(share: float, length: int, slower: float, sd: float = QUIET) -> Effects:
    """Bursts of so many in a row that are slower, as when another job runs; this share begins one."""

    def effects(rng: np.random.Generator, count: int) -> Floats:
        import numpy as np

        begins = rng.random(count + length) < share
        is_slow = np.convolve(begins, np.ones(length), "valid")[:count] > 0
        drawn: Floats = math.log1p(slower) * is_slow + rng.normal(0.0, sd, count)
        return drawn

    return effects


def after_another(slower: float, sd: float = QUIET) -> Effects:
    """The second launch of each round is slower, as of a machine that is warm by then."""
    return lambda rng, count: rng.normal(0.0, sd, count // 2 * 2) + [0.0, math.log1p(slower)] * (count // 2)


def triangle(period: int, size: float, sd: float = QUIET) -> Effects:
    """Up and down again in straight lines, from any phase on."""

    def effects(rng: np.random.Generator, count: int) -> Floats:
        import numpy as np

        places = (np.arange(count) + rng.uniform(0, period)) % period
        drawn: Floats = size * np.abs(2 * places / period - 1) + rng.normal(0.0, sd, count)
        return drawn

    return effects


def none(rng: np.random.Generator, count: int) -> Floats:
    """No effect."""
    return rng.normal(0.0, 0.0, count)


TURN_CASES: Mapping[str, Effects] = {
    "launch sd 1 %": normal(0.01),
    "launch sd 2 %": normal(0.02),
    "launch sd 3 %": normal(0.03),
    "heavy tail (t3), 2 %": t3(0.02),
    "Laplace, 2 %": laplace(0.02),
    "skewed, mean 3 %": skewed(0.03),
    "two levels, 1 in 4 10 % slower": two_levels(0.25, 0.10, 0.01),
    "neighbour, 1 in 10 20 % slower": two_levels(0.10, 0.20, QUIET),
    "AR(.8), 1 %": correlated(0.01, 0.8),
    "AR(.95), 3 %": correlated(0.03, 0.95),
    "drift of 10 %": drift(0.10),
    "one switch by 10 %": switch(0.10),
    "walk of 0.5 % a launch": walk(0.005),
    **{f"sine of {period:g} launches, 5 %": wave(period, 0.05) for period in (2, 2.5, 3, 4, 5, 7, 10, 24)},
    **{f"every {number}. launch 6 % slower": every(number, 0.06) for number in (2, 3, 4, 5, 8)},
    "clock in steps of 5 %": coarse(0.05),
}
"""Noise of launches on one time line."""
MORE_TURN_CASES: Mapping[str, Effects] = {
    "heavy tail (t2), scale 1 %": t2(0.01),
    "0.3 % slower a launch until a reset": sawtooth(0.003, 25),
    "variation grows from 1 to 4 %": growing(0.01, 0.04),
    "clocks that fall above a temperature, 5 %": hot(0.05),
    "bursts of 3 launches 8 % slower": bursts(0.1, 3, 0.08),
    "two hosts by chance, 6 % apart": two_levels(0.5, 0.06, QUIET),
    "second launch of a round 3 % slower": after_another(0.03),
    "up and down by 6 % in 12 launches": triangle(12, 0.06),
    "Cauchy, scale 0.5 %": lambda rng, count: 0.005 * rng.standard_t(1, count).clip(-100, 100),
}
"""Noises that were chosen after the rules, which the script prints and no test runs."""


ONE_PERCENT = normal(0.01)


@dataclass(frozen=True, slots=True)
class HistoryCase:
    """Effects of sessions, and of the launches in a session."""

    sessions: Effects
    launches: Effects = ONE_PERCENT


HISTORY_CASES: Mapping[str, HistoryCase] = {
    "sessions equal": HistoryCase(none),
    "sessions 0.5 %": HistoryCase(normal(0.005)),
    "sessions 1 %": HistoryCase(normal(0.01)),
    "sessions 2 %": HistoryCase(normal(0.02)),
    "sessions 3 %": HistoryCase(normal(0.03)),
    "launches with a heavy tail (t3), 1 %": HistoryCase(normal(0.01), t3(0.01)),
    "launches Laplace, 2 %": HistoryCase(normal(0.01), laplace(0.02)),
    "launches skewed, mean 3 %": HistoryCase(normal(0.01), skewed(0.03)),
    "launches of two levels, 1 in 4 10 % slower": HistoryCase(normal(QUIET), two_levels(0.25, 0.10, 0.01)),
    "a neighbour, 1 launch in 10 20 % slower": HistoryCase(normal(QUIET), two_levels(0.10, 0.20, QUIET)),
    "walk of 0.5 % a session": HistoryCase(walk(0.005)),
}
MORE_HISTORY_CASES: Mapping[str, HistoryCase] = {
    "4 % on and off with a deploy every 3 sessions": HistoryCase(alternating(0.04, 3)),
    "0.3 % slower a session until a reboot": HistoryCase(sawtooth(0.003, 25)),
    "AR(.9), 2 %, 14 sessions missing after every 8": HistoryCase(with_gaps(0.02, 0.9)),
    "every session stored twice, 1 %": HistoryCase(twice(0.01), none),
    "one of two hosts by chance, 4 % apart": HistoryCase(two_levels(0.5, 0.04, QUIET)),
    "clocks that fall above a temperature, 3 %": HistoryCase(hot(0.03)),
    "AR(.7), 1.5 %": HistoryCase(correlated(0.015, 0.7)),
    "up and down by 4 % in 10 sessions": HistoryCase(triangle(10, 0.04)),
    "log-normal, mean 2 %": HistoryCase(lambda rng, count: 0.012 * rng.lognormal(0.0, 1.0, count)),
}
UNPROMISED_CASES: Mapping[str, HistoryCase] = {
    "sessions with a heavy tail (t3), 2 %": HistoryCase(t3(0.02)),
    "sessions Laplace, 2 %": HistoryCase(laplace(0.02)),
    "sessions skewed, mean 2 %": HistoryCase(skewed(0.02)),
    "sessions of two levels, 15 % 8 % slower": HistoryCase(two_levels(0.15, 0.08, QUIET)),
    "1 session in 20 disturbed by 20 %": HistoryCase(two_levels(0.05, 0.20, 0.01)),
    "sessions with a heavy tail (t2), scale 1 %": HistoryCase(t2(0.01)),
    "variation grows from 1 to 4 %": HistoryCase(growing(0.01, 0.04)),
}
"""Sessions that are far off, or further off than the history's: one session a side cannot tell them from a change."""


def replay_turns(
    effects: Effects, *, pairs: int, seed: int, change: float = 0.0, looks: Sequence[int] = LOOKS
) -> Rates:
    """The rates where B is slower by `change`, and rounds are added as `benchhouse ab` does."""
    import numpy as np

    rng = np.random.default_rng(seed)
    found = []
    for pair in range(pairs):
        first = np.array([letter == "a" for letter in order(range(looks[-1]), f"{seed} {pair}")])
        levels = effects(rng, 2 * looks[-1])
        rounds = [*zip(np.exp(levels[first]).tolist(), ((1 + change) * np.exp(levels[~first])).tolist(), strict=True)]
        found.append(_until_decided(rounds, looks))
    return _rates([one for one, _ in found], change, sum(count for _, count in found) / pairs)


def replay_history(
    case: HistoryCase,
    *,
    pairs: int,
    seed: int,
    change: float = 0.0,
    launches: int = LAUNCHES,
    history: int = HISTORY,
    apart: int = 1,
    launch_sd: float | None = None,
    is_of_side: bool = False,
) -> Rates:
    """The rates of two sessions `apart` sessions from each other, judged by `history` others, or with `is_of_side` of
    the newest session against all others."""
    import numpy as np

    rng = np.random.default_rng(seed)
    own = case.launches if launch_sd is None else normal(launch_sd)
    judgements = []
    for _ in range(pairs):
        count = history + 2
        levels = case.sessions(rng, count)[:, None] + own(rng, count * launches).reshape(count, launches)
        before, after = count - 1 - apart, count - 1
        levels[after] += math.log1p(change)
        sessions = [_session(np.exp(row).tolist(), place) for place, row in enumerate(levels)]
        others = [one.value for place, one in enumerate(sessions) if place not in (before, after)]
        scatter = session_scatter([others])
        known = None if scatter is None else (scatter, scatter)
        pair = Pair(before=(sessions[before],), after=(sessions[after],), scatter=known)
        if is_of_side:
            scatter = session_scatter([[one.value for one in sessions[:-1]]])
            known = None if scatter is None else (scatter, scatter)
            pair = Pair(before=tuple(sessions[:-1]), after=(sessions[after],), scatter=known)
        judgements.append(judge([pair], JUDGED[DEFAULT_METRIC])[0])
    return _rates(judgements, change)


def replay_points(case: HistoryCase, *, points: int, comparisons: int, seed: int) -> float:
    """The share of comparisons of so many equal points that call any of them changed; each point has one session a side
    and `HISTORY` others."""
    import numpy as np

    rng, found = np.random.default_rng(seed), 0
    for _ in range(comparisons):
        pairs = []
        for _ in range(points):
            levels = case.sessions(rng, HISTORY + 2)[:, None]
            levels = levels + case.launches(rng, levels.size * LAUNCHES).reshape(levels.size, LAUNCHES)
            *others, before, after = (_session(np.exp(row).tolist(), place) for place, row in enumerate(levels))
            scatter = session_scatter([[one.value for one in others]])
            known = None if scatter is None else (scatter, scatter)
            pairs.append(Pair(before=(before,), after=(after,), scatter=known))
        found += any(one.is_worse is not None for one in judge(pairs, JUDGED[DEFAULT_METRIC]))
    return found / comparisons


def replay_sides(
    case: HistoryCase, *, before: int, after: int, pairs: int, seed: int, change: float = 0.0, others: int = 0
) -> Rates:
    """The rates of two sides of one series with so many sessions each, all of B after those of A, with so many others
    before them."""
    import numpy as np

    rng = np.random.default_rng(seed)
    judgements: list[Judgement] = []
    for _ in range(pairs):
        count = others + before + after
        levels = case.sessions(rng, count)[:, None] + case.launches(rng, count * LAUNCHES).reshape(count, LAUNCHES)
        levels[others + before :] += math.log1p(change)
        sessions = [_session(np.exp(row).tolist(), place) for place, row in enumerate(levels)]
        sides = sessions[others : others + before], sessions[others + before :]
        groups = sorted((sessions[:others], *sides), key=len, reverse=True)
        scatter = session_scatter([[one.value for one in group] for group in groups])
        known = None if scatter is None else (scatter, scatter)
        pair = Pair(before=tuple(sides[0]), after=tuple(sides[1]), scatter=known)
        judgements += judge([pair], JUDGED[DEFAULT_METRIC])
    return _rates(judgements, change)


def replay_sittings(
    days: int, sessions: int, *, day_sd: float, session_sd: float, pairs: int, seed: int, change: float = 0.0
) -> Rates:
    """The rates of the last two of so many days, a week apart, each with some sessions within two hours, on a machine
    that varies from day to day more than within a sitting."""
    import numpy as np

    rng = np.random.default_rng(seed)
    judgements: list[Judgement] = []
    for _ in range(pairs):
        levels = rng.normal(0.0, day_sd, (days, 1)) + rng.normal(0.0, session_sd, (days, sessions))
        levels[-1] += math.log1p(change)
        launches = np.exp(levels[:, :, None] + rng.normal(0.0, 0.005, (days, sessions, LAUNCHES)))
        by_day = [
            [
                replace(
                    _session(launches[day, number].tolist(), day * sessions + number),
                    time=datetime(2026, 1, 5, 10) + timedelta(days=7 * day, minutes=10 * number),
                )
                for number in range(sessions)
            ]
            for day in range(days)
        ]
        before, after, others = by_day[-2], by_day[-1], [one for day in by_day[:-2] for one in day]
        pair = pair_of_sessions((before, after), ("series", "series"), {"series": others})
        judgements += judge([pair], JUDGED[DEFAULT_METRIC])
    return _rates(judgements, change)


def _nightly(count: int) -> list[datetime]:
    return [datetime(2026, 1, 5, 2) + timedelta(days=night) for night in range(count)]


def alike(rng: np.random.Generator, count: int) -> tuple[Floats, Floats, list[datetime]]:
    """Sessions of 1 % on every night."""
    import numpy as np

    return rng.normal(0.0, 0.01, count), np.full(count, 0.01), _nightly(count)


def other_hour(rng: np.random.Generator, count: int) -> tuple[Floats, Floats, list[datetime]]:
    """A daily sine of 3 %; the history and A at 02:00, B at 14:00."""
    levels, sds, times = alike(rng, count)
    levels[-1] += 0.06
    return levels, sds, [*times[:-1], times[-1] + timedelta(hours=12)]


def known_hours(rng: np.random.Generator, count: int) -> tuple[Floats, Floats, list[datetime]]:
    """A daily sine of 3 %; the history at 02:00 and at 14:00 in turns, A at 02:00, B at 14:00."""
    levels, sds, times = alike(rng, count)
    starts = [time + timedelta(hours=12 * (place % 2 == (count - 1) % 2)) for place, time in enumerate(times)]
    return levels + [0.06 * (time.hour == 14) for time in starts], sds, starts


def any_hour(rng: np.random.Generator, count: int) -> tuple[Floats, Floats, list[datetime]]:
    """A daily sine of 3 %, measured at any hour."""
    import numpy as np

    levels, sds, times = alike(rng, count)
    hours = rng.uniform(0, 24, count)
    starts = [time + timedelta(hours=float(hour) - 2) for time, hour in zip(times, hours, strict=True)]
    return levels + 0.03 * np.sin(2 * math.pi * hours / 24), sds, starts


def monday(rng: np.random.Generator, count: int) -> tuple[Floats, Floats, list[datetime]]:
    """Mondays are 4 % slower; A on a Sunday, B on the Monday after it."""
    levels, sds, _ = alike(rng, count)
    last = datetime(2026, 3, 30, 2)
    times = [last - timedelta(days=count - 1 - night) for night in range(count)]
    return levels + [0.04 * (time.weekday() == 0) for time in times], sds, times


def busy_day(rng: np.random.Generator, count: int) -> tuple[Floats, Floats, list[datetime]]:
    """B is measured on a day on which launches and session vary six times as much."""
    levels, sds, times = alike(rng, count)
    levels[-1] *= 6
    sds[-1] *= 6
    return levels, sds, times


def burst(rng: np.random.Generator, count: int) -> tuple[Floats, Floats, list[datetime]]:
    """In the last week sessions vary four times as much."""
    levels, sds, times = alike(rng, count)
    levels[-9:] *= 4
    return levels, sds, times


def noisier_by_day(rng: np.random.Generator, count: int) -> tuple[Floats, Floats, list[datetime]]:
    """Sessions at any hours; sessions and launches vary by 1 % at night, and by 4 % from 8 to 20."""
    import numpy as np

    hours = rng.uniform(0, 24, count)
    sds = np.where((hours >= 8) & (hours < 20), 0.04, 0.01)
    times = [time + timedelta(hours=float(hour) - 2) for time, hour in zip(_nightly(count), hours, strict=True)]
    return rng.normal(0.0, 1.0, count) * sds, sds, times


TIMED_CASES: Mapping[str, Callable[[np.random.Generator, int], tuple[Floats, Floats, list[datetime]]]] = {
    "sessions 1 %, every night": alike,
    "daily sine of 3 %: 02:00 against 14:00": other_hour,
    "the same, and the history has both hours": known_hours,
    "daily sine of 3 %, any hour": any_hour,
    "Mondays 4 % slower: Sunday against Monday": monday,
    "B on a busy day, 6 times the variation": busy_day,
    "last week 4 times the variation": burst,
    "1 % at night, 4 % by day, any hour": noisier_by_day,
}


def replay_timed(name: str, *, pairs: int, seed: int, change: float = 0.0, history: int = HISTORY) -> Rates:
    """The rates of the last two sessions of a history with times."""
    import numpy as np

    rng = np.random.default_rng(seed)
    judgements: list[Judgement] = []
    for _ in range(pairs):
        levels, sds, times = TIMED_CASES[name](rng, history + 2)
        levels = levels + 0.0
        levels[-1] += math.log1p(change)
        launches = np.exp(levels[:, None] + sds[:, None] * rng.normal(0.0, 1.0, (len(levels), LAUNCHES)))
        sessions = [
            Session(value=median(row), launches=tuple(row), position=place, time=times[place])
            for place, row in enumerate(launches.tolist())
        ]
        *others, before, after = sessions
        scatter = session_scatter(
            [[one.value for one in others]], times[:-2], [log_variance(one.launches) for one in others[-10:]]
        )
        known = None if scatter is None else (scatter, scatter)
        judgements += judge([Pair(before=(before,), after=(after,), scatter=known)], JUDGED[DEFAULT_METRIC])
    return _rates(judgements, change)


def _session(launches: Sequence[float], place: int) -> Session:
    return Session(value=median(launches), launches=tuple(launches), position=place)


def _until_decided(rounds: Sequence[tuple[float, float]], looks: Sequence[int]) -> tuple[Judgement, int]:
    for look, count in enumerate(looks, 1):
        (found,) = judge([Pair(rounds=tuple(rounds[:count]), looks=look)], JUDGED[DEFAULT_METRIC])
        if found.is_decided:
            break
    return found, count


def _rates(judgements: Sequence[Judgement], change: float, rounds: float = 0.0) -> Rates:
    is_found = [bool(one.is_worse) if change >= MIN_CHANGE else one.is_worse is not None for one in judgements]
    equivalent = [one.verdict == "equivalent" for one in judgements]
    return Rates(changed=sum(is_found) / len(judgements), equivalent=sum(equivalent) / len(judgements), rounds=rounds)

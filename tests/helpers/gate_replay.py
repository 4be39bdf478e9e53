"""The gate's own error rates: nights of many series without a true change, and with one, judged as `benchhouse check`
does."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import TYPE_CHECKING

from benchmarking.core.metrics import DEFAULT_METRIC, JUDGED
from db.analysis.gate.gate import Case, judge_all, seen_levels, without_open_alarms
from db.analysis.gate.nights import Night
from db.analysis.history.detector import detect

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]
    Random = np.random.Generator

SERIES, NIGHTS, FIRST = 40, 60, 20
"""Series of a check, nights of a history, and the first night that is judged."""
METRIC = JUDGED[DEFAULT_METRIC]
MONDAY = datetime(2026, 1, 5, 2)


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """Logarithms of values without a change, a row per series and two columns per night: the session, and a fresh one
    that measures again; and the start of each night."""

    sessions: Floats
    fresh: Floats
    times: list[datetime]
    changed: int = 0
    """Night of a known change of level; 0 without one."""


Noise = Callable[["Random", int, int], History]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rates:
    """Shares of the nights, from 0 to 1."""

    alarms: float
    """Nights on which anything is called worse."""
    confirmed: float
    """The same after measuring the alarmed series again."""


def _nights(count: int) -> list[datetime]:
    return [MONDAY + timedelta(days=night) for night in range(count)]


def independent(draw: Callable[[Random, int, int], Floats]) -> Noise:
    """Each session of each series is drawn by itself."""

    def noise(rng: Random, series: int, nights: int) -> History:
        return History(sessions=draw(rng, series, nights), fresh=draw(rng, series, nights), times=_nights(nights))

    return noise


def normal(sd: float) -> Noise:
    """Independent normal."""
    return independent(lambda rng, series, nights: rng.normal(0.0, sd, (series, nights)))


def heavy_tail(sd: float) -> Noise:
    """Student's t with 3 degrees of freedom."""
    return independent(lambda rng, series, nights: sd / 3**0.5 * rng.standard_t(3, (series, nights)))


def pareto(index: float, size: float = 0.01) -> Noise:
    """Only ever slower, with a tail that falls as a power."""
    return independent(lambda rng, series, nights: (size * rng.pareto(index, (series, nights))).clip(max=5.0))


def modes(share: float, slower: float, sd: float = 0.01) -> Noise:
    """A share of the sessions of each series is slower."""
    return independent(
        lambda rng, series, nights: (
            rng.normal(0.0, sd, (series, nights)) + slower * (rng.random((series, nights)) < share)
        )
    )


def disturbed(share: float = 0.1) -> Noise:
    """A share of the sessions is slower by 5 to 30 %: another user on the machine."""

    def draw(rng: Random, series: int, nights: int) -> Floats:
        slow = rng.random((series, nights)) < share
        drawn: Floats = rng.normal(0.0, 0.01, (series, nights)) + slow * rng.uniform(0.05, 0.30, (series, nights))
        return drawn

    return independent(draw)


def coarse_clock(step: float = 0.03) -> Noise:
    """Normal, but a clock that ticks in steps of 3 % gives most sessions the same value."""
    return independent(lambda rng, series, nights: step * (rng.normal(0.0, 0.01, (series, nights)) / step).round())


def slow_nights(share: float, slower: float, sd: float = 0.01) -> Noise:
    """A share of the nights is slower for all series; measured again, the machine is in a state of its own."""

    def noise(rng: Random, series: int, nights: int) -> History:
        first, fresh = (rng.normal(0.0, sd, (series, nights)) + slower * (rng.random(nights) < share) for _ in "ab")
        return History(sessions=first, fresh=fresh, times=_nights(nights))

    return noise


def autocorrelated(rho: float, sd: float, *, shared: bool = False) -> Noise:
    """A first-order autoregressive process for each series, or one for all; a fresh session is half a night later."""

    def noise(rng: Random, series: int, nights: int) -> History:
        import numpy as np

        rows, steps, half = 1 if shared else series, 2 * nights, math.sqrt(rho)
        drawn = np.empty((rows, steps))
        drawn[:, 0] = rng.normal(0.0, sd, rows)
        for step in range(1, steps):
            drawn[:, step] = half * drawn[:, step - 1] + rng.normal(0.0, sd * math.sqrt(1 - rho), rows)
        own = rng.normal(0.0, sd / 4, (2, series, nights)) if shared else np.zeros((2, series, nights))
        return History(sessions=drawn[:, ::2] + own[0], fresh=drawn[:, 1::2] + own[1], times=_nights(nights))

    return noise


def mondays(slower: float, sd: float = 0.01) -> Noise:
    """Every Monday all series are slower."""

    def noise(rng: Random, series: int, nights: int) -> History:
        import numpy as np

        times = _nights(nights)
        pattern = np.array([slower * (time.weekday() == 0) for time in times])
        first, fresh = (rng.normal(0.0, sd, (series, nights)) + pattern for _ in "ab")
        return History(sessions=first, fresh=fresh, times=times)

    return noise


def hours(size: float, sd: float = 0.01) -> Noise:
    """A daily sine, measured at any hour."""

    def noise(rng: Random, series: int, nights: int) -> History:
        import numpy as np

        at = rng.uniform(0, 24, nights)
        times = [time + timedelta(hours=float(hour) - 2) for time, hour in zip(_nights(nights), at, strict=True)]
        pattern = size * np.sin(2 * np.pi * at / 24)
        first, fresh = (rng.normal(0.0, sd, (series, nights)) + pattern for _ in "ab")
        return History(sessions=first, fresh=fresh, times=times)

    return noise


def noisy_weeks(rng: Random, series: int, nights: int) -> History:
    """One week in five has six times the variation, for each series by itself."""
    sd = (0.01 + 0.05 * (rng.random((series, nights // 7 + 1)) < 0.2)).repeat(7, axis=1)[:, :nights]
    first, fresh = (rng.normal(0.0, 1.0, (series, nights)) * sd for _ in "ab")
    return History(sessions=first, fresh=fresh, times=_nights(nights))


def lognormal(rng: Random, series: int, nights: int) -> Floats:
    """Only ever slower, with a long tail: by 1 % in the median, by 8 % in one session of twenty."""
    import numpy as np

    drawn: Floats = np.log1p(rng.lognormal(-4.5, 1.3, (series, nights)).clip(max=3.0))
    return drawn


def levels_that_return(rng: Random, series: int, nights: int) -> History:
    """Each series changes between two levels 4 % apart every 18 nights on average."""
    state = (rng.random((series, nights)) < 1 / 18).cumsum(axis=1) % 2
    first, fresh = (rng.normal(0.0, 0.01, (series, nights)) + 0.04 * state for _ in "ab")
    return History(sessions=first, fresh=fresh, times=_nights(nights))


def three_values(rng: Random, series: int, nights: int) -> Floats:
    """A clock with which a session has one of three values, mostly the same one."""
    import numpy as np

    return np.asarray(rng.choice([-0.05, 0.0, 0.05], p=[0.1, 0.8, 0.1], size=(series, nights)), dtype=np.float64)


def several_a_night(runs: int, own: float) -> Noise:
    """Runs an hour apart every night, which share what the night does to each series (2 %)."""

    def noise(rng: Random, series: int, nights: int) -> History:
        of_night = rng.normal(0.0, 0.02, (series, nights))[:, [place // runs for place in range(nights)]]
        first, fresh = (of_night + rng.normal(0.0, own, (series, nights)) for _ in "ab")
        times = [MONDAY + timedelta(days=place // runs, hours=place % runs) for place in range(nights)]
        return History(sessions=first, fresh=fresh, times=times)

    return noise


def moving_share(rng: Random, series: int, nights: int) -> History:
    """Two modes 5 % apart; the share of the slow one swings between 2 and 60 % in 94 nights, for each series in times
    of its own."""
    import numpy as np

    share = 0.1 + 0.5 * np.sin(np.arange(nights) / 15 + rng.uniform(0, 2 * math.pi, (series, 1)))
    first, fresh = (
        rng.normal(0.0, 0.005, (series, nights)) + 0.05 * (rng.random((series, nights)) < np.maximum(share, 0.02))
        for _ in "ab"
    )
    return History(sessions=first, fresh=fresh, times=_nights(nights))


def monthly(rng: Random, series: int, nights: int) -> History:
    """All series are 5 % slower on the first two nights of a month: a real slow-down, of the machine."""
    import numpy as np

    times = _nights(nights)
    pattern = np.array([0.05 * (time.day <= 2) for time in times])
    first, fresh = (rng.normal(0.0, 0.01, (series, nights)) + pattern for _ in "ab")
    return History(sessions=first, fresh=fresh, times=times)


def missing(rng: Random, series: int, nights: int) -> History:
    """One session in five of each series is missing."""
    import numpy as np

    first, fresh = (rng.normal(0.0, 0.02, (series, nights)) for _ in "ab")
    first[rng.random((series, nights)) < 0.2] = np.nan
    return History(sessions=first, fresh=fresh, times=_nights(nights))


def reboots(rng: Random, series: int, nights: int) -> History:
    """The machine becomes slower by 0.3 % a night until it is rebooted, every 25 nights on average."""
    import numpy as np

    since, age = np.empty(nights), int(rng.integers(25))
    for night in range(nights):
        age = 0 if rng.random() < 1 / 25 else age + 1
        since[night] = age
    first, fresh = (rng.normal(0.0, 0.01, (series, nights)) + 0.003 * since for _ in "ab")
    return History(sessions=first, fresh=fresh, times=_nights(nights))


def deploys(rng: Random, series: int, nights: int) -> History:
    """A deploy every three nights, which turns a setting on and off that costs all series 4 %."""
    import numpy as np

    state = 0.04 * ((np.arange(nights) + rng.integers(6)) // 3 % 2)
    first, fresh = (rng.normal(0.0, 0.01, (series, nights)) + state for _ in "ab")
    return History(sessions=first, fresh=fresh, times=_nights(nights))


def season_and_step(rng: Random, series: int, nights: int) -> History:
    """Mondays are 4 % slower, and everything since the twelfth night 10 %, before the first night that is judged."""
    import numpy as np

    history = mondays(0.04)(rng, series, nights)
    step = 0.1 * (np.arange(nights) >= 12)
    return History(sessions=history.sessions + step, fresh=history.fresh + step, times=history.times, changed=12)


def milliseconds(value_ms: float) -> Noise:
    """1 % of a value in whole milliseconds."""

    def draw(rng: Random, series: int, nights: int) -> Floats:
        import numpy as np

        levels = value_ms * (1 + rng.uniform(0, 0.1, (series, 1)))
        drawn: Floats = np.log((levels * np.exp(rng.normal(0.0, 0.01, (series, nights)))).round())
        return drawn

    return independent(draw)


def long_gaps(rng: Random, series: int, nights: int) -> History:
    """AR(.9), and in every twenty nights two weeks without a session."""
    import numpy as np

    days = np.arange(nights) + 14 * (np.arange(nights) // 20)
    whole = autocorrelated(0.9, 0.02)(rng, series, int(days[-1]) + 1)
    times = [whole.times[day] for day in days]
    return History(sessions=whole.sessions[:, days], fresh=whole.fresh[:, days], times=times)


def three_a_day(rng: Random, series: int, nights: int) -> History:
    """Three sessions a day at any hours, under a daily sine of 3 %."""
    import numpy as np

    at = np.sort(rng.uniform(0, 24, (nights // 3 + 1, 3)), axis=1).ravel()[:nights]
    times = [MONDAY + timedelta(days=place // 3, hours=float(hour) - 2) for place, hour in enumerate(at)]
    pattern = 0.03 * np.sin(2 * np.pi * at / 24)
    first, fresh = (rng.normal(0.0, 0.01, (series, nights)) + pattern for _ in "ab")
    return History(sessions=first, fresh=fresh, times=times)


def growing_noise(rng: Random, series: int, nights: int) -> History:
    """The variation grows from 1 % to 4 % over the nights."""
    import numpy as np

    sd = np.linspace(0.01, 0.04, nights)
    first, fresh = (rng.normal(0.0, 1.0, (series, nights)) * sd for _ in "ab")
    return History(sessions=first, fresh=fresh, times=_nights(nights))


def twice_stored(rng: Random, series: int, nights: int) -> History:
    """Every session is stored twice, as when a file is imported under two names."""
    drawn = rng.normal(0.0, 0.02, (2, series, nights))[:, :, [place // 2 for place in range(nights)]]
    times = [MONDAY + timedelta(days=place // 2) for place in range(nights)]
    return History(sessions=drawn[0], fresh=drawn[1], times=times)


def often_zero(rng: Random, series: int, nights: int) -> History:
    """An energy counter that reads 0 in three sessions of ten."""
    first, fresh = (rng.normal(0.0, 0.02, (series, nights)) for _ in "ab")
    first[rng.random((series, nights)) < 0.3] = -math.inf
    return History(sessions=first, fresh=fresh, times=_nights(nights))


def noisier_by_day(rng: Random, series: int, nights: int) -> History:
    """Sessions at any hours, with a variation of 1 % at night and of 4 % from 8 to 20."""
    import numpy as np

    at = rng.uniform(0, 24, nights)
    sd = np.where((at >= 8) & (at < 20), 0.04, 0.01)
    times = [time + timedelta(hours=float(hour) - 2) for time, hour in zip(_nights(nights), at, strict=True)]
    first, fresh = (rng.normal(0.0, 1.0, (series, nights)) * sd for _ in "ab")
    return History(sessions=first, fresh=fresh, times=times)


def two_hosts(rng: Random, series: int, nights: int) -> History:
    """Each night runs on one of two hosts, by chance; the second is some 4 % faster or slower, by series. A fresh
    session has a host of its own."""
    apart = rng.normal(0.0, 0.04, (series, 1))
    first, fresh = (rng.normal(0.0, 0.01, (series, nights)) + apart * (rng.random(nights) < 1 / 2) for _ in "ab")
    return History(sessions=first, fresh=fresh, times=_nights(nights))


def odd_first_night(rng: Random, series: int, nights: int) -> Floats:
    """One series in five was measured wrongly on the first night."""
    drawn: Floats = rng.normal(0.0, 0.01, (series, nights))
    drawn[::5, 0] -= math.log(8)
    return drawn


def hot_nights(rng: Random, series: int, nights: int) -> History:
    """The room's temperature wanders from night to night; above a knee, the clocks fall, for series that heat the
    machine more than for others."""
    import numpy as np

    heat = autocorrelated(0.8, 1.0, shared=True)(rng, 1, nights)
    share = rng.uniform(0.0, 0.05, (series, 1))
    first, fresh = (
        rng.normal(0.0, 0.01, (series, nights)) + share * np.maximum(one - 0.5, 0.0)
        for one in (heat.sessions, heat.fresh)
    )
    return History(sessions=first, fresh=fresh, times=_nights(nights))


def unlike_series(rng: Random, series: int, nights: int) -> History:
    """Each series has a standard deviation of its own, from 0.5 to 8 %."""
    import numpy as np

    sd = np.exp(rng.uniform(math.log(0.005), math.log(0.08), (series, 1)))
    first, fresh = (rng.normal(0.0, 1.0, (series, nights)) * sd for _ in "ab")
    return History(sessions=first, fresh=fresh, times=_nights(nights))


def random_walks(rng: Random, series: int, nights: int) -> History:
    """Each series wanders by 0.5 % a night, and never comes back by itself; a fresh session is half a night later."""
    steps = rng.normal(0.0, 0.005 / math.sqrt(2), (series, 2 * nights)).cumsum(axis=1)
    own = rng.normal(0.0, 0.01, (2, series, nights))
    return History(sessions=steps[:, ::2] + own[0], fresh=steps[:, 1::2] + own[1], times=_nights(nights))


def bad_nights(rng: Random, series: int, nights: int) -> History:
    """In one night of fifteen, half of the series are 5 to 30 % slower: another job ran beside them."""
    first, fresh = (
        rng.normal(0.0, 0.01, (series, nights))
        + (rng.random(nights) < 1 / 15) * (rng.random((series, nights)) < 1 / 2) * rng.uniform(0.05, 0.30, nights)
        for _ in "ab"
    )
    return History(sessions=first, fresh=fresh, times=_nights(nights))


def settling(rng: Random, series: int, nights: int) -> History:
    """Every series becomes faster by up to half, at first fast and then ever more slowly, like a machine that others
    leave; and in every twenty nights two weeks are missing."""
    import numpy as np

    days = np.arange(nights) + 14 * (np.arange(nights) // 20)
    times = [MONDAY + timedelta(days=int(day)) for day in days]
    size, pace = rng.uniform(0.1, 0.7, (series, 1)), rng.uniform(2.0, 10.0)
    excess = size * np.exp(-np.arange(nights) / pace)
    first, fresh = (excess + rng.normal(0.0, 0.015, (series, nights)) for _ in "ab")
    return History(sessions=first, fresh=fresh, times=times)


def faster_until(rng: Random, series: int, nights: int) -> History:
    """1 % faster a night, until a night between the tenth and the fortieth."""
    import numpy as np

    rest = np.maximum(int(rng.integers(10, 41)) - np.arange(nights), 0)
    first, fresh = (0.01 * rest + rng.normal(0.0, 0.015, (series, nights)) for _ in "ab")
    return History(sessions=first, fresh=fresh, times=_nights(nights))


PROMISED: Mapping[str, Noise] = {
    "normal, 2 %": normal(0.02),
    "two modes 4 % apart, 1 session in 5": modes(0.2, 0.04),
    "1 night in 5 4 % slower": slow_nights(0.2, 0.04),
    "Pareto (2.5)": pareto(2.5),
    "Pareto (1.5)": pareto(1.5),
    "AR(.9), 2 %": autocorrelated(0.9, 0.02),
    "AR(.9), 2 %, one for all series": autocorrelated(0.9, 0.02, shared=True),
    "Mondays 4 % slower": mondays(0.04),
    "daily sine of 3 %, any hour": hours(0.03),
    "heavy tail (t3), 2 %": heavy_tail(0.02),
    "1 session in 10 5 to 30 % slower": disturbed(),
    "clock in steps of 3 %": coarse_clock(),
    "1 session in 5 missing": missing,
    "1 week in 5 six times as noisy": noisy_weeks,
    "AR(.9), two weeks missing in every 20 nights": long_gaps,
    "variation grows from 1 to 4 %": growing_noise,
    "every session stored twice": twice_stored,
    "up to half faster, ever more slowly": settling,
    "1 % faster a night, until one night": faster_until,
}
OTHERS: Mapping[str, Noise] = {
    "log-normal, 1 session in 20 8 % slower": independent(lognormal),
    "two levels 4 % apart that return": levels_that_return,
    "3 values 5 % apart": independent(three_values),
    "two runs a night": several_a_night(2, 0.005),
    "three runs a night, their sd 0.3 %": several_a_night(3, 0.003),
    "three runs a night, their sd 1 %": several_a_night(3, 0.01),
    "five runs a night, their sd 0.3 %": several_a_night(5, 0.003),
    "two modes 5 % apart, the share of the slow one moves": moving_share,
    "first two nights of a month 5 % slower": monthly,
    "heavy tail (t2), scale 1 %": independent(lambda rng, series, nights: 0.01 * rng.standard_t(2, (series, nights))),
    "0.3 % slower a night until a reboot": reboots,
    "4 % on and off with a deploy every 3 nights": deploys,
    "Mondays 4 % slower, 10 % more since night 12": season_and_step,
    "20 ms in steps of 1 ms": milliseconds(20),
    "3 sessions a day, daily sine of 3 %": three_a_day,
    "a counter that reads 0 in 3 of 10": often_zero,
    "1 % at night, 4 % by day, any hour": noisier_by_day,
    "one of two hosts each night, 4 % apart": two_hosts,
    "hot nights: slower above a temperature": hot_nights,
    "sd of 0.5 to 8 % by series": unlike_series,
    "random walks of 0.5 % a night": random_walks,
    "1 night in 15: half of the series 5 to 30 % slower": bad_nights,
    "1 %, a first night 8 times faster for 1 series in 5": independent(odd_first_night),
}
"""Noises that were chosen after the rules, which the script prints and no test runs."""


def replay(
    noise: Noise,
    *,
    histories: int,
    seed: int,
    series: int = SERIES,
    with_changes: bool = False,
    first: int = FIRST,
    nights: int = NIGHTS,
) -> Rates:
    """The alarms of histories without a change, judged from night `first` on; alarms stay untriaged. `with_changes`: a
    confirmed change point begins a level, as it does for the command."""
    import numpy as np

    rng = np.random.default_rng(seed)
    alarms = confirmed = 0
    for _ in range(histories):
        history = noise(rng, series, nights)
        alarmed: list[set[str]] = [set() for _ in range(series)]
        for night in range(first, nights):
            worse = _worse(history, night, alarmed, with_changes=with_changes)
            alarms += bool(worse)
            again = _worse(history, night, alarmed, of=worse, with_changes=with_changes) if worse else set()
            confirmed += bool(again)
            for row in worse:
                alarmed[row].add(str(night))
    return Rates(alarms=alarms / histories / (nights - first), confirmed=confirmed / histories / (nights - first))


def found(
    noise: Noise, *, change: float, nights: int, histories: int, seed: int, series: int = SERIES, at: int = 40
) -> float:
    """How often a change of one series from night `at` is found within so many nights."""
    import numpy as np

    rng = np.random.default_rng(seed)
    seen = 0
    for _ in range(histories):
        history = noise(rng, series, at + nights)
        history.sessions[0, at:] += math.log1p(change)
        alarmed: list[set[str]] = [set() for _ in range(series)]
        seen += any(0 in _worse(history, night, alarmed) for night in range(at, at + nights))
    return seen / histories


def known(noise: Noise, *, change: float, seed: int, series: int = SERIES) -> float:
    """How often a test of one night finds a change of one series that knows the distribution of the noise, with the
    fixed limit that any series exceeds without a change on 5 % of the nights."""
    import numpy as np

    rng = np.random.default_rng(seed)
    values = np.concatenate([noise(rng, 2000, NIGHTS).sessions.ravel() for _ in range(10)])
    limit = np.nanquantile(values, 0.95 ** (1 / series))
    return float((values + math.log1p(change) > limit).mean())


def variation_known(*, seed: int, series: int, at: float, sd: float = 0.02) -> tuple[float, float]:
    """How often a change of 5 % of one normal series is found within three nights by tests that know the variation, and
    estimate only the level from `at` nights (infinitely many: know it too). They judge one to three nights together,
    and any series exceeds their limits without a change on 5 % of the nights. The first test has the same limit for
    all; the second has the three limits that find most, provided that 95 % of the changes of 10 % are found the same
    night (0 if there are none)."""
    import numpy as np

    rng, windows, nights = np.random.default_rng(seed), (1, 2, 3), 3
    most, cases, kept = max(windows), 200_000, 0.95 ** (1 / series)
    level = rng.normal(0.0, sd / math.sqrt(at), (cases, 1))

    def scores(values: Floats) -> Floats:
        """Of each number of nights together, for each night after the first ones."""
        sums = np.cumsum(np.hstack((np.zeros((cases, 1)), values - level)), axis=1)
        each: Floats = np.array(
            [
                (sums[:, most:] - sums[:, most - nights : -nights]) / (sd * math.sqrt(nights + nights**2 / at))
                for nights in windows
            ]
        )
        return each

    drawn = rng.normal(0.0, sd, (cases, most - 1 + nights))
    is_later = np.arange(drawn.shape[1]) >= most - 1
    quiet, (five, ten) = scores(drawn)[:, :, -1], (scores(drawn + math.log1p(one) * is_later) for one in (0.05, 0.10))
    same = float((five.max(axis=0) > np.quantile(quiet.max(axis=0), kept)).any(axis=1).mean())
    best, least = 0.0, np.quantile(quiet[0], kept)
    for first in least + np.arange(0.0, 0.3, 0.02):
        for second in (*(least + np.arange(0.2, 1.0, 0.2)), math.inf):
            others = np.where((quiet[0] > first) | (quiet[1] > second), math.inf, quiet[2])
            limits = np.array([first, second, np.quantile(others, kept, method="higher")])[:, None]
            if math.isfinite(limits[2, 0]) and (ten[:, :, 0] > limits).any(axis=0).mean() >= 0.95:
                best = max(best, float((five > limits[:, :, None]).any(axis=(0, 2)).mean()))
    return same, best


@dataclass(frozen=True, slots=True, kw_only=True)
class Leak:
    """Shares of the histories with a slow leak, from 0 to 1."""

    trend: float
    """Called a trend."""
    worse: float
    """Called worse on any night, which would blame a commit."""
    confirmed: float
    """The same, by a fresh session too."""


def leak(
    *, sd: float, per_night: float, flat: int, nights: int, histories: int, seed: int, series: int = SERIES
) -> Leak:
    """The outcomes within so many nights of a leak of one series, which begins after `flat` nights."""
    import numpy as np

    rng = np.random.default_rng(seed)
    seen: dict[str, int] = {"trend": 0, "worse": 0, "confirmed": 0}
    for _ in range(histories):
        history = normal(sd)(rng, series, flat + nights)
        for sessions in (history.sessions, history.fresh):
            sessions[0, flat:] += per_night * np.arange(1, nights + 1)
        alarmed: list[set[str]] = [set() for _ in range(series)]
        outcomes: set[str | None] = set()
        for night in range(max(FIRST, flat), flat + nights):
            outcome = _judgements(history, night, alarmed)[0]
            outcomes.add(outcome)
            if outcome == "worse":
                alarmed[0].add(str(night))
                if 0 in _worse(history, night, alarmed, of={0}):
                    outcomes.add("confirmed")
        for name in seen:
            seen[name] += name in outcomes
    return Leak(**{name: count / histories for name, count in seen.items()})


def _worse(
    history: History, night: int, alarmed: list[set[str]], of: set[int] | None = None, *, with_changes: bool = False
) -> set[int]:
    outcomes = _judgements(history, night, alarmed, of, with_changes=with_changes)
    return {row for row, outcome in enumerate(outcomes) if outcome == "worse"}


def _judgements(
    history: History, night: int, alarmed: list[set[str]], of: set[int] | None = None, *, with_changes: bool = False
) -> list[str | None]:
    """The outcome of each series on a night; with `of`, of its fresh session for those series."""
    cases = []
    for row, alarms in enumerate(alarmed):
        past = [
            Night(session=str(column), value=math.exp(value), time=history.times[column])
            for column, value in enumerate(history.sessions[row, :night].tolist())
            if not math.isnan(value)
        ]
        value = float((history.sessions if of is None else history.fresh)[row, night])
        is_measured = not math.isnan(value) and (of is None or row in of)
        newest = Night(session="newest", value=math.exp(value), time=history.times[night]) if is_measured else None
        levels = [past]
        if history.changed:
            levels = [past[: history.changed], past[history.changed :]]
        elif with_changes:
            own = [] if math.isnan(history.sessions[row, night]) else [math.exp(history.sessions[row, night])]
            levels = _levels(past, own, alarms)
        segments = tuple(
            tuple(level[: without_open_alarms([one.session for one in level], alarms)]) for level in levels
        )
        cases.append(Case(segments=segments, newest=newest, metric=METRIC))
    judged = judge_all(cases, is_confirmation=of is not None)
    return [None if one is None else one.outcome for one in judged]


def _levels(past: list[Night], own: list[float], alarms: set[str]) -> list[list[Night]]:
    """The runs between the confirmed changes of a history and tonight's value, without alarmed ones and those that do
    not count yet."""
    changes = detect([*(night.value for night in past), *own])
    begins = {
        change.index: METRIC.is_worse(change.value_after / change.value_before - 1)
        for change in changes
        if change.state == "confirmed" and not (change.index < len(past) and past[change.index].session in alarms)
    }
    edges = [0, *begins, len(past)]
    levels = [past[start:end] for start, end in pairwise(edges)]
    return levels[: seen_levels([*zip([False, *begins.values()], map(len, levels), strict=True)])]

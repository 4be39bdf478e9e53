"""Error rates of `benchhouse compare` and `ab` by kind of noise: false changes and detected changes.

Sides are made of launches on one time line, as machines make them: a launch has an effect of its own, a session has
one that all its launches share, and levels drift.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import TYPE_CHECKING

from benchmarking.ab import DEFAULT_ROUNDS, MAX_ROUNDS, planned_looks
from benchmarking.core.metrics import DEFAULT_METRIC, JUDGED
from benchmarking.core.verdicts.words import MIN_CHANGE, Judgement
from db.analysis.compare.judging import Pair, Session, judge
from db.analysis.compare.series_sessions import session_scatter

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
}
"""Noise of launches on one time line: A B, B A, A B, ..."""


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
UNPROMISED_CASES: Mapping[str, HistoryCase] = {
    "sessions with a heavy tail (t3), 2 %": HistoryCase(t3(0.02)),
    "sessions Laplace, 2 %": HistoryCase(laplace(0.02)),
    "sessions skewed, mean 2 %": HistoryCase(skewed(0.02)),
    "sessions of two levels, 15 % 8 % slower": HistoryCase(two_levels(0.15, 0.08, QUIET)),
    "1 session in 20 disturbed by 20 %": HistoryCase(two_levels(0.05, 0.20, 0.01)),
}
"""Whole sessions that are far off: from one session a side nobody can tell them from a change."""


def replay_turns(
    effects: Effects, *, pairs: int, seed: int, change: float = 0.0, looks: Sequence[int] = LOOKS
) -> Rates:
    """The rates where B is slower by `change`, and rounds are added as `benchhouse ab` does."""
    import numpy as np

    rng = np.random.default_rng(seed)
    slots = np.arange(2 * looks[-1])
    first = np.where(slots // 2 % 2 == 0, slots % 2 == 0, slots % 2 == 1)
    found = []
    for _ in range(pairs):
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
) -> Rates:
    """The rates of two sessions `apart` sessions from each other, judged by `history` others."""
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
        judgements.append(judge([pair], JUDGED[DEFAULT_METRIC])[0])
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

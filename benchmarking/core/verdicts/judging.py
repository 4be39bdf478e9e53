"""Judges the difference between two sides of a point, by rounds or by the variation between sessions; and states the
speedup of one result over another. Pure.

Values are compared as logarithms, so a change is a ratio. Two cases get a verdict, each with its own error term:

    in turns            d(k) = ln b(k) - ln a(k) of the k-th of n rounds, in which each side had one launch. Machine
                        drift affects both sides. change = exp(mean d) - 1, SE = sd(d) / sqrt(n), df = n - 1. The
                        order of the sides in a round is random, and has to prove a change (`launches`)
    between sessions    the sides' sessions, and the variation between sessions in the series' history
                        (`SessionScatter`: the variance s^2 of a session, the variance w^2 of a random walk from one
                        session to the next). change = exp(mean ln b - mean ln a) - 1, over the sessions of each side;
                        SE^2 = sum over both sides' sessions of max(s^2, v) / m^2, plus w^2 times the distance between
                        the sides on the time line, where m is the number of sessions of a side and v the variance of a
                        session's mean launch. A session whose launches disagree gets a lower weight than the history
                        alone would give it: if they vary far more than the history's launches, the session is expected
                        to be off by as much more. A change must also exceed every difference that the history has
                        between sessions of one level (and twice that, where single sessions are far off), so that a
                        mode or a disturbance that recurs is none.

    interval            95 %, exp(mean -+ t(0.975, df) SE) - 1
    p                   two-sided, of t = mean / SE. Each look at the data before adding rounds halves the level: p and
                        the interval's error are doubled per earlier look
    q                   Benjamini-Hochberg, over all differences judged together
    detectable          the smallest change at one of n judged points that would be found with a probability of about
                        80 %: the noncentral t's at p = 0.004 / n, or what the order of the rounds takes to prove it
                        (`launches`), times SE, and in turns times 1 + 1 / df, since SE may be too small; at least
                        t(0.8, df) SE above 2 %, and above the largest difference that counts as none: what few rounds
                        cannot prove, or the history's sessions differ by

Both have the resolution of the clock added to SE: values that are all equal are known to half a step, not exactly. The
step is known, so df is that of the variation alone only where the variation is the larger part (Welch-Satterthwaite).

A difference is a change if q <= 0.004 and it is at least 2 %. Sides that are neither interleaved nor have a history are
described but not judged: their difference includes whatever the machine did between the two sessions, by an unknown
amount. Nor are sessions of other hours of the day, or other weekdays, of which the history has too few to tell whether
they matter, or shows that they do. Where the sides were measured on different days, sessions within hours of each other
count as one (`of_sittings`): many of a day do not show what differs between days. Where they share days, those that
both have are compared (`of_common_sittings`). `db.analysis.compare.stored_results` reads the history and estimates the
variation. `tests/perf/verdicts.py` prints the false positive rate of equal sides, and the power.

A speedup, of tables, charts and reports, is that of one result over another at a point, with a confidence interval:


    between       with 3 or more common launches: launches with the same number are a round, in which slow drift of the
                  machine affects both. Speedup (the geometric mean of the rounds' ratios), interval and verdict are
                  those of every comparison (`judge`)
    within        with fewer: the ratio b / o of the baseline's median latency and the other's, with an interval from
                  the two medians' own, which mostly cover only the calls within launches. On a log scale, the distance
                  to either end is the square root of the sum of the squares of the two distances in that direction (Zou
                  and Donner 2008, "MOVER"):
                  ln(b / o) - sqrt(ln(b / b_low)^2 + ln(o_high / o)^2), and + sqrt(ln(b_high / b)^2 + ln(o / o_low)^2).
                  The view runtime_comparison computes the same. It describes; it never judges

Worked examples are in the tests.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from itertools import chain, pairwise
from math import exp, hypot, log
from statistics import NormalDist, fmean, median
from typing import Any, Literal

from benchmarking.core.codec import is_number
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import DEFAULT_METRIC, LATENCY_WALL, METRICS, MS_PER_S, Metric
from benchmarking.core.provenance import naive_utc
from benchmarking.core.records import Result
from benchmarking.core.sample_statistics import decimals
from benchmarking.core.student_t import cumulative, quantile
from benchmarking.core.text import counted
from benchmarking.core.verdicts.launches import (
    MIN_ROUNDS,
    ROUNDS_TO_PROVE,
    errors_to_prove,
    least_proof,
    rounds_words,
    why_not_proven,
)
from benchmarking.core.verdicts.sessions import (
    HOUR,
    LEAST_DEVIATION,
    MIN_SESSIONS,
    SITTING,
    Session,
    SessionScatter,
    why_other_times,
)
from benchmarking.core.verdicts.words import MIN_CHANGE, NEARLY_NONE, Judgement, Scope, change_word

TIMES_AS_BUSY = 4.0
"""Ratio of the variance of a session's launches to that of the history's, from which the session counts as busier: by
chance, five launches reach it 1 time in 100."""
MOST_APART = 30.0
"""Logarithm of a ratio of sides, or of the end of an interval, above which nothing is known."""
NORMAL = 1e6
"""Degrees of freedom from which Student's t is the normal distribution."""
FEWEST_STEPS = 3
"""Distinct values from which the step of a clock shows."""
MOST_STEP_OVER_MEDIAN = 2.0
"""The median of whole steps is half a step at least, unless it is nothing."""
SYSTEM_TICKS = (15.625, 0.015625)
"""In ms and in s: the tick of Windows' system clock, 64 in a second, which has more digits than a time needs."""


def resolution(values: Sequence[float], all_values: Sequence[float]) -> float:
    """The step of the clock that the values show, relative to their mean; nearly 0 for values with many digits.

    It is the largest step of which all values (of both sides) are multiples, or, if they have fewer than three distinct
    values, one unit of their last digit, or a known tick: whole milliseconds that are all equal may be off by half of
    one, and 31.25 ms are two ticks of a system clock.
    """
    centre, digits = fmean(values), decimals(all_values)
    if digits is None:
        return 0.0
    distinct = {round(value * 10**digits) for value in all_values}
    if len(distinct) >= FEWEST_STEPS:
        step = math.gcd(*distinct) / 10**digits
    else:  # of whole values, any may be a multiple of a tick by chance
        ticks = (tick for tick in SYSTEM_TICKS if digits and all(decimals([one / tick]) == 0 for one in all_values))
        step = max(next(ticks, 0.0), 1 / 10**digits)
    return float(step / centre)


MAX_Q = 0.004
"""Keeps the false positive rate of equal sides at 0.6 %, even with several looks and non-normal noise."""
CONFIDENCE = 0.95
POWER = 0.8
NORMAL_POWER = NormalDist().inv_cdf(POWER)
CLOCK_UNITS = ("ms", "s")
"""Units of values that a clock measured, as the time of an item is, which a rate of calls states; others, such as
memory, may be exact."""
MIN_LAUNCHES = 3
"""Minimum launches of a session, so that one disturbed launch cannot become the session's value."""
SMALL = f"the change is significant, but may be smaller than {MIN_CHANGE:.0%}"
WIDE = f"the interval is too wide to tell a change of {MIN_CHANGE:.0%} from none"
AB_HINT = "benchhouse ab decides"
MOST_ROUNDS = 100
"""Rounds up to which it is worth saying how many would decide."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two sides of a point: the input of a judgement."""

    before: tuple[Session, ...] = ()
    after: tuple[Session, ...] = ()
    why_not_comparable: str | None = None
    """Why they are not comparable; None if they are."""
    rounds: tuple[tuple[float, float], ...] = ()
    """Values of the launches of each round, if the sides were interleaved."""
    is_first: tuple[bool, ...] = ()
    """Whether the first side ran first, of each round; empty if it is unknown."""
    looks: int = 1
    """How often the rounds were evaluated to decide whether to add more."""
    scatter: tuple[SessionScatter, SessionScatter] | None = None
    """Of the two sides' series; None if their history is too short."""
    clock_steps: tuple[float, float] = (0.0, 0.0)
    """Step of a coarse clock relative to the calls of each side: the medians of all launches may be the same one."""
    is_simulated: bool = False
    """Whether a script or an emulator gave the times: they are exact, however few digits they have."""
    is_of_sittings: bool = False
    """Whether sessions of one sitting are one (`of_sittings`), or some were left out (`of_common_sittings`)."""
    left_out: tuple[int, int] = (0, 0)
    """Sessions of each side that `of_common_sittings` left out."""


def judge(pairs: Sequence[Pair], metric: Metric) -> tuple[Judgement, ...]:
    """Judge all pairs as one comparison, with the false discovery rate controlled over all of them."""
    fallen = [_falls_to_0(pair, metric) for pair in pairs]
    pairs = [
        replace(pair, rounds=tuple((one, NEARLY_NONE * min(pair.rounds)[0]) for one, _ in pair.rounds))
        if falls
        else pair
        for pair, falls in zip(pairs, fallen, strict=True)
    ]
    estimates = [_estimate(pair, metric) for pair in pairs]
    p_values = [one.p_value for one, _, _ in estimates if one.p_value is not None]
    q_values = iter(false_discovery_rates(p_values))
    judged = []
    for (one, error, degrees), pair, falls in zip(estimates, pairs, fallen, strict=True):
        if one.p_value is not None:
            detectable = _detectable(pair, error, degrees, len(p_values))
            worse = max(MIN_CHANGE, abs(math.expm1(detectable if metric.better == "lower" else -detectable)))
            one = replace(one, q_value=next(q_values), detectable=worse if math.isfinite(detectable) else None)
            one = _with_verdict(one, pair, metric, error, len(p_values))
            one = replace(one, after=0.0, change=-1.0, low=-1.0, high=-1.0) if falls else one
        judged.append(one)
    return tuple(judged)


def false_discovery_rates(p_values: Sequence[float]) -> list[float]:
    """Benjamini and Hochberg's q of each p: the minimum of p(k) * n / k over its own rank and all higher ones.

    Equal to `scipy.stats.false_discovery_control`, which takes more than a second to import.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    q_values = [0.0] * len(p_values)
    least = 1.0
    for rank in range(len(order), 0, -1):
        index = order[rank - 1]
        least = min(least, p_values[index] * len(order) / rank)
        q_values[index] = least
    return q_values


def _estimate(pair: Pair, metric: Metric) -> tuple[Judgement, float, float]:
    """The change and, if it can be judged, its interval, without the verdict; the standard error of its logarithm, and
    its degrees of freedom (both 0 without an interval)."""
    if pair.why_not_comparable is not None:
        return Judgement(verdict="not judged", reason=f"not comparable: {pair.why_not_comparable}"), 0, 0
    sides = ([one for one, _ in pair.rounds], [other for _, other in pair.rounds])
    is_in_turns = len(pair.rounds) >= MIN_ROUNDS
    if not is_in_turns:
        sides = ([session.value for session in pair.before], [session.value for session in pair.after])
    if not all(sides) or min(*sides[0], *sides[1]) <= 0:
        reason = "not comparable: a value is not positive, so there is no ratio"
        return Judgement(verdict="not judged", reason=reason), 0, 0
    before, after = ([math.log(value) for value in side] for side in sides)
    difference = fmean(after) - fmean(before)
    if abs(difference) > MOST_APART:
        reason = f"not comparable: one side is more than {math.exp(MOST_APART):.0e} times the other"
        return Judgement(verdict="not judged", reason=reason), 0, 0
    change, steps = math.expm1(difference), _clock_steps(pair, sides, metric)
    unjudged = Judgement(
        verdict="not judged", before=math.exp(fmean(before)), after=math.exp(fmean(after)), change=change
    )
    if is_in_turns:
        differences = [b - a for a, b in zip(before, after, strict=True)]
        error, degrees = math.sqrt(_variance(differences) / len(differences)), len(differences) - 1.0
        scope: Scope = "in turns"
    elif (obstacle := _why_not_judged(pair)) is not None or pair.scatter is None:
        return replace(unjudged, reason=obstacle), 0, 0
    else:
        scope = "between sessions"
        error, degrees = _session_error(pair, pair.scatter, steps)
    step_variance = math.fsum(step**2 / 12 for step in steps)  # half a step is missing from all values of a side alike
    if step_variance > 0:  # known, not estimated: by Welch and Satterthwaite it adds no doubt to the error
        ratio = 1 + step_variance / error**2 if error**2 > 0 else math.inf
        degrees = min(degrees * ratio * ratio, NORMAL)
        error = math.sqrt(error**2 + step_variance)
    if error == 0:  # without any variation the change is exact
        p_value = 1.0 if difference == 0 else 0.0
        return replace(unjudged, low=change, high=change, p_value=p_value, scope=scope), error, degrees
    halved = 2 ** (pair.looks - 1) if is_in_turns else 1
    half = quantile(1 - (1 - CONFIDENCE) / 2 / halved, degrees) * error
    if half > MOST_APART:
        return replace(unjudged, reason="their values vary too much for an interval"), 0, 0
    estimate = replace(
        unjudged,
        low=math.expm1(difference - half),
        high=math.expm1(difference + half),
        p_value=min(1.0, 2 * halved * cumulative(-abs(difference) / error, degrees)),
        scope=scope,
    )
    return estimate, error, degrees


def _clock_steps(pair: Pair, sides: tuple[list[float], list[float]], metric: Metric) -> tuple[float, float]:
    """The step of the clock of each side's values, relative to them; 0 for values that no clock measured. The history's
    values show its digits too."""
    is_rate = metric.source == "samples" and metric.statistic == "rate"
    if pair.is_simulated or (metric.unit not in CLOCK_UNITS and not is_rate):
        return 0.0, 0.0
    history = [math.exp(log) for scatter in pair.scatter or () for stretch in scatter.stretches for log in stretch]
    seen = (*sides, history) if len(pair.rounds) < MIN_ROUNDS else sides
    values = [[MS_PER_S / value if is_rate else value for value in group] for group in seen]
    steps = (resolution(values[0], [*chain(*values)]), resolution(values[1], [*chain(*values)]))
    if metric.of != LATENCY_WALL or metric.statistic in ("mean", "rate"):  # which steps of calls do not bias
        return steps
    return max(steps[0], pair.clock_steps[0]), max(steps[1], pair.clock_steps[1])


def _falls_to_0(pair: Pair, metric: Metric) -> bool:
    """Whether a rate of which more is better is 0 in all rounds of the second side, and above 0 in the first."""
    falls = len(pair.rounds) >= MIN_ROUNDS and all(after == 0 < before for before, after in pair.rounds)
    return falls and metric.better == "higher"


def _detectable(pair: Pair, error: float, degrees: float, judged: int) -> float:
    """The smallest difference, of logarithms, that would be found with a probability of 80 % among `judged` ones;
    infinity where none would."""
    rounds, least = len(pair.rounds), math.log1p(MIN_CHANGE)
    is_in_turns = rounds >= MIN_ROUNDS
    halved = 2 ** (pair.looks - 1) if is_in_turns else 1
    if is_in_turns:
        alpha, ratio = least_proof(rounds, pair.looks, pair.is_first)
        least = max(least, math.log(ratio))
    else:
        alpha, least = None, max(least, _usual_difference(pair))
    if error == 0:
        return least
    # The noncentral t, with the normal approximation of the error's own error: with few degrees, the smallest p of many
    # points depends on it most.
    critical, power = quantile(1 - MAX_Q / 2 / halved / judged, degrees), quantile(POWER, degrees)
    errors = critical * (1 - 1 / (4 * degrees)) + NORMAL_POWER * math.sqrt(1 + critical**2 / (2 * degrees))
    if alpha is not None:
        errors = max(errors, errors_to_prove(rounds, alpha, POWER))
    if is_in_turns:  # it is known as badly as that of the rounds that would find it; of sessions, it is the same one
        errors *= 1 + 1 / degrees
    return max(errors * error, least + power * error)


def _usual_difference(pair: Pair) -> float:
    """The difference, of logarithms, that the history's sessions leave to sides of so many sessions."""
    usual = max((scatter.usual_difference for scatter in pair.scatter or ()), default=0.0)
    return usual * math.sqrt((1 / len(pair.before) + 1 / len(pair.after)) / 2)


def _rounds_to_decide(pair: Pair, change: float, error: float, judged: int) -> int | None:
    """The number of rounds, from one look more, that would decide with a probability of about 80 % if they vary as
    these: between equivalent and a change of this size. None if it takes more than `MOST_ROUNDS`."""
    rounds, difference, least = len(pair.rounds), abs(math.log1p(change)), math.log1p(MIN_CHANGE)
    for count in range(max(rounds + 1, ROUNDS_TO_PROVE), MOST_ROUNDS + 1):
        own = error * math.sqrt(rounds / count)
        half = quantile(1 - (1 - CONFIDENCE) / 2 / 2**pair.looks, count - 1) * own
        may_move = quantile(POWER, rounds - 1) * error * math.sqrt(1 - rounds / count)
        if difference + may_move + half <= least:
            return count
        if difference - may_move < least:  # which is never detectable, and is much faster to tell
            continue
        later = replace(pair, rounds=pair.rounds[:1] * count, is_first=(), looks=pair.looks + 1)
        if difference - may_move >= _detectable(later, own, count - 1, judged):
            return count
    return None


def _why_not_judged(pair: Pair) -> str | None:
    """Why sides without enough rounds get no verdict; None if they get one."""
    if pair.scatter is None and pair.rounds:
        return f"{counted(len(pair.rounds), 'round')} gave no interval: {rounds_words(ROUNDS_TO_PROVE)}"
    if pair.scatter is None:
        which = f"sessions at other times (those within {SITTING // HOUR} hours count as one)"
        which = which if pair.is_of_sittings else "other sessions"
        return f"they did not run in turns, and a series has fewer than {MIN_SESSIONS} {which}; {AB_HINT}"
    fewest = min(len(one.launches) for one in (*pair.before, *pair.after))
    if fewest < MIN_LAUNCHES:
        launches = "1 launch" if fewest == 1 else f"{fewest} launches"
        return (
            f"they did not run in turns, and a session has only {launches}: {MIN_LAUNCHES} required in each; {AB_HINT}"
        )
    times = [[session.time for session in side if session.time is not None] for side in (pair.before, pair.after)]
    other_times = why_other_times(times[0], times[1], pair.scatter)
    return None if other_times is None else f"{other_times}; {AB_HINT}"


def _session_error(
    pair: Pair, scatter: tuple[SessionScatter, SessionScatter], steps: tuple[float, float]
) -> tuple[float, float]:
    """The error of a difference between sessions and its degrees of freedom: the Welch-Satterthwaite combination of the
    terms, each with its own degrees. `steps` are those of each side's clock."""
    terms: list[tuple[float, float]] = []
    shared_terms: dict[SessionScatter, float] = {}
    for side, series_scatter, step in zip((pair.before, pair.after), scatter, steps, strict=True):
        for session in side:
            # The variance of the mean of the session's launches, and its degrees of freedom.
            count = sum(value > 0 for value in session.launches)
            variance, degrees = (log_variance(session.launches) / count, count - 1.0) if count > 1 else (0.0, 1.0)
            usual_launches = series_scatter.launch_variance
            if usual_launches is not None:  # equal launches vary too: by less than a step, or than matters
                usual_launches = max(usual_launches, LEAST_DEVIATION**2, step**2 / 4)
            ratio = variance * len(session.launches) / usual_launches if usual_launches else 1.0
            busier = ratio if ratio > TIMES_AS_BUSY else 1.0
            if variance > series_scatter.variance or busier > 1:
                own = max(variance, series_scatter.variance * busier)
                terms.append((own / len(side) ** 2, degrees))
            else:
                usual = shared_terms.get(series_scatter, 0.0)
                shared_terms[series_scatter] = usual + series_scatter.variance / len(side) ** 2
    walk = max(scatter, key=lambda one: one.walk)
    shared_terms[walk] = shared_terms.get(walk, 0.0) + walk.walk * _distance(pair)
    # All that comes from one estimate is one term: its error does not average out over the sessions.
    terms += [(term, series_scatter.degrees) for series_scatter, term in shared_terms.items()]
    squared = math.fsum(term for term, _ in terms)
    degrees = squared**2 / sum(term**2 / own_degrees for term, own_degrees in terms) if squared > 0 else 1.0
    return math.sqrt(squared), degrees


def log_variance(values: Sequence[float]) -> float:
    """The variance of the logarithms of the values above 0; 0 for a single one."""
    logs = [math.log(value) for value in values if value > 0]
    return _variance(logs) if len(logs) > 1 else 0.0


def _distance(pair: Pair) -> float:
    """Variance of the difference between two averages of a random walk, relative to one step: the integral of the
    squared running sum of the weights, 1/m for each session of one side and -1/m for the other. Neighbours have 1."""
    weights = [(session.position, -1 / len(pair.before)) for session in pair.before]
    weights += [(session.position, 1 / len(pair.after)) for session in pair.after]
    weights.sort()
    total, running, previous = 0.0, 0.0, weights[0][0]
    for position, weight in weights:
        total += running**2 * (position - previous)
        running, previous = running + weight, position
    return total


def _variance(values: Sequence[float]) -> float:
    """The sample variance; `statistics.variance` computes with fractions, a hundred times slower."""
    if min(values) == max(values):
        return 0.0  # their mean may be off by rounding
    mean = math.fsum(values) / len(values)
    return math.fsum([(value - mean) ** 2 for value in values]) / (len(values) - 1)


def _with_verdict(judgement: Judgement, pair: Pair, metric: Metric, error: float, judged: int) -> Judgement:
    """The judgement with its verdict among `judged` ones, or the reason why there is none."""
    assert judgement.change is not None
    assert judgement.low is not None
    assert judgement.high is not None
    assert judgement.q_value is not None
    is_in_turns, rounds = judgement.scope == "in turns", len(pair.rounds)
    obstacle: str | None = None
    if judgement.q_value <= MAX_Q and abs(judgement.change) >= MIN_CHANGE:  # significant, but maybe no change
        if is_in_turns:
            differences = [math.log(other / one) for one, other in pair.rounds]
            obstacle = why_not_proven(differences, pair.looks, pair.is_first)
        else:
            usual = _usual_difference(pair)
            if abs(math.log1p(judgement.change)) <= usual:
                up_to = f"{abs(math.expm1(math.copysign(usual, judgement.change))):.1%}"
                obstacle = f"by the sessions of the history, a difference of up to {up_to} may be no change"
        if obstacle is None:
            is_clear = max(judgement.low, -judgement.high) >= MIN_CHANGE
            verdict = change_word(judgement.change, metric)
            return replace(judgement, verdict=verdict, is_worse=metric.is_worse(judgement.change), is_decided=is_clear)
    elif max(-judgement.low, judgement.high) <= MIN_CHANGE:
        return replace(judgement, verdict="equivalent", is_decided=True)
    elif judgement.q_value <= MAX_Q:
        obstacle = SMALL
    elif is_in_turns:
        # An interval without no change has too few values for the certainty of a verdict.
        includes_none = judgement.low <= 0 <= judgement.high
        what = WIDE if includes_none else f"{rounds} rounds are too few to be sure of the difference"
        needed = _rounds_to_decide(pair, judgement.change, error, judged)
        obstacle = what if needed is None else f"{what}: {rounds_words(needed, 'about ')}"
    elif judgement.low <= 0 <= judgement.high:
        obstacle = WIDE
    else:
        obstacle = f"the sessions of the history vary too much, or are too few, to be sure of the difference: {AB_HINT}"
    return replace(judgement, reason=obstacle)


NOT_IN_TURNS = "their launches did not run in turns"
FEW_LAUNCHES = (
    f"fewer than {MIN_ROUNDS} launches in common: {ROUNDS_TO_PROVE} may decide (--launches {ROUNDS_TO_PROVE})"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Median:
    """A median latency in ms with its 95 % interval, if it has one."""

    value: float | None
    low: float | None = None
    high: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Speedup:
    """A ratio of latencies: 2 means twice as fast as the baseline."""

    ratio: float
    low: float | None = None
    """End of the 95 % interval; None if there are too few samples."""
    high: float | None = None
    scope: Literal["between", "within"] | None = None
    """Whether the interval covers the spread between launches or only within them."""
    judgement: Judgement
    """The verdict on the other's latency against the baseline's."""


def rounds_in_turns(one: Mapping[int, Any], other: Mapping[int, Any]) -> list[int]:
    """The numbers of the rounds, in order, of the start of each launch of two sides by its number; none if the launches
    did not alternate: both of a round begin before those of the next."""
    spans = {number: sorted((one[number], other[number])) for number in one.keys() & other.keys()}
    in_order = sorted(spans, key=spans.__getitem__)
    if any(spans[number][1] >= spans[following][0] for number, following in pairwise(in_order)):
        return []
    return in_order


def clock_step(evidence: Iterable[Mapping[str, Any]]) -> float:
    """The step of a result's clock over its calls, by the evidence of its doubts; 0 without a coarse one."""
    steps = (one.get("clock_step_over_median") for one in evidence)
    return max((min(step, MOST_STEP_OVER_MEDIAN) for step in steps if is_number(step)), default=0.0)


def pair_of_launches(
    values: tuple[Mapping[int, float], Mapping[int, float]],
    starts: tuple[Mapping[int, Any], Mapping[int, Any]],
    clock_steps: tuple[float, float] = (0.0, 0.0),
    *,
    is_simulated: bool = False,
) -> Pair:
    """The rounds of the launches of two sides, of their values and starts by number."""
    one, other = (
        {number: start for number, start in begun.items() if number in own}
        for own, begun in zip(values, starts, strict=True)
    )
    numbers = rounds_in_turns(one, other)
    if not numbers and values[0].keys() & values[1].keys():
        return Pair(why_not_comparable=f"{NOT_IN_TURNS}; {AB_HINT}")
    is_order_known = all(one[number] != other[number] for number in numbers)
    return Pair(
        rounds=tuple((values[0][number], values[1][number]) for number in numbers),
        is_first=tuple(one[number] < other[number] for number in numbers) if is_order_known else (),
        clock_steps=clock_steps,
        is_simulated=is_simulated,
    )


def speedups(pairs: Sequence[tuple[Result, Result]]) -> list[Speedup | None]:
    """The speedup of each second result over the first, judged as one comparison; None if either has no median above
    0."""
    rounds = []
    for baseline, other in pairs:
        base_medians, other_medians = launch_medians_ms(baseline), launch_medians_ms(other)
        starts = [
            {
                one.launch: start
                for one in result.samples
                if one.launch in medians
                and (one.phase, one.metric) == ("measure", LATENCY_WALL)
                and (start := _time(one.started_at)) is not None
            }
            for result, medians in ((baseline, base_medians), (other, other_medians))
        ]
        steps = [clock_step(one.evidence for one in result.doubts) for result in (baseline, other)]
        rounds.append(pair_of_launches((base_medians, other_medians), (starts[0], starts[1]), (steps[0], steps[1])))
    judgements = judge(rounds, METRICS[DEFAULT_METRIC])
    return [
        speedup(judgement, _median(baseline), _median(other))
        for (baseline, other), judgement in zip(pairs, judgements, strict=True)
    ]


def _time(text: str) -> datetime | None:
    """A time of a run file, which may have no zone; None for a text that is none."""
    try:
        return naive_utc(datetime.fromisoformat(text))
    except (OverflowError, ValueError):
        return None


def speedup(judgement: Judgement, baseline: Median, other: Median) -> Speedup | None:
    """The speedup of a judgement of the other's latency against the baseline's; that of the medians if it has no
    interval. None if either median is unknown or not above 0."""
    if not baseline.value or not other.value or min(baseline.value, other.value) <= 0:
        return None
    if judgement.change is not None and judgement.low is not None and judgement.high is not None:
        # Of 12 digits, so that ratios that are equal but for rounding are equal.
        ends = (judgement.change, judgement.high, judgement.low)
        ratio, low, high = (float(f"{1 / (1 + change):.12g}") for change in ends)
        return Speedup(ratio=ratio, low=low, high=high, scope="between", judgement=judgement)
    ratio, change = baseline.value / other.value, other.value / baseline.value - 1
    reason = judgement.reason if NOT_IN_TURNS in (judgement.reason or "") else FEW_LAUNCHES
    unjudged = Judgement(verdict="not judged", reason=reason, before=baseline.value, after=other.value, change=change)
    base, own = _distances(baseline), _distances(other)
    if base is None or own is None:
        return Speedup(ratio=ratio, judgement=unjudged)
    low, high = ratio * exp(-hypot(base[0], own[1])), ratio * exp(hypot(base[1], own[0]))
    return Speedup(ratio=ratio, low=low, high=high, scope="within", judgement=unjudged)


def launch_medians_ms(result: Result) -> dict[int, float]:
    """The median latency of each launch by its number, without values that are not above 0."""
    medians = {
        samples.launch: median(samples.values)
        for samples in result.samples
        if samples.phase == "measure" and samples.metric == LATENCY_WALL and samples.values
    }
    return {launch: value for launch, value in medians.items() if value > 0}


def _median(result: Result) -> Median:
    names = ("latency_median_ms", "latency_ci_low_ms", "latency_ci_high_ms")
    value, low, high = (result.metrics.get(name) for name in names)
    return Median(value=value, low=low, high=high)


def _distances(median: Median) -> tuple[float, float] | None:
    """Log distances from a median to the lower and upper end of its interval; None without an interval."""
    if not median.value or not median.low or not median.high or min(median.value, median.low, median.high) <= 0:
        return None
    return log(median.value / median.low), log(median.high / median.value)

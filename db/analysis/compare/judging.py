"""Judges the difference of two results by the values of their launches. Pure.

With a(i) and b(j) the logarithms of the launches' own values, n and m how many there are, and s their standard
deviations:

    change     exp(mean b - mean a) - 1: the ratio of the geometric means
    SE^2       s_a^2 / n + s_b^2 / m, and for sides that were not interleaved + r_a^2 + r_b^2, r being the variation
               between runs of a side's series (`run_scatter`): neither s has what the launches of a run share
    df         SE^4 / sum of each term squared over its own degrees of freedom (Welch and Satterthwaite)
    interval   95 %, exp(mean b - mean a -+ t(0.975, df) SE) - 1
    p          two-sided, of t = (mean b - mean a) / SE
    q          Benjamini and Hochberg's, over all differences that are judged together

A difference is a change where q <= 0.01 and it is at least 2 %. Samples inside a launch are not used: without a true
change, a test on them finds one in a third of all cases. Worked examples are in the tests.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean, median
from typing import Literal

from benchmarking.core.metrics import Metric

MAX_Q = 0.01
MIN_CHANGE = 0.02
"""Smaller changes are never reported; an interval inside it means equivalent."""
CONFIDENCE = 0.95
MIN_LAUNCHES = 3
"""With 2 on a side, the interval is too wide to be useful, and its width is mostly chance."""
MIN_HISTORY_RUNS = 5
"""The median of 4 differences is mostly within a factor of two of the truth."""
MEDIAN_OF_ABSOLUTE_NORMAL = 0.6744897501960817
SMALL = f"the change is significant, but may be smaller than {MIN_CHANGE:.0%}"
WIDE = f"the interval is too wide to tell a change of {MIN_CHANGE:.0%} from none"
Word = Literal["faster", "slower", "more", "less", "equivalent", "inconclusive", "not comparable"]
Scope = Literal["interleaved", "between sessions", "within session"]
WORDS: Mapping[str, tuple[Word, Word]] = {"MB": ("more", "less")}
"""Unit -> words for a rise and a fall; other units have faster and slower."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunScatter:
    """The variation between runs of a series."""

    sd: float
    """Of the logarithm of a run's value: 0.01 is about 1 %."""
    runs: int
    """It was seen in."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """Two results of a point, as far as judging them goes."""

    before: tuple[float, ...]
    """Each launch's own value, in the metric's unit."""
    after: tuple[float, ...]
    why_not: str | None = None
    """Why they are not to be compared; None where they are."""
    is_interleaved: bool = False
    run_scatter: tuple[RunScatter, RunScatter] | None = None
    """Of the two sides' series; None where their history is too short."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The judgement of a pair. Changes are relative: 0.1 is 10 % more."""

    verdict: Word
    reason: str | None = None
    """Why the verdict is inconclusive or not comparable."""
    is_worse: bool | None = None
    """Whether the change is for the worse; None without a change."""
    before: float | None = None
    """Geometric mean of the launches' values, in the metric's unit; None where it is not comparable."""
    after: float | None = None
    change: float | None = None
    low: float | None = None
    """Of the change's 95 % interval; None with fewer than 3 launches on a side."""
    high: float | None = None
    p_value: float | None = None
    q_value: float | None = None
    scope: Scope | None = None
    """What the interval covers: interleaved sides, runs of different sessions, or these sessions only."""


def judge(pairs: Sequence[Pair], metric: Metric) -> tuple[Judgement, ...]:
    """Judge all pairs as one comparison, over which the share of false discoveries is limited."""
    compared = [_compared(pair) for pair in pairs]
    found = [one.p_value for one in compared if one.p_value is not None]
    q_values = iter(false_discovery_rates(found))
    return tuple(
        one if one.p_value is None else _with_verdict(replace(one, q_value=next(q_values)), metric) for one in compared
    )


def false_discovery_rates(p_values: Sequence[float]) -> list[float]:
    """Benjamini and Hochberg's q of each p: the least of p(k) * n / k over its own rank and all higher ones.

    Equal to `scipy.stats.false_discovery_control`, which takes more than a second to import.
    """
    order = sorted(range(len(p_values)), key=p_values.__getitem__)
    q_values = [0.0] * len(p_values)
    least = 1.0
    for rank in range(len(order), 0, -1):
        place = order[rank - 1]
        least = min(least, p_values[place] * len(order) / rank)
        q_values[place] = least
    return q_values


def run_scatter(values: Sequence[float]) -> RunScatter | None:
    """The variation between runs, from one value for each, oldest first; None for fewer than 5 runs.

    The median of |ln v(k + 1) - ln v(k)|, over 0.6745 and sqrt 2, which makes it the standard deviation where the
    runs are independent. Neighbours, since those are compared, and the median, since one change of level must not hide
    the next. It includes the variation of launches inside a run, so that it errs on the wide side.
    """
    logs = [math.log(value) for value in values if value > 0]
    if len(logs) < MIN_HISTORY_RUNS:
        return None
    differences = [abs(later - earlier) for earlier, later in itertools.pairwise(logs)]
    return RunScatter(sd=median(differences) / MEDIAN_OF_ABSOLUTE_NORMAL / math.sqrt(2), runs=len(logs))


def _compared(pair: Pair) -> Judgement:
    """The change and, with enough launches, its interval; without the final verdict."""
    if pair.why_not is not None:
        return Judgement(verdict="not comparable", reason=pair.why_not)
    if not pair.before or not pair.after or min(*pair.before, *pair.after) <= 0:
        return Judgement(verdict="not comparable", reason="a value is not above 0, so there is no ratio")
    before, after = ([math.log(value) for value in values] for values in (pair.before, pair.after))
    plain = Judgement(
        verdict="inconclusive",
        before=math.exp(fmean(before)),
        after=math.exp(fmean(after)),
        change=math.expm1(fmean(after) - fmean(before)),
    )
    if min(len(before), len(after)) < MIN_LAUNCHES:
        counts = f"{len(before)} and {len(after)}"
        return replace(plain, reason=f"{counts} launches: a verdict requires {MIN_LAUNCHES} on each side")
    scatter = () if pair.is_interleaved else pair.run_scatter
    scope: Scope = "interleaved" if pair.is_interleaved else "between sessions" if scatter else "within session"
    low, high, p_value = _welch(before, after, scatter or ())
    return replace(plain, low=low, high=high, p_value=p_value, scope=scope)


def _welch(before: Sequence[float], after: Sequence[float], scatter: Sequence[RunScatter]) -> tuple[float, ...]:
    """Low and high end of the change's interval, and p; without any variation the change is exact."""
    from scipy.special import stdtr, stdtrit

    difference = fmean(after) - fmean(before)
    terms = [(_variance(logs) / len(logs), len(logs) - 1.0) for logs in (before, after)]
    terms += [(each.sd**2, _degrees(each)) for each in scatter]
    squared = sum(term for term, _ in terms)
    if squared == 0:
        change = math.expm1(difference)
        return change, change, 1.0 if difference == 0 else 0.0
    degrees = squared**2 / sum(term**2 / own for term, own in terms)
    half = float(stdtrit(degrees, 0.5 + CONFIDENCE / 2)) * math.sqrt(squared)
    p_value = 2 * float(stdtr(degrees, -abs(difference) / math.sqrt(squared)))
    return math.expm1(difference - half), math.expm1(difference + half), p_value


def _variance(values: Sequence[float]) -> float:
    """The sample variance; `statistics.variance` uses fractions, which takes a hundred times as long."""
    mean = fmean(values)
    return math.fsum((value - mean) ** 2 for value in values) / (len(values) - 1)


def _degrees(scatter: RunScatter) -> float:
    """Degrees of freedom of the median difference: a third of those of a variance, by simulation."""
    return (scatter.runs - 1) / 3


def _with_verdict(one: Judgement, metric: Metric) -> Judgement:
    assert one.change is not None
    assert one.low is not None
    assert one.high is not None
    assert one.q_value is not None
    if one.q_value <= MAX_Q and abs(one.change) >= MIN_CHANGE:
        return replace(one, verdict=word(one.change, metric), is_worse=metric.is_worse(one.change))
    if max(-one.low, one.high) <= MIN_CHANGE:
        return replace(one, verdict="equivalent")
    return replace(one, reason=SMALL if one.q_value <= MAX_Q else WIDE)


def word(change: float, metric: Metric) -> Word:
    """The word for a change of the metric."""
    if metric.unit in WORDS:
        rise, fall = WORDS[metric.unit]
        return rise if change > 0 else fall
    return "slower" if metric.is_worse(change) else "faster"

"""The gate: judges the newest values of series by the runs before them, and says where the machine rather than the code
changed. Pure.

The prediction is that of `nights`: a run is worse if it lies beyond what the earlier runs, and those of the other
series of the check, let expect, and by more than 2 %. All series of a check share a budget of false alarms: on at most
5 % of the nights anything is called worse without a change, on up to 9 % where series have fewer than twenty runs
(`tests/perf/gate.py` prints the share for many kinds of noise), and after `--confirm` on at most 1 %. A slow, steady
movement is the verdict "trend": no commit is to blame for it.

After a change of the machine nearly everything has moved in the same direction. The rules, for results of one machine
in one session:

    1. Shared code counts once: the points of one model, runtime and precision (a `group`) move together whenever their
       code changes, so a group counts once, by its median.
    2. There are at least 5 groups: by chance alone, 4 groups move in the same direction 1 time in 8.
    3. At least 80 % of the groups moved in the same direction, and fair coins would do so at most 1 time in 20
       (one-sided sign test; unchanged groups count as moved in the other direction).
    4. Their median change is at least 1 %.
    5. All findings moved in that direction.

2026-11-21: rule 3 is required in addition to rule 5, since a change of code that several models share also moves all
findings in one direction; only the series without a finding tell the two apart. A new version of torch that slows
everything down meets the rules as well. So the verdict tells where to look first, and never cancels a regression: one
that shows again in a fresh session on an idle machine must still be explained.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from math import comb, log
from statistics import median
from typing import Literal

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import Metric
from benchmarking.core.text import counted, grouped, number
from benchmarking.core.verdicts.sessions import SITTING, is_same_hour
from benchmarking.core.verdicts.words import MIN_CHANGE, NEARLY_NONE
from db.analysis.gate.nights import TOGETHER, Night, Outlook, Series, outlooks

DETECTOR = "prediction-interval"
DETECTOR_VERSION = "7"
Outcome = Literal["fine", "worse", "better", "trend", "too_noisy", "not_enough_data"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """The gate's settings."""

    false_alarms: float = 0.05
    """Share of the checks that call anything worse although nothing changed, from `1 / false_alarms` runs on."""
    confirmation_share: float = 0.001
    """The share for the fresh session of a confirmation. It is smaller, since the machine may still be in the state
    that raised the alarm."""
    min_change: float = MIN_CHANGE
    """Changes up to this fraction are fine, even significant ones: nobody acts on them."""
    min_points: int = 10
    """Minimum runs: with fewer, the interval is too wide to be useful."""
    max_points: int = 60
    """Maximum runs: machines drift, and more runs hardly make the interval narrower."""
    min_points_after_change: int = 2
    """Minimum runs since a change of level: with fewer than `min_points`, these give the new level, and the runs before
    the change give the variation."""


PARAMETERS = Parameters()
LEAST_ABOUT_AN_HOUR, MOST_ALONE = 2, 0.1
"""Earlier runs that show what an hour of the day does, and the share of the earlier runs without so many others about
their hour up to which those were at fixed hours."""
RECOVERED = 0.5
"""Share of a change that is left, below which it is over."""
EARLY_RUNS, EARLY_FALSE_ALARMS = 20, 0.09
"""With fewer runs, this share of the checks may have a false alarm (`tests/perf/gate.py`): the limit lies beyond all of
them."""


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
    """The predicted value. None without a verdict, like all fields below."""
    low: float | None = None
    """Ends of the prediction interval of one run, for all series of the check together; at least `min_change` wide."""
    high: float | None = None
    relative_change: float | None = None
    """value / centre - 1"""
    together: int = 1
    """Number of newest runs that lie beyond the prediction together."""
    trend_per_run: float | None = None
    """Relative change from one run to the next, of a trend; None without one."""
    trend_runs: int | None = None
    """Number of runs of the trend."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """A value to be judged, with its history."""

    segments: tuple[tuple[Night, ...], ...]
    """The earlier runs by level, oldest first; the last segment is the value's own."""
    newest: Night | None
    """None if it was not measured: its history then still counts for the other series of the check."""
    metric: Metric
    since: str | None = None
    """The change at which its own segment begins, in words; None if it is not known, or without one."""
    is_simulated: bool = False
    """Whether a script or an emulator gave the values: they are exact."""


def judge_all(cases: Sequence[Case], *, is_confirmation: bool = False) -> list[Judgement | None]:
    """Judge all series of a check as one family; None for a case without a newest run.

    For a confirmation, the newest runs are those of a fresh session, and count by themselves.
    """
    without = [sum(night.value <= 0 for segment in case.segments for night in segment) for case in cases]
    cases = [_without_copies(case) for case in cases]
    used = [_history(case) for case in cases]
    reasons = [
        _why_not(case, past, count) or (None if is_confirmation else _why_other_hour(case, past))
        for case, past, count in zip(cases, used, without, strict=True)
    ]
    members = [index for index, reason in enumerate(reasons) if reason is None]
    series = [
        Series(
            past=used[index],
            newest=_newest(cases[index], used[index]),
            rise_is_worse=cases[index].metric.is_worse(1.0),
            is_simulated=cases[index].is_simulated,
        )
        for index in members
    ]
    found = outlooks(
        series,
        PARAMETERS.confirmation_share if is_confirmation else PARAMETERS.false_alarms,
        (1,) if is_confirmation else TOGETHER,
        is_confirmation=is_confirmation,
    )
    by_index = dict(zip(members, found, strict=True))
    return [
        None
        if case.newest is None
        else _judgement(case, used[index], by_index.get(index), reasons[index], is_confirmation=is_confirmation)
        for index, case in enumerate(cases)
    ]


def _newest(case: Case, past: Sequence[Night]) -> Night | None:
    """The newest run; a rate of 0 as one far below all others."""
    if case.newest is None or not _is_none_left(case):
        return case.newest
    return replace(case.newest, value=min(night.value for night in past) * NEARLY_NONE)


def without_open_alarms(runs: Sequence[str], alarmed: Collection[str]) -> int:
    """How many of the runs, oldest first, count in a history, given the runs of untriaged alarms.

    Alarmed runs at the end do not count: an untriaged regression must not become the new normal. Followed by a run that
    was fine, they were a disturbance: it may come again, so it counts as variation. Otherwise each recurrence of a slow
    mode would be another alarm.
    """
    count = len(runs)
    while count and runs[count - 1] in alarmed:
        count -= 1
    return count


def is_left(value: float, before: float, change: float) -> bool:
    """Whether enough of a relative change from a value before is left at a later value for it not to be over."""
    return (value / before - 1) / change >= RECOVERED


def seen_levels(levels: Sequence[tuple[bool, int]]) -> int:
    """How many levels of a history, oldest first, count, given of each whether it began for the worse without an alert,
    and its number of runs. One that did is no normal level until it has as many runs as judge by themselves."""
    count = len(levels)
    while levels[count - 1][0] and levels[count - 1][1] < PARAMETERS.min_points:
        count -= 1
    return count


def _history(case: Case) -> tuple[Night, ...]:
    """The newest runs; those of earlier segments are moved to the level of the last one, since only their variation
    counts."""
    own = case.segments[-1][-PARAMETERS.max_points :]
    if not own or len(own) < PARAMETERS.min_points_after_change:
        return own
    level = median(night.value for night in own)
    moved: list[Night] = []
    for segment in case.segments[:-1]:
        if len(segment) > 1:
            factor = level / median(night.value for night in segment)
            moved += [replace(one, value=one.value * factor) for one in segment]
    space = PARAMETERS.max_points - len(own)
    return (*(moved[-space:] if space else ()), *own)


def _without_copies(case: Case) -> Case:
    """The case with the runs of its segments that have a value, without copies, also of the newest run."""
    *earlier, own = case.segments
    return replace(case, segments=(*map(_stored_once, earlier), _stored_once(own, case.newest)))


def _stored_once(segment: Sequence[Night], newest: Night | None = None) -> tuple[Night, ...]:
    """The runs of a segment with a value, without copies: a session that was stored twice has the same start and the
    same value, and is no second witness."""
    seen = set[tuple[object, float]]() if newest is None else {(newest.time, newest.value)}
    own = []
    for night in segment:
        key = (night.time, night.value)
        if night.value > 0 and (night.time is None or key not in seen):
            own.append(night)
        seen.add(key)
    return tuple(own)


def _why_not(case: Case, past: Sequence[Night], without: int) -> str | None:
    """Why the value cannot be judged; None if it can. So many runs are left out as `without` a value above 0."""
    own = len(case.segments[-1])
    left_out = f" ({without} without a value above 0 left out)" if without else ""
    if len(past) < PARAMETERS.min_points:
        earlier = map(len, case.segments[:-1])
        before = sum(runs for runs in earlier if runs > 1)  # a single run at a level shows no variation
        if not before:
            return f"{counted(own, 'earlier run')}{left_out}, at least {PARAMETERS.min_points} required"
        since = f"too few since {case.since or 'the last change of level'}: {counted(own, 'run')}{left_out}"
        if own < PARAMETERS.min_points_after_change:
            return f"{since}, at least {PARAMETERS.min_points_after_change} required beside the {before} before it"
        return f"{since} and {before} before it, at least {PARAMETERS.min_points} required together"
    if case.newest is not None and case.newest.value <= 0 and not _is_none_left(case):
        return "the value is not positive, so it has no logarithm"
    return None


def _why_other_hour(case: Case, past: Sequence[Night]) -> str | None:
    """Why nothing tells what the newest run's hour of the day does, where the earlier runs were at others: then their
    variation does not include it. Those of any hour do."""
    times = [night.time for night in past if night.time is not None]
    own = None if case.newest is None else case.newest.time
    if own is None or len(times) < len(past):
        return None
    alike = sum(is_same_hour(own, time) for time in times)
    if alike >= LEAST_ABOUT_AN_HOUR:
        return None
    # Runs of other days, since those of one day tell nothing of what comes back.
    others = (sum(is_same_hour(one, time) and abs(one - time) > SITTING for time in times) for one in times)
    if sum(count < LEAST_ABOUT_AN_HOUR for count in others) > MOST_ALONE * len(times):
        return None
    runs = counted(len(times), "earlier run")
    return (
        f"measured at {own:%H:%M} UTC, {alike} of {runs} about that time of day (the last one: {times[-1]:%H:%M}), "
        f"at least {LEAST_ABOUT_AN_HOUR} required, since the hour may matter"
    )


def _is_none_left(case: Case) -> bool:
    """Whether a rate of which more is better has become 0."""
    return case.newest is not None and case.newest.value == 0 and case.metric.better == "higher"


def _judgement(
    case: Case,
    past: Sequence[Night],
    outlook: Outlook | None,
    why: str | None,
    *,
    is_confirmation: bool,
) -> Judgement:
    assert case.newest is not None
    value, own = case.newest.value, min(len(case.segments[-1]), len(past))
    if outlook is None:
        return Judgement(outcome="not_enough_data", value=value, n=own, why=why)
    latest = [night.value for night in past[len(past) - outlook.together + 1 :]] if outlook.together > 1 else []
    shift = sum((*latest, value)) / (len(latest) + 1) / outlook.centre - 1
    is_large = abs(shift) > PARAMETERS.min_change
    outcome: Outcome = "fine"
    is_beyond = (outlook.is_worse and case.metric.is_worse(shift)) or (
        outlook.is_better and not case.metric.is_worse(shift)
    )
    # A run beside others that were worse, by which they are over, is not worse.
    if is_beyond and is_large and is_left(value, outlook.centre, shift):
        outcome = "trend" if outlook.is_gradual else "worse" if case.metric.is_worse(shift) else "better"
    elif outlook.trend is not None:
        outcome = "trend"
    if outcome == "fine":
        found = [night.value for night in past[len(past) - own :]]
        since = f" since {case.since or 'the last change of level'}" if len(case.segments) > 1 else ""
        runs = f"{counted(len(found), 'run')}{since}"
        if len(found) < PARAMETERS.min_points and not 1 / MOST_UNJUDGED < 1 + shift < MOST_UNJUDGED:
            varied = f"{runs} that differ by up to a factor of {number(max(found) / min(found), 2)}"
            why = f"{varied} do not tell {number(1 + shift, 2)} times the predicted value from their variation"
            return Judgement(outcome="not_enough_data", value=value, n=own, why=why)
        least = 1.0
        if not is_confirmation:  # which is judged even in a wide interval
            least = outlook.high / outlook.centre if case.metric.is_worse(1.0) else outlook.centre / outlook.low
        if least > MOST_UNJUDGED:  # a gate that hardly anything can fail says nothing
            varied = f"{runs} that differ by up to a factor of {number(max(found) / min(found), 2)}"
            why = (
                f"{varied} are too noisy: only a change by a factor of more than {number(min(least, MOST_SHOWN), 2)} "
                "would be found: measure on a quieter machine, or with more launches"
            )
            return Judgement(outcome="too_noisy", value=value, n=own, why=why)
    trend = outlook.trend
    return Judgement(
        outcome=outcome,
        value=value,
        n=own,
        borrowed=len(past) - own,
        centre=outlook.centre,
        low=min(outlook.low, outlook.centre * (1 - PARAMETERS.min_change)),
        high=max(outlook.high, outlook.centre * (1 + PARAMETERS.min_change)),
        relative_change=value / outlook.centre - 1,
        together=outlook.together if outcome in ("worse", "better") else 1,
        trend_per_run=None if trend is None else trend.per_run,
        trend_runs=None if trend is None else trend.runs,
    )


MOST_UNJUDGED = 2.0
"""The factor from which a change within the interval of a few runs is not called fine, and from which an interval is
too wide to call anything fine."""
MOST_SHOWN = 1000.0
"""Factors are shown up to this one."""
MIN_GROUPS = 5
MIN_SHARE = 0.8
MAX_CHANCE = 0.05
MIN_SHARED_CHANGE = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class Shift:
    """The change of one series."""

    group: str
    """Equal for all series that share code: those of one model, runtime and precision."""
    ratio: float
    """After / before, or before / after if higher is better: above 1 is worse."""
    is_finding: bool
    """Whether it was judged a change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CommonShift:
    """The common change of a session's series."""

    direction: Literal["worse", "better"]
    moved: int
    """Groups that moved in that direction."""
    groups: int
    ratio: float
    """Median over the groups."""
    chance: float
    """Probability that as many fair coins agree."""

    @property
    def text(self) -> str:
        """In words."""
        return (
            f"{self.moved} of {self.groups} combinations of model, runtime and precision became {self.direction}, "
            f"by {abs(self.ratio - 1):.1%} (median; probability by chance {self.chance:.2g})"
        )


def common_shift(shifts: Iterable[Shift]) -> CommonShift | None:
    """The common change of the series of one machine and session, by the rules above. None if there is none, or if
    there are no findings to explain."""
    all_shifts = tuple(shifts)
    findings = [shift for shift in all_shifts if shift.is_finding]
    ratios = [median(of_group) for of_group in grouped((one.group, one.ratio) for one in all_shifts).values()]
    if len(ratios) < MIN_GROUPS or not findings:
        return None
    middle = median(ratios)
    is_worse = middle > 1
    moved = sum(ratio > 1 if is_worse else ratio < 1 for ratio in ratios)
    chance = sign_chance(moved, len(ratios))
    if moved < MIN_SHARE * len(ratios) or chance > MAX_CHANCE or abs(log(middle)) < log(1 + MIN_SHARED_CHANGE):
        return None
    if any((shift.ratio > 1) is not is_worse for shift in findings):
        return None
    direction: Literal["worse", "better"] = "worse" if is_worse else "better"
    return CommonShift(direction=direction, moved=moved, groups=len(ratios), ratio=middle, chance=chance)


def times_worse(change: float, metric: Metric) -> float:
    """How much worse a relative change makes a metric: 1.1 is 10 % slower, or 10 % fewer per second. A rate of 0 counts
    as one far below all others."""
    return 1 + change if metric.better == "lower" else 1 / (1 + change or NEARLY_NONE)


def sign_chance(heads: int, tosses: int) -> float:
    """Probability of at least as many heads in so many tosses of a fair coin."""
    return float(sum(comb(tosses, count) for count in range(heads, tosses + 1)) / 2**tosses)

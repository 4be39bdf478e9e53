"""The vocabulary of verdicts, and the sentence that sums several of them up.

There are five verdicts, whatever is compared (two commands, two runtimes of one session, stored runs, a night with the
nights before it):

    faster, slower    a change of at least 2 %; memory is "less" or "more", a custom metric "better" or "worse"
    equivalent        the interval of the change lies within 2 %
    not judged        neither could be shown; the reason is given, and the interval if there is one
    trend             the values moved slowly and steadily, so no single change is to blame

A comparison ends with 3 if no point has an interval to judge by, whatever the command. --fail-on slower[,not-judged]
makes it a gate of CI:

    slower       1 if any point became worse (slower, more memory); 3 if that is not known of a point, because it has
                 no interval, looks worse without enough evidence for a verdict, or varies so much that not even a
                 change of 50 % would have been found
    not-judged   3 if any point has no verdict, for whatever reason

A point whose interval includes "no change" passes `slower` even if it is too wide for "equivalent", and so does one
that changed by less than 2 % or for the better: as with `benchhouse check`, nothing speaks for a regression. What is
printed says how large a change would have been found, and how many points are worse by less.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import geometric_mean
from typing import Literal

from benchmarking.core.errors import EXIT_FAILED, EXIT_NOT_ENOUGH_DATA, EXIT_OK
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.metrics import Metric
from benchmarking.core.text import counted

SIMULATED = "simulated: the numbers come from a script or an emulator, not from a device"
MIN_CHANGE = 0.02
"""Smaller changes are never reported; an interval inside it means equivalent."""
NEARLY_NONE = 0.01
"""What a rate of 0 counts as, as a share of the least other one: values are compared by their logarithms."""
Word = Literal["faster", "slower", "better", "worse", "more", "less", "equivalent", "not judged", "trend"]
CHANGED: tuple[Word, ...] = ("slower", "faster", "worse", "better", "more", "less")
"""The verdicts that are a change."""
ORDER: tuple[Word, ...] = (*CHANGED, "trend", "equivalent", "not judged")
"""All verdicts, in the order in which they are listed."""
MOST_HALF_WIDTH = 0.1
"""A wider interval, relative to its ratio, is not even about it, and shown by its ends instead of ±."""
Scope = Literal["in turns", "between sessions"]
UNIT_WORDS: Mapping[str, tuple[Word, Word]] = {"MB": ("more", "less")}
"""Unit -> words for a rise and a fall. Other units use faster and slower, custom metrics better and worse."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """The judgement of two sides. Changes are relative: 0.1 is 10 % more."""

    verdict: Word
    reason: str | None = None
    """Why it is not judged."""
    is_worse: bool | None = None
    """Whether the change is a regression; None without a change."""
    before: float | None = None
    """In the metric's unit: the geometric mean over the rounds' launches, or over the sessions' values."""
    after: float | None = None
    change: float | None = None
    low: float | None = None
    """Ends of the 95 % interval of the change; None without one."""
    high: float | None = None
    detectable: float | None = None
    """The smallest change for the worse at one point that would be found with a probability of about 80 %: of a rate, a
    fall."""
    p_value: float | None = None
    q_value: float | None = None
    scope: Scope | None = None
    """What the interval covers; None without one."""
    is_decided: bool = False
    """Whether the interval lies on one side of 2 %, so more rounds would hardly change the verdict."""


def change_word(change: float, metric: Metric) -> Word:
    if metric.unit in UNIT_WORDS:
        rise, fall = UNIT_WORDS[metric.unit]
        return rise if change > 0 else fall
    if metric.source == "custom":
        return "worse" if metric.is_worse(change) else "better"
    return "slower" if metric.is_worse(change) else "faster"


def verdict_sentence(before: str, after: str, judgements: Sequence[Judgement], metric: Metric) -> str:
    """The verdicts on all points in a sentence about the two sides, which are given by name.

    "onnxruntime is 2.31 ± 0.04 times as fast as eager at 6 of 6 points". The figure is the geometric mean of the
    points' ratios, and ± the mean half-width of their 95 % intervals, or the interval if it is wide: the points of one
    launch vary together, so more points do not make it narrower. If the points differ by more than that, their range
    follows.
    """
    if not judgements:
        return f"{after} and {before} have no point in common"
    fixed: Mapping[Word, str] = {
        "equivalent": f"is equivalent to {before} (within {MIN_CHANGE:.0%})",
        "trend": f"differs from {before} by a slow trend, not by one change,",
        "not judged": f"is not judged against {before}",
    }
    clauses = []
    for word in ORDER:
        members = [judgement for judgement in judgements if judgement.verdict == word]
        if members:
            share = f"at {len(members)} of {counted(len(judgements), 'point')}"
            clause = f"{fixed[word]} {share}{_reasons(members)}" if word in fixed else ""
            clauses.append(clause or _times(before, members, metric, share))
    return f"{after} {'; '.join(clauses)}"


def _times(before: str, members: Sequence[Judgement], metric: Metric, share: str) -> str:
    """ "is 2.31 ± 0.04 times as fast as eager at 6 of 6 points (1.93 to 3.1)"; an interval that is not narrow is given
    by its ends, and the range only if the points' ratios are not all within the half-width of their mean."""
    ratios, lows, highs = list[float](), list[float](), list[float]()  # the ends of the intervals over their ratios
    for member in members:
        low, ratio, high = (None if one is None else 1 + one for one in (member.low, member.change, member.high))
        assert ratio is not None
        if member.verdict == "faster" and metric.better == "lower":
            low, ratio, high = 1 / high if high else None, 1 / ratio, 1 / low if low else None
        ratios.append(ratio)
        lows += [low / ratio] if low and ratio > 0 else []
        highs += [high / ratio] if high and ratio > 0 else []
    mean = geometric_mean(ratios) if min(ratios) > 0 else 0.0  # a rate may have fallen to 0
    low = mean * geometric_mean(lows) if mean and lows else None
    high = mean * geometric_mean(highs) if mean and highs else None
    half = 0.0 if low is None or high is None else (high - low) / 2
    figure, at = _figure(mean), share
    if max(max(ratios) - mean, mean - min(ratios)) > max(half, 0.01):
        at += f" ({_figure(min(ratios))} to {_figure(max(ratios))})"
    if low is not None and high is not None:
        if half <= MOST_HALF_WIDTH * mean:
            figure += f" ± {max(half, 0.01):.{2 if mean < 100 else 0}f}"
        else:
            figure += f" (95 % interval {_figure(low)} to {_figure(high)})"
    word = members[0].verdict
    if word in ("more", "less"):
        return f"needs {figure} times the memory of {before} {at}"
    if word in ("better", "worse"):
        return f"has {figure} times the {metric.words} of {before} ({word}) {at}"
    if word == "slower" and metric.better == "lower":
        return f"takes {figure} times as long as {before} {at}"
    return f"is {figure} times as fast as {before} {at}"


def _reasons(members: Sequence[Judgement]) -> str:
    """The most frequent reason, and how many points have another."""
    reasons = Counter(member.reason for member in members if member.reason)
    if members[0].verdict != "not judged" or not reasons:
        return ""
    ((reason, count),) = reasons.most_common(1)
    others = reasons.total() - count
    return f": {reason}" + (f" ({others} of them for other reasons)" if others else "")


def _figure(ratio: float) -> str:
    """A ratio with two decimals: a change of 2 % shows."""
    return f"{ratio:.2f}" if ratio < 100 else f"{ratio:.0f}"


MOST_SHOWN = 99.0
"""Changes from which a percentage says nothing."""
MOST_MISSED = 0.5
"""The largest change that a point without a verdict may have hidden from a gate that passes."""
FLAG = "--fail-on"
Condition = Literal["slower", "not-judged"]
WORDS: Mapping[str, Condition] = {
    **dict.fromkeys(("slower", "worse", "more", "regressed", "regression"), "slower"),
    **dict.fromkeys(("not-judged", "not judged", "unjudged", "undecided", "unknown"), "not-judged"),
}
"""What may be typed -> the condition; the other words for a regression depend on the metric and the command."""
EXIT_GATE_FAILED = 4
"""What the warehouse's child process answers for a failed gate; its 1 is an error."""
HELP = (
    "slower (or worse, more, regression): exit code 1 if B is slower at a point, 3 if one has no interval, looks "
    "slower, or is too noisy; slower,not-judged: 3 if any has no verdict (default: 3 if no point has an interval)"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What the conditions make of a comparison."""

    exit_code: int
    """1 slower, 3 not known, 0 otherwise."""
    text: str
    """Why, in a sentence; empty where there is a verdict and no condition."""


def conditions(text: str) -> tuple[Condition, ...]:
    """The conditions of `--fail-on`. Raises ArgumentTypeError for another word."""
    words = [word.strip().lower() for word in text.split(",")]
    for word in words:
        if word not in WORDS:
            raise argparse.ArgumentTypeError(f"takes slower or slower,not-judged: got {word!r}")
    return tuple(dict.fromkeys(WORDS[word] for word in words))


def outcome(judgements: Sequence[Judgement], metric: Metric, asked: Sequence[Condition]) -> Outcome:
    """What the conditions make of the judgements of all points that both sides have; without conditions, whether any
    of them has an interval."""
    if not asked:
        if any(judgement.scope is not None for judgement in judgements):
            return Outcome(exit_code=EXIT_OK, text="")
        return Outcome(exit_code=EXIT_NOT_ENOUGH_DATA, text="no point has a verdict")
    words, count = f"{FLAG} {','.join(asked)}", len(judgements)
    points = f"of {counted(count, 'point')}"
    if not judgements:
        return Outcome(exit_code=EXIT_NOT_ENOUGH_DATA, text=f"{words}: not known: no point is on both sides")
    worse = sum(judgement.is_worse is True for judgement in judgements)
    if worse and "slower" in asked:
        return Outcome(exit_code=EXIT_FAILED, text=f"{words}: failed: B is worse at {worse} {points}")
    unjudged = [judgement for judgement in judgements if judgement.verdict == "not judged"]
    unknown = sum("not-judged" in asked or _may_be_worse(judgement, metric) for judgement in unjudged)
    smallest = [judgement.detectable for judgement in unjudged if judgement.detectable is not None]
    least = f"{max(smallest):.1%}" if smallest and max(smallest) < MOST_SHOWN else "100 times as much"
    limit = f"; changes below {least} may have been missed there" if smallest else ""
    if unknown:
        noisy = limit if smallest and max(smallest) > MOST_MISSED else ""
        return Outcome(exit_code=EXIT_NOT_ENOUGH_DATA, text=f"{words}: not known at {unknown} {points}{noisy}")
    if "slower" not in asked:
        return Outcome(exit_code=EXIT_OK, text=f"{words}: passed: every point has a verdict")
    also = f", also at {len(unjudged)} {points} without a verdict{limit}" if unjudged else ""
    strict = f" ({FLAG} slower,not-judged does not pass that)" if unjudged else ""
    passing = (one for one in judgements if one.verdict in ("equivalent", "not judged") and not _includes_none(one))
    less = sum(one.change is not None and metric.is_worse(one.change) for one in passing)
    small = f"; worse by less, by the 95 % interval: {less} {points}" if less else ""
    passed = f"{words}: passed: nothing speaks for a change for the worse of {MIN_CHANGE:.0%} or more"
    return Outcome(exit_code=EXIT_OK, text=f"{passed}{also}{strict}{small}")


def _includes_none(judgement: Judgement) -> bool:
    """Whether the interval includes no change; a point without one shows none."""
    return judgement.low is None or judgement.high is None or judgement.low <= 0 <= judgement.high


def _may_be_worse(judgement: Judgement, metric: Metric) -> bool:
    """Whether a point without a verdict looks worse, or has no interval that could show it, or a very wide one."""
    if judgement.detectable is not None and judgement.detectable > MOST_MISSED:
        return True
    if judgement.low is None or judgement.high is None or judgement.change is None:
        return True
    return not _includes_none(judgement) and abs(judgement.change) >= MIN_CHANGE and metric.is_worse(judgement.change)

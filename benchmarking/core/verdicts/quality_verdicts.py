"""Judges the difference of a measure of quality between two models or runtimes. Pure.

Quality does not vary from launch to launch but from text to text, so the windows are the units. Runs on the same
windows are compared window by window, d(k) = b(k) - a(k), or ln b(k) - ln a(k) for a metric with a relative margin,
with Student's interval of mean d; others by both intervals, h^2 = h(a)^2 + h(b)^2. Questions are right or wrong, so
no difference in any of a few does not prove that there is none: d is the share that became right less the share that
became wrong, and its interval is made of Clopper and Pearson's of both (MOVER, Donner and Zou 2012).

    worse, better    the interval lies beyond the metric's margin (`QualityMetric.margin`) on that side
    equivalent       the interval lies within the margin
    not judged       neither could be shown, with the reason

Without a common reference, values of different windows have nothing in common: the perplexity of a simpler text is
lower for every model.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import fmean, stdev
from typing import Literal

from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.quality import CONFIDENCE, MIN_WINDOWS, QualityMetric, QualityValue
from benchmarking.core.sample_statistics import exact_share_interval
from benchmarking.core.student_t import quantile

QualityWord = Literal["worse", "accepted", "better", "equivalent", "not judged"]
"""accepted: worse, with an alert that somebody triaged as something else than a regression."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityVerdict:
    """The judgement of two values of a measure of quality."""

    verdict: QualityWord
    reason: str | None = None
    """Why it is not judged."""
    change: float | None = None
    """In the metric's unit; relative (0.1 is 10 % more) for a metric with a relative margin."""
    low: float | None = None
    """Ends of the 95 % interval of the change; None without one."""
    high: float | None = None
    is_paired: bool = False
    """Whether the windows were compared one by one."""


def judge_quality(
    before: QualityValue, after: QualityValue, metric: QualityMetric, *, same_windows: bool
) -> QualityVerdict:
    """Judge the change from `before` to `after`; `same_windows` if both are of the same windows in the same order."""
    ends = (before.low, before.high, after.low, after.high)
    values = (before.value, after.value, *before.by_window, *after.by_window, *(end for end in ends if end is not None))
    if metric.is_relative and min(values) <= 0:  # in a file of another tool
        return QualityVerdict(verdict="not judged", reason="a value is not positive")
    count = min(len(before.by_window), len(after.by_window))
    if same_windows and count >= MIN_WINDOWS:
        pairs = zip(_scaled(before.by_window[:count], metric), _scaled(after.by_window[:count], metric), strict=True)
        differences = [b - a for a, b in pairs]
        change = fmean(differences)
        if metric.source == "questions":
            below, above = _ends_of_shares(differences)
            return _verdict(change, below, above, metric, is_paired=True)
        half = quantile(0.5 + CONFIDENCE / 2, count - 1) * stdev(differences) / math.sqrt(count)
        return _verdict(change, half, half, metric, is_paired=True)
    a, b = _scaled([before.value, after.value], metric)
    if not same_windows and not metric.needs_reference:
        return QualityVerdict(verdict="not judged", reason=metric.other_inputs)
    if any(end is None for end in ends):
        change = _relative(b - a) if metric.is_relative else b - a
        return QualityVerdict(verdict="not judged", reason=metric.no_interval, change=change)
    a_low, a_high, b_low, b_high = _scaled([float(end) for end in ends if end is not None], metric)
    # The ends of an interval may be at different distances from its value.
    below, above = math.hypot(a_high - a, b - b_low), math.hypot(a - a_low, b_high - b)
    return _verdict(b - a, below, above, metric, is_paired=False)


def _ends_of_shares(differences: Sequence[float]) -> tuple[float, float]:
    """How far the interval of a difference of shares goes below and above it."""
    count = len(differences)
    gains, losses = sum(difference > 0 for difference in differences), sum(difference < 0 for difference in differences)
    (gain_low, gain_high), (loss_low, loss_high) = (exact_share_interval(one, count) for one in (gains, losses))
    gain, loss = gains / count, losses / count
    return math.hypot(gain - gain_low, loss_high - loss), math.hypot(gain_high - gain, loss - loss_low)


def _scaled(values: Sequence[float], metric: QualityMetric) -> list[float]:
    return [math.log(value) for value in values] if metric.is_relative else list(values)


def _relative(log_change: float) -> float:
    """0.1 for 10 % more; at most what a float can hold."""
    return math.expm1(min(log_change, 700.0))


def _verdict(change: float, below: float, above: float, metric: QualityMetric, *, is_paired: bool) -> QualityVerdict:
    low, high = change - below, change + above
    if metric.is_relative:
        change, low, high = _relative(change), _relative(low), _relative(high)
    rise: QualityWord = "worse" if metric.better == "lower" else "better"
    fall: QualityWord = "better" if metric.better == "lower" else "worse"
    word: QualityWord = "not judged"
    if low > metric.margin:
        word = rise
    elif high < -metric.margin:
        word = fall
    elif -metric.margin <= low and high <= metric.margin:
        word = "equivalent"
    reason = None
    if word == "not judged":
        reason = f"the interval is too wide to tell a change of {metric.margin_in_words} from none"
    return QualityVerdict(verdict=word, reason=reason, change=change, low=low, high=high, is_paired=is_paired)

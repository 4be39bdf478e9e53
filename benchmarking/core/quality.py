"""Quality of a model in a runtime: how far its outputs are from those of the eager float32 model, and how well it
predicts text.

Quality belongs to a loaded model, not to a point of the grid, so a run has one `Quality`. Every value has an interval
from windows, the units in which quality varies: parts of a text, or inputs.
`benchmarking/measure/quality_measures.py` computes the values, `judge_quality` compares them:

    worse, better    the interval of the difference lies beyond the metric's margin (`QualityMetric.margin`) on that
                     side
    equivalent       the interval lies within the margin
    not judged       neither could be shown, with the reason

Quality does not vary from launch to launch but from text to text, so the windows are the units. Runs on the same
windows are compared window by window, d(k) = b(k) - a(k), or ln b(k) - ln a(k) for a metric with a relative margin,
with the interval of mean d (`mean_interval`); others by both intervals, h^2 = h(a)^2 + h(b)^2. Questions are right or
wrong, so no difference in any of a few does not prove that there is none: d is the share that became right less the
share that became wrong, and its interval is made of Clopper and Pearson's of both (MOVER, Donner and Zou 2012). The
same holds where at least half of the windows did not change: each share then counts by the largest change, if that is
wider. If none changed, a measure that counts choices or tokens may have changed by the least that a window can: one
token of a text, a whole input. Any other measure has the same digits only if the outputs of the windows are the same.
No interval knows of a loss that no window has: 16 windows miss one in each 20th window in 44 % of the cases. Without a
common reference, values of different windows have nothing in common: the perplexity of a simpler text is lower for
every model.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, field
from itertools import pairwise
from statistics import fmean
from typing import Annotated, Any, Literal

from benchmarking.core.codec import Range
from benchmarking.core.lazy_dataclass import dataclass
from benchmarking.core.sample_statistics import exact_share_interval, mean_interval
from benchmarking.core.text import counted, ends, grouped, number, visible, why_text

Value = Annotated[float, Range(-1e300, 1e300)]
Source = Literal["inputs", "questions", "evaluation"]
"""What a measure is of: the inputs of the pass; the questions of a user's file, or an imported evaluation, which
`Quality.how` has under these names."""

TEXT_WINDOWS = 16
"""Windows of a text, or inputs of another task, by default: enough for an interval, and 1 024 tokens of output."""
CONTEXT_TOKENS, SCORED_TOKENS = 64, 64
"""Tokens of a window: its beginning is only context, its end is predicted. A window starts where the scored tokens of
the one before it start, so that every token is scored once."""
MIN_WINDOWS = 5
"""Fewest windows for an interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QualitySettings:
    """What quality is measured on."""

    text: str | None = None
    """Path of a text file; None for the one in the package."""
    windows: int = TEXT_WINDOWS
    """Windows of the text, fewer if it is too short; inputs of other tasks."""
    file: str | None = None
    """Path of a file of prompts with expected answers, which is scored too."""


@dataclass(frozen=True, slots=True)
class QualityMetric:
    """A measure of quality: a row of a table, whose first columns have no names there."""

    name: str
    """The metric in quality_results, and a column of the views."""
    better: Literal["lower", "higher"]
    heading: str
    title: str
    """Title of a chart's axis."""
    _: KW_ONLY
    unit: str = ""
    """Empty for shares, cosines and ratios."""
    margin: float = 0.01
    """Difference, in the metric's unit, below which two values are the same for use; relative if `is_relative`."""
    is_relative: bool = False
    """Whether differences are relative to the value before."""
    is_difference: bool = False
    """Whether it is a difference from the reference, shown with a sign."""
    counts: Literal["tokens", "inputs"] | None = None
    """What it counts, so that different outputs may have the same value; of inputs, of which one error may spoil the
    rest, as a whole. None for a measure of the outputs' numbers."""
    needs_reference: bool = True
    """Whether it compares with the eager float32 model."""
    source: Source = "inputs"
    other_inputs: str = "measured on different texts or tokens"
    """Why two values that were measured on different inputs are not judged, if it has no reference."""
    no_interval: str = f"fewer than {MIN_WINDOWS} windows"
    """Why a value has no interval."""

    @property
    def heading_with_unit(self) -> str:
        """Its column in a table of results: "KL (nats)"."""
        return f"{self.heading} ({self.unit})" if self.unit else self.heading

    @property
    def margin_in_words(self) -> str:
        """The margin with its unit: "1 %", "0.01 nats", "0.5 points"."""
        if self.is_relative:
            return f"{self.margin * 100:g} %"
        return " ".join(filter(None, (f"{self.margin:g}", self.unit)))


_METRICS = (
    QualityMetric("perplexity", "lower", "perplexity", "Perplexity", is_relative=True, needs_reference=False),
    QualityMetric(
        "perplexity_increase",
        "lower",
        "perplexity change",
        "Increase of the perplexity over eager float32 (%)",
        unit="%",
        margin=1.0,
        is_difference=True,
    ),
    QualityMetric("kl_divergence", "lower", "KL", "Mean KL divergence from eager float32 (nats)", unit="nats"),
    QualityMetric(
        "kl_divergence_p99",
        "lower",
        "KL p99",
        "99th percentile of the KL divergence from eager float32 (nats)",
        unit="nats",
        margin=0.1,
    ),
    QualityMetric(
        "top1_agreement", "higher", "top-1", "Share of equal first choices with eager float32", counts="tokens"
    ),
    QualityMetric(
        "embedding_cosine", "higher", "cosine", "Mean cosine similarity of embeddings with eager float32", margin=0.001
    ),
    QualityMetric(
        "embedding_rank_correlation",
        "higher",
        "rank corr",
        "Rank correlation of the similarities of pairs with eager float32",
    ),
    QualityMetric(
        "confidence_error",
        "lower",
        "confidence",
        "Mean difference of the first choice's probability from eager float32",
    ),
    QualityMetric(
        "token_error_rate", "lower", "TER", "Token error rate against the output of eager float32", counts="inputs"
    ),
    QualityMetric(
        "exact_match",
        "higher",
        "exact match",
        "Share of prompts with the expected answer",
        counts="inputs",
        needs_reference=False,
        source="questions",
        other_inputs="measured on other prompts or answers",
        no_interval=f"fewer than {MIN_WINDOWS} prompts",
    ),
    QualityMetric(
        "choice_accuracy",
        "higher",
        "right choices",
        "Share of prompts whose right choice is the likeliest",
        counts="inputs",
        needs_reference=False,
        source="questions",
        other_inputs="measured on other prompts or choices",
        no_interval=f"fewer than {MIN_WINDOWS} prompts",
    ),
    QualityMetric(
        "task_accuracy",
        "higher",
        "task score",
        "Mean score of the tasks of an evaluation",
        needs_reference=False,
        source="evaluation",
        other_inputs="the evaluations differ in their tasks, prompts or samples",
        no_interval="an evaluation states no standard errors",
    ),
    QualityMetric("latent_error", "lower", "latents", "Relative error of the latents against eager float32"),
)
QUALITY_METRICS: Mapping[str, QualityMetric] = {metric.name: metric for metric in _METRICS}
"""By name. The order is that of tables."""
OF_INPUTS = tuple(name for name, metric in QUALITY_METRICS.items() if metric.source == "inputs")
"""Those that every pass measures, or says why not."""
OF_QUESTIONS = tuple(name for name, metric in QUALITY_METRICS.items() if metric.source == "questions")
"""Those of a file of questions."""

QUALITY_LIMITS: Mapping[Any, str] = {
    "kl": "kl_divergence",
    "agreement": "top1_agreement",
    "perplexity_increase": "perplexity_increase",
}
"""Limits on quality that every pass measures (`benchmarking.core.shared_settings`) -> the measure."""
ALL_QUALITY_LIMITS: Mapping[Any, str] = {
    **QUALITY_LIMITS,
    **{name: name for name in OF_QUESTIONS},
    "accuracy": "task_accuracy",
}
"""Those, and the limits on the scores of a file of questions and of imported evaluations."""
TO_MEASURE: Mapping[Source, str] = {
    "inputs": "quality was not measured: benchhouse run --quality",
    "questions": "no questions were asked: benchhouse run --quality-file FILE",
    "evaluation": "no evaluation of this precision and engine is imported: benchhouse import results_TIME.json",
}
"""What to do where a measure was not measured."""


def source_of(metric: str) -> Source:
    """What a measure is of; the inputs of the pass for one of a later version."""
    return QUALITY_METRICS[metric].source if metric in QUALITY_METRICS else "inputs"


@dataclass(frozen=True, slots=True, kw_only=True)
class QualityValue:
    """A measure of quality of a model in a runtime."""

    value: Value
    low: Value | None = None
    """95 % interval over windows; None below `MIN_WINDOWS` windows."""
    high: Value | None = None
    by_window: tuple[Value, ...] = ()
    """The value of each window, in order; empty for a metric without one. Those of two runs on the same windows are
    compared window by window."""
    inputs: str | None = None
    """Digest of what was scored; None for that of its `Quality`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quality:
    """The quality of a run's model, on the windows that `inputs` identifies."""

    inputs: str
    """Digest of what was scored: equal for runs whose windows can be compared one by one; empty if nothing was."""
    values: Mapping[str, QualityValue] = field(default_factory=dict)
    """By metric."""
    missing: Mapping[str, str] = field(default_factory=dict)
    """Metric -> why it has no value."""
    how: Mapping[str, Any] = field(default_factory=dict)
    """What was measured: source of the inputs, windows, tokens, stride, reference, seconds; the same of another source
    (`Source`) under its name."""

    def how_of(self, source: Source) -> Mapping[str, Any]:
        """How the measures of a source were measured; empty if that is not known, as from a file of another tool."""
        found = self.how if source == "inputs" else self.how.get(source)
        return found if isinstance(found, Mapping) else {}

    def same_inputs(self, metric: str, other: Quality) -> bool:
        """Whether both have a value of the metric that was scored on the same inputs."""
        first, second = (quality.values[metric].inputs or quality.inputs for quality in (self, other))
        return bool(first) and first == second


def without_quality(why: str, metrics: tuple[str, ...] = OF_INPUTS) -> Quality:
    """A pass that has no values, for one reason."""
    return Quality(inputs="", missing=dict.fromkeys(metrics, why))


def quality_lines(quality: Quality) -> list[str]:
    """The quality in words: a line for each source with the values and their intervals, and one for each reason of
    missing ones."""
    lines = list[str]()
    by_source = grouped((source_of(name), quality_text(name, one)) for name, one in quality.values.items())
    for source, shown in by_source.items():
        how = quality.how_of(source)
        count = how.get("windows", "?")
        if "file" in how:
            asked = sum(len(one.by_window) for name, one in quality.values.items() if source_of(name) == source)
            where = f" ({asked} prompts of {how['file']}{_left_out(how)})"
        elif "harness" in how:
            where = f" ({counted(count, 'task')} of {how['harness']})"
        elif "text" in how:
            planned = how.get("windows_planned", count)
            ended = "" if planned == count else f" of {planned}"
            why = "; the time was over, and other windows are another text" if ended else ""
            where = f" ({count}{ended} windows of {how['text']}{why})"
        else:
            where = f" (at {how['point']})" if "point" in how else ""
        lines.append(f"quality: {', '.join(shown)}{visible(where)}")
    return [*lines, *missing_lines(quality)]


def _left_out(how: Mapping[str, Any]) -> str:
    """The lines of a file that were no questions: "; left out: line 3 (not JSON), line 7 (no answer)"."""
    lines, count = how.get("left_out"), how.get("left_out_count")
    if not isinstance(lines, Mapping) or not lines:
        return ""
    shown = [f"line {line} ({why})" for line, why in lines.items()]
    more = f" and {count - len(shown)} more" if isinstance(count, int) and count > len(shown) else ""
    return f"; left out: {', '.join(shown)}{more}"


def missing_lines(quality: Quality) -> list[str]:
    """A line for each reason of missing measures."""
    by_reason = grouped((why_text(why), name) for name, why in quality.missing.items())
    starts = {why: f"no {', '.join(names)}" if quality.values else "not measured" for why, names in by_reason.items()}
    return [f"quality: {start}: {why}" for why, start in starts.items()]


def quality_text(name: str, found: QualityValue) -> str:
    """A value with its interval: "KL 0.0021 (0.0018 .. 0.0024) nats"."""
    metric = QUALITY_METRICS.get(name)
    heading, unit = (name, "") if metric is None else (metric.heading, metric.unit)
    sign = "+" if metric is not None and metric.is_difference and found.value > 0 else ""
    return f"{heading} {sign}{interval_text(found)}{f' {unit}' if unit else ''}"


def interval_text(found: QualityValue) -> str:
    """A value with its interval: "0.0021 (0.0018 .. 0.0024)"."""
    interval = "" if found.low is None or found.high is None else f" ({' .. '.join(ends(found.low, found.high))})"
    return f"{number(found.value)}{interval}"


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
    is_paired = same_windows and count >= MIN_WINDOWS
    wide = f"the interval is too wide to tell a change of {metric.margin_in_words} from none"
    if is_paired:
        pairs = zip(_scaled(before.by_window[:count], metric), _scaled(after.by_window[:count], metric), strict=True)
        differences = [b - a for a, b in pairs]
        change, (below, above) = fmean(differences), (0.0, 0.0)
        if metric.source != "questions":
            low, high = mean_interval(differences)
            below, above = change - low, high - change
        if metric.source == "questions" or 2 * differences.count(0.0) >= count:
            unseen = {"inputs": 1.0, "tokens": _least_change(before, after, count), None: 0.0}[metric.counts]
            rare = reach_of_rare(differences, unseen)
            below, above = max(below, rare[0]), max(above, rare[1])
        if not any(differences):
            unit = "prompts" if metric.source == "questions" else "windows"
            wide = f"none of {count} {unit} differs, and up to {exact_share_interval(0, count)[1]:.0%} of others may"
    else:
        a, b = _scaled([before.value, after.value], metric)
        change = b - a
        if not same_windows and not metric.needs_reference:
            return QualityVerdict(verdict="not judged", reason=metric.other_inputs)
        if any(end is None for end in ends):
            change = _relative(change) if metric.is_relative else change
            return QualityVerdict(verdict="not judged", reason=metric.no_interval, change=change)
        a_low, a_high, b_low, b_high = _scaled([float(end) for end in ends if end is not None], metric)
        # The ends of an interval may be at different distances from its value.
        below, above = math.hypot(a_high - a, b - b_low), math.hypot(a - a_low, b_high - b)
    low, high = change - below, change + above
    if metric.is_relative:
        change, low, high = _relative(change), _relative(low), _relative(high)
    word: QualityWord = "not judged"
    if low > metric.margin:
        word = "worse" if metric.better == "lower" else "better"
    elif high < -metric.margin:
        word = "better" if metric.better == "lower" else "worse"
    elif -metric.margin <= low and high <= metric.margin:
        word = "equivalent"
    reason = wide if word == "not judged" else None
    return QualityVerdict(verdict=word, reason=reason, change=change, low=low, high=high, is_paired=is_paired)


def reach_of_rare(differences: Sequence[float], unseen: float) -> tuple[float, float]:
    """How far the mean change of all windows may lie below and above that of these, of which few changed, or of
    questions. `unseen` is the size of a change if none did."""
    count, size = len(differences), max(map(abs, differences)) or unseen
    gains, losses = sum(one > 0 for one in differences), sum(one < 0 for one in differences)
    (gain_low, gain_high), (loss_low, loss_high) = (exact_share_interval(one, count) for one in (gains, losses))
    gain, loss = gains / count, losses / count
    below, above = math.hypot(gain - gain_low, loss_high - loss), math.hypot(gain_high - gain, loss - loss_low)
    return size * below, size * above


def _least_change(before: QualityValue, after: QualityValue, count: int) -> float:
    """The least by which a share of a window's tokens can change, as far as the values show it: the step between the
    shares, or where all are 1, what the interval says of the number of tokens."""
    shares = sorted({0.0, 1.0, *before.by_window[:count], *after.by_window[:count]})
    step = min(above - below for below, above in pairwise(shares))
    low = (before.low or 0.0) if before.value == after.value == 1.0 else 0.0
    return min(step, (1 - low) / exact_share_interval(0, count)[1])


def _scaled(values: Sequence[float], metric: QualityMetric) -> list[float]:
    return [math.log(value) for value in values] if metric.is_relative else list(values)


def _relative(log_change: float) -> float:
    """0.1 for 10 % more; at most what a float can hold."""
    return math.expm1(min(log_change, 700.0))

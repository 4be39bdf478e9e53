"""The sentence about two sides: every verdict alone, mixtures of them, and none."""

from __future__ import annotations

import math

import pytest

from benchmarking.core.metrics import JUDGED
from benchmarking.core.verdicts.words import ORDER, Judgement, change_word, verdict_sentence

LATENCY = JUDGED["latency_median_ms"]
THROUGHPUT = JUDGED["throughput_samples_per_sec"]
MEMORY = JUDGED["memory_peak_rss_infer_mb"]
WIDE = "the interval is too wide"


def changed(ratio, metric=LATENCY, half=None):
    """A change from 1 to the ratio, with an interval of so many logarithms to either side."""
    low, high = (None, None) if half is None else (ratio * math.exp(-half) - 1, ratio * math.exp(half) - 1)
    return Judgement(
        verdict=change_word(ratio - 1, metric),
        is_worse=metric.is_worse(ratio - 1),
        change=ratio - 1,
        low=low,
        high=high,
    )


def unjudged(reason=WIDE):
    return Judgement(verdict="not judged", reason=reason, change=0.1)


def said(*judgements, metric=LATENCY):
    return verdict_sentence("eager", "onnxruntime", judgements, metric)


def test_a_faster_side_is_so_many_times_as_fast():
    assert said(*[changed(1 / 2.31, half=0.0173)] * 6) == (
        "onnxruntime is 2.31 ± 0.04 times as fast as eager at 6 of 6 points"
    )


def test_a_slower_side_takes_so_many_times_as_long():
    assert said(changed(1.25, half=0.01)) == "onnxruntime takes 1.25 ± 0.01 times as long as eager at 1 of 1 point"


def test_points_that_differ_show_their_range():
    text = said(changed(1 / 2, half=0.01), changed(1 / 4, half=0.01))
    assert text == "onnxruntime is 2.83 ± 0.03 times as fast as eager at 2 of 2 points (2.00 to 4.00)"


def test_a_wide_interval_is_shown_by_its_ends():
    judgement = Judgement(verdict="faster", change=1 / 51.27 - 1, low=1 / 113 - 1, high=1 / 23.2 - 1)
    assert said(judgement) == (
        "onnxruntime is 51.27 (95 % interval 23.20 to 113) times as fast as eager at 1 of 1 point"
    )


def test_a_rate_that_fell_to_0_has_a_sentence():
    text = said(Judgement(verdict="slower", change=-1.0, is_worse=True), metric=THROUGHPUT)
    assert text == "onnxruntime is 0.00 times as fast as eager at 1 of 1 point"


def test_rates_and_memory_have_their_own_words():
    assert said(changed(1.5, THROUGHPUT), metric=THROUGHPUT) == (
        "onnxruntime is 1.50 times as fast as eager at 1 of 1 point"
    )
    assert said(changed(0.5, THROUGHPUT), metric=THROUGHPUT).startswith("onnxruntime is 0.50 times as fast as eager")
    assert "needs 1.20 times the memory of eager" in said(changed(1.2, MEMORY), metric=MEMORY)


def test_nothing_but_unjudged_points_gives_the_reason_and_no_figure():
    assert (
        said(*[unjudged()] * 3) == "onnxruntime is not judged against eager at 3 of 3 points: the interval is too wide"
    )
    assert said(unjudged(), unjudged(), unjudged("other hours")).endswith("too wide (1 of them for other reasons)")


def test_nothing_but_trends_and_nothing_but_equivalence():
    assert said(*[Judgement(verdict="trend", change=0.06)] * 2) == (
        "onnxruntime differs from eager by a slow trend, not by one change, at 2 of 2 points"
    )
    assert said(Judgement(verdict="equivalent", change=0.001)) == (
        "onnxruntime is equivalent to eager (within 2%) at 1 of 1 point"
    )


def test_a_mixture_names_each_verdict_with_its_count():
    text = said(unjudged(), changed(0.5, half=0.01), changed(1.1), Judgement(verdict="equivalent", change=0.0))
    assert text == (
        "onnxruntime takes 1.10 times as long as eager at 1 of 4 points; is 2.00 ± 0.02 times as fast as eager at 1 of "
        "4 points; is equivalent to eager (within 2%) at 1 of 4 points; is not judged against eager at 1 of 4 points: "
        "the interval is too wide"
    )


def test_without_points_there_is_nothing_to_say():
    assert said() == "onnxruntime and eager have no point in common"


@pytest.mark.parametrize("word", ORDER)
def test_every_verdict_has_a_sentence(word):
    one = Judgement(verdict=word, change=0.1, is_worse=True)
    assert "1 of 1 point" in said(one, metric=MEMORY if word in ("more", "less") else LATENCY)

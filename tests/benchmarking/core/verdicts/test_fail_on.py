"""--fail-on: a comparison's verdicts as an exit code."""

from __future__ import annotations

import argparse
from dataclasses import replace

import pytest

from benchmarking.core.metrics import METRICS
from benchmarking.core.verdicts.words import Judgement, conditions, outcome

LATENCY, THROUGHPUT = METRICS["latency_median_ms"], METRICS["throughput_samples_per_sec"]
SLOWER = Judgement(verdict="slower", is_worse=True, change=0.1, low=0.08, high=0.12)
FASTER = Judgement(verdict="faster", is_worse=False, change=-0.1, low=-0.12, high=-0.08)
EQUIVALENT = Judgement(verdict="equivalent", change=0.0, low=-0.01, high=0.01, detectable=0.02)
WIDE = Judgement(verdict="not judged", change=0.01, low=-0.04, high=0.06, detectable=0.08)
UNPROVEN = Judgement(verdict="not judged", change=0.08, low=0.03, high=0.13, detectable=0.09)
UNKNOWN = Judgement(verdict="not judged", change=0.0)


@pytest.mark.parametrize(
    ("judgements", "metric", "asked", "code"),
    [
        ([EQUIVALENT, FASTER], LATENCY, "slower", 0),
        ([SLOWER, UNKNOWN], LATENCY, "slower", 1),
        ([EQUIVALENT, UNKNOWN], LATENCY, "slower", 3),
        ([EQUIVALENT, UNPROVEN], LATENCY, "slower", 3),
        ([UNPROVEN], THROUGHPUT, "slower", 0),  # more throughput than before
        ([WIDE], LATENCY, "slower", 0),
        ([WIDE], LATENCY, "slower,not-judged", 3),
        ([replace(WIDE, detectable=0.5)], LATENCY, "slower", 0),
        ([EQUIVALENT, replace(WIDE, detectable=0.51)], LATENCY, "slower", 3),
        ([SLOWER, replace(WIDE, detectable=4.0)], LATENCY, "slower", 1),
        ([SLOWER], LATENCY, "not-judged", 0),
        ([], LATENCY, "slower", 3),
    ],
)
def test_slower_fails_and_what_is_not_known_does_not_pass(judgements, metric, asked, code):
    assert outcome(judgements, metric, conditions(asked)).exit_code == code


def test_a_pass_with_a_wide_interval_says_what_it_could_not_have_found():
    text = outcome([EQUIVALENT, WIDE], LATENCY, ("slower",)).text
    assert text.endswith(
        "nothing speaks for a change for the worse of 2% or more, also at 1 of 2 points without a verdict; "
        "changes below 8.0% may have been missed there (--fail-on slower,not-judged does not pass that)"
    )
    two = outcome([replace(WIDE, detectable=0.03), WIDE], LATENCY, ("slower",)).text
    assert "no change" not in two, "at the first point, one of 5 % would have been found"
    assert "changes below 8.0% may have been missed there" in two
    assert outcome([EQUIVALENT], LATENCY, ("slower",)).text.endswith("for the worse of 2% or more")


def test_a_pass_says_how_many_points_are_worse_by_less_than_counts():
    """A share of hits from 99.90 to 98.15 %, which has 19 times as many misses, passed without a word."""
    less = Judgement(verdict="equivalent", change=-0.0175, low=-0.018, high=-0.017, detectable=0.02)
    assert outcome([less, EQUIVALENT], THROUGHPUT, ("slower",)).text.endswith(
        "for the worse of 2% or more; worse by less, by the 95 % interval: 1 of 2 points"
    )
    assert outcome([less, EQUIVALENT], LATENCY, ("slower",)).text.endswith("of 2% or more"), "for the better"


def test_a_gate_that_could_not_have_found_half_as_much_again_says_so():
    """+73.5 % with an interval of -8.5 % to +228.9 % passed."""
    noisy = Judgement(verdict="not judged", change=0.735, low=-0.085, high=2.289, detectable=3.895)
    found = outcome([noisy], LATENCY, ("slower",))
    assert found.exit_code == 3
    assert found.text.endswith("not known at 1 of 1 point; changes below 389.5% may have been missed there")
    vast = outcome([replace(WIDE, detectable=1e4)], LATENCY, ("slower",)).text
    assert "changes below 100 times as much may" in vast


def test_a_gate_on_verdicts_alone_says_nothing_about_changes():
    assert outcome([SLOWER], LATENCY, ("not-judged",)).text == "--fail-on not-judged: passed: every point has a verdict"


def test_the_words_of_other_metrics_and_commands_mean_the_same():
    assert conditions("regressed, Not-Judged,worse") == ("slower", "not-judged")
    with pytest.raises(argparse.ArgumentTypeError, match="takes slower or slower,not-judged: got '5%'"):
        conditions("5%")

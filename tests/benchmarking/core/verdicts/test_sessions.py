"""What the sessions of a history say about the differences that need no change."""

from __future__ import annotations

from itertools import cycle, islice

import pytest

from benchmarking.core.verdicts.judging import FAR_OFF_TIMES, SessionScatter


def scatter(*stretches):
    return SessionScatter(variance=1e-4, walk=0.0, degrees=20.0, sessions=20, stretches=stretches)


def test_sessions_of_one_level_are_compared_however_far_apart_they_are():
    slow_wave = tuple(0.005 * min(place, 20 - place) for place in range(20))
    assert scatter(slow_wave).usual_difference == pytest.approx(0.05)
    assert scatter(slow_wave, (0.3, 0.31)).usual_difference == pytest.approx(0.05)  # another level is another level


def test_where_single_sessions_are_far_off_the_next_one_may_be_further_off():
    quiet = tuple(islice(cycle((0.0, 0.004, -0.004)), 19))
    assert scatter(quiet).usual_difference == pytest.approx(0.008)
    assert scatter((*quiet, 0.15)).usual_difference == pytest.approx(FAR_OFF_TIMES * 0.154)

"""How sessions of a series vary: a variance, a walk, and what is no noise."""

from __future__ import annotations

import math

import numpy as np
import pytest

from db.analysis.compare.session_scatter import LIKELIHOOD_DROP, RATIOS, session_scatter


def history(sd, walk, count, seed=1):
    rng = np.random.default_rng(seed)
    logs = rng.normal(0, walk, count).cumsum() + rng.normal(0, sd, count)
    return (10 * np.exp(logs)).tolist()


def test_independent_sessions_have_their_variance_and_hardly_a_walk():
    found = session_scatter([history(0.02, 0.0, 2000)])
    assert math.sqrt(found.variance) == pytest.approx(0.02, rel=0.05)
    assert math.sqrt(found.walk) < 0.001
    assert found.sessions == 2000


def test_a_walk_is_distinguished_from_independent_variation():
    found = session_scatter([history(0.01, 0.005, 2000)])
    assert math.sqrt(found.variance) == pytest.approx(0.01, rel=0.1)
    assert math.sqrt(found.walk) == pytest.approx(0.005, rel=0.2)


def test_the_likelihood_is_that_of_the_full_covariance_matrix():
    values = history(0.01, 0.004, 12, seed=3)
    differences = np.diff(np.log(values))
    count = len(differences)

    def profile(ratio):
        covariance = (2 + ratio) * np.eye(count) - np.eye(count, k=1) - np.eye(count, k=-1)
        variance = differences @ np.linalg.solve(covariance, differences) / count
        return -0.5 * (count * math.log(variance) + np.linalg.slogdet(covariance)[1]), variance

    best = max(profile(ratio)[0] for ratio in RATIOS)
    ratio = max(ratio for ratio in RATIOS if profile(ratio)[0] >= best - LIKELIHOOD_DROP)
    found = session_scatter([values])
    assert found.variance == pytest.approx(profile(ratio)[1])
    assert found.walk == pytest.approx(ratio * found.variance)


def test_a_short_history_cannot_exclude_a_walk():
    short, long = (session_scatter([history(0.01, 0.0, count, seed=5)]) for count in (8, 400))
    assert short.walk / short.variance > 10 * long.walk / long.variance


def test_fewer_than_five_sessions_give_no_estimate():
    assert session_scatter([[10.0, 10.1, 9.9, 10.0]]) is None
    assert session_scatter([]) is None
    assert session_scatter([[10.0, 10.1, 9.9, 10.0, 10.1]]).degrees == pytest.approx(0.65 * 4 - 0.5)


def test_stretches_count_together_without_the_step_between_them():
    one, other = history(0.01, 0.0, 10, seed=1), [3 * value for value in history(0.01, 0.0, 10, seed=2)]
    found = session_scatter([one, other])
    assert found.degrees == pytest.approx(0.65 * 18 - 0.5)
    assert math.sqrt(found.variance) < 0.02


def test_a_change_of_level_is_not_variation():
    steady = history(0.01, 0.0, 30)
    changed = [*steady[:15], *(2 * value for value in steady[15:])]
    assert session_scatter([changed]).variance == pytest.approx(session_scatter([steady]).variance, rel=0.3)


def test_one_disturbed_session_hardly_counts_and_a_second_level_does():
    steady = history(0.01, 0.0, 40)
    once = [value * (1.3 if place == 20 else 1) for place, value in enumerate(steady)]
    often = [value * (1.1 if place % 4 == 0 else 1) for place, value in enumerate(steady)]
    assert session_scatter([once]).variance < 3 * session_scatter([steady]).variance
    assert math.sqrt(session_scatter([often]).variance) > 0.03


def test_equal_sessions_have_no_variation():
    found = session_scatter([[10.0] * 8])
    assert (found.variance, found.walk) == (0.0, 0.0)

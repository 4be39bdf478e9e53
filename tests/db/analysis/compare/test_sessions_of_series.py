"""The sessions of a series that a comparison is judged by, and the variation between them."""

from __future__ import annotations

import math
from statistics import geometric_mean

import numpy as np
import pytest

from benchmarking.core.metrics import JUDGED
from db.analysis.compare.stored_results import (
    LIKELIHOOD_DROP,
    MAX_SESSIONS,
    RATIOS,
    read_results,
    read_series_sessions,
    session_scatter,
)
from db.analysis.selection import Selection

LATENCY = JUDGED["latency_median_ms"]
WILD = [10.0, 20.0] * 10
QUIET = [10.0 + place % 7 / 10 for place in range(MAX_SESSIONS)]


@pytest.fixture
def values_for(warehouse):
    """A function that gives the sessions' values for a comparison of the results of some runs, for each series."""

    def values(*run_ids):
        results = read_results(warehouse, [Selection.parse(f"run={run_id}") for run_id in run_ids], LATENCY)
        found = read_series_sessions(warehouse, [one for side in results for one in side], LATENCY)
        return [[one.value for one in found[side[0].series_id]] for side in results]

    return values


def last_of(values):
    return f"tiny-bert-eager-{len(values) - 1}"


def test_only_the_newest_sessions_count(warehouse, write_history, values_for):
    values = [*WILD, *QUIET, 10.0]
    write_history(warehouse, values, model_id="tiny-bert")
    assert values_for(last_of(values)) == [QUIET]


def test_between_sides_that_lie_far_apart_the_sessions_are_spread(warehouse, write_history, values_for):
    """The newest ones would tell nothing of how far the machine wanders in between."""
    values = [10.0 + place for place in range(3 * MAX_SESSIONS)]
    write_history(warehouse, values, model_id="tiny-bert")
    (found, _) = values_for("tiny-bert-eager-20", last_of(values))
    assert len(found) == MAX_SESSIONS
    assert (found[0], found[-1]) == (values[21], values[-2])
    assert set(np.diff(found)) <= {2.0, 3.0}


def test_a_series_missing_from_the_newest_sessions_uses_older_ones(warehouse, write_history, values_for):
    values = [*WILD, *QUIET, 10.0]
    ids = write_history(warehouse, values, model_id="tiny-bert")
    with warehouse.transaction() as connection:
        for result_id in ids[15:-1]:
            connection.execute("UPDATE benchmark_results SET status = 'failed' WHERE result_id = ?", [result_id])
    assert values_for(last_of(values)) == [WILD[:15]]


def test_runs_of_one_session_are_one_value(warehouse, write_history, values_for):
    values = [*QUIET, 10.0]
    write_history(warehouse, values, model_id="tiny-bert")
    with warehouse.transaction() as connection:
        connection.execute("UPDATE benchmark_runs SET session_id = 'one' WHERE run_id LIKE 'tiny-bert-eager-1_'")
    assert values_for(last_of(values)) == [[*QUIET[:10], pytest.approx(geometric_mean(QUIET[10:20])), *QUIET[20:]]]


def test_an_old_commit_that_is_measured_again_comes_after_all_that_was_measured_since(
    warehouse, write_history, values_for
):
    values = [*QUIET, 10.0]
    write_history(warehouse, values, model_id="tiny-bert")
    with warehouse.transaction() as connection:
        connection.execute(
            "UPDATE benchmark_runs SET git_commit_time = (SELECT min(git_commit_time) FROM benchmark_runs) "
            "WHERE run_id IN (?, 'tiny-bert-eager-20')",
            [last_of(values)],
        )
    assert values_for(last_of(values)) == [QUIET]


def test_sessions_of_another_cell_do_not_count(warehouse, write_history, values_for):
    values = [*QUIET, 10.0]
    write_history(warehouse, values, model_id="tiny-bert")
    write_history(warehouse, values, model_id="tiny-bert", runtime="compiled", first=len(values))
    both = values_for(last_of(values), f"tiny-bert-compiled-{2 * len(values) - 1}")
    assert both == [QUIET, QUIET]


def history(sd, walk, count, seed=1):
    rng = np.random.default_rng(seed)
    logs = rng.normal(0, walk, count).cumsum() + rng.normal(0, sd, count)
    return (10 * np.exp(logs)).tolist()


def test_independent_sessions_have_their_variance_and_hardly_a_walk():
    found = session_scatter([history(0.02, 0.0, 2000)])
    assert math.sqrt(found.variance) == pytest.approx(0.02, rel=0.08)
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


@pytest.mark.filterwarnings("error")
def test_sides_without_other_sessions_have_the_variation_of_their_own():
    own = history(0.02, 0.0, 12)
    found = session_scatter([[], own])
    assert (found.variance, found.sessions, found.times) == (session_scatter([own]).variance, 12, ())


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


def test_variation_that_grows_is_taken_to_go_on_and_one_that_shrinks_is_not():
    growing = [10.0 * math.exp((-1) ** place * (0.005 + 0.002 * place)) for place in range(20)]
    grown, shrunk = session_scatter([growing]), session_scatter([growing[::-1]])
    assert grown.variance > 2 * shrunk.variance
    assert grown.variance == pytest.approx(0.043**2, rel=0.5)
    steady = [10.0 * math.exp(0.01 * (-1) ** place) for place in range(20)]
    assert session_scatter([steady]).variance == session_scatter([steady[::-1]]).variance
    assert session_scatter([[10.0] * 20]).variance == 0

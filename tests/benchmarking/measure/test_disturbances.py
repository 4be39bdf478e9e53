"""Quiet machines raise few doubts, disturbed ones do, and intervals have their stated coverage."""

from dataclasses import replace

import pytest

from benchmarking.measure.context import PROFILES
from tests.helpers.measurement_replay import (
    DISTURBANCES,
    MACHINES,
    count_doubts,
    count_marks,
    count_marks_of_passes,
    coverage,
    healthy,
)


@pytest.mark.parametrize("cv", [0.005, 0.02, 0.05])
def test_each_doubt_is_raised_in_at_most_one_percent_of_quiet_launches(cv):
    counts, replays = (10, 20, 60, 240, 900), 60
    found = {n: count_doubts(healthy(cv), n, replays=replays, seed=1) for n in counts}
    for kind in {kind for each in found.values() for kind in each}:
        assert sum(each[kind] for each in found.values()) <= 0.01 * replays * len(counts), kind
        assert max(each[kind] for each in found.values()) <= 3, (
            kind
        )  # of 60 at a chance of 1 %, more are rarer than 1 in 3000


@pytest.mark.parametrize("launches", [1, 3, 5])
def test_quiet_results_are_valid(launches):
    assert sum(count_marks(healthy(0.05), n, launches, replays=25, seed=2)["marked"] for n in (10, 30)) <= 2


@pytest.mark.parametrize("call_ms", [300.0, 1200.0, 3500.0])
@pytest.mark.parametrize("profile", ["quick", "standard"])
def test_slow_calls_on_a_quiet_machine_are_valid(profile, call_ms):
    assert count_marks_of_passes(healthy(0.02), PROFILES[profile], call_ms, replays=20, seed=3)["marked"] <= 1


@pytest.mark.parametrize("disturbance", DISTURBANCES)
def test_disturbances_are_detected(disturbance):
    calls, kinds = DISTURBANCES[disturbance]
    found = count_doubts(calls, 900, replays=30, seed=4)
    assert max(found[kind] for kind in kinds) >= 15
    assert sum(found[kind] for kind in kinds) >= 24


def test_slow_heating_of_an_accelerator_raises_a_doubt():
    heating = coverage(MACHINES["heating +8 % in 15 s"], PROFILES["standard"], results=4, seed=5)
    assert heating.marked == 1.0


@pytest.mark.parametrize(("profile", "launches", "least"), [("quick", 1, 0.90), ("quick", 5, 0.90)])
@pytest.mark.parametrize("noise", ["independent, cv 3 %", "AR(.7), cv 5 %", "2 % of calls x1.5-6"])
def test_intervals_cover_the_true_level_in_their_scope(noise, profile, launches, least):
    """One launch covers its own level, several cover the common level; the standard error of a share is 0.04."""
    seen = coverage(MACHINES[noise], replace(PROFILES[profile], launches=launches), results=40, seed=6)
    assert (seen.own if launches == 1 else seen.all_launches) >= least - 0.05

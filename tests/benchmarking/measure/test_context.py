"""Measuring profiles, the flags that change them, and live reports."""

import pytest

from benchmarking.core.errors import UsageError
from benchmarking.measure.context import DEFAULT_PROFILE, PROFILES, Reporter, settings


def test_reports_come_at_most_four_times_a_second_and_at_the_start_of_each_phase():
    seconds = iter([0.0, 0.0, 0.1, 0.2, 0.25, 0.3])
    seen = []
    live = Reporter(seen.append, clock_s=lambda: next(seconds))
    live("warmup")  # 0.0
    live("warmup", [1.0])  # 0.1: too soon
    live("measure")  # 0.2: another phase
    live("measure", [1.0])  # 0.25: too soon
    live("memory")  # 0.3
    assert [(one.phase, one.elapsed_s) for one in seen] == [("warmup", 0.0), ("measure", 0.2), ("memory", 0.3)]


def test_a_report_has_calls_median_and_interval():
    seen = []
    Reporter(seen.append)("measure", [float(i) for i in range(30, 0, -1)])
    assert (seen[0].calls, seen[0].median_ms, seen[0].low_ms, seen[0].high_ms) == (30, 16.0, 9.0, 22.0)


def test_no_calls_have_no_median():
    seen = []
    Reporter(seen.append)("measure")
    assert (seen[0].calls, seen[0].median_ms, seen[0].low_ms) == (0, None, None)


def test_without_a_receiver_the_values_are_not_read():
    assert Reporter(None)("measure", None) is None  # which nothing could be computed from


def test_profiles_match_the_specification():
    def of(name):
        one = PROFILES[name]
        counts = (one.launches, one.min_samples, one.max_samples)
        return one.target_relative_half_width, counts, (one.min_time_s, one.max_time_s)

    assert of("quick") == (0.05, (1, 10, 200), (0.5, 5.0))
    assert of("standard") == (0.02, (3, 30, 960), (1.0, 20.0))
    assert of("reference") == (0.01, (5, 60, 4800), (3.0, 60.0))
    assert [PROFILES[name].point_per_process for name in ("quick", "standard", "reference")] == [False, False, True]


def test_flags_change_the_profile():
    chosen = settings("quick", iterations=7, warmup_iterations=0, launches=2, seed=5)
    counts = (chosen.fixed_iterations, chosen.fixed_warmup_iterations, chosen.launches, chosen.seed)
    assert counts == (7, 0, 2, 5)
    assert chosen.max_samples == 200
    assert settings("reference").launches == 5


@pytest.mark.parametrize(
    ("flags", "name"),
    [
        ({"iterations": 0}, "--iterations"),
        ({"warmup_iterations": -1}, "--warmup-iterations"),
        ({"launches": 0}, "--launches"),
    ],
)
def test_invalid_counts_are_usage_errors(flags, name):
    with pytest.raises(UsageError, match=name):
        settings("standard", **flags)


def test_the_default_profile_has_a_time_budget_and_counts_its_steady_windows():
    default = PROFILES[DEFAULT_PROFILE]
    assert [settings("quick", launches=count).budget_s for count in (1, 5)] == [150.0, 50.0]
    assert (DEFAULT_PROFILE, default.budget_s, default.counts_steady_warmup) == ("quick", 150.0, True)
    others = [PROFILES[name] for name in ("standard", "reference")]
    assert [(one.budget_s, one.counts_steady_warmup) for one in others] == [(None, False)] * 2

"""Stated percentiles of too few values, arguments of benchmarks, and blocks of calls in several processes."""

from __future__ import annotations

import hashlib
from datetime import datetime
from pathlib import Path

import pytest

from benchmarking.core.errors import FormatError
from benchmarking.core.records import Point
from db.importers.support.building import split_arguments
from db.importers.support.files import ForeignFile
from db.importers.support.measures import block, foreign_result, supported_tails
from db.importers.support.reading import shifted, without_zone

NOON = datetime(2026, 1, 2, 12)
FILE = ForeignFile(path=Path("f"), content=b"", sha256=hashlib.sha256().hexdigest(), modified_at=NOON)


def test_a_stated_tail_needs_as_many_values_as_a_measured_one():
    metrics = {"latency_p90_ms": 1.0, "latency_p95_ms": 2.0, "latency_p99_ms": 3.0}
    assert supported_tails(metrics, 59) == (
        {"latency_p90_ms": 1.0, "latency_p95_ms": 2.0, "stated_latency_p99_ms": 3.0},
        {"latency_p99_ms": "too_few_samples"},
    )
    assert supported_tails(metrics, 299) == (metrics, {})
    assert supported_tails(metrics, None) == (metrics, {})


def test_numbers_are_axes_and_other_arguments_a_variant():
    assert split_arguments({"n": 8, "kind": "a", "ratio": 0.5}) == ({"n": 8, "ratio": 0.5}, "kind=a")
    assert split_arguments({"steps": 0.5, "x": float("inf")}) == ({}, "steps=0.5, x=inf")
    assert split_arguments({}) == ({}, None)


def test_one_launch_has_an_interval_within_and_three_have_one_between():
    one = foreign_result(Point(batch_size=1), samples=[block(0, [1, 2, 3, 4, 5, 6])], metrics={})
    three = [block(launch, [value, value]) for launch, value in enumerate((1.0, 2.0, 4.0))]
    many = foreign_result(Point(batch_size=1), samples=three, metrics={})
    assert (one.ci_scope, one.metrics["latency_ci_low_ms"], one.metrics["latency_ci_high_ms"]) == ("within", 1, 6)
    assert (many.ci_scope, many.launches, many.metrics["latency_median_ms"]) == ("between", 3, 2.0)
    # exp(ln 2 -+ 4.30265 * ln 2 / sqrt 3): t(0.975) of 2 degrees of freedom, sd of the logarithms ln 2
    assert many.metrics["latency_ci_low_ms"] == pytest.approx(0.357495, rel=1e-4)
    assert many.metrics["latency_ci_high_ms"] == pytest.approx(11.18897, rel=1e-4)


@pytest.mark.parametrize(
    "metric", ["cpu_user_ms", "cpu_time_ms", "gpu_compute_mean_ms", "items_per_cpu_sec", "object_size_mb"]
)
def test_a_time_a_rate_or_a_size_below_0_is_left_out(metric):
    result = foreign_result(Point(batch_size=1), metrics={metric: -1.0, "latency_mean_ms": 2.0, "loss": -0.5})
    assert result.metrics == {"latency_mean_ms": 2.0, "loss": -0.5}
    assert result.missing[metric] == "left_out: -1 in the file, which cannot be"


def test_values_beyond_double_precision_are_refused():
    with pytest.raises(FormatError, match="too large to describe"):
        foreign_result(Point(batch_size=1), samples=[block(0, [1e308, 1e308, 1e308])], metrics={})


def test_a_time_without_a_zone_is_a_doubt_and_a_duration_out_of_range_is_named():
    (doubt,) = without_zone([None, "2026-01-02 03:04:05"])
    assert doubt.evidence == {"stated": "2026-01-02 03:04:05", "read_as": "UTC"}
    assert without_zone([None]) == ()
    assert shifted(FILE, NOON, 1e13) == NOON
    assert [one.text for one in FILE.left_out] == ["duration: 1e+13 s from 2026-01-02 12:00:00 is out of range"]


def test_imported_calls_that_take_much_of_the_time_are_a_doubt_and_the_throughput_without_them_is_kept():
    """Of 100 calls of 20 ms two take 1 s: the mean is 39.6 ms, and slow calls take 1.96 of 3.96 s."""
    calls = [20.0 + 0.01 * (place % 7) for place in range(98)] + [1000.0, 1000.0]
    per_sec = 2 * 1000 / (sum(calls) / 100)
    samples = [block(launch, calls) for launch in range(3)]
    shared = {"samples": samples, "metrics": {"throughput_samples_per_sec": per_sec}}
    found = foreign_result(Point(batch_size=2), **shared)
    (slow,) = [doubt for doubt in found.doubts if doubt.kind == "slow_calls"]
    assert (slow.evidence["slow_calls"], slow.evidence["time_share"]) == (2, pytest.approx(0.495, abs=0.005))
    assert found.validity == "noisy"
    assert found.metrics["throughput_at_median"] == pytest.approx(2 * 1000 / 20.03, rel=1e-3)
    load = foreign_result(Point(batch_size=2), is_load=True, **shared)
    assert ("throughput_at_median" in load.metrics, [doubt.kind for doubt in load.doubts]) == (False, [])
    assert load.missing["throughput_at_median"].startswith("not_applicable: requests overlap")
    other = foreign_result(Point(batch_size=2), samples=samples, metrics={"throughput_samples_per_sec": per_sec * 2})
    assert other.missing["throughput_at_median"] == "not_stated: the throughput is not items over the mean latency"

"""The table of metrics covers the columns of the warehouse, each with its source."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarking.core.axes import FURTHER
from benchmarking.core.metrics import (
    DEFAULT_METRIC,
    ENERGY,
    JUDGED,
    LATENCY,
    LOAD_TIME,
    METRICS,
    OF_SINGLE_CALLS,
    PEAK_MEMORY,
    from_source,
    metric_by_ending,
)
from benchmarking.core.sample_statistics import Statistics
from benchmarking.measure.timing import PHASES
from db.analysis.compare.stored_results import LAUNCH_STATISTICS
from db.warehouse import Warehouse

COLUMNS = "SELECT column_name AS name FROM duckdb_columns() WHERE table_name = ? AND data_type = 'DOUBLE'"


@pytest.fixture(scope="module")
def columns(tmp_path_factory):
    """The numeric columns of a table."""
    with Warehouse.open(tmp_path_factory.mktemp("metrics") / "empty.duckdb") as warehouse:
        yield lambda table: {row["name"] for row in warehouse.query(COLUMNS, [table]).dicts()}


def test_every_metric_has_a_column_and_every_numeric_column_is_a_metric_or_an_axis(columns):
    assert columns("benchmark_results") - FURTHER.keys() == METRICS.keys()
    assert LOAD_TIME.column in columns("benchmark_runs")


def test_the_latency_columns_are_the_statistics_that_are_computed():
    fields = {field.name for field in dataclasses.fields(Statistics)}
    assert set(LATENCY.values()) <= fields
    assert LATENCY["latency_std_ms"] == "sd"
    assert LATENCY.keys() - set(OF_SINGLE_CALLS) == {
        *("latency_mean_ms", "latency_median_ms", "latency_ci_low_ms", "latency_ci_high_ms")
    }


def test_every_compared_metric_has_a_direction_a_unit_and_a_value_per_launch():
    assert DEFAULT_METRIC in JUDGED
    for metric in JUDGED.values():
        assert metric.better is not None, metric.column
        assert metric.unit, metric.column
        assert metric.source in ("samples", "first_call", "reading", "load_time"), metric.column
        assert metric.source != "samples" or metric.statistic in {*LAUNCH_STATISTICS, "rate"}, metric.column


def test_a_derived_metric_is_computed_from_an_existing_reading_or_column():
    readings = {metric.of for metric in from_source("reading").values()}
    assert {metric.of for metric in from_source("derived").values()} <= readings | METRICS.keys()


def test_byte_metrics_are_in_mb():
    assert {metric.unit for metric in METRICS.values() if metric.of.endswith("_bytes")} == {"MB"}
    assert all(metric.is_in_bytes for metric in METRICS.values() if metric.unit == "MB")
    assert not METRICS["bytes_accessed"].is_in_bytes


def test_columns_of_peak_memory_and_energy_are_in_order_of_preference():
    assert PEAK_MEMORY == (
        "memory_device_process_peak_mb",
        "memory_device_reserved_peak_mb",
        "memory_device_allocated_peak_mb",
        "memory_peak_rss_infer_mb",
    )
    assert (
        *("energy_soc_j_per_call", "energy_gpu_j_per_call", "energy_cpu_pkg_j_per_call", "energy_dram_j_per_call"),
    ) == ENERGY


def test_every_phase_column_has_a_timed_phase_of_that_name():
    assert (
        *("phase_retrieve", "phase_image_encode", "phase_encode", "phase_prefill", "phase_decode", "phase_step"),
    ) == PHASES


def test_worse_changes_follow_the_direction_of_the_metric():
    assert METRICS["latency_median_ms"].is_worse(0.1)
    assert not METRICS["latency_median_ms"].is_worse(-0.1)
    assert METRICS["throughput_tokens_per_sec"].is_worse(-0.1)
    assert not METRICS["throughput_tokens_per_sec"].is_worse(0.1)


@pytest.mark.parametrize(
    ("name", "unit", "better"),
    [
        ("output_tokens_per_j", "/J", "higher"),
        ("tokens_per_w", "/W", "higher"),
        ("counter_tok_s", "/s", "higher"),
        ("counter_gb_s", "/s", "higher"),
        ("tok_s", "/s", "higher"),
        ("requests_per_s", "/s", "higher"),
        ("queries_per_sec", "/s", "higher"),
        ("prefill_tokens_std_per_sec", "/s", "lower"),
        ("std_tokens_per_s", "/s", "lower"),
        ("failed_requests_per_s", "/s", "lower"),
        ("cache_misses_per_sec", "/s", "lower"),
        ("submissions_per_s", "/s", "higher"),
        ("std_ttft_ms", "ms", "lower"),
        ("duration_s", "s", "lower"),
        ("energy_total_j", "J", "lower"),
        ("system_power_w", "W", "lower"),
    ],
)
def test_a_number_of_another_tool_has_the_unit_and_direction_of_its_name(name, unit, better):
    metric = metric_by_ending(name)
    assert (metric.unit, metric.better, metric.is_worse(-0.5)) == (unit, better, better == "higher")


def test_the_unit_of_a_number_is_said_once():
    words = {
        name: metric_by_ending(name).words for name in ("output_tokens_per_j", "queries_per_sec", "energy_total_j")
    }
    assert list(words.values()) == ["output tokens (/J)", "queries (/s)", "energy total (J)"]

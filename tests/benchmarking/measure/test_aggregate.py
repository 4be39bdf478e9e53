import math
from dataclasses import replace

import pytest

from benchmarking.core.metrics import METRICS
from benchmarking.core.records import Doubt, LaunchLoad, Measurement, Point, Result, Samples, dumps, from_json, to_json
from benchmarking.measure.aggregate import summarise

POINT = Point(batch_size=2, sequence_length=8)
AT = "2026-01-02T03:04:06.000Z"


def samples(launch, values, metric="latency_wall", phase="measure", inner_loops=1):
    return Samples(
        launch=launch,
        phase=phase,
        metric=metric,
        unit="ms",
        started_at=AT,
        values=tuple(map(float, values)),
        inner_loops=inner_loops,
    )


def measured(launch, values, *, series=None, inner_loops=1, work=None, **fields):
    more = tuple(samples(launch, each, metric) for metric, each in (series or {}).items())
    counts = {"items_per_call": 2, "tokens_per_call": 16, "prompt_tokens_per_call": None, "new_tokens": None}
    defaults = {"status": "ok", "stop_reason": "target", "warmup_calls": 20, "first_call_ms": 30.0, "steady": True}
    return Measurement(
        point=POINT,
        launch=launch,
        started_at=AT,
        finished_at=AT,
        samples=(
            samples(launch, [99.0], phase="warmup"),
            samples(launch, values, inner_loops=inner_loops),
            *more,
        ),
        extra={**counts, **(work or {})},
        **{**defaults, **fields},
    )


def failed(launch, error="OutOfMemoryError: no room", status="failed", **fields):
    return Measurement(point=POINT, launch=launch, status=status, error=error, started_at=AT, finished_at=AT, **fields)


def around(median, n=31):
    """n values with the given median, 1 ms apart."""
    return [median + i - (n - 1) / 2 for i in range(n)]


def test_statistics_are_medians_over_launches_and_extremes_are_over_all_calls():
    result = summarise("id", POINT, [measured(0, around(100)), measured(1, around(102)), measured(2, around(110))], [])
    metrics = result.metrics
    assert (result.status, result.launches, result.iterations, result.warmup_iterations) == ("ok", 3, 93, 60)
    assert metrics["latency_median_ms"] == 102.0
    assert metrics["latency_mean_ms"] == pytest.approx(102.0)
    assert (metrics["latency_min_ms"], metrics["latency_max_ms"]) == (85.0, 125.0)
    assert (metrics["latency_p25_ms"], metrics["latency_p75_ms"]) == (94.5, 109.5)
    assert metrics["latency_p90_ms"] == 102.0 + 12.0  # rank 27 of 0..30
    assert metrics["latency_std_ms"] == pytest.approx(math.sqrt(31 * 32 / 12))
    assert metrics["latency_mad_ms"] == 8.0
    assert result.stop_reason == "target"


def test_percentiles_pool_all_launches_if_one_has_too_few_calls():
    result = summarise("id", POINT, [measured(0, around(100)), measured(1, around(200)), measured(2, around(300))], [])
    assert result.metrics["latency_p90_ms"] == 200.0 + 12.0  # 31 calls are enough: the median launch's own
    assert result.metrics["latency_p95_ms"] == pytest.approx(
        315 - 3.6 - 1
    )  # place 0.95 x 92 = 87.4 of 0..92, 1 ms apart
    assert result.pooled_quantiles == ("latency_p95_ms",)
    assert result.missing["latency_p99_ms"] == "too_few_samples"  # 93 of 299: never the largest value
    assert "latency_p99_ms" not in result.metrics


def test_one_short_launch_pools_all_launches():
    result = summarise("id", POINT, [measured(0, around(100, 41)), measured(1, [100.0] * 20)], [])
    assert result.metrics["latency_p90_ms"] == 114.0  # place 54 of 0..60: 6 below the largest, 120
    assert result.pooled_quantiles == ("latency_p90_ms", "latency_p95_ms")


def test_long_launches_are_not_pooled():
    result = summarise("id", POINT, [measured(0, around(1000, 299)), measured(1, around(2000, 299))], [])
    assert result.metrics["latency_p99_ms"] == pytest.approx(1500 + 149 - 2.98)
    assert result.pooled_quantiles == ()


def test_three_launches_have_an_interval_between_launches():
    result = summarise("id", POINT, [measured(i, around(m)) for i, m in enumerate((100, 100 * math.e, 100))], [])
    # logs L, L + 1, L: mean L + 1/3, sd 0.57735, t 4.302653
    half = 4.302653 * 0.5773503 / math.sqrt(3)
    assert result.ci_scope == "between"
    assert result.metrics["latency_ci_low_ms"] == pytest.approx(100 * math.exp(1 / 3 - half), rel=1e-6)
    assert result.metrics["latency_ci_high_ms"] == pytest.approx(100 * math.exp(1 / 3 + half), rel=1e-6)


def test_fewer_launches_have_the_hull_of_their_own_intervals():
    shuffled = [100 + (7 * i % 31) - 15 for i in range(31)]  # 85..115, no correlation
    result = summarise("id", POINT, [measured(0, shuffled), measured(1, [x + 1 for x in shuffled])], [])
    assert result.ci_scope == "within"
    # d = 0.98 sqrt(31) = 5.46: ranks floor(10.04) = 10 and ceil(20.96) + 1 = 22
    assert result.metrics["latency_ci_low_ms"] == 85 + 9
    assert result.metrics["latency_ci_high_ms"] == 85 + 21 + 1


def test_a_launch_without_an_interval_leaves_two_launches_without_one():
    """The median counts both, so the interval of one of them would lie beside it."""
    result = summarise("id", POINT, [measured(0, around(100, 45)), measured(1, [300.0])], [])
    assert result.metrics["latency_median_ms"] == 200.0
    assert result.ci_scope is None
    for name in ("latency_ci_low_ms", "latency_ci_high_ms"):
        assert name not in result.metrics
        assert result.missing[name] == "too_few_samples"


@pytest.mark.parametrize("medians", [(100,) * 11 + (130,) * 9, (100,) * 9 + (130,) * 11])
def test_the_interval_between_launches_on_two_levels_contains_their_median(medians):
    """Their mean lies between the levels."""
    metrics = summarise("id", POINT, [measured(i, around(m)) for i, m in enumerate(medians)], []).metrics
    low, median, high = (metrics[f"latency_{name}_ms"] for name in ("ci_low", "median", "ci_high"))
    assert low <= median <= high
    assert high - low > 1, "the other end is that of the mean"


def test_few_calls_have_no_interval_and_a_single_call_no_deviation():
    result = summarise("id", POINT, [measured(0, [5.0])], [])
    assert result.ci_scope is None
    assert result.metrics["latency_median_ms"] == 5.0
    for name in ("latency_std_ms", "latency_ci_low_ms", "latency_ci_high_ms", "latency_p90_ms"):
        assert name not in result.metrics
        assert result.missing[name] == "too_few_samples"


def test_throughput_is_work_per_wall_time_of_a_launch():
    result = summarise(
        "id", POINT, [measured(0, [10, 20, 30]), measured(1, [40, 40, 40]), measured(2, [25, 25, 25])], []
    )
    # 3 calls in 60, 120 and 75 ms: 50, 25, 40 calls/s
    assert result.metrics["throughput_samples_per_sec"] == pytest.approx(2 * 40.0)
    assert result.metrics["throughput_tokens_per_sec"] == pytest.approx(16 * 40.0)


def test_slow_calls_lower_the_throughput_but_not_that_at_the_median_latency():
    result = summarise("id", POINT, [measured(number, ([10.0] * 49 + [500.0]) * 2) for number in range(3)], [])
    assert result.metrics["throughput_samples_per_sec"] == pytest.approx(2 * 1000 / 19.8)
    assert result.metrics["throughput_at_median"] == pytest.approx(2 * 1000 / 10.0)


def test_work_without_tokens_has_no_token_throughput():
    result = summarise("id", POINT, [measured(0, [10, 20, 30], work={"tokens_per_call": None})], [])
    assert result.missing["throughput_tokens_per_sec"].startswith("not_applicable")


def test_device_time_by_events_is_a_median_and_gives_no_host_gap():
    series = {"latency_device": [8, 19, 25]}
    result = summarise("id", POINT, [measured(0, [10, 20, 30], series=series)], [])
    assert result.metrics["latency_device_median_ms"] == 19.0
    assert "host_gap_ms" not in result.metrics, "events on an empty queue count the launches between kernels too"


def test_token_metrics_by_hand():
    series = {
        "time_to_first_token": [50, 40, 80],
        "time_per_output_token": [10, 20, 25],
        "inter_token_latency": [9, 11, 10, 30],
    }
    work = {"tokens_per_call": 2 * 5, "new_tokens": 5, "prompt_tokens_per_call": 2 * 64}
    metrics = summarise("id", POINT, [measured(0, [90, 120, 180], series=series, work=work)], []).metrics
    assert metrics["time_to_first_token_ms"] == 50.0
    assert metrics["prefill_tokens_per_sec"] == pytest.approx(128 / 0.050)
    assert metrics["time_per_output_token_ms"] == 20.0
    assert metrics["decode_tokens_per_sec"] == pytest.approx(2 / 0.020)
    assert metrics["inter_token_latency_p50_ms"] == 10.5
    assert "inter_token_latency_p99_ms" not in metrics


def test_rates_of_tokens_are_those_at_the_median_times():
    """Of an even number of calls or launches, the median of their rates is another number."""
    work = {"tokens_per_call": 2 * 5, "new_tokens": 5, "prompt_tokens_per_call": 2 * 64}
    launches = [
        measured(number, [90, 120], series={"time_to_first_token": [first, 3 * first], "time_per_output_token": [1, 9]},
                 work=work)
        for number, first in enumerate((10, 90))
    ]  # fmt: skip
    metrics = summarise("id", POINT, launches, []).metrics
    assert metrics["time_to_first_token_ms"] == (20 + 180) / 2
    assert metrics["prefill_tokens_per_sec"] == pytest.approx(128 / 0.100)
    assert metrics["decode_tokens_per_sec"] == pytest.approx(2 / 0.005)


def test_rates_with_requests_in_flight_are_those_of_completed_requests():
    """Four are in flight and one runs at a time: the median request took 10 ms, and 25 of 2 items end each second."""
    work = {"items_per_call": 2, "requests_wall_ms": 160.0, "requests_in_flight": 4}
    one = measured(0, [10, 10, 10, 130], metrics={"flops": 3e9}, work=work)
    point = replace(POINT, concurrency=4)
    result = summarise("id", point, [replace(one, point=point)], [])
    assert result.metrics["throughput_samples_per_sec"] == pytest.approx(2 * 25)
    assert result.metrics["achieved_flops_per_sec"] == pytest.approx(3e9 * 25)
    assert result.missing["throughput_at_median"].startswith("not_applicable: requests overlap")


def test_token_times_have_percentiles_and_an_interval():
    series = {
        "time_to_first_token": around(50, 15),
        "time_per_output_token": around(20, 30),
        "inter_token_latency": around(1000, 299),
    }
    launches = [measured(i, around(100), series=scaled(series, factor)) for i, factor in enumerate((1, math.e, 1))]
    result = summarise("id", POINT, launches, [])
    metrics = result.metrics
    half = 4.302653 * 0.5773503 / math.sqrt(3)
    for name, median in (("time_to_first_token", 50), ("time_per_output_token", 20), ("inter_token_latency", 1000)):
        assert metrics[f"{name}_ci_low_ms"] == pytest.approx(median * math.exp(1 / 3 - half), rel=1e-6)
        assert metrics[f"{name}_ci_high_ms"] == pytest.approx(median * math.exp(1 / 3 + half), rel=1e-6)
    assert metrics["time_per_output_token_p90_ms"] == pytest.approx(20 + 14.5 - 2.9)
    assert metrics["inter_token_latency_p90_ms"] == pytest.approx(1000 + 149 - 29.8)
    assert metrics["inter_token_latency_p99_ms"] == pytest.approx(1000 + 149 - 2.98)
    # 45 times to the first token, of which 15 are e times as long: place 39.6 of 0..44 is the 9.6th of them
    assert metrics["time_to_first_token_p90_ms"] == pytest.approx((43 + 9.6) * math.e)
    assert result.pooled_quantiles == ("latency_p95_ms", "time_to_first_token_p90_ms")
    assert result.missing["time_to_first_token_p99_ms"] == "too_few_samples"
    assert result.ci_scope == "between"


def scaled(series, factor):
    return {name: [factor * value for value in values] for name, values in series.items()}


def test_token_intervals_have_the_scope_of_the_latency_or_are_omitted():
    launches = [measured(i, around(100), series={"time_to_first_token": around(50)} if i else {}) for i in range(3)]
    result = summarise("id", POINT, launches, [])
    assert (result.ci_scope, result.metrics["time_to_first_token_ms"]) == ("between", 50.0)
    assert result.missing["time_to_first_token_ci_low_ms"] == "too_few_samples"


def test_the_99th_percentile_of_gaps_needs_299_gaps():
    gaps = {"inter_token_latency": range(299)}
    metrics = summarise("id", POINT, [measured(0, [90, 91], series=gaps)], []).metrics
    assert metrics["inter_token_latency_p99_ms"] == pytest.approx(0.99 * 298)


def test_blocks_have_a_mean_and_median_but_no_statistics_of_single_calls():
    result = summarise("id", POINT, [measured(0, around(1000, 300), inner_loops=12)], [])
    assert (result.metrics["latency_mean_ms"], result.metrics["latency_median_ms"]) == (1000.0, 1000.0)
    assert {"latency_ci_low_ms", "latency_ci_high_ms", "throughput_samples_per_sec"} <= result.metrics.keys()
    for statistic in ("std", "mad", "min", "p25", "p75", "p90", "p95", "p99", "max"):
        name = f"latency_{statistic}_ms"
        assert name not in result.metrics
        assert result.missing[name] == "not_applicable: timed in blocks of 12 calls"


def test_readings_and_loads_become_columns_in_mb():
    metrics = {"peak_rss_infer_bytes": 900e6, "energy_gpu_j_per_call": 4.0, "energy_gpu_net_j_per_call": 3.0}
    missing = {"device_allocated_peak_bytes": "not_applicable: cpu", "latency_device": "not_supported: no events"}
    loads = [
        LaunchLoad(launch=launch, stages_s={}, memory_bytes={"weights_bytes": 437_928_960, "rss_base_bytes": base})
        for launch, base in ((0, 100_000_000), (1, 300_000_000), (7, 999_000_000))
    ]
    both = [measured(launch, around(100), metrics=metrics, missing=missing) for launch in (0, 1)]
    result = summarise("id", POINT, both, loads)
    assert result.metrics["memory_peak_rss_infer_mb"] == 900.0
    assert result.metrics["memory_weights_mb"] == pytest.approx(437.92896)
    assert result.metrics["memory_rss_base_mb"] == 200.0  # launch 7 did not measure this point
    assert result.metrics["energy_gpu_j_per_call"] == 4.0
    assert result.metrics["energy_gpu_net_j_per_call"] == 3.0
    assert result.metrics["energy_gpu_j_per_item"] == 2.0
    assert result.metrics["energy_gpu_j_per_token"] == 0.25
    assert result.metrics["first_call_ms"] == 30.0
    assert result.missing["memory_device_allocated_peak_mb"] == "not_applicable: cpu"
    assert result.missing["latency_device_median_ms"] == "not_supported: no events"


def test_phases_are_medians_and_the_real_time_factor_is_latency_over_audio():
    series = {"phase_encode": (30.0, 40.0, 60.0), "phase_step": (1.0, 2.0, 3.0, 4.0, 5.0, 6.0)}
    one = measured(0, [90, 100, 180], series=series, metrics={"audio_seconds_per_call": 5.0})
    metrics = summarise("id", POINT, [one], []).metrics
    assert (metrics["encode_ms"], metrics["step_ms"]) == (40.0, 3.5)
    assert metrics["real_time_factor"] == pytest.approx(0.1 / 5)


def test_a_real_time_factor_declared_absent_is_not_computed():
    why = "not_applicable: 3 new tokens"
    one = measured(0, around(100), metrics={"audio_seconds_per_call": 5.0}, missing={"real_time_factor": why})
    result = summarise("id", POINT, [one], [])
    assert "real_time_factor" not in result.metrics
    assert result.missing["real_time_factor"] == why


def test_achieved_flops_are_flops_per_median_latency():
    launches = [measured(0, [90, 100, 180], metrics={"flops": 3e9}), measured(1, [190, 200, 280])]
    assert summarise("id", POINT, launches, []).metrics["achieved_flops_per_sec"] == pytest.approx(3e9 / 0.150)
    without = summarise("id", POINT, [measured(0, around(100), missing={"flops": "not_supported: a kernel"})], [])
    assert without.missing["achieved_flops_per_sec"] == "not_supported: a kernel"
    assert without.missing["real_time_factor"] == "not_applicable: no audio"


def test_every_column_has_a_value_or_a_reason():
    result = summarise("id", POINT, [measured(0, around(100))], [])
    assert {*METRICS, "throughput_at_median"} == (result.metrics.keys() | result.missing.keys())
    assert not result.metrics.keys() & result.missing.keys()
    assert set(summarise("id", POINT, [failed(0)], []).missing) == set(METRICS)


def test_validity_is_the_worst_severity_of_the_doubts():
    steal = Doubt(kind="steal", severity="noisy", evidence={"steal_share": 0.02})
    nan = Doubt(kind="wrong_output", severity="invalid")
    both = [measured(0, around(100), doubts=(steal,)), measured(1, around(100), doubts=(steal, nan))]
    result = summarise("id", POINT, both, [])
    assert result.validity == "invalid"
    assert [(one.kind, one.evidence["launches"]) for one in result.doubts] == [("steal", [0, 1]), ("wrong_output", [1])]
    assert summarise("id", POINT, [measured(0, around(100))], []).validity == "valid"


def test_doubts_about_the_run_are_added():
    vm = Doubt(kind="vm", severity="info")
    result = summarise("id", POINT, [measured(0, around(100))], [], context=(vm,))
    assert (result.doubts, result.validity) == ((vm,), "valid")


def test_differing_launches_raise_a_doubt():
    close = [(7 * i % 31 - 15) / 100 for i in range(31)]
    both = [measured(launch, [level + each for each in close]) for launch, level in ((0, 100), (1, 120))]
    result = summarise("id", POINT, both, [])
    assert [one.kind for one in result.doubts] == ["launch_spread"]
    assert result.validity == "noisy"


def test_device_memory_below_the_weights_is_invalid():
    load = LaunchLoad(launch=0, stages_s={}, memory_bytes={"weights_bytes": 1000})
    one = measured(0, around(100), metrics={"device_allocated_peak_bytes": 10.0})
    assert [doubt.kind for doubt in summarise("id", POINT, [one], [load]).doubts] == ["peak_below_weights"]


def test_cpu_fallback_is_invalid():
    load = LaunchLoad(launch=0, stages_s={}, verified={"nodes_on_cpu_unasked": 4, "nodes": 90})
    assert summarise("id", POINT, [measured(0, around(100))], [load]).validity == "invalid"


def test_one_measured_launch_is_enough_and_a_failed_one_is_a_doubt():
    result = summarise("id", POINT, [measured(0, around(100)), failed(1)], [])
    assert (result.status, result.launches, result.error) == ("ok", 1, None)
    (doubt,) = result.doubts
    assert (doubt.kind, doubt.severity) == ("launch_failed", "noisy")
    assert doubt.evidence["errors"] == {"1": "OutOfMemoryError: no room"}
    assert [one["status"] for one in result.extra["launches"]] == ["ok", "failed"]


@pytest.mark.parametrize(
    ("launches", "status", "error"),
    [
        ([failed(0), failed(1)], "failed", "OutOfMemoryError: no room"),
        ([failed(0, "no end", "timed_out")], "timed_out", "no end"),
        ([failed(0, "too long", "skipped")], "skipped", "too long"),
        ([failed(0, "no end", "timed_out"), failed(1, "boom")], "failed", "boom"),
        ([], "skipped", "no launch measured this point"),
    ],
)
def test_without_numbers_the_launches_common_status_and_error_are_kept(launches, status, error):
    result = summarise("id", POINT, launches, [])
    assert (result.status, result.error, result.validity, result.metrics) == (status, error, None, {})
    assert result.missing["latency_median_ms"] == ("not_run" if status == "skipped" else "failed")


def test_different_stop_reasons_are_mixed():
    both = [measured(0, around(100)), measured(1, around(100), stop_reason="max_time")]
    assert summarise("id", POINT, both, []).stop_reason == "mixed"


def test_results_with_raw_samples_round_trip_through_json():
    both = [measured(0, around(100), window={"steal_share": 0.0}), measured(1, around(100))]
    result = summarise("id", POINT, both, [])
    assert len(result.samples) == 4
    first = result.extra["launches"][0]
    assert (first["window"], first["statistics"]["n"], first["steady"]) == ({"steal_share": 0.0}, 31, True)
    assert from_json(Result, to_json(result)) == result
    assert dumps(result)

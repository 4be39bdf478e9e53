import sys
from itertools import groupby

import pytest

from benchmarking.core.errors import BenchhouseError, OutOfMemoryError, UnsupportedError
from benchmarking.core.records import Measurement, Point, Readings, dumps, from_json, to_json
from benchmarking.measure.context import PROFILES, Settings
from benchmarking.measure.doubt_rules import about_calls
from benchmarking.measure.point import measure_point
from benchmarking.sweep.run.process import ends_worker

POINT = Point(batch_size=2, sequence_length=8)
MEMORY_CALLS = 5 if sys.platform == "darwin" else 1
QUIET = (1.00, 1.01, 0.99, 1.005, 0.995, 1.01, 0.99, 1.0, 1.005, 0.995)


def measure(operation, handle, report=None, **settings):
    return measure_point(operation, handle, POINT, 1, Settings(**settings), report=report)


def wall(measurement, phase="measure", metric="latency_wall"):
    (found,) = [one for one in measurement.samples if (one.phase, one.metric) == (phase, metric)]
    return found


def test_a_quiet_operation_is_measured_pass_by_pass(fake):
    handle = fake.handle()
    operation = fake.operation(handle, [300, *[100 * factor for factor in QUIET] * 100], items=2)
    seen = []
    result = measure(operation, handle, seen.append)
    assert (result.status, result.launch, result.point, result.first_call_ms) == ("ok", 1, POINT, 300.0)
    assert (result.warmup_calls, result.steady, result.stop_reason) == (20, True, "target")
    assert len(wall(result, "warmup").values) == 20
    assert wall(result).values[:3] == (100.0, 101.0, 99.0)
    assert (wall(result).unit, wall(result).inner_loops, len(wall(result).values)) == ("ms", 1, 30)
    assert operation.calls == 1 + 20 + 30 + MEMORY_CALLS
    assert result.doubts == ()
    assert result.extra["items_per_call"] == 2
    assert result.missing["latency_device"].startswith("not_supported")
    assert result.missing["energy_gpu_j_per_call"] == "not_supported"
    assert [one.phase for one in seen] == ["first_call", "warmup", "measure", "memory"]


@pytest.mark.parametrize(
    ("first_ms", "call_ms", "torch_name", "phases"),
    [
        (2000, 1600, "cpu", ["first_call", "memory", "measure"]),
        (9000, 200, "cpu", ["first_call", "memory", "warmup", "measure", "memory"]),
        (2000, 1600, "cuda:0", ["first_call", "warmup", "measure", "memory"]),
    ],
    ids=["slow", "slow only at first", "accelerator"],
)
def test_memory_calls_warm_up_slow_calls_on_a_cpu(fake, first_ms, call_ms, torch_name, phases):
    handle = fake.handle(torch_name=torch_name)
    seen = []
    result = measure_point(
        fake.operation(handle, [first_ms, *[call_ms] * 100]), handle, POINT, 1, PROFILES["quick"], report=seen.append
    )
    assert [phase for phase, _ in groupby(one.phase for one in seen)] == phases
    assert len(wall(result).values) >= 3
    assert result.metrics["peak_rss_infer_bytes"] > 0


def test_the_operations_readings_are_stored_with_the_reasons_for_missing_ones(fake):
    handle = fake.handle()
    known = Readings(values={"active_parameter_count": 12}, missing={"tokenize_ms": "not_applicable: no tokenizer"})
    result = measure(fake.operation(handle, [5, 6], known=known), handle, fixed_iterations=3)
    assert result.metrics["active_parameter_count"] == 12.0
    assert result.missing["tokenize_ms"] == "not_applicable: no tokenizer"


@pytest.mark.parametrize(("launch", "counted"), [(0, 1), (1, 0)])
def test_work_is_counted_in_the_first_launch_only(fake, launch, counted):
    handle = fake.handle()
    operation = fake.operation(handle, [5, 6])
    result = measure_point(operation, handle, POINT, launch, Settings(fixed_iterations=3))
    assert operation.counted == counted
    assert result.metrics.get("flops") == (2_000_000.0 if counted else None)
    assert ("bytes_accessed" in result.missing) == bool(counted)


def test_measurements_round_trip_through_json(fake):
    handle = fake.handle(has_events=True)
    result = measure(fake.operation(handle, [5, 6]), handle, fixed_iterations=7, fixed_warmup_iterations=2)
    assert from_json(Measurement, to_json(result)) == result
    assert dumps(result)


def test_fixed_counts_are_kept_exactly(fake):
    handle = fake.handle()
    operation = fake.operation(handle, [0.1, 0.2])
    result = measure(operation, handle, fixed_iterations=7, fixed_warmup_iterations=3)
    assert len(wall(result, "warmup").values) == 3
    assert len(wall(result).values) == 7
    assert wall(result).inner_loops == 1
    assert operation.calls == 1 + 3 + 7 + MEMORY_CALLS
    assert (result.stop_reason, result.steady) == ("fixed", None)


def test_no_warm_up_leaves_no_warm_up_samples(fake):
    handle = fake.handle()
    result = measure(fake.operation(handle, [5, 6]), handle, fixed_iterations=3, fixed_warmup_iterations=0)
    assert {one.phase for one in result.samples} == {"measure"}


def test_short_calls_are_timed_in_blocks_and_marks_forbid_it(fake):
    handle = fake.handle()
    blocked = measure(fake.operation(handle, [0.1 * factor for factor in QUIET]), handle, max_samples=60)
    assert wall(blocked).inner_loops == 10
    assert wall(blocked).values[0] == pytest.approx(0.1, rel=0.02)
    marked = measure(fake.operation(handle, [[("retrieve", 0.1), 0.1]]), handle, max_samples=60)
    assert wall(marked).inner_loops == 1
    assert wall(marked, metric="phase_retrieve").values[0] == pytest.approx(0.1)


def test_a_streaming_call_gives_its_token_metrics(fake):
    handle = fake.handle()
    operation = fake.operation(handle, [[("token", 5), ("token", 2), ("token", 3)]], new_tokens=3, prompt_tokens=16)
    result = measure(operation, handle, fixed_iterations=4, fixed_warmup_iterations=0)
    assert wall(result, metric="time_to_first_token").values == (5.0,) * 4
    assert wall(result, metric="time_per_output_token").values == (2.5,) * 4
    assert wall(result, metric="inter_token_latency").values == (2.0, 3.0) * 4
    assert (result.extra["prompt_tokens_per_call"], result.extra["new_tokens"]) == (16, 3)


def test_a_call_that_does_not_stream_has_a_reason_for_missing_inter_token_times(fake):
    handle = fake.handle()
    operation = fake.operation(handle, [[("token", 5), ("token", 6)]], new_tokens=4)
    operation.streams = False
    result = measure(operation, handle, fixed_iterations=4, fixed_warmup_iterations=0)
    assert wall(result, metric="time_to_first_token").values == (5.0,) * 4
    assert wall(result, metric="time_per_output_token").values == (2.0,) * 4
    assert "inter_token_latency" not in {one.metric for one in result.samples}
    assert result.missing["inter_token_latency"].startswith("not_applicable: all tokens after the first reach")


def test_a_missing_token_ends_the_point_at_its_first_call(fake):
    handle = fake.handle()
    operation = fake.operation(handle, [[("token", 5)]], new_tokens=2)
    with pytest.raises(BenchhouseError, match="1 tokens, expected 2"):
        measure(operation, handle)
    assert operation.calls == 1


def test_exceptions_of_the_operation_pass_through(fake):
    handle = fake.handle()
    operation = fake.operation(handle, [5])
    operation.run = lambda mark: 1 / 0
    with pytest.raises(ZeroDivisionError):
        measure(operation, handle)


@pytest.mark.parametrize(
    ("error", "verified", "ends"),
    [
        (UnsupportedError("asked for a, but b ran"), {"not_as_requested": "asked for a, but b ran"}, {}),
        (RuntimeError("profiler: CUPTI\nmore"), {"not_verified": "RuntimeError: profiler: CUPTI"}, {}),
        (
            OutOfMemoryError("out of memory"),
            {"not_verified": "OutOfMemoryError: out of memory"},
            {"out_of_memory": True},
        ),
        (
            RuntimeError("CUDA error: device-side assert triggered"),
            {"not_verified": "RuntimeError: CUDA error: device-side assert triggered"},
            {"device_lost": True},
        ),
    ],
)
def test_a_check_that_fails_afterwards_marks_the_point(fake, error, verified, ends):
    handle = fake.handle()
    operation = fake.operation(handle, QUIET)

    def fail():
        raise error

    operation.verified = fail
    result = measure(operation, handle, fixed_iterations=4)
    assert len(wall(result).values) == 4
    assert result.extra["verified"] == verified
    assert {key: result.extra[key] for key in ("out_of_memory", "device_lost") if key in result.extra} == ends
    assert ends_worker(result) is bool(ends)
    (doubt,) = about_calls(result.extra["verified"])
    assert (doubt.kind, doubt.severity) == (
        next(iter(verified)),
        "invalid" if "not_as_requested" in verified else "info",
    )
    assert doubt.evidence == {"why": next(iter(verified.values()))}


def test_a_wrong_output_is_measured_and_invalid(fake):
    handle = fake.handle()
    operation = fake.operation(handle, [5, 6], problem="NaN in the output")
    result = measure(operation, handle, fixed_iterations=4)
    (doubt,) = [one for one in result.doubts if one.kind == "wrong_output"]
    assert (doubt.severity, doubt.evidence) == ("invalid", {"problem": "NaN in the output"})


def test_calls_of_equal_length_are_invalid(fake):
    handle = fake.handle()
    result = measure(fake.operation(handle, [100]), handle)
    assert [one.kind for one in result.doubts] == ["zero_spread"]


def test_device_times_are_stored_with_wall_times(fake):
    handle = fake.handle(has_events=True)
    result = measure(fake.operation(handle, [4, 6]), handle, fixed_iterations=4)
    assert wall(result, metric="latency_device").values == (3.0, 2.0, 3.0, 2.0)
    assert "latency_device" not in result.missing


def test_a_throttled_pass_is_repeated_once_and_both_are_kept(fake):
    hot = Readings(values={"throttle_reasons": ["hardware_thermal"]})
    handle = fake.handle(states=[hot, hot, Readings(values={"throttle_reasons": []})])
    operation = fake.operation(handle, [100 * factor for factor in QUIET])
    result = measure(operation, handle, cooldown_s=7.0)
    assert handle.slept_s == [7.0]
    assert result.doubts == ()
    first = result.extra["throttled_try"]
    assert (first["doubts"], len(first["latency_wall_ms"]), first["cooldown_s"]) == (["throttle_reason"], 30, 7.0)
    assert len(wall(result).values) == 30


def test_persistent_throttling_is_retried_once(fake):
    handle = fake.handle(states=[Readings(values={"throttle_reasons": ["power_brake"]})])
    result = measure(fake.operation(handle, [100 * factor for factor in QUIET]), handle)
    assert len(handle.slept_s) == 1
    assert [one.kind for one in result.doubts] == ["throttle_reason"]


def test_compilation_during_timed_calls_raises_a_doubt(fake):
    handle = fake.handle()
    operation = fake.operation(handle, [5, 6])
    settings = Settings(fixed_iterations=4, fixed_warmup_iterations=2)
    # first call, 2 warm-up calls, 4 timed ones: the last of these compiles
    result = measure_point(operation, handle, POINT, 0, settings, compile_count=lambda: int(operation.calls >= 7))
    (doubt,) = [one for one in result.doubts if one.kind == "compiled_in_window"]
    assert doubt.evidence == {"compiles": 1, "threshold": 0}


def test_energy_is_measured_where_a_counter_exists(fake):
    handle = fake.handle(power_w=50.0)
    result = measure(fake.operation(handle, [100 * factor for factor in QUIET]), handle)
    assert result.metrics["energy_gpu_j_per_call"] == pytest.approx(5.0)
    assert result.metrics["energy_idle_w"] == pytest.approx(50.0)
    assert result.missing["energy_cpu_pkg_j_per_call"] == "no_permission: rapl"
    assert result.extra["energy_method"] == "counter"


def test_compile_time_is_the_first_call_minus_a_steady_one(fake):
    handle = fake.handle()
    operation = fake.operation(handle, [2000, *[100, 102, 98] * 50])
    settings = Settings(fixed_iterations=3, fixed_warmup_iterations=3)
    result = measure_point(operation, handle, POINT, 0, settings, compile_count=lambda: int(operation.calls >= 1))
    assert result.metrics["compile_s"] == pytest.approx(1.9)
    assert result.extra["compile_method"] == "upper_bound"


def test_without_compiling_there_is_no_compile_time(fake):
    handle = fake.handle()
    operation = fake.operation(handle, [20, 21])
    settings = Settings(fixed_iterations=3, fixed_warmup_iterations=3)
    for count in (None, lambda: 7):
        result = measure_point(operation, handle, POINT, 0, settings, compile_count=count)
        assert "compile_s" not in result.metrics
        assert result.missing["compile_s"].startswith("not_applicable")

import math

import numpy as np
import pytest

from benchmarking.core.doubts import validity
from benchmarking.core.records import Device, Doubt, Readings
from benchmarking.core.sample_statistics import describe
from benchmarking.measure import doubt_rules
from benchmarking.measure.context import PROFILES
from tests.helpers.measurement_replay import TWO_SPEEDS, count_doubts, independent, of_heating, read_by

SMALL = 1e-9


def kinds(found):
    return [(one.kind, one.severity) for one in found]


def samples(values):
    return doubt_rules.about_samples(values)


def spread(iqr, rounds=4):
    """25 values (6 more a round) with median 1 and the given IQR, without outliers, drift or correlation."""
    low, high = 1 - iqr / 2, 1 + iqr / 2
    return [1.0, low, high, 1.0, high, low] * rounds + [1.0]


@pytest.mark.parametrize(
    ("rounds", "iqr", "expected"),
    [
        (4, 0.16, []),
        (4, 0.18, ["noisy"]),
        (4, 0.42, ["noisy"]),
        (4, 0.44, ["very_noisy"]),
        (150, 0.105, []),
        (150, 0.112, ["noisy"]),
        (150, 0.28, ["very_noisy"]),
    ],
)
def test_spread_beyond_chance_raises_a_doubt(rounds, iqr, expected):
    """10 % and 25 % times exp(2.326 * 1.17 / sqrt(n)): 1.723 for 25 samples, 1.095 for 901."""
    values = [value + place * 7 % 13 * 1e-9 for place, value in enumerate(spread(iqr, rounds))]
    assert kinds(samples(values)) == [(kind, "noisy") for kind in expected]


def test_a_spread_of_zero_that_no_clock_explains_is_invalid():
    assert kinds(samples([5.123457] * 30)) == [("zero_spread", "invalid")]
    assert kinds(samples([5.123457] * 3)) == [("zero_spread", "invalid"), ("few_samples", "info")]
    assert kinds(samples([1 / 3] * 3)) == [("zero_spread", "invalid"), ("few_samples", "info")]
    assert kinds(samples([5.0] * 2)) == [("few_samples", "info")]
    assert kinds(samples([5.0])) == [("few_samples", "info")]


@pytest.mark.parametrize(
    ("every_ms", "n", "expected"),
    [
        (105.0, 5, [("zero_spread", "info"), ("few_samples", "info")]),
        (105.0, 199, [("zero_spread", "info")]),
        (105.0, 200, [("zero_spread", "invalid")]),  # by chance near a multiple of the step: 2 / 201
        (52.0, 5, [("zero_spread", "info"), ("few_samples", "info")]),
        (52.0, 30, [("zero_spread", "info"), ("coarse_clock", "noisy")]),  # up to a step of 1 ms
    ],
)
def test_equal_readings_of_a_coarse_clock_are_not_invalid(every_ms, n, expected):
    assert kinds(samples([every_ms] * n)) == expected


@pytest.mark.parametrize(("step", "call"), [(0.005, 1.2), (0.1, 12.0), (1.0, 105.0)])
@pytest.mark.parametrize("n", [3, 5, 30, 120])
def test_healthy_calls_by_a_clock_whose_steps_hardly_matter_are_valid(step, call, n):
    found = count_doubts(read_by(independent(0.005), step, call), n, replays=100, seed=5)
    assert found.total() <= 1


@pytest.mark.parametrize("calls", TWO_SPEEDS.values(), ids=TWO_SPEEDS)
def test_calls_of_two_speeds_that_hardly_differ_are_valid(calls):
    assert count_doubts(calls, 900, replays=20, seed=5).total() == 0


@pytest.mark.parametrize(("n", "expected"), [(19, [("few_samples", "info")]), (20, []), (21, [])])
def test_fewer_than_20_samples_are_few(n, expected):
    assert kinds(samples(([100.0, 101.0, 99.0, 100.5, 99.5] * 5)[:n])) == expected


def test_relevant_slow_and_fast_phases_raise_a_doubt():
    def phased(change):
        calls = [100.0 + 0.01 * (7 * i % 13) for i in range(120)]
        return [value * (1 + change) if i // 20 % 2 else value for i, value in enumerate(calls)]

    assert kinds(samples(phased(0.04))) == [("correlated", "noisy")]
    assert kinds(samples(phased(0.015))) == []


@pytest.mark.parametrize(("severe", "expected"), [(5, []), (11, []), (12, ["severe_outliers"])])
def test_more_severe_outliers_than_five_percent_raise_a_doubt(severe, expected):
    """Of 100 samples with one outlier in 20, 12 or more are less likely than 1 %, 11 are not."""
    calls = [100.0 + 0.01 * (7 * i % 13) for i in range(100)]
    for place in range(severe):
        calls[place * 8 + place % 3] = 106.0 + place / 100
    assert [kind for kind, _ in kinds(samples(calls))] == expected


def test_two_severe_outliers_in_nineteen_samples_raise_no_doubt():
    calls = [100.0 + 0.01 * (7 * i % 13) for i in range(19)]
    calls[4] = calls[11] = 110.0
    assert kinds(samples(calls)) == [("few_samples", "info")]


@pytest.mark.parametrize(
    ("every", "factor", "calls", "expected"),
    [
        (50, 50, 120, True),
        (50, 50, 30, True),
        (200, 20, 500, True),
        (10, 2, 60, True),
        (50, 2, 120, False),
        (1, 5, 60, False),
    ],
)
def test_slow_calls_that_take_more_than_five_percent_of_the_time_raise_a_doubt(every, factor, calls, expected):
    """Every 50th call that takes 50 times as long halves the throughput, but is 2 % of the calls."""
    values = [(100.0 + 0.01 * (7 * i % 13)) * (factor if i % every == 7 % every else 1) for i in range(calls)]
    found = [one for one in samples(values) if one.kind == "slow_calls"]
    assert bool(found) is expected
    slow, total = [value for value in values if value > 150], sum(values)
    assert all(one.evidence["time_share"] == pytest.approx(1 - 100 * calls / total, abs=0.01) for one in found)
    assert all(one.evidence["slow_calls"] == len(slow) for one in found)
    assert "slow_calls" not in [one.kind for one in doubt_rules.about_samples(values, in_flight=2)]


def test_a_single_interrupt_among_few_calls_raises_no_doubt():
    """A call that takes three times as long is 17 % of the time of ten."""
    calls = [100.0 + 0.01 * (7 * i % 13) for i in range(10)]
    calls[3] = 300.0
    assert kinds(samples(calls)) == [("few_samples", "info")]


@pytest.mark.parametrize("sign", [1, -1])
def test_drift_beyond_chance_raises_a_doubt_in_either_direction(sign):
    def drifting(change, n, noise=0.01):
        wobble = [100 * (1 + noise * ((7 * i % 13) - 6) / 6) for i in range(n)]
        return [value * (1 + sign * change * (3 * i // n) / 2) for i, value in enumerate(wobble)]

    assert "drift" in [kind for kind, _ in kinds(samples(drifting(0.06, 90)))]
    assert "drift" not in [kind for kind, _ in kinds(samples(drifting(0.025, 90)))]
    assert "drift" not in [kind for kind, _ in kinds(samples(drifting(0.06, 12)))]
    assert "drift" not in [kind for kind, _ in kinds(samples(drifting(0.06, 90, noise=0.5)))]


def test_an_accelerator_that_heats_up_beyond_a_short_pass_has_drift_as_information():
    """+8 % with a time constant of 15 s: in 3.4 s the calls become 0.8 % slower, which is 14 % in half a minute."""
    warms, settled = (of_heating(0.002, rise, 15.0, PROFILES["quick"], replays=20, seed=7) for rise in (0.08, 0.0))
    assert warms.off == pytest.approx(-0.062, abs=0.002)
    assert (warms.doubts["drift (info)"], warms.doubts["drift (noisy)"]) == (20, 0)
    assert settled.doubts["drift (info)"] <= 1
    rising = [20.0 + 0.0005 * i + 0.01 * (7 * i % 13) for i in range(170)]
    assert kinds(doubt_rules.about_samples(rising)) == []
    (found,) = doubt_rules.about_samples(rising, is_accelerator=True)
    assert (found.kind, found.severity) == ("drift", "info")
    assert found.evidence["apart_s"] == pytest.approx(2 / 3 * sum(rising) / 1000)
    per_s = found.evidence["relative_change"] / found.evidence["apart_s"]
    assert found.evidence["change_in_half_a_minute"] == pytest.approx(30 * per_s)
    in_blocks = doubt_rules.about_samples(rising, inner_loops=2, is_accelerator=True)
    assert kinds(in_blocks) == [], "blocks of two calls are twice as far apart"


@pytest.mark.parametrize(("step_ms", "expected"), [(0.1, ["coarse_clock"]), (0.01, [])])
def test_a_clock_too_coarse_for_the_call_raises_a_doubt(step_ms, expected):
    calls = [1.37 * (1 + 0.02 * ((7 * i % 13) - 6) / 6) for i in range(60)]
    read = [math.floor(value / step_ms + (i * 0.618) % 1) * step_ms for i, value in enumerate(calls)]
    found = [one for one in samples(read) if one.kind == "coarse_clock"]
    assert [one.kind for one in found] == expected
    assert all(one.evidence["clock_step_over_median"] == pytest.approx(0.1 / 1.4, rel=0.1) for one in found)


@pytest.mark.parametrize(
    ("reason", "width", "expected"),
    [
        ("target", 0.02, []),
        ("max_time", 0.02, []),
        ("max_time", 0.021, ["target_missed"]),
        ("max_time", None, ["target_missed"]),
        ("plateau", 0.5, ["target_missed"]),
        ("max_samples", 0.03, ["target_missed"]),
        ("fixed", 0.01, []),
        ("fixed", 0.03, ["target_missed"]),
        ("fixed", None, []),
    ],
)
def test_a_missed_target_is_imprecise_and_leaves_a_result_valid(reason, width, expected):
    found = doubt_rules.about_stop(reason, width, 0.02)
    assert kinds(found) == [(kind, "info") for kind in expected]
    assert validity(found) == "valid"


@pytest.mark.parametrize(("steady", "expected"), [(True, []), (None, []), (False, [("not_steady", "info")])])
def test_a_warm_up_at_its_limit_is_not_steady(steady, expected):
    assert kinds(doubt_rules.about_warm_up(steady, 300)) == expected


def test_wrong_output_is_invalid():
    assert kinds(doubt_rules.about_output("NaN")) == [("wrong_output", "invalid")]
    assert doubt_rules.about_output(None) == ()


@pytest.mark.parametrize(
    ("name", "threshold", "kind", "severity"),
    [
        ("compiles", 0, "compiled_in_window", "invalid"),
        ("swapped_in_pages", 100, "swapped_in", "noisy"),
        ("major_faults", 10, "major_faults", "invalid"),
        ("violation_ns", 0, "violation_time", "throttled"),
        ("throttled_periods", 0, "quota_throttled", "throttled"),
        ("cpu_pressure_before", 0.10, "cpu_pressure", "noisy"),
        ("run_queue_wait_share", 0.02, "run_queue_wait", "noisy"),
        ("steal_share", 0.01, "steal", "noisy"),
        ("suspended_s", 1.0, "suspended", "noisy"),
    ],
)
def test_window_counters_at_below_and_above_their_threshold(name, threshold, kind, severity):
    for value in (threshold, threshold - SMALL):
        assert window({name: value}) == ()
    (doubt,) = window({name: threshold + SMALL})
    assert (doubt.kind, doubt.severity) == (kind, severity)
    assert doubt.evidence[name] == threshold + SMALL
    assert doubt.evidence["threshold"] == threshold


def test_a_step_of_the_system_clock_is_told_in_either_direction():
    for step_s in (-90.0, 1.5):
        (doubt,) = window({"clock_step_s": step_s})
        assert (doubt.kind, doubt.severity, doubt.evidence) == ("clock_jumped", "info", {"clock_step_s": step_s})
    assert window({"clock_step_s": -0.9}) == ()


def test_one_major_fault_or_swapped_page_of_the_machine_raises_no_doubt():
    assert window({"elapsed_s": 0.5, "major_faults": 1, "swapped_in_pages": 1}) == ()
    assert window({"elapsed_s": 20.0, "major_faults": 200, "swapped_in_pages": 2000}) == ()
    found = window({"elapsed_s": 20.0, "major_faults": 201, "swapped_in_pages": 2001})
    assert kinds(found) == [("swapped_in", "noisy"), ("major_faults", "invalid")]


@pytest.mark.parametrize(("stolen", "ticks", "is_doubt"), [(2, 100, False), (5, 100, True), (60, 4000, True)])
def test_more_stolen_ticks_than_one_percent_raise_a_doubt(stolen, ticks, is_doubt):
    found = window({"steal_share": stolen / ticks, "cpu_ticks": ticks})
    assert kinds(found) == ([("steal", "noisy")] if is_doubt else [])


def test_a_single_time_slice_is_not_a_run_queue_wait():
    assert window({"run_queue_wait_share": 0.08, "busy_threads": 1, "elapsed_s": 0.05}) == ()
    assert kinds(window({"run_queue_wait_share": 0.08, "busy_threads": 1, "elapsed_s": 0.5})) == [
        ("run_queue_wait", "noisy")
    ]


def window(values, is_accelerator=True):
    return doubt_rules.about_window(values, is_accelerator=is_accelerator)


def test_unknown_counters_raise_no_doubt():
    assert window({}) == ()


@pytest.mark.parametrize(
    ("threads", "share", "is_doubt"),
    [(1, 0.03, True), (2, 0.03, False), (2, 0.05, False), (2, 0.06, True), (64, 1.6, False), (64, 1.7, True)],
)
def test_the_wait_threshold_grows_with_the_number_of_threads(threads, share, is_doubt):
    found = window({"busy_threads": threads, "run_queue_wait_share": share})
    assert [one.kind for one in found] == (["run_queue_wait"] if is_doubt else [])
    assert all(one.evidence["busy_threads"] == threads for one in found)


def test_other_processes_on_the_device_make_a_result_invalid():
    assert window({"foreign_pids": []}) == ()
    (doubt,) = window({"foreign_pids": [12, 13]})
    assert (doubt.kind, doubt.severity, doubt.evidence) == ("foreign_process", "invalid", {"foreign_pids": [12, 13]})


def test_the_use_by_other_processes_is_kept_as_evidence():
    use = [{"pid": 12, "busy_percent": 61, "memory_bytes": 5}]
    (doubt,) = window({"foreign_pids": [12], "foreign_use": use})
    assert doubt.evidence == {"foreign_pids": [12], "foreign_use": use}


def test_a_low_clock_explained_by_the_power_limit_is_not_throttling():
    capped = {"throttle_reasons": ["software_power_cap"], "clock_hz_median": 700.0, "clock_default_hz": 1000.0}
    (doubt,) = doubt_rules.about_window(capped, is_accelerator=True)
    assert (doubt.kind, doubt.severity) == ("power_capped", "info")
    assert doubt.evidence == {"throttle_reasons": ["software_power_cap"], "clock_hz": 700.0, "default_hz": 1000.0}
    (doubt,) = doubt_rules.about_window({**capped, "throttle_reasons": []}, is_accelerator=True)
    assert doubt.kind == "low_clock"


@pytest.mark.parametrize(
    ("reason", "expected"),
    [
        ("software_thermal", [("throttle_reason", "throttled")]),
        ("hardware_thermal", [("throttle_reason", "throttled")]),
        ("power_brake", [("throttle_reason", "throttled")]),
        ("hardware_slowdown", [("throttle_reason", "throttled")]),
        ("software_power_cap", [("power_capped", "info")]),
        ("gpu_idle", []),
        ("clocks_setting", [("application_clock", "info")]),
        ("clock_below_maximum", [("application_clock", "info")]),
    ],
)
def test_heat_and_power_brake_throttle_but_a_software_cap_does_not(reason, expected):
    assert kinds(window({"throttle_reasons": [reason]})) == expected


@pytest.mark.parametrize("reason", ["clocks_setting", "clock_below_maximum"])
def test_a_clock_that_was_set_low_is_information_and_no_throttling(reason):
    (doubt,) = window({"throttle_reasons": [reason], "clock_hz_median": 700.0, "clock_default_hz": 1000.0})
    assert (doubt.kind, doubt.severity) == ("application_clock", "info")
    assert doubt.evidence == {"throttle_reasons": [reason], "clock_hz": 700.0}


def test_a_clock_below_its_maximum_is_explained_by_a_limit_of_another_moment():
    reasons = ["clock_below_maximum", "software_power_cap"]
    assert kinds(window({"throttle_reasons": reasons})) == [("power_capped", "info")]


@pytest.mark.parametrize(("clock", "is_doubt"), [(749.9, True), (750.0, False), (1000.0, False)])
def test_a_low_clock_is_throttling_on_an_accelerator_only(clock, is_doubt):
    values = {"clock_hz_median": clock, "clock_default_hz": 1000.0}
    assert [one.kind for one in window(values)] == (["low_clock"] if is_doubt else [])
    assert window(values, is_accelerator=False) == ()


@pytest.mark.parametrize(
    ("peak", "weights", "is_doubt"), [(99, 100, True), (100, 100, False), (None, 100, False), (1, None, False)]
)
def test_peak_memory_below_the_weights_is_a_doubt(peak, weights, is_doubt):
    found = doubt_rules.about_device_memory(peak, weights)
    assert kinds(found) == ([("peak_below_weights", "invalid")] if is_doubt else [])


def test_a_silent_fallback_to_the_cpu_is_invalid():
    fallen, none = ({"nodes_on_cpu_unasked": count, "nodes": 100} for count in (3, 0))
    assert kinds(doubt_rules.about_calls(fallen)) == [("cpu_fallback", "invalid")]
    assert doubt_rules.about_calls(none) == ()
    assert doubt_rules.about_calls({}) == ()


def test_setting_the_clock_back_raises_a_doubt():
    early, late = "2026-01-02T03:04:05.678Z", "2026-01-02T03:04:06.000Z"
    (doubt,) = doubt_rules.about_end((early, late), (late, early))
    assert (doubt.kind, doubt.severity) == ("clock_set_back", "info")
    assert doubt.evidence == {"earlier": late, "later": early}
    assert doubt_rules.about_end((early, late), (early, early)) == ()


def test_a_software_adapter_raises_a_doubt():
    adapter = {"vendor": "google", "architecture": "swiftshader"}
    (doubt,) = doubt_rules.about_load({"is_simulated": True, "adapter": adapter})
    assert (doubt.kind, doubt.severity, doubt.evidence) == ("software_adapter", "info", adapter)
    assert doubt_rules.about_load({"is_simulated": False, "adapter": adapter}) == ()
    assert doubt_rules.about_load({"is_simulated": True}) == ()
    assert doubt_rules.about_load({}) == ()


def launches(medians):
    return [describe([median + 0.001 * (7 * i % 13 - 6) for i in range(26)]) for median in medians]


@pytest.mark.parametrize(
    ("medians", "is_doubt"), [([100, 109, 100], False), ([100, 111, 100], True), ([100], False), ([0, 0], False)]
)
def test_launches_that_differ_by_more_than_ten_percent(medians, is_doubt):
    assert kinds(doubt_rules.about_launches(launches(medians), {})) == (
        [("launch_spread", "noisy")] if is_doubt else []
    )


def test_the_spread_of_more_launches_is_that_of_five_of_them():
    # four of the six choices of five have both ends, one lacks 100 and one 113
    (doubt,) = doubt_rules.about_launches(launches([100, 113, 101, 102, 103, 112]), {})
    assert doubt.evidence["relative_spread"] == pytest.approx((4 * 13 + 12 + 12) / 6 / 103, abs=1e-6)


@pytest.mark.parametrize(("deviation", "least", "most"), [(0.025, 0, 3), (0.07, 30, 40)])
def test_how_many_launches_there_are_does_not_decide_whether_they_differ(deviation, least, most):
    rng = np.random.default_rng(6)
    for count in (5, 20, 60):
        found = sum(
            bool(doubt_rules.about_launches(launches(100 * np.exp(deviation * rng.standard_normal(count))), {}))
            for _ in range(40)
        )
        assert least <= found <= most


def test_launches_differ_by_more_than_the_errors_of_their_medians():
    """Three samples 10 % apart say a median to about 10 %: 20 % between two launches is no news."""
    wide = [describe([90.0, 100.0, 110.0]), describe([108.0, 120.0, 132.0])]
    assert doubt_rules.about_launches(wide, {}) == ()
    close = [describe([99.9, 100.0, 100.1]), describe([119.9, 120.0, 120.1])]
    assert kinds(doubt_rules.about_launches(close, {})) == [("launch_spread", "noisy")]


def test_a_failed_launch_beside_good_ones_is_a_noise_doubt():
    (doubt,) = doubt_rules.about_launches(launches([100.0]), {1: "killed by signal 9"})
    assert (doubt.kind, doubt.severity, doubt.evidence) == (
        "launch_failed",
        "noisy",
        {"errors": {"1": "killed by signal 9"}},
    )


@pytest.mark.parametrize(
    ("values", "kind"),
    [
        ({"power_source": "battery"}, "on_battery"),
        ({"cpu_governor": "powersave"}, "governor"),
        ({"is_virtual_machine": True, "virtual_machine": "KVM"}, "vm"),
        ({"is_container": True, "container": "docker"}, "container"),
    ],
)
def test_the_environment_raises_doubts_for_information(values, kind):
    assert kinds(doubt_rules.about_environment(Readings(values=values))) == [(kind, "info")]


def test_a_plain_environment_raises_no_doubt():
    plain = {"power_source": "mains", "cpu_governor": "performance", "is_virtual_machine": False, "is_container": False}
    assert doubt_rules.about_environment(Readings(values=plain)) == ()
    assert doubt_rules.about_environment(Readings()) == ()


@pytest.mark.parametrize(
    ("facts", "expected"),
    [
        ({"is_mig_enabled": True}, ["mig"]),
        ({"power_cap_w": 300.0, "power_cap_default_w": 350.0}, ["power_cap"]),
        ({"power_cap_w": 350.0, "power_cap_default_w": 350.0}, []),
        ({"power_cap_w": 350.0}, []),
    ],
)
def test_the_device_raises_doubts_for_information(facts, expected):
    device = Device(type="cuda", selector="cuda:0", found=True, facts=Readings(values=facts))
    assert [one.kind for one in doubt_rules.about_environment(Readings(), device)] == expected


def test_an_emulator_raises_a_doubt_and_the_null_device_does_not():
    emulator = Device(type="qnn", selector="qnn", found=True, name="Qualcomm HTP emulator", simulated=True)
    (doubt,) = doubt_rules.about_environment(Readings(), emulator)
    assert (doubt.kind, doubt.severity) == ("simulator", "info")
    assert doubt.evidence == {"device_name": "Qualcomm HTP emulator"}
    null = Device(type="null", selector="null", found=True, simulated=True)
    assert doubt_rules.about_environment(Readings(), null) == ()


def test_an_emulated_precision_is_invalid():
    (doubt,) = doubt_rules.about_calls({"emulated_precision": "float16", "compute_types": {"float": 17}})
    assert (doubt.kind, doubt.severity) == ("emulated_precision", "invalid")
    assert doubt.evidence == {"precision": "float16", "compute_types": {"float": 17}}
    assert doubt_rules.about_calls({"compute_types": {"float": 17}}) == ()


def test_validity_is_the_worst_severity():
    def of(*severities):
        return validity([Doubt(kind="k", severity=one) for one in severities])

    assert of() == of("info") == "valid"
    assert of("info", "noisy") == "noisy"
    assert of("throttled", "noisy") == "throttled"
    assert of("noisy", "invalid", "throttled") == "invalid"


def test_equal_doubts_of_launches_are_merged_with_the_worst_evidence():
    mild = Doubt(kind="a", severity="info", evidence={"x": 1})
    bad = Doubt(kind="a", severity="noisy", evidence={"x": 2})
    (merged,) = doubt_rules.merge([(0, [mild]), (2, [bad])], launches=3)
    assert (merged.severity, merged.evidence) == ("noisy", {"x": 2, "launch": 2, "launches": [0, 2], "of": 3})


@pytest.mark.parametrize(
    ("severity", "disturbed", "launches", "expected"),
    [
        ("noisy", [3], 5, "info"),
        ("noisy", [0, 3], 5, "info"),
        ("noisy", [0, 1, 3], 5, "noisy"),
        ("throttled", [2], 3, "info"),
        ("noisy", [1], 2, "noisy"),
        ("noisy", [0], 1, "noisy"),
        ("invalid", [4], 5, "invalid"),
    ],
)
def test_disturbances_count_if_half_of_the_launches_have_them(severity, disturbed, launches, expected):
    one = Doubt(kind="a", severity=severity)
    (merged,) = doubt_rules.merge([(launch, [one]) for launch in disturbed], launches)
    assert (merged.severity, merged.evidence["launches"]) == (expected, disturbed)


def test_threads_outside_the_cpu_list_make_a_result_invalid():
    threads = {"11": {"name": "worker", "cpus_allowed": "0-7", "last_cpu": 5}}
    (doubt,) = doubt_rules.about_window({"escaped_threads": threads}, is_accelerator=False)
    assert (doubt.kind, doubt.severity, doubt.evidence) == ("affinity_escaped", "invalid", {"threads": threads})


@pytest.mark.parametrize(
    ("verified", "is_doubted"),
    [
        ({"num_threads": 4, "cpus_allowed": 4}, False),
        ({"num_threads": 5, "cpus_allowed": 4}, True),
        ({"num_threads": 4, "cpus_allowed": 8, "cpu_quota_cores": 2.0}, True),
        ({"num_threads": 2, "cpus_allowed": 8, "cpu_quota_cores": 2.0}, False),
        ({"num_threads": 2}, False),
        ({"cpus_allowed": 1}, False),
    ],
)
def test_more_threads_than_processors_or_quota_raise_a_doubt(verified, is_doubted):
    assert [doubt.kind for doubt in doubt_rules.about_load(verified)] == (["oversubscribed"] if is_doubted else [])


def test_memory_on_another_node_raises_a_doubt_with_its_share():
    """10 of 100 bytes are on another node; 5 of 100 raise no doubt."""
    away = {"numa_node": 1, "memory_bytes_by_numa_node": {"0": 10, "1": 90}}
    (doubt,) = doubt_rules.about_load(away)
    assert (doubt.kind, doubt.severity, doubt.evidence["remote_share"]) == ("remote_memory", "info", 0.1)
    near = {"numa_node": 1, "memory_bytes_by_numa_node": {"0": 5, "1": 95}}
    assert doubt_rules.about_load(near) == ()
    assert doubt_rules.about_load({"numa_node": 0, "memory_bytes_by_numa_node": {}}) == ()
    assert doubt_rules.about_load({"memory_bytes_by_numa_node": {"0": 1}}) == ()


def test_a_display_and_an_application_clock_raise_doubts():
    facts = {"is_display_active": True, "clock_application_hz": 1_005_000_000, "clock_default_hz": 1_980_000_000}
    device = Device(type="cuda", selector="cuda:0", found=True, facts=Readings(values=facts))
    found = doubt_rules.about_environment(Readings(), device)
    assert [(doubt.kind, doubt.severity) for doubt in found] == [("application_clock", "info"), ("display", "info")]


@pytest.mark.parametrize(
    ("facts", "is_doubt"),
    [
        ({"performance_level": "auto", "is_clock_locked": False}, False),
        ({}, False),
        ({"performance_level": "determinism"}, True),
        ({"performance_level": "auto", "is_clock_locked": True}, True),
    ],
)
def test_clocks_of_an_amd_gpu_that_are_not_automatic_are_a_doubt(facts, is_doubt):
    device = Device(type="rocm", selector="rocm:0", found=True, facts=Readings(values=facts))
    found = doubt_rules.about_environment(Readings(), device)
    assert [doubt.kind for doubt in found] == (["application_clock"] if is_doubt else [])
    assert all(doubt.evidence == facts for doubt in found), "what is unknown is no evidence"

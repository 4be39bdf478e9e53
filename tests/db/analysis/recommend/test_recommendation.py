"""Limits, front and recommendation, from options made by hand."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from benchmarking.core.records import Point
from benchmarking.core.terminal import Page
from db.analysis.recommend.measured_options import Workload, option_of
from db.analysis.recommend.recommendation import (
    Option,
    Prices,
    limited_value,
    measured_value,
    misses,
    recommend,
    recommend_of_turns,
    with_prices,
)
from db.analysis.recommend.recommendation_text import recommendation_words, runtime_words

WORKLOAD = Workload(
    task="feature-extraction", weights="given", config_hash="c", model_revision=None, definition=None,
    sequence_length=32, new_tokens=None, axes=(), has_tokens=True,
)  # fmt: skip


def option(name, *, latency_ms=10.0, high_ms=11.0, throughput=100.0, **fields):
    return Option(
        result_id=name, run_id="r", session_id="s", hardware_id="4f1c09d2a7be5310", device="cpu",
        device_name="Test CPU", device_type="cpu", runtime="eager", precision="float32", point=Point(batch_size=1),
        validity="valid", latency_ms=latency_ms, latency_low_ms=high_ms and latency_ms**2 / high_ms,
        latency_high_ms=high_ms, throughput=throughput, **fields,
    )  # fmt: skip


def order(found):
    return [one.option.result_id for one in found.rated]


def front(found):
    return {one.option.result_id for one in found.rated if one.is_on_front}


def test_a_latency_limit_applies_to_the_upper_end_of_the_interval():
    one = option("a", latency_ms=9.5, high_ms=10.5)

    assert misses(one, {"latency": 10.5}) == ()
    (miss,) = misses(one, {"latency": 10.0})
    assert (miss.value, miss.limit) == (10.5, 10.0)
    assert miss.excess == pytest.approx(0.05)


def test_a_limit_takes_the_interval_of_a_single_launch_to_be_ten_percent_wide_at_least():
    """Of launches that vary by 5 %, a quarter of those that are 5 % beyond a limit met it by the calls of one."""
    within = option("a", latency_ms=9.5, high_ms=9.6, ttft_ms=3.0, ttft_high_ms=3.1, latency_p95_ms=12.0)
    between = replace(within, is_between=True)
    for quantity, of_one, of_all in (("latency", 10.45, 9.6), ("ttft", 3.3, 3.1), ("latency_p95", 13.2, 12.126)):
        assert limited_value(within, quantity)[0] == pytest.approx(of_one)
        assert limited_value(between, quantity)[0] == pytest.approx(of_all, rel=1e-3)
    assert limited_value(within, "throughput")[0] == pytest.approx(100 / 1.1)


def test_a_limit_on_throughput_is_on_the_end_of_its_own_interval():
    """Slow calls make it vary more than the median latency."""
    one = option("a", latency_ms=10.0, high_ms=10.1, throughput=100.0, is_between=True, throughput_half_width=0.2)
    assert limited_value(one, "throughput")[0] == pytest.approx(81.87, rel=1e-3)
    assert limited_value(replace(one, throughput_half_width=None), "throughput")[0] == pytest.approx(100 / 1.01)


def test_a_limit_on_a_percentile_takes_it_to_be_too_low_by_as_much_as_the_median_may_be():
    one = option("a", latency_ms=10.0, high_ms=11.0, latency_p95_ms=20.0)

    assert misses(one, {"latency_p95": 22.0}) == ()
    (miss,) = misses(one, {"latency_p95": 21.0})
    assert miss.value == pytest.approx(22.0)
    stated = replace(one, latency_high_ms=None)  # an import that states percentiles and no interval
    assert misses(stated, {"latency_p95": 20.0}) == ()


def test_a_limit_on_the_time_to_first_token_applies_to_the_upper_end_of_its_interval():
    one = option("a", ttft_ms=100.0, ttft_high_ms=120.0)

    assert misses(one, {"ttft": 120.0}) == ()
    assert [miss.value for miss in misses(one, {"ttft": 110.0})] == [120.0]
    few = replace(one, ttft_high_ms=None, latency_high_ms=None)
    assert misses(few, {"ttft": 100.0}) == ()
    wide = replace(few, latency_ms=50.0, latency_high_ms=60.0)  # as uncertain as the latency
    assert [miss.value for miss in misses(wide, {"ttft": 119.0})] == [pytest.approx(120.0)]
    assert misses(wide, {"ttft": 121.0}) == ()


@pytest.mark.parametrize(
    ("limit", "fields", "missed"),
    [
        (
            ("latency_p95", 5.0),
            {"latency_p95_ms": 5.02},
            "p95 latency 5.02 ms, up to 5.522 ms with the uncertainty of the median, 10.4% over 5 ms",
        ),
        (("latency", 10.0), {}, "latency 10 ms, up to 11 ms with its uncertainty, 10.0% over 10 ms"),
        (
            ("latency", 10.0),
            {"latency_high_ms": None, "latency_stated_ms": 12.0},
            "latency 10 ms, up to 12 ms by the percentile or maximum that the import states, 20.0% over 10 ms",
        ),
        (
            ("ttft", 1.0),
            {"ttft_ms": 2.0},
            "time to first token 2 ms, up to 2.2 ms with the uncertainty of the median, 120.0% over 1 ms",
        ),
        (("latency_p95", 5.0), {"latency_p95_ms": 6.0, "latency_high_ms": None}, "p95 latency 6 ms, 20.0% over 5 ms"),
        (
            ("throughput", 100.0),
            {},
            "throughput 100 tokens/s, down to 90.91 tokens/s with the uncertainty of the median, 9.1% below "
            "100 tokens/s",
        ),
    ],
)
def test_a_miss_says_what_was_measured_and_what_it_counts_as(limit, fields, missed):
    """A value above the p99 of the same table would not be understood."""
    limits = dict([limit])
    advice = recommendation_words(WORKLOAD, recommend([replace(option("a"), **fields)], limits), limits).advice
    assert advice.endswith(f": {missed}")


@pytest.mark.parametrize("quantity", ["latency_p90", "latency_p95", "latency_p99"])
def test_a_limited_percentile_has_a_column_and_others_do_not_push_it_out(quantity):
    options = [option(name, **{f"{quantity}_ms": value}) for name, value in (("a", 5.02), ("b", 6.0))]
    heading = f"{quantity.removeprefix('latency_')} ms"
    limited, free = ({quantity: 7.0}, {})
    table = recommendation_words(WORKLOAD, recommend(options, limited), limited).table
    column = table.headings.index(heading)
    assert {row[column] for row in table.rows} == {"5.02", "6"}
    others = recommendation_words(WORKLOAD, recommend(options, free), free).table.headings
    assert (heading in others) is (quantity == "latency_p99"), "the 99th is a column while there is room"


@pytest.mark.parametrize("aim", ["energy", "memory", "cost"])
def test_options_of_which_the_aim_is_not_known_are_neither_the_best_in_it_nor_equal(aim):
    options = [option("a", latency_ms=50.0, high_ms=50.1), option("b", latency_ms=10.0, high_ms=10.1)]
    found = recommend(options, {}, aim)

    assert (order(found), found.equal) == (["b", "a"], ())
    advice = recommendation_words(WORKLOAD, found, {}, None).advice
    assert f": {aim} is not known, so the lowest latency of all" in advice
    assert "least" not in advice
    assert "cost of all" not in advice


def test_a_throughput_limit_applies_at_that_latency():
    """100 a second at 10 ms are 80 a second at 12.5 ms."""
    one = option("a", latency_ms=10.0, high_ms=12.5, throughput=100.0)

    assert misses(one, {"throughput": 80.0}) == ()
    (miss,) = misses(one, {"throughput": 100.0})
    assert miss.value == pytest.approx(80.0)
    assert miss.excess == pytest.approx(0.25)


@pytest.mark.parametrize(
    ("limit", "fields", "missed"),
    [
        (("latency_p95", 8.0), {}, "p95 latency at least 11 ms (the median), 37.5% over 8 ms"),
        (("latency_p95", 8.0), {"high_ms": None}, "p95 latency at least 10 ms (the median), 25.0% over 8 ms"),
        (("latency_p99", 8.0), {"latency_p90_ms": 20.0}, "p99 latency at least 22 ms (the p90), 175.0% over 8 ms"),
        (("latency", 8.0), {"high_ms": None}, "latency at least 10 ms (as measured), 25.0% over 8 ms"),
        (
            ("throughput", 125.0),
            {"high_ms": None},
            "throughput at most 100 tokens/s (as measured), 20.0% below 125 tokens/s",
        ),
        (("latency_p95", 12.0), {}, "p95 latency unknown (not measured)"),
    ],
)
def test_an_unknown_value_that_cannot_be_within_the_limit_misses_it(limit, fields, missed):
    """Where already the median is over a limit on the p95, nothing about it is unknown."""
    limits = dict([limit])
    one = option("a", **fields)
    words = recommendation_words(WORKLOAD, recommend([one], limits), limits)
    assert words.advice.endswith(f": {missed}")
    (row,) = words.table.rows
    assert any("(unknown)" in cell for cell in row) is ("unknown" in missed)


def test_the_columns_that_decide_the_front_are_in_the_table_however_narrow_the_page():
    options = [
        option("a", memory_mb=100.0, energy_j=1.0, energy_of="gpu", output_error=0.1),
        option("b", latency_ms=20.0, high_ms=21.0, memory_mb=50.0, energy_j=2.0, energy_of="gpu", output_error=0.2),
    ]
    words = recommendation_words(WORKLOAD, recommend(options, {}), {}, page=Page(width=60, is_terminal=True))
    assert {"median ms", "tokens/s", "peak MB", "J/item"} <= {*words.table.headings}


def test_what_is_only_known_at_its_best_is_not_the_closest_to_the_limits():
    known = option("known", latency_p95_ms=30.0)
    unknown = replace(option("unknown"), latency_ms=21.0, latency_high_ms=22.0)
    assert order(recommend([unknown, known], {"latency_p95": 20.0})) == ["known", "unknown"]


def test_the_options_of_a_shorter_table_are_named_as_among_all():
    """What only other options differ in is no less true of those shown."""
    one, other = (replace(option(str(n)), runtime_mode={"attention": "sdpa", "threads": n}) for n in (1, 2))
    found = recommend([replace(one, latency_ms=5.0, latency_high_ms=5.5, throughput=200.0), other], {})
    words = recommendation_words(WORKLOAD, found, {}, shown=found.rated[:1])
    (row,) = words.table.rows
    assert "threads 1" in " ".join((*row, *words.table.shared))


def test_threads_are_named_where_runtimes_differ_in_them():
    one, other = option("a"), replace(option("b"), runtime="openvino", runtime_mode={"threads": 1, "dynamic": True})
    assert runtime_words(other, [one, other]) == "openvino (threads 1)"


def test_an_unmeasured_quantity_meets_no_limit_and_has_a_reason():
    one = option("a", high_ms=None, missing={"latency_p99_ms": "too_few_samples"})

    assert [miss.why for miss in misses(one, {"latency": 99.0, "throughput": 1.0})] == [
        "too few samples for an interval"
    ] * 2
    (miss,) = misses(one, {"latency_p99": 99.0})
    assert (miss.value, miss.why, miss.excess) == (None, "too_few_samples", math.inf)
    assert misses(one, {"memory": 1.0})[0].why == "not measured"


def test_a_limit_on_an_import_without_an_interval_is_met_by_its_stated_percentile():
    one = option("import", latency_ms=4200, high_ms=None, latency_stated_ms=4300.0)
    assert misses(one, {"latency": 5000.0}) == ()
    (miss,) = misses(one, {"latency": 4250.0})
    assert miss.value == 4300.0


def test_the_front_has_the_options_that_no_other_beats():
    options = [
        option("fast", latency_ms=5, throughput=200, memory_mb=900.0),
        option("small", latency_ms=9, throughput=150, memory_mb=300.0),
        option("beaten", latency_ms=9, throughput=150, memory_mb=301.0),
        option("batched", latency_ms=40, throughput=800, memory_mb=900.0),
    ]

    found = recommend(options, {})

    assert front(found) == {"fast", "small", "batched"}
    assert found.axes == ("latency", "throughput", "memory")
    assert front(recommend([options[0], replace(options[0], result_id="twin")], {})) == {"fast", "twin"}


def test_an_axis_needs_a_value_of_every_option():
    options = [option("a", memory_mb=1.0, energy_j=1.0, energy_of="gpu"), option("b", energy_j=2.0, energy_of="soc")]

    assert recommend(options, {}).axes == ("latency", "throughput")
    same = [replace(one, energy_of="gpu") for one in options]
    assert recommend(same, {}).axes == ("latency", "throughput", "energy")


@pytest.mark.parametrize(
    ("aim", "value", "kind"), [("memory", "memory_mb", "memory_of"), ("energy", "energy_j", "energy_of")]
)
def test_readings_of_different_things_are_not_ranked_as_one(aim, value, kind):
    """As the GPU's energy beside the whole machine's, and tensors on a GPU beside all that its process holds there."""
    options = [
        option("tensors", **{value: 500.0, kind: "device memory allocated"}),
        option("more", **{value: 950.0, kind: "device memory of the process"}),
        option("less", **{value: 900.0, kind: "device memory of the process"}),
        option("none"),
    ]
    found = recommend(options, {}, aim)
    assert order(found)[0] == "less"
    assert [measured_value(one.option, aim) for one in found.rated[:2]] == [900.0, 950.0]
    tensors = next(one.option for one in found.rated if one.option.result_id == "tensors")
    assert limited_value(tensors, aim) == (
        None,
        "it was read of device memory allocated, not of device memory of the process as for most",
    )
    assert order(recommend(options[:1], {}, aim)) == ["tensors"]
    assert measured_value(recommend(options[:1], {}, aim).rated[0].option, aim) == 500.0
    alike = [replace(one, memory_mb=one.memory_mb or 1.0, energy_j=one.energy_j or 1.0) for one in options]
    assert aim not in recommend(alike, {}).axes


def test_a_limit_on_memory_is_not_on_the_hosts_where_the_device_has_its_own():
    """A runtime that reads no memory of a GPU leaves what its process holds in the host: neither within nor beyond."""
    of_process = option("a", memory_mb=3000.0, memory_of="resident memory of the process")
    on_gpu = replace(of_process, device_type="cuda", device="cuda:0")

    for limit in (2000.0, 4000.0):
        (miss,) = misses(on_gpu, {"memory": limit})
        assert (miss.value, miss.why) == (
            None,
            "only resident memory of the process is known, not the device's own memory",
        )
    assert misses(replace(of_process, device_type="mps"), {"memory": 4000.0}) == ()
    assert misses(of_process, {"memory": 2000.0})[0].value == 3000.0
    assert misses(replace(on_gpu, memory_of="device memory allocated"), {"memory": 4000.0}) == ()


def test_the_most_throughput_within_the_latency_is_recommended():
    options = [
        option("b1", latency_ms=5, high_ms=5.5, throughput=200),
        option("b8", latency_ms=18, high_ms=19, throughput=450),
        option("b32", latency_ms=60, high_ms=61, throughput=800),
    ]

    assert recommend(options, {"latency": 20.0}).best.option.result_id == "b8"
    assert recommend(options, {}).best.option.result_id == "b32"
    assert recommend(options, {"throughput": 300.0}).best.option.result_id == "b8"
    assert recommend(options, {}, "latency").best.option.result_id == "b1"


def test_overlapping_intervals_are_equal_and_the_choice_among_them_is_stable():
    def weeks(first, second):
        small = option("small", high_ms=10.3, throughput=first, is_between=True, price_per_hour=None)
        tuned = replace(small, result_id="tuned", throughput=second, runtime_mode={"attention": "eager"})
        return recommend([tuned, small, option("slow", high_ms=10.1, throughput=50.0, is_between=True)], {})

    for found in (weeks(100.0, 102.0), weeks(102.0, 100.0)):
        assert order(found) == ["small", "tuned", "slow"]
        assert [one.option.result_id for one in found.equal] == ["tuned"]
    apart = weeks(100.0, 120.0)
    assert (order(apart)[0], apart.equal) == ("tuned", ())


def test_of_options_that_only_noise_makes_equal_the_simplest_is_not_far_behind():
    """25 170 tokens/s were recommended where 113 602 had been measured."""
    simple = option("simple", throughput=100.0, throughput_half_width=2.0, is_between=True)
    tuned = replace(simple, result_id="tuned", throughput=450.0, runtime_mode={"attention": "eager"})
    near = replace(simple, result_id="near", throughput=400.0, runtime_mode={"attention": "eager", "cache": "static"})
    found = recommend([simple, near, tuned], {})
    assert (order(found), len(found.equal)) == (["tuned", "near", "simple"], 2)
    cheap = [replace(one, price_per_hour=price) for one, price in ((simple, 1.0), (tuned, 2.0))]
    assert order(recommend(cheap, {}, "throughput")) == ["simple", "tuned"]


def test_the_sentence_names_the_highest_value_of_the_table_where_an_equal_option_has_it():
    """The simplest of equal options is recommended, so it need not be the one with the highest measured value."""
    simple = option("simple", throughput=7407.0)
    tuned = replace(simple, result_id="tuned", throughput=7612.0, runtime_mode={"attention": "eager"})
    words = recommendation_words(WORKLOAD, recommend([tuned, simple], {}), {})
    assert words.title == "feature-extraction, s32: 2 options, no limits", "nothing is said of weights that were given"
    assert (
        "float32, batch 1: among those with the highest throughput of all (the highest as measured: 7612 tokens/s), "
        "7407 tokens/s at 10 ms; equal, within their intervals: Test CPU, eager (attention eager)" in words.advice
    )
    ahead = recommendation_words(WORKLOAD, recommend([replace(tuned, throughput=7400.0), simple], {}), {})
    assert "among those with the highest throughput of all, 7407 tokens/s" in ahead.advice


def test_what_launches_in_turns_decided_is_said_where_the_measured_values_differ():
    best, other = option("best", throughput=100.0), option("other", throughput=125.0)
    costs = {"best": dict.fromkeys(range(2), 0.01), "other": dict.fromkeys(range(2), 0.02)}
    advice = recommendation_words(WORKLOAD, recommend_of_turns([best, other], {}, "throughput", costs), {}).advice
    assert (
        "among those with the highest throughput of all (the highest as measured: 125 tokens/s), 100 tokens/s" in advice
    )
    decided = "is better as measured, by a factor of 1.25, but worse in the launches that both have"
    assert f"{decided} (as measured, and not judged: fewer than 3 launches in common" in advice


def test_what_was_decided_is_followed_by_the_others_best_first_however_wide_their_intervals():
    near, far = option("near", latency_ms=10.9), replace(option("far", latency_ms=11.9), precision="bfloat16")
    assert recommend([option("best"), near, far], {}, "latency").equal, "their intervals overlap"
    few = {"best": {0: 10.0}, "near": {0: 20.0}, "far": {0: 30.0}}
    found = recommend_of_turns([option("best"), far, near], {}, "latency", few)
    assert [one.option.result_id for one in found.rated] == ["best", "near", "far"]
    advice = recommendation_words(WORKLOAD, found, {}).advice
    assert "the next best, Test CPU, eager" in advice
    assert "as measured, and not judged: fewer than 3 launches in common" in advice
    many = {name: dict.fromkeys(range(9), cost) for name, cost in (("best", 10.0), ("near", 10.9), ("far", 11.9))}
    found = recommend_of_turns([option("best"), far, near], {}, "latency", many)
    assert recommendation_words(WORKLOAD, found, {}).advice.endswith("by a factor of 1.09, judged slower")


@pytest.mark.parametrize(
    ("limits", "is_of_all", "words"),
    [
        ({}, True, "the lowest latency of all, "),
        ({}, False, "the lowest latency of those measured, "),
        ({"latency": 100.0}, True, "the lowest latency of those that meet the limits, "),
        ({"latency": 100.0}, False, "the lowest latency of those measured that meet the limits, "),
    ],
)
def test_nothing_is_said_of_what_was_not_measured(limits, is_of_all, words):
    options = [option("a"), option("b", latency_ms=20.0)]
    found = recommend_of_turns(options, limits, "latency", {"a": {0: 10.0}, "b": {0: 20.0}}, is_of_all=is_of_all)
    assert words in recommendation_words(WORKLOAD, found, limits).advice


def test_an_unknown_value_is_not_the_least():
    least = "the least energy per item of all"
    for energies, expected in (
        ((None, None), "energy is not known, so the lowest latency of all, 100 tokens/s"),
        ((2.0, None), f"{least} where it is known, 2 J per item"),
        ((2.0, 3.0), f"{least}, 2 J per item"),
    ):
        options = [option(name, energy_j=value) for name, value in zip("ab", energies, strict=True)]
        assert expected in recommendation_words(WORKLOAD, recommend(options, {}, "energy"), {}).advice


def test_the_interval_of_a_single_launch_is_not_used_as_one_between_launches():
    between = option("a", high_ms=10.05, throughput=100.0, is_between=True)
    other = replace(between, result_id="b", throughput=108.0)
    assert recommend([between, other], {}).equal == ()
    assert len(recommend([between, replace(other, is_between=False)], {}).equal) == 1


def test_options_of_two_sessions_are_equal_within_what_differs_between_sessions():
    """Their intervals are of launches of one session each, and the day of one may have been 3 % slower."""
    best = option("b", high_ms=10.05, throughput=108.0, is_between=True, throughput_half_width=0.005)
    same = replace(best, result_id="a", throughput=100.0)
    assert recommend([best, same], {}).equal == ()
    other = replace(same, session_id="another", price_per_hour=1.0)
    found = recommend([replace(best, price_per_hour=2.0), other], {}, "throughput")
    assert (order(found), len(found.equal)) == (["a", "b"], 1), "and the cheaper of the two is recommended"
    assert recommend([best, replace(other, throughput=95.0)], {}).equal == ()


def test_only_the_ends_that_face_each_other_decide_whether_intervals_overlap():
    """Some slow calls of the worse option say nothing about how fast it can be."""
    best, slow = option("a", latency_ms=3.0, high_ms=3.1), option("b", latency_ms=60.0, high_ms=1200.0)
    assert len(recommend([best, slow], {}, "latency").equal) == 1, "down to 3 ms"
    assert recommend([best, replace(slow, latency_low_ms=55.0)], {}, "latency").equal == ()


def test_precisions_of_one_session_are_compared_without_a_remark():
    wide, narrow = option("a"), replace(option("b", throughput=200.0), precision="int8")
    for session, remarked in (("s", False), ("another", True)):
        found = recommend([wide, replace(narrow, session_id=session)], {})
        _, sentence = recommendation_words(WORKLOAD, found, {}).precisions
        assert ("Not all of them were measured in one session" in sentence) == remarked


def test_the_upper_end_that_decides_limits_is_in_the_table_however_narrow_the_page():
    measured = {"memory_mb": 100.0, "latency_p99_ms": 12.0, "output_error": 0.1, "ttft_ms": 5.0, "energy_j": 1.0}
    wide = option("a", runtime_mode={"graph_optimization": "enabled"}, energy_of="cpu_pkg", **measured)
    other = replace(wide, result_id="b", runtime="onnxruntime", precision="bfloat16", device_name="Another CPU")
    options = [wide, other, replace(other, runtime_mode={"graph_optimization": "disabled"})]
    limits = {"memory": 2e3, "ttft": 1.0, "latency_p90": 1e-3, "latency_p95": 1e-3, "throughput": 1e9, "energy": 1e-3}
    table = recommendation_words(WORKLOAD, recommend(options, limits), limits, page=Page(width=80)).table
    assert "up to" in table.headings
    assert table.left_out == ("p99 ms", "error")


def test_an_interval_that_was_stored_beside_its_median_is_none(make_run):
    """Earlier versions stored that of the launches that had one."""
    run = make_run(batch_sizes=(1,), sequence_lengths=(32,))
    (result,) = run.results

    def high_of(**bounds):
        found = option_of(run, replace(result, metrics={**result.metrics, "latency_median_ms": 24.9, **bounds}), ())
        return found.latency_low_ms, found.latency_high_ms

    assert high_of(latency_ci_low_ms=7.9, latency_ci_high_ms=12.9) == (None, None)
    assert high_of(latency_ci_low_ms=7.9, latency_ci_high_ms=38.0) == (7.9, 38.0)


def test_throughput_has_the_interval_of_its_own_launches_not_that_of_the_median_latency():
    """Slow calls make the throughput vary more than the median latency."""
    first = option("a", high_ms=10.05, throughput=100.0, is_between=True, throughput_half_width=0.1)
    second = replace(first, result_id="b", throughput=112.0)
    assert len(recommend([first, second], {}).equal) == 1
    apart = [replace(one, throughput_half_width=0.01) for one in (first, second)]
    assert recommend(apart, {}).equal == ()


def test_the_cheapest_is_recommended_where_all_have_a_price():
    prices = Prices(currency="EUR", per_hour={"cpu": 0.36, "cuda": 3.6})
    cpu = option("cpu", throughput=100.0)
    gpu = replace(option("gpu", throughput=500.0), device_type="cuda", device_name=None)

    found = recommend([with_prices(one, prices) for one in (gpu, cpu)], {})

    assert found.aim == "cost"
    assert order(found) == ["cpu", "gpu"]
    assert [one.option.cost for one in found.rated] == pytest.approx([1.0, 2.0])
    only_cpu = Prices(currency="EUR", per_hour={"cpu": 0.36})
    assert recommend([with_prices(one, only_cpu) for one in (gpu, cpu)], {}).aim == "throughput"


def test_where_no_option_meets_the_limits_the_closest_is_first():
    options = [
        option("far", latency_ms=30, high_ms=30),
        option("near", latency_ms=12, high_ms=12, is_between=True),
        option("unknown", latency_ms=5, high_ms=None),
    ]

    found = recommend(options, {"latency": 10.0})

    assert found.best is None
    assert order(found) == ["near", "far", "unknown"]
    assert found.rated[0].excess == pytest.approx(0.2)


def test_the_closest_is_judged_by_its_largest_excess():
    both = {"latency": 10.0, "memory": 100.0}
    one = option("a", high_ms=11.0, memory_mb=150.0)
    other = option("b", high_ms=14.0, memory_mb=90.0)

    assert order(recommend([one, other], both)) == ["b", "a"]


def test_of_equal_options_the_valid_one_is_recommended():
    noisy = replace(option("noisy", latency_ms=9.9), validity="noisy")

    assert order(recommend([noisy, option("valid")], {})) == ["valid", "noisy"]


def test_with_limits_the_front_is_of_the_options_that_meet_them():
    options = [option("fast", throughput=200.0, memory_mb=900.0), option("small", memory_mb=100.0)]
    assert front(recommend(options, {})) == {"fast", "small"}
    found = recommend(options, {"memory": 500.0})
    assert front(found) == {"small"}
    assert (
        recommendation_words(WORKLOAD, found, {"memory": 500.0})
        .notes[0]
        .startswith("front: no other option that meets the limits is at least as good")
    )
    assert front(recommend(options, {"memory": 50.0})) == {"fast", "small"}, "none meets it"


def test_the_order_of_the_rows_is_said():
    def rows(options, limits):
        words = recommendation_words(WORKLOAD, recommend(options, limits, "latency"), limits)
        return next(note for note in words.notes if note.startswith("rows: "))

    apart = [option("a"), option("b", latency_ms=20.0, high_ms=21.0)]
    assert rows(apart, {}) == "rows: by latency"
    assert rows(apart, {"latency": 15.0}) == "rows: by latency; those that miss a limit last, the closest first"
    assert rows([option("a"), option("b")], {}) == "rows: the recommended one, those equal to it, then by latency"


def test_of_launches_that_prove_options_equivalent_the_simplest_is_chosen_and_the_others_are_named():
    """However much better one of them is as measured, and although its interval excludes the others."""
    tuned = option("tuned", latency_ms=9.0, high_ms=9.01, is_between=True, runtime_mode={"attention": "eager"})
    noise = (1.0, 1.01, 0.99, 1.005, 0.995, 1.01, 0.99, 1.0, 1.005)
    costs = {
        name: {number: scale * factor for number, factor in enumerate(noise)}
        for name, scale in (("tuned", 1.0), ("simple", 1.005), ("slow", 1.5))
    }
    found = recommend_of_turns([tuned, option("simple"), option("slow")], {}, "latency", costs)
    assert [one.option.result_id for one in found.rated] == ["simple", "tuned", "slow"]
    assert [one.option.result_id for one in found.equal] == ["tuned"]
    assert found.judged["tuned"].verdict == "equivalent"
    assert found.how == "judged slower"

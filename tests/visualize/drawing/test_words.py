"""Text of charts: names of points, devices and sizes, and caption sentences."""

import json
from datetime import datetime

import pytest

from benchmarking.core.axes import AXES
from tests.helpers.chart_rows import row
from visualize.drawing import words


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({}, "batch 4, sequence 128"),
        ({"new_tokens": 16, "concurrency": 2}, "batch 4, sequence 128, 16 new tokens, 2 requests in flight"),
        ({"sequence_length": None, "axes": '{"steps":20,"image_size":64}'}, "batch 4, image 64 px, 20 steps"),
    ],
)
def test_points_in_words(columns, text):
    assert words.point(row(**columns)) == text


def test_a_setup_names_only_what_the_file_of_another_tool_states():
    unknown = dict.fromkeys(("device", "runtime", "precision"), "unknown") | {"device_name": None}
    assert words.cell(row(**unknown)) == "setup not stated"
    assert words.cell(row(**{**unknown, "device": "server", "runtime": "server"})) == "server"
    assert words.cell(row()) == "CPU (cpu) · eager · float32"
    assert {words.engine(row(runtime=one)) for one in ("server", "unknown")} == {"not stated"}
    assert words.precision(row(precision="unknown")) == words.stated("unknown") == "not stated"


@pytest.mark.parametrize(
    ("name", "value", "text"),
    [
        ("sequence_length", 2048, "sequence 2,048"),
        ("audio_seconds", 7.5, "7.5 s of audio"),
        ("audio_seconds", 30.0, "30 s of audio"),
        ("documents", 100_000, "100,000 documents"),
        ("documents", 1, "1 document"),
        ("top_k", 8, "top-8"),
        ("top_k", None, "no top k"),
        ("guidance", 7.5, "guidance 7.5"),
        ("request_rate", 16.0, "16 requests/s"),
        ("request_rate", 1.0, "1 request/s"),
        ("num_prompts", 1, "1 request"),
        ("tokens_per_request", 1, "1 token a request"),
        ("max_tokens", 1, "max tokens 1"),
        ("num_prompts", 2_000_000, "2,000,000 requests"),
    ],
)
def test_axis_values_have_units(name, value, text):
    assert words.axis(name, value) == text


def test_every_axis_has_its_own_words_and_title():
    spoken = [words.axis(name, 2) for name in AXES]
    assert len({*spoken, *map(words.axis_title, AXES)}) == 2 * len(AXES)
    assert not any("=" in text for text in spoken)


def test_unbroken_text_breaks_only_after_commas_and_colons():
    assert words.unbroken("a task: batch 1, image 224 px") == "a\xa0task: batch\xa01, image\xa0224\xa0px"


def test_a_device_without_a_name_is_named_by_its_selector():
    assert words.device(row(device_name=None)) == "cpu"


@pytest.mark.parametrize(
    ("count", "text"),
    [(12, "12"), (60_506_624, "60.5 M"), (109_482_240, "109 M"), (1_300_000_000, "1.3 B"), (1200, "1.2 k")],
)
def test_parameter_counts_have_units(count, text):
    assert words.size(count) == text


def test_missing_points_of_several_setups_are_named_once():
    lost = [row(status="failed", runtime=one) for one in ("eager", "openvino")]
    assert words.missing_points(lost, []) == "Not drawn, of 2 points: 2 failed (batch 4, sequence 128)."


def test_the_doubt_of_a_single_point_counts_no_points():
    doubtful = row(validity="noisy", doubts=["cpu_pressure"])
    why = "(other programs were competing for the CPU before the timed calls)."
    assert words.doubts([doubtful]) == f"Hollow: the point is doubtful {why}"
    assert words.doubts([doubtful], None) == f"The point is doubtful {why}"
    assert words.doubts([doubtful, row()]) == f"Hollow: 1 of 2 points is doubtful {why}"


@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({"loop": "open", "lengths_in": "128", "lengths_out": "64"}, ""),
        ({"loop": "closed", "lengths_in": "uniform:64-256"}, "prompts of uniform:64-256 words"),
        ({"arrivals": "at_once", "endpoint": "chat", "loop": "open"}, "arrivals at once, chat endpoint"),
        ({"slo": "e2e:5000ms,ttft:500ms,odd:1s"}, "limits: latency 5 s and time to first token 500 ms and odd 1 s"),
        (
            {"slo": "ttft:500ms", "slo_share": 0.95},
            "limits: time to first token 500 ms, a share of 0.95 within the limits",
        ),
        ({"slo": "not limits", "cache": "static"}, "cache=static, limits: not limits"),
    ],
)
def test_settings_of_load_tests_are_words_that_the_subtitle_does_not_repeat(settings, text):
    load = row(runtime_mode=json.dumps(settings), weights="given")
    *parts, _, _ = words.provenance([load]).split(words.SEPARATOR)  # the launches and the day come last
    assert parts == ([text] if text else [])


def test_different_launch_counts_and_dates_are_ranges():
    rows = [row(launches=1), row(launches=5, started_at=datetime(2026, 3, 4), runtime_mode="{}")]
    assert words.provenance(rows) == "random weights · 1 to 5 launches per point · measured 2026-01-02 to 2026-03-04"
    assert words.provenance([row(launches=1)]).split(" · ")[2] == "1 launch per point"


def test_the_day_of_a_file_that_states_none_is_no_day_of_measuring():
    dated = row(origin_format="asv", started_at=datetime(2024, 10, 3))
    undated = row(origin_format="asv", started_at=datetime(2026, 11, 29), doubts=["undated"])
    assert words.provenance([dated, undated]).endswith("measured 2024-10-03, file of 2026-11-29")
    assert words.provenance([undated, {**undated, "started_at": datetime(2026, 12, 1)}]).endswith(
        "file of 2026-11-29 to 2026-12-01"
    )


def test_loads_have_repetitions_and_imports_neither_these_nor_launches_nor_intervals():
    load, imported = row(launches=1, runtime_mode='{"loop": "open"}'), row(origin_format="hyperfine", low=None)
    assert "1 repetition per level" in words.provenance([load])
    assert words.provenance([imported]).split(" · ")[2] == "imported from hyperfine"
    assert "3 launches per point · imported from hyperfine" in words.provenance([row(launches=3), imported])
    assert words.interval([imported]) == "No intervals are drawn for imported results."


def test_imported_readings_are_of_no_launches():
    own = "Median over launches, one reading each; no interval."
    assert words.readings([row()], own) == words.readings([row(), row(origin_format="asv")], own) == own
    assert words.readings([row(origin_format="asv")], own) == "Readings as the files state them; no interval."


def test_what_is_left_out_is_counted_and_one_thing_is_not_numbered():
    assert words.left_out(0, 3, "points", "slowest") is None
    assert words.left_out(1, 3, "points", "slowest") == (
        "Left out: the slowest of 3 points; narrow the selection to see it."
    )


def test_points_without_an_interval_are_mentioned():
    text = words.interval([row(), row(low=None, launches=2)])
    assert text.endswith("95 % interval of the typical launch; points with fewer than 3 launches have none.")
    text = words.interval([row(), row(low=None, launches=3)])
    assert text.endswith("95 % interval of the typical launch; some points have none.")
    assert words.interval([row(low=None, launches=2)]) == "No intervals: they need at least 3 launches per point."
    assert words.interval([row(low=None, launches=3)]) == "No intervals are known."


def test_doubts_are_explained_and_info_is_no_doubt():
    hollow = words.doubts([row(validity="noisy", doubts=["vm", "container", "drift"]), row()])
    assert hollow == ("Hollow: 1 of 2 points is doubtful (calls became faster or slower during the measurement).")
    assert words.doubts([row(doubts=["vm"])]) is None
    named = words.doubts([row(validity="noisy", doubts=["drift"]), row(validity="invalid")], None)
    assert named == (
        "1 of 2 points is doubtful (calls became faster or slower during the measurement); 1 of 2 points is invalid."
    )


def test_an_invalid_result_is_explained_by_what_makes_it_invalid():
    several = row(validity="invalid", doubts=["cpu_pressure", "drift", "late_generator"])
    assert words.doubts([several, several]) == (
        "Crossed: 2 of 2 points are invalid (requests were sent late, by more than 1% of the time to first token)."
    )


def test_an_imports_own_doubts_are_reasons_only_of_a_row_without_another():
    late = row(validity="invalid", doubts=["concurrency_unlimited", "late_generator"])
    assert words.doubts([late]).endswith(
        "is invalid (requests were sent late, by more than 1% of the time to first token)."
    )
    assert words.doubts([row(validity="invalid", doubts=["of_a_tool"])]).endswith("is invalid (of a tool).")


def test_long_errors_are_cut_to_their_first_line():
    assert words.shortened("first\nsecond") == "first"
    assert words.shortened("x" * 200) == "x" * 157 + "..."


def test_missing_points_are_counted_and_three_are_named():
    lost = [row(status="timed_out", batch_size=size, error="too slow") for size in (1, 2, 3, 4)]
    assert words.missing_points([*lost, row()], []) == (
        "Not drawn, of 5 points: 4 timed out, 1 without this metric (batch 1, sequence 128; batch 2, sequence 128; "
        "batch 3, sequence 128 and others): too slow."
    )

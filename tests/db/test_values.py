"""Values as JSON, as CSV and for people: each kind by a value that could go wrong."""

from __future__ import annotations

import math
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal

import pytest

from benchmarking.core.doubts import doubt_notes, sentence
from benchmarking.core.text import visible
from db.values import SETTING_COLUMNS, doubt_word, exact, plain, readable, reason_words, settings_words


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, None),
        (True, True),
        (2**70, 2**70),
        (0.1 + 0.2, 0.30000000000000004),
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
        (Decimal("1.50"), 1.5),
        (Decimal("3"), 3),
        (Decimal("0.12345678901234567890"), "0.12345678901234567890"),
        ({"a": [1.5, None]}, {"a": [1.5, None]}),
        (datetime(2026, 1, 2, 3, 4, 5, 600), "2026-01-02T03:04:05.000600"),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
        (date(2026, 1, 2), "2026-01-02"),
        (time(3, 4), "03:04:00"),
        (timedelta(days=1), "1 day, 0:00:00"),
        (b"\x00\xff", "00ff"),
        ('{"a": 1}', '{"a": 1}'),
    ],
)
def test_json_has_every_value(value, expected):
    assert plain(value) == expected


def test_a_json_column_is_parsed():
    assert plain('{"a": [1, null]}', "JSON") == {"a": [1, None]}


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, ""),
        ("a,b", "a,b"),
        (0.1 + 0.2, "0.30000000000000004"),
        (1e300, "1e+300"),
        (Decimal("1.50"), "1.50"),
        (False, "false"),
        (["a", 1], '["a",1]'),
        ({"k": "é"}, '{"k":"é"}'),
        (datetime(2026, 1, 2), "2026-01-02T00:00:00"),
    ],
)
def test_csv_has_every_digit(value, expected):
    assert exact(value) == expected


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        (None, "-"),
        (1.23456789, "1.23457"),
        (16777216.4, "16777216"),
        (1e18, "1e+18"),
        (0.0, "0"),
        (math.nan, "nan"),
        (datetime(2026, 1, 2, 3, 4, 5, 999), "2026-01-02 03:04:05"),
        (["noisy"], '["noisy"]'),
        ("a\nb\x1b[31m", "a\\nb\\x1b[31m"),
    ],
)
def test_numbers_for_people_have_six_digits(value, expected):
    assert readable(value) == expected


def test_control_and_direction_characters_are_escaped():
    assert visible("\x9b2J\u202e\u2028") == "\\x9b2J\\u202e\\u2028"
    assert visible("日本 é") == "日本 é"


@pytest.mark.parametrize(
    ("kinds", "word"),
    [((), ""), (("drift",), "noisy"), (("drift", "output_differs"), "invalid"), (("of_an_importer",), "see below")],
)
def test_doubts_are_the_word_of_the_worst(kinds, word):
    assert doubt_word(kinds) == word


def test_each_kind_of_doubt_is_one_sentence_with_its_first_places():
    cases = [("drift", f"b{batch} s32") for batch in (1, 2, 4, 8)] + [("of_an_importer", "b1 s32")]
    assert doubt_notes(cases) == [
        f"drift (b1 s32, b2 s32, b4 s32 +1): {sentence('drift')}",
        f"of_an_importer (b1 s32): {sentence('of_an_importer')}",
    ]


def test_tasks_configurations_and_revisions_are_told_apart():
    """A configuration only where nothing else does, as of rows 1 and 3."""
    model = {"model_id": "m", "device": "d", "runtime": "r", "precision": "p", "runtime_mode": "{}"}
    tasks = ("fill-mask", "fill-mask", "embedding", "fill-mask")
    facts = {"weights": "random", "cpu_list": None, "num_threads": None}
    rows = [{**model, **facts, "task": task, "config_hash": "a" * 64, "model_revision": None} for task in tasks]
    rows[1] |= {"model_revision": "abcdef01" * 5, "config_hash": "b" * 64}
    rows[3]["config_hash"] = "c" * 64
    assert settings_words(rows, SETTING_COLUMNS) == [
        "configuration aaaaaaaa, task fill-mask",
        "revision abcdef01, task fill-mask",
        "task embedding",
        "configuration cccccccc, task fill-mask",
    ]


def test_machines_of_a_device_are_told_apart_by_the_name_or_else_the_id():
    """By the name only where it has no column of its own."""
    known = {"model_id": "m", "device": "cuda", "runtime": "r", "precision": "p", "runtime_mode": "{}"}
    machines = {"1" * 16: "A100", "2" * 16: "H100", "3" * 16: "H100"}
    rows = [{**known, "hardware_id": one, "device_name": name} for one, name in machines.items()]
    words = ["hardware A100", "hardware H100 22222222", "hardware H100 33333333"]
    assert settings_words(rows, ("hardware_id",), is_hardware_shown=False) == words
    assert settings_words(rows, ("hardware_id",)) == [None, "hardware 22222222", "hardware 33333333"]
    assert settings_words(rows[:1], ("hardware_id",), is_hardware_shown=False) == [None]


def test_requests_all_at_once_are_named_in_words():
    load = {"model_id": "m", "device": "d", "runtime": "r", "precision": "p"}
    load["runtime_mode"] = '{"loop": "open", "arrivals": "at_once"}'
    load |= dict.fromkeys(SETTING_COLUMNS)
    assert settings_words([load]) == ["open loop, all at once"]


def test_an_option_of_a_users_benchmark_is_no_kind_of_load():
    subject = {"model_id": "m", "device": "cpu", "runtime": "bench", "precision": "float32", "runtime_mode": "{}"}
    rows = [{**subject, "run_id": name} for name in ("a", "b")]
    further = {"a": {"scenario": "chat", "loop": 3}, "b": {"scenario": "code", "loop": 3}}
    assert settings_words(rows, (), further=further) == ["scenario chat", "scenario code"]


def test_the_names_of_files_in_a_reason_stay_as_they_are():
    why = "not_supported: no /sys/class/power_supply"
    assert (reason_words(why), reason_words("not_measured")) == (
        "not supported: no /sys/class/power_supply",
        "not measured",
    )

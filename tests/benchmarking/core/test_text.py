"""Formatting of numbers and durations, rows of bars, and escaping of untrusted text."""

from __future__ import annotations

import math

import pytest

from benchmarking.core import text
from benchmarking.core.text import (
    ASCII_BARS,
    BARS,
    bars_for,
    duration,
    grouped,
    number,
    numbered,
    sparkline,
    spreadsheet_safe,
    visible,
)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (12345.678, "12346"),
        (1234567.0, "1234567"),
        (999.96, "1000"),
        (0.25, "0.25"),
        (-0.3333333, "-0.3333"),
        (3.8932e-7, "3.893e-07"),
        (0.0001, "0.0001"),
        (0.00001, "1e-05"),
        (0.0, "0"),
        (1e18, "1e+18"),
        (1.5e-12, "1.5e-12"),
        (math.nan, "nan"),
        (-math.inf, "-inf"),
    ],
)
def test_numbers_have_four_digits_and_an_exponent_only_where_zeros_would_be_counted(value, text):
    assert number(value) == text


@pytest.mark.parametrize(
    ("value", "text"), [(1.23456789, "1.23457"), (16777216.4, "16777216"), (99999.96, "100000"), (999999.6, "1000000")]
)
def test_more_digits_can_be_requested(value, text):
    assert number(value, 6) == text


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.4, "0 s"), (89, "89 s"), (90, "2 min"), (5399, "90 min"), (9000, "2.5 h")]
)
def test_durations_are_in_a_convenient_unit(seconds, text):
    assert duration(seconds) == text


def test_a_share_is_never_rounded_to_nothing_to_all_or_to_the_required_one():
    assert [text.share_text(share) for share in (0.0, 0.0004, 0.0006, 0.5)] == ["0.0%", "< 0.1%", "0.1%", "50.0%"]
    assert [text.share_text(share) for share in (0.9994, 0.99996, 1.0)] == ["99.9%", "99.996%", "100.0%"]
    assert [text.share_text(share, 0.99) for share in (0.9896, 0.98, 0.99, 0.9904)] == [
        *("98.96%", "98.0%", "99.0%", "99.0%"),
    ]


def test_the_ends_of_an_interval_have_as_many_digits_as_tell_them_apart():
    assert text.ends(1023.7, 1024.3) == ("1023.7", "1024.3")
    assert text.ends(8_000_000.0, 8_000_000.4) == ("8000000", "8000000.4")
    assert text.ends(0.25001, 0.25002) == ("0.25001", "0.25002")
    assert text.ends(7.7, 8.3) == ("7.7", "8.3")
    assert text.ends(1024.0, 1024.0) == ("1024", "1024")


def test_visible_lines_keeps_line_ends():
    assert visible("a\nb\x1b[31m") == "a\\nb\\x1b[31m"
    assert visible("a\nb\x1b[31m", kept="\n") == "a\nb\\x1b[31m"


@pytest.mark.parametrize("line", ["ann's model: benchhouse bisect A B -- run 'a b'", '5" disk: benchhouse run m'])
@pytest.mark.parametrize("width", [None, 200])
def test_a_quote_without_a_second_one_stays_in_front_of_a_command(line, width):
    assert text.command_lines(line, width) == line


@pytest.mark.parametrize("text", ["=1+1", "+cmd|'/C calc'!A0", "-2+3", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "-", "--5"])
def test_spreadsheet_formulas_are_prefixed_with_an_apostrophe(text):
    assert spreadsheet_safe(text) == f"'{text}"


@pytest.mark.parametrize("text", ["-1.5", "+1", "-1e300", "-inf", "gpt2", "a=b", "", " =1", "'=1"])
def test_numbers_and_other_text_are_unchanged_in_spreadsheets(text):
    assert spreadsheet_safe(text) == text


def test_nothing_in_markdown_becomes_a_mention_or_a_link():
    escaped = text.markdown_escaped("@team org#12 https://evil.example www.evil.example GH-3 <b> [a](b) $x$ :+1:")
    gap = "&#8203;"
    assert escaped == (
        f"@{gap}team org#{gap}12 https:{gap}//evil.example www.{gap}evil.example GH-{gap}3 &lt;b&gt; \\[a\\](b) "
        f"\\$x\\$ :{gap}+1:"
    )


@pytest.mark.parametrize(
    ("names", "unique"),
    [(["a", "b"], ["a", "b"]), (["a", "a", "a"], ["a", "a_1", "a_2"]), (["a", "a", "a_1"], ["a", "a_2", "a_1"])],
)
def test_repeated_names_have_a_number_that_makes_no_other_name(names, unique):
    assert numbered(names) == unique


def test_values_are_grouped_in_their_order():
    assert list(grouped([("b", 1), ("a", 2), ("b", 3)]).items()) == [("b", [1, 3]), ("a", [2])]


def test_bars_span_the_lowest_and_highest_value():
    assert sparkline([1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0, 8.0], 40) == "▁▂▃▄▅▆▇█"
    assert sparkline([1.0, 8.0], 40, ASCII_BARS) == "_#"


def test_small_variation_is_flat():
    # The range is widened to a tenth of the median: 95.5 ... 105.5 for 100 and 101, in steps of 1.25.
    assert sparkline([100.0, 101.0], 40) == "▄▅"
    assert sparkline([5.0, 5.0, 5.0], 40) == "▅▅▅"
    assert sparkline([0.0, 0.0], 40) == "▁▁"


def test_excess_values_are_reduced_to_medians_of_equal_parts():
    assert sparkline([1.0, 1.0, 9.0, 8.0, 8.0, 8.0], 2) == "▁█"
    assert sparkline([], 5) == ""


@pytest.mark.parametrize(
    ("encoding", "bars"),
    [("utf-8", BARS), ("ascii", ASCII_BARS), ("latin-1", ASCII_BARS), (None, ASCII_BARS), ("no-such", ASCII_BARS)],
)
def test_bars_depend_on_the_encoding(encoding, bars):
    assert bars_for(encoding) == bars

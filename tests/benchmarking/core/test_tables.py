"""Tables in a file, on a wide terminal and on a narrow one."""

from __future__ import annotations

import re

import pytest

from benchmarking.core.tables import Column, Table, state_style, table_of, table_text
from benchmarking.core.terminal import PLAIN, Page

ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
ROWS = (
    ("b1 s32", "12", "1.234", "1.1 .. 1.3", "noisy: drift, launch_spread, severe_outliers, run_queue_wait"),
    ("b2 s32", "345678", "12.34", "11.5 .. 13.02", "failed"),
)
HEADINGS = ("point", "new tokens", "median ms", "95 % interval", "doubts")
RESULTS = Table(headings=HEADINGS, rows=ROWS, numbers=(1, 2, 3), states=(4,))
NUMBERS = [cell for row in ROWS for cell in row[1:4]]


def test_without_a_width_rows_are_single_lines():
    lines = table_text(RESULTS).splitlines()
    assert lines == [
        "point   new tokens  median ms  95 % interval  doubts",
        "─" * 106,
        "b1 s32          12      1.234     1.1 .. 1.3  noisy: drift, launch_spread, severe_outliers, run_queue_wait",
        "b2 s32      345678      12.34  11.5 .. 13.02  failed",
    ]


def test_a_table_uses_the_width_of_a_terminal_but_not_of_a_file():
    in_a_file = table_text(RESULTS, Page(width=200))
    assert max(map(len, in_a_file.splitlines())) == 100
    assert table_text(RESULTS, Page(width=100, is_terminal=True)) == in_a_file
    wide = table_text(RESULTS, Page(width=200, is_terminal=True))
    assert 100 < max(map(len, wide.splitlines())) <= 200
    assert len(wide.splitlines()) < len(in_a_file.splitlines())
    styled = table_text(RESULTS, Page(width=200, is_terminal=True, has_styles=True))
    assert [line.rstrip() for line in ESCAPE.sub("", styled).splitlines()] == wide.splitlines()


@pytest.mark.parametrize("width", [80, 60, 40, 30, 24])
def test_narrow_terminals_are_not_overrun_and_keep_all_numbers(width):
    text = table_text(RESULTS, Page(width=width))
    assert max(map(len, text.splitlines())) <= width
    for number in NUMBERS:
        assert number in text
    for word in ("drift", "launch_spread", "severe_outliers", "run_queue_wait", "failed"):
        assert word in text


def test_words_are_folded_before_a_table_is_split():
    assert "\n\n" not in table_text(RESULTS, Page(width=80))
    parts = [part.splitlines() for part in table_text(RESULTS, Page(width=30)).split("\n\n")]
    assert len(parts) == 3
    assert [part[0] for part in parts[1:]] == ["further columns:"] * 2
    for part in parts:
        assert [line.split("  ")[0] for line in part if line.startswith("b")] == ["b1 s32", "b2 s32"]


def test_an_empty_column_is_omitted_when_there_is_no_room():
    table = Table(headings=("point", "median ms", "doubts"), rows=(("b1", "1.5", ""), ("b2", "2.5", "")), numbers=(1,))
    assert "doubts" in table_text(table, Page(width=30))
    assert table_text(table, Page(width=16)).splitlines()[2:] == ["b1           1.5", "b2           2.5"]


def test_numbers_wider_than_the_terminal_are_not_cut():
    table = Table(headings=("n",), rows=(("123456789012345678",),), numbers=(0,))
    assert "123456789012345678" in table_text(table, Page(width=10))


def test_styled_tables_have_bold_headings_red_failures_and_yellow_doubts():
    text = table_text(RESULTS, Page(width=200, has_styles=True))
    assert re.search(r"\x1b\[1mmedian ms", text)
    assert re.search(r"\x1b\[33mnoisy: drift", text)
    assert re.search(r"\x1b\[31mfailed", text)
    assert "\x1b" not in table_text(RESULTS, Page(width=200))


@pytest.mark.parametrize(
    ("text", "style"),
    [
        ("failed: out of space", "red"),
        ("timed out", "red"),
        ("invalid: wrong_output", "red"),
        ("regressed", "red"),
        ("noisy: drift", "yellow"),
        ("A drift", "yellow"),
        ("equivalent", ""),
        ("-", ""),
        ("", ""),
    ],
)
def test_states_have_a_style(text, style):
    assert state_style(text) == style


@pytest.mark.parametrize("page", [PLAIN, Page(width=80), Page(width=80, has_styles=True)])
def test_control_characters_are_shown_as_escapes_and_markup_is_text(page):
    table = Table(headings=("a\x07",), rows=(("x\x1b]0;title\x07[red]y\n\u202e",),), states=(0,))
    text = table_text(table, page)
    assert "a\\x07" in text
    assert "x\\x1b]0;title\\x07[red]y\\n\\u202e" in text
    assert not set("\x07\u202e") & set(ESCAPE.sub("", text))
    assert "\x1b" not in ESCAPE.sub("", text)


def test_wide_characters_line_up_in_both_forms():
    table = Table(headings=("a", "b"), rows=(("日本", "1"), ("x", "2")), numbers=(1,))
    assert table_text(table).splitlines()[2:] == ["日本  1", "x     2"]
    assert table_text(table, Page(width=80)) == table_text(table)


def test_encodings_without_line_characters_use_hyphens():
    table = Table(headings=("a",), rows=(("xyz",),))
    for page in (Page(is_ascii=True), Page(is_ascii=True, width=80)):
        assert table_text(table, page).splitlines()[1] == "---"
        assert table_text(table, page).isascii()


def test_an_empty_table_shows_its_headings():
    assert table_text(Table(headings=("a", "b"), rows=())).splitlines() == ["a  b", "────"]


def test_columns_without_values_are_omitted():
    columns = [
        Column[int]("n", str, is_key=True),
        Column[int]("never", lambda _: None),
        Column[int]("odd", lambda one: "odd" if one % 2 else None, is_state=True),
        Column[int]("square", lambda one: str(one * one), is_number=True),
    ]
    table = table_of(columns, (1, 2))
    assert table == Table(
        headings=("n", "odd", "square"), rows=(("1", "odd", "1"), ("2", "-", "4")), numbers=(2,), states=(1,), keys=1
    )


def wide(*, first="1", spare=(0, 0)):
    """Three key columns, of which two are the same in all rows, and two numbers of 40 digits each."""
    return [
        Column[int]("batch", lambda one: first if one == 1 else "2", is_number=True, is_key=True),
        Column[int]("sequence", lambda _: "128", is_number=True, is_key=True),
        Column[int]("precision", lambda _: "float32", is_key=True),
        Column[int]("low", lambda _: "1" * 40, is_number=True, spare=spare[0]),
        Column[int]("high", lambda _: "2" * 40, is_number=True, spare=spare[1]),
    ]


def test_shared_key_values_move_above_a_wide_table():
    table = table_of(wide(), (1, 2), Page(width=100))
    assert table.headings == ("batch", "low", "high")
    assert table.shared == ("sequence 128", "precision float32")
    assert (table.keys, table.left_out) == (1, ())
    assert table_of(wide(), (1, 2)).shared == (), "without a width there is room for everything"
    assert table_of(wide()[:4], (1, 2), Page(width=100)).shared == (), "it fits as it is"


def test_one_key_column_is_kept_if_all_rows_are_equal():
    table = table_of(wide(first="2"), (1, 2), Page(width=100))
    assert (table.headings[0], table.shared) == ("batch", ("sequence 128", "precision float32"))


def test_a_single_row_keeps_its_key_columns():
    assert table_of(wide(spare=(1, 0)), (1,), Page(width=100)).headings == ("batch", "sequence", "precision", "high")


def test_dispensable_columns_are_dropped_in_order_until_the_table_fits():
    columns = [*wide(spare=(1, 2)), Column[int]("last", lambda _: "3" * 40, is_number=True)]
    table = table_of(columns, (1, 2), Page(width=100))
    assert (table.headings, table.left_out) == (("batch", "low", "last"), ("high",))
    columns[3:5] = wide(spare=(2, 2))[3:5]
    assert table_of(columns, (1, 2), Page(width=60)).left_out == ("low",), "a narrow page has the same columns"

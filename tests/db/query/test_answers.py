"""Answers written out, and how a table gets into a terminal."""

from __future__ import annotations

import csv
import io
import json

import pytest

from benchmarking.core.terminal import Page
from db.query.answers import csv_lines, fitting_columns, json_lines, write, write_markdown, write_table, write_vertical
from db.query.questions import Answer, Column


def answer(columns, *rows):
    made = tuple(Column(name=name, type=kind) for name, kind in columns)
    return Answer(columns=made, rows=iter(rows))


def written(writer, what, *, rows=100, **page):
    out = io.StringIO()
    writer(what, out, Page(**page), rows)
    return out.getvalue()


MIXED = (("model", "VARCHAR"), ("n", "INTEGER"), ("ms", "DOUBLE"))


def test_a_table_has_numbers_to_the_right_and_a_rule_as_wide_as_it_is():
    text = written(write_table, answer(MIXED, ("bert", 1, 1.5), ("gpt2", 12, None)))
    assert text.splitlines() == [
        "model   n   ms",
        "──────────────",
        "bert    1  1.5",
        "gpt2   12    -",
    ]


def test_wide_characters_take_two_columns():
    text = written(write_table, answer((("a", "VARCHAR"), ("b", "INTEGER")), ("日本", 1), ("x", 2)))
    assert text.splitlines()[2:] == ["日本  1", "x     2"]


def test_only_the_first_rows_are_read_with_a_remark():
    def endless():
        while True:
            yield ("x", 1, 1.0)

    what = Answer(columns=tuple(Column(name=name, type=kind) for name, kind in MIXED), rows=endless())
    lines = written(write_table, what, rows=2).splitlines()
    assert lines[-1] == "the first 2 rows; there are more"
    assert len(lines) == 5


def test_an_empty_answer_has_a_remark():
    assert written(write_table, answer(MIXED)).splitlines()[-1] == "no rows"


def slots(*columns):
    """Slots as write_table makes them: (is_number, width of the heading, width of the cells)."""
    from db.query.answers import _slot

    return [
        _slot(
            Column(name="h" * heading, type="BIGINT" if is_number else "VARCHAR"),
            [None] if cells == 0 else [10 ** (cells - 1) if is_number else "x" * cells],
        )
        for is_number, heading, cells in columns
    ]


@pytest.mark.parametrize(
    ("columns", "room", "widths"),
    [
        ([(False, 5, 50), (True, 3, 8)], None, [50, 8]),
        ([(False, 5, 50), (True, 3, 8)], 60, [50, 8]),
        ([(False, 5, 50), (True, 3, 8)], 30, [20, 8]),
        ([(False, 5, 50), (False, 5, 30)], 40, [20, 18]),
        ([(False, 5, 50), (True, 3, 8), (True, 4, 15)], 25, [15, 8]),
        ([(False, 5, 50), (True, 3, 0), (True, 4, 6)], 30, [22, 6]),
        ([(True, 4, 15), (True, 4, 15)], 5, [15]),
    ],
    ids=["no limit", "fits", "text narrowed", "the widest first", "the last out", "the empty out", "never none"],
)
def test_columns_are_fitted_to_the_width(columns, room, widths):
    found = [width for _, width in fitting_columns(slots(*columns), room)]
    assert sum(found) == sum(widths)
    assert len(found) == len(widths)
    if columns[0][0] or len(columns) != 2 or columns[1][0]:
        assert found == widths


def test_a_number_never_loses_a_digit_in_a_narrow_terminal():
    what = answer((("text", "VARCHAR"), ("bytes", "BIGINT")), ("x" * 70, 123456789012345678))
    text = written(write_table, what, width=40, is_terminal=True)
    assert "123456789012345678" in text
    assert max(map(len, text.splitlines())) == 40
    assert "x…" in text


def test_dropped_columns_are_counted():
    what = answer([(f"column_{n}", "INTEGER") for n in range(9)], tuple(range(9)))
    text = written(write_table, what, width=30, is_terminal=True)
    assert text.splitlines()[-1].startswith("6 more columns: select fewer")


def test_a_pipe_gets_every_column_and_every_word_within_100_columns():
    columns = [("model_id", "VARCHAR"), *((f"a_column_of_numbers_{n}", "INTEGER") for n in range(9))]
    words = " ".join(f"word{n}" for n in range(30))
    text = written(write_table, answer(columns, (words, *range(1000, 1009))), width=100)
    assert max(map(len, text.splitlines())) <= 100
    for part in (*words.split(), *(name for name, _ in columns), *map(str, range(1000, 1009))):
        assert part in text


def test_vertical_truncates_nothing():
    text = written(write_vertical, answer(MIXED, ("x" * 200, 1, None)), width=20)
    assert text == f"── row 1\nmodel  {'x' * 200}\nn      1\nms     -\n"


def test_csv_cells_are_safe_for_spreadsheets():
    columns = (("=name()", "VARCHAR"), ("ms", "DOUBLE"))
    text = "".join(csv_lines(answer(columns, ("=HYPERLINK(1)", -1.5), ("-2", 1.0))))
    assert list(csv.reader(io.StringIO(text))) == [["'=name()", "ms"], ["'=HYPERLINK(1)", "-1.5"], ["-2", "1.0"]]


def test_csv_round_trips():
    nasty = 'a,"b"\nc'
    text = "".join(csv_lines(answer(MIXED, (nasty, None, 0.1 + 0.2), ("", 1, 1e300))))
    rows = list(csv.reader(io.StringIO(text)))
    assert rows == [["model", "n", "ms"], [nasty, "", "0.30000000000000004"], ["", "1", "1e+300"]]


def test_json_has_an_object_a_row_with_a_name_for_each_column():
    what = answer((("x", "INTEGER"), ("x", "MAP(VARCHAR, DOUBLE)"), ("j", "JSON")), (1, {"a": 0.5}, "[1]"))
    assert json.loads("".join(json_lines(what))) == [{"x": 1, "x_1": {"a": 0.5}, "j": [1]}]
    assert json.loads("".join(json_lines(answer(MIXED)))) == []


def test_markdown_has_all_rows_and_takes_nothing_for_markup():
    text = written(write_markdown, answer((("a|b", "VARCHAR"), ("n", "DOUBLE")), ("<b>*x*</b>\ny", 1.0)), rows=1)
    assert text.splitlines() == ["| a\\|b | n |", "| --- | ---: |", "| &lt;b&gt;\\*x\\*&lt;/b&gt;\\\\ny | 1 |"]


def test_formats_are_found_by_name():
    out = io.StringIO()
    write(answer(MIXED, ("bert", 1, 1.5)), "csv", out=out)
    assert out.getvalue() == "model,n,ms\nbert,1,1.5\n"

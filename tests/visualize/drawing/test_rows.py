"""Rows: grouping, sorting and unique names."""

import json

import pytest

from benchmarking.core.text import distinct_names
from tests.helpers.chart_rows import row
from visualize.drawing import words
from visualize.drawing.rows import detail, grouped, varying


def test_groups_are_sorted_numerically_with_none_first():
    rows = [{"n": 16}, {"n": 4}, {"n": None}, {"n": 4}]
    assert [(key["n"], len(members)) for key, members in grouped(rows, ("n",))] == [(None, 1), (4, 2), (16, 1)]


def test_groups_of_other_axes_are_sorted_by_their_values():
    rows = [{"axes": json.dumps({"request_rate": rate})} for rate in (16, 1, 2.5)]
    assert [json.loads(key["axes"])["request_rate"] for key, _ in grouped(rows, ("axes",))] == [1, 2.5, 16]
    assert len(grouped([*rows, {"axes": None}, {"axes": "{}"}], ("axes",))) == 5


def test_different_names_do_not_change():
    assert distinct_names(["a", "b"], [["x"], ["y"]], "_") == ["a", "b"]


def test_equal_names_get_the_first_facts_that_distinguish_them():
    facts = [["same", "red", "1"], ["same", "blue", "2"]]
    assert distinct_names(["a", "a"], facts, "_") == ["a_red", "a_blue"]


def test_equal_names_get_more_facts_if_one_is_not_enough():
    facts = [["red", "1"], ["red", "2"], ["blue", "1"]]
    assert distinct_names(["a", "a", "a"], facts, "_") == ["a_red_1", "a_red_2", "a_blue_1"]


def test_facts_that_differ_are_named_even_where_others_tell_the_names_apart():
    facts = [["dynamic=false", "1 thread", "id 1"], ["dynamic=true", "default threads", "id 2"]]
    assert distinct_names(["a", "a"], facts, " ") == ["a dynamic=false", "a dynamic=true"]
    assert distinct_names(["a", "a"], facts, " ", always=2) == [
        "a dynamic=false 1 thread",
        "a dynamic=true default threads",
    ]


def test_names_without_distinguishing_facts_are_numbered():
    assert distinct_names(["a", "a"], [["x"], ["x"]], "_") == ["a", "a_2"]


def test_numbered_names_are_unique():
    assert len(set(distinct_names(["a", "a", "a_2"], [[], [], []], "_"))) == 3


def test_names_of_thousands_of_equal_setups_take_no_time_of_their_square():
    """Each fact is read a few times for each name, not once for each two names."""

    class Fact(str):
        read = 0

        def split(self, *separators):
            Fact.read += 1
            return super().split(*separators)

    facts = [[Fact(f"s {number}")] for number in range(300)]
    assert distinct_names(["a"] * 300, facts, ", ")[-1] == "a, s 299"
    assert Fact.read <= 3 * 300


@pytest.mark.parametrize(
    ("column", "value", "text"),
    [
        ("runtime_mode", '{"cache":"static","attention":"sdpa"}', "attention=sdpa, cache=static"),
        ("num_threads", 4, "4 threads"),
        ("num_threads", None, "default threads"),
        ("hardware_id", "0123456789abcdef", "hardware 01234567"),
        ("model_revision", None, "no revision"),
        ("model_revision", "f00dfeed99", "revision f00dfeed"),
        ("simulated", True, "simulated"),
        ("simulated", False, ""),
        ("device_name", None, ""),
        ("metric_definition", 2, "metrics 2"),
    ],
)
def test_details_in_words(column, value, text):
    assert detail(column, value) == text


def test_setups_whose_long_settings_differ_at_the_end_are_told_apart_by_it_and_shown_cut_off():
    modes = [json.dumps({"options": f"{{{'a' * 100}, fp16={flag}}}"}) for flag in ("on", "off")]
    assert distinct_names(["a", "a"], [(detail("runtime_mode", mode),) for mode in modes], ", ") == [
        "a, fp16=on}",
        "a, fp16=off}",
    ]
    one, both = words.provenance([row(runtime_mode=modes[0])]), words.provenance([row(runtime_mode=m) for m in modes])
    assert f"options={{{'a' * 76}... · " in one
    assert "options" not in both, "not what they share"


def test_varying_axes_are_in_table_order():
    axes = ['{"image_size":224,"steps":4}', '{"image_size":224,"steps":8}', '{"image_size":512,"zeal":1}']
    rows = [row(sequence_length=None, axes=text) for text in axes]
    assert varying(rows[:1]) == ()
    assert varying(rows[:2]) == ("steps",)
    assert varying(rows) == ("image_size", "steps", "zeal")
    assert varying([row(sequence_length=1), row(sequence_length=2)]) == ("sequence_length",)

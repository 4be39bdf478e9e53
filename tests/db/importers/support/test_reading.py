"""Typed access to foreign values, with the path in messages, and the unread rest."""

from __future__ import annotations

import math
from array import array
from datetime import datetime
from pathlib import Path

import pytest

from benchmarking.core.errors import FormatError
from benchmarking.core.records import Point
from db.importers.support.building import ForeignRun, Format, content_id
from db.importers.support.files import ForeignFile
from db.importers.support.measures import foreign_result
from db.importers.support.reading import Fields, csv_rows, has_columns, storable
from tests.helpers.left_out import left_out

TEST = Format(
    name="test",
    summary="",
    definition="test",
    definitions={},
    recognises=lambda _: True,
    read=lambda _: [],
)


def foreign(text="", name="f.json"):
    return ForeignFile(path=Path(name), content=text.encode(), sha256="0" * 64, modified_at=datetime(2026, 1, 2))


def fields(values, **others):
    return Fields(foreign(), values, "top", **others)


@pytest.mark.parametrize(
    ("value", "setting"),
    [
        *[(path, "x.gguf") for path in ("/models/x.gguf", "~/m/x.gguf", "C:\\m\\x.gguf", "c:/my models/x.gguf")],
        ("ids:/home/me/ids.bin", "ids:ids.bin"),
        *[(name, name) for name in ("org/model/Q4", "http://host/data", "s3://bucket/a/b", "file:///a/b", "/")],
    ],
)
def test_a_setting_has_no_folder_of_one_machine(value, setting):
    assert fields({"a": value}).other_settings() == {"a": setting}


def test_a_getter_gives_none_for_an_absent_field():
    found = fields({"a": None})
    assert (found.text("a"), found.number("b"), found.fields("c"), found.numbers("d")) == (None,) * 4


@pytest.mark.parametrize(
    ("getter", "value", "message"),
    [
        ("text", 1, "expected text, found 1"),
        ("number", "1", "expected a number, found '1'"),
        ("number", True, "expected a number, found True"),
        ("number", 10**400, "expected a number, found 1000"),
        ("number", float("inf"), "expected a number, found inf"),
        ("integer", 1.5, "expected a whole number from 0 to"),
        ("integer", -1, "expected a whole number from 0 to"),
        ("count", 0, "expected a whole number from 1 to 2147483647, found 0"),
        ("flag", 1, "expected true or false, found 1"),
        ("time", "yesterday", "expected a time in ISO 8601, found 'yesterday'"),
        ("time", "0001-01-01T00:00:00+14:00", "expected a time in ISO 8601"),
        ("unix_time", 1e30, "expected a time in seconds since 1970"),
        ("fields", [], r"expected an object, found \[\]"),
        ("objects", {}, "expected a list of objects, found {}"),
    ],
)
def test_a_wrong_value_is_left_out_with_its_path_and_stays_in_the_rest(getter, value, message):
    found = fields({"x": value, "y": 1})
    with left_out(rf"^f\.json: top\.x.*{message}"):
        assert getattr(found, getter)("x") is None
    assert "x" in found.rest()


def test_values_that_cannot_be_stored_are_replaced_in_the_rest():
    found = fields({"a": float("nan"), "b": ["\ud83d", "\N{GRINNING FACE}"], "c": {"d": -math.inf}})
    assert found.rest() == {"a": "nan", "b": ["\ufffd", "\N{GRINNING FACE}"], "c": {"d": "-inf"}}


def test_an_error_in_a_list_names_its_index():
    found = fields({"x": [1, 2, -1]})
    with left_out(r"top\.x\[2\]: expected a number from 0, found -1"):
        assert found.numbers("x", low=0) == (1.0, 2.0)
    assert found.column("x", low=0) == (1.0, 2.0, None)


@pytest.mark.parametrize("many", [list, lambda values: array("d", values)])
def test_a_number_that_no_measurement_has_is_left_out_of_a_list_of_any_length(many):
    found = fields({"x": many([1.0, 1e200, 2.0])})
    with left_out(r"top\.x\[1\]: expected a number, found 1e\+200"):
        assert found.numbers("x") == (1.0, 2.0)


def test_a_missing_required_field_is_refused():
    found = fields({})
    with pytest.raises(FormatError, match=r"top\.x: is missing"):
        found.required(found.text, "x")


def test_numbers_may_be_text_where_the_format_writes_them_so():
    found = fields({"a": "1.5", "b": "", "c": "true", "d": "7"}, numbers_are_text=True)
    assert (found.number("a"), found.number("b"), found.flag("c"), found.integer("d")) == (1.5, None, True, 7)


def test_times_are_naive_utc():
    found = fields({"a": "2026-01-02T03:04:05+02:00", "b": 0})
    assert found.time("a") == datetime(2026, 1, 2, 1, 4, 5)
    assert found.unix_time("b") == datetime(1970, 1, 1)


def test_the_rest_is_the_unread_fields_down_to_objects_in_lists():
    found = fields(
        {"read": 1, "left": None, "in": {"read": 1, "left": 2}, "all": {"read": 1}, "list": [{"a": 1, "b": 2}]}
    )
    found.number("read")
    for name in ("in", "all"):
        found.fields(name).number("read")
    found.objects("list")[0].number("a")
    found.unread_copy().number("left")
    assert found.rest() == {"left": None, "in": {"left": 2}, "list": [{"b": 2}]}


def test_what_is_nested_too_deep_is_described():
    value = []
    for _ in range(200):
        value = [value]
    assert "not stored: nested more than 100 deep" in str(storable(value))


def test_csv_rows_name_their_line():
    (row,) = csv_rows(foreign('a,b\n"1",\n'), has_columns("a"))
    assert (row.number("a"), row.text("b"), row.path) == (1.0, None, "line 2")
    with left_out("line 2: 3 cells under 2 column names"):
        assert [row.path for row in csv_rows(foreign("a,b\n1,2,3\n1,2\n"), has_columns("a"))] == ["line 3"]


def test_lines_above_and_inside_a_table_are_left_out_and_named():
    text = 'loading, please wait\na,b\n1,"x\ny"\nwarning: "half a quote\n3,4\na,b\n5,6\n'
    file = foreign(text)
    rows = list(csv_rows(file, has_columns("a", "b")))
    assert [(row.path, row.number("a"), row.peek("b")) for row in rows] == [
        ("line 3", 1.0, "x\ny"),
        ("line 6", 3.0, "4"),
        ("line 8", 5.0, "6"),
    ]
    assert [one.place for one in file.left_out] == ["line 1", "line 5"]


def a_run(point, **others):
    result = foreign_result(point, metrics={"latency_median_ms": 1.0})
    found = ForeignRun(key="row 1", model_id="m", results=[result], started_at=datetime(2026, 1, 1), **others)
    return TEST.record(foreign(), found)


@pytest.mark.parametrize(
    ("point", "others", "message"),
    [
        (Point(batch_size=0), {}, "row 1: batch_size is 0, expected 1 to 2147483647"),
        (Point(batch_size=1, sequence_length=2**31), {}, "sequence_length is 2147483648"),
        (Point(batch_size=1), {"num_threads": 0}, "num_threads is 0"),
        (Point(batch_size=1), {"kept": {"a": float("inf")}}, "row 1: a record must not contain inf"),
        (Point(batch_size=1), {"host": "\ud800"}, "an unpaired surrogate"),
    ],
)
def test_an_unstorable_run_is_refused(point, others, message):
    with pytest.raises(FormatError, match=message):
        a_run(point, **others)


def test_a_number_that_no_column_holds_takes_no_run_with_it():
    whole = a_run(Point(batch_size=1), memory_bytes=2**40, cpu_threads=8)
    result = foreign_result(Point(batch_size=1), metrics={"latency_median_ms": 1.0}, iterations=2**70)
    beyond = {"memory_bytes": 10**30, "cpu_threads": 2**40, "parameter_count": -1}
    file = foreign()
    found = ForeignRun(key="row 1", model_id="m", results=[result], started_at=datetime(2026, 1, 1), **beyond)
    run = TEST.record(file, found)
    assert (whole.hardware.memory_bytes, whole.hardware.cpu_threads) == (2**40, 8)
    assert (run.hardware.memory_bytes, run.hardware.cpu_threads) == (None, None)
    assert (run.cell.workload.parameter_count, run.results[0].iterations) == (None, None)
    assert [one.place for one in file.left_out] == ["memory_bytes", "parameter_count", "cpu_threads", "iterations"]


def test_a_size_that_no_column_holds_takes_no_other_result_with_it():
    sizes = (16, 2**31, 32)
    points = [
        foreign_result(Point(batch_size=1, sequence_length=one), metrics={"latency_mean_ms": 1.0}) for one in sizes
    ]
    file = foreign()
    run = TEST.record(file, ForeignRun(key="row 1", model_id="m", results=points, started_at=datetime(2026, 1, 1)))
    assert [one.point.sequence_length for one in run.results] == [16, 32]
    assert [one.text for one in file.left_out] == ["sequence_length: 2147483648, expected 1 to 2147483647"]


def test_ids_are_hashes_of_the_content_and_not_of_the_time():
    first, second = a_run(Point(batch_size=1)), a_run(Point(batch_size=1))
    assert (first.run_id, first.session_id) == (second.run_id, second.session_id)
    assert first.run_id == content_id("test", "0" * 64, "row 1")
    assert content_id("a", "b") != content_id("ab", "")
    assert content_id("a")[14] == "8"  # UUID version


def test_the_hardware_id_does_not_depend_on_the_device_index():
    one = a_run(Point(batch_size=1), device_type="cuda", device_selector="cuda:0", device_name="H100")
    other = a_run(Point(batch_size=1), device_type="cuda", device_selector="cuda:1", device_name="H100")
    assert one.hardware.hardware_id == other.hardware.hardware_id
    gpu = a_run(Point(batch_size=1), device_type="openvino", device_selector="openvino:GPU")
    cpu = a_run(Point(batch_size=1), device_type="openvino", device_selector="openvino:CPU")
    assert gpu.hardware.hardware_id != cpu.hardware.hardware_id


def test_a_table_below_a_progress_bar_has_all_of_its_rows():
    file = foreign("10%\r20%\r30%\x0c\na,b\n1,2\n3,?\n", "f.csv")
    rows = list(csv_rows(file, has_columns("a", "b")))
    assert [(row.path, row.text("a")) for row in rows] == [("line 3", "1"), ("line 4", "3")]

"""Records round-trip through JSON; invalid fields are errors that name them."""

from __future__ import annotations

import json
import math
from typing import Annotated

import pytest

from benchmarking.core.codec import Range
from benchmarking.core.errors import FormatError
from benchmarking.core.records import (
    FORMAT_VERSION,
    Doubt,
    Point,
    Readings,
    Run,
    Samples,
    canonical_hash,
    dumps,
    from_json,
    run_from_json,
    to_json,
)


def test_runs_round_trip_through_json(make_run):
    run = make_run(with_failed=True, with_doubtful=True)
    assert run_from_json(json.loads(dumps(run)), "here") == run


def test_integers_become_floats_in_float_fields():
    data = {"launch": 0, "phase": "measure", "metric": "m", "unit": "ms", "started_at": "2026-01-01", "values": [1, 2]}
    values = from_json(Samples, data).values
    assert values == (1.0, 2.0)
    assert all(isinstance(value, float) for value in values)


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_nan_and_infinity_are_errors(bad):
    with pytest.raises(FormatError, match="store None and a reason"):
        to_json(Doubt(kind="k", severity="info", evidence={"x": bad}))


@pytest.mark.parametrize("kind", [Annotated[float, Range(0, 10)], Annotated[float, Range(0, 10)] | None])
@pytest.mark.parametrize("place", range(3))
def test_nan_is_refused_wherever_it_is_in_a_list(kind, place):
    """NaN is neither less nor more than any number, so it is not seen in the least and the greatest of a list."""
    values = [1.0, 2.0, 3.0]
    values[place] = math.nan
    with pytest.raises(FormatError, match=rf"list\[{place}\]: expected"):
        from_json(tuple[kind, ...], values, "list")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"batch_size": "two"}, 'Point.batch_size: expected a whole number, found "two"'),
        ({"batch_size": True}, "Point.batch_size: expected a whole number, found true"),
        ({"sequence_length": "x"}, 'Point.sequence_length: expected a whole number, found "x"'),
        ({"colour": 1}, "Point: unknown field 'colour'"),
        ({"axes": {"image_size": "big"}}, "Point.axes.image_size: expected int or float"),
    ],
)
def test_invalid_fields_are_named(change, message):
    with pytest.raises(FormatError) as error:
        from_json(Point, {"batch_size": 1, **change})
    assert message in str(error.value)


def test_missing_fields_are_named():
    with pytest.raises(FormatError, match="missing field 'batch_size'"):
        from_json(Point, {"sequence_length": 8})


def test_values_outside_a_closed_set_are_errors():
    with pytest.raises(FormatError, match="expected one of info, noisy, throttled, invalid"):
        from_json(Doubt, {"kind": "k", "severity": "mild"})


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([], "not a benchhouse run"),
        ({"format": "other"}, "not a benchhouse run"),
        ({"format": "benchhouse-run", "format_version": "1"}, "format_version is '1'"),
        ({"format": "benchhouse-run", "format_version": FORMAT_VERSION + 1}, "is newer"),
        ({"format": "benchhouse-run", "format_version": 1}, "missing field"),
    ],
)
def test_other_formats_and_newer_versions_are_errors(data, message):
    with pytest.raises(FormatError, match=message):
        run_from_json(data, "some.json")


def test_a_family_without_a_plugin_is_an_error(make_run):
    data = to_json(make_run())
    data["cell"]["workload"]["family"] = "vison"
    with pytest.raises(FormatError, match=r"some\.json\.cell\.workload\.family: expected one of .*, found 'vison'"):
        run_from_json(data, "some.json")
    data["cell"]["workload"]["family"] = None
    assert run_from_json(data, "some.json").cell.workload.family is None


def test_combined_readings_prefer_values_over_reasons():
    one = Readings(values={"a": 1}, missing={"b": "not_supported"})
    two = Readings(values={"b": 2}, missing={"a": "failed", "c": "not_run"})
    assert one | two == Readings(values={"a": 1, "b": 2}, missing={"c": "not_run"})


def test_readings_of_optional_values_are_values_or_the_one_reason():
    assert Readings.known({"a": 0, "b": None}, "not_run") == Readings(values={"a": 0}, missing={"b": "not_run"})


def test_readings_of_some_names_keep_values_and_reasons_in_the_order_of_the_names():
    all_of_them = Readings(values={"a": 1, "b": 2}, missing={"c": "failed", "d": "not_run"})
    some = all_of_them.only(("c", "b", "a", "e"))
    assert (list(some.values.items()), dict(some.missing)) == ([("b", 2), ("a", 1)], {"c": "failed"})


def test_hashes_do_not_depend_on_key_order():
    assert canonical_hash({"a": 1, "b": [2]}) == canonical_hash({"b": [2], "a": 1})
    assert canonical_hash({"a": 1}) != canonical_hash({"a": 2})


def test_labels_distinguish_points():
    assert Point(batch_size=1, sequence_length=128, new_tokens=16).label == "b1 s128 n16"
    assert Point(batch_size=2, concurrency=4, axes={"image_size": 224}).label == "b2 c4 image_size=224"


def test_format_of_run_is_current(make_run):
    run: Run = make_run()
    assert (run.format, run.format_version) == ("benchhouse-run", FORMAT_VERSION)


@pytest.mark.parametrize(
    ("values", "read"),
    [([1.5, 2.5], (1.5, 2.5)), ([1, 2.5], (1.0, 2.5)), ([], ()), ([True, 1.0], None), ([None], None)],
)
def test_numbers_in_lists_are_validated(values, read):
    data = {
        "launch": 0,
        "phase": "measure",
        "metric": "latency_wall",
        "unit": "ms",
        "started_at": "2026-01-02T03:04:05Z",
        "values": values,
    }
    if read is None:
        with pytest.raises(FormatError, match=r"values\[0\]: expected a number"):
            from_json(Samples, data)
        return
    found = from_json(Samples, data).values
    assert found == read
    assert all(type(value) is float for value in found)

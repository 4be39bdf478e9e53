"""The table of axes is complete; flags, keys, records, columns and labels derive from it."""

from __future__ import annotations

import dataclasses

import pytest

from benchmarking.batch import model_list
from benchmarking.commands.run import _parser
from benchmarking.core.axes import AXES, BY_KEY, FURTHER, POINT_FIELDS, is_fractional
from benchmarking.core.records import Point
from benchmarking.sweep.plan.request import Request
from benchmarking.workloads.support import families
from benchmarking.workloads.support.families import plugin_of
from benchmarking.workloads.support.resolve import resolve
from db.analysis.selection import AXIS_FIELDS
from db.warehouse import Warehouse

COLUMNS = "SELECT column_name AS name, data_type AS type FROM duckdb_columns() WHERE table_name = 'benchmark_results'"
KINDS = {"INTEGER": int, "DOUBLE": float}


def test_field_axes_are_the_fields_of_points_and_requests():
    of_point = {field.name for field in dataclasses.fields(Point)} - {"axes"}
    of_request = {field.name for field in dataclasses.fields(Request)}

    assert of_point == set(POINT_FIELDS)
    assert {axis.key for axis in AXES.values()} & of_request == {AXES[name].key for name in POINT_FIELDS}


def test_every_axis_has_a_column_of_its_kind(tmp_path):
    with Warehouse.open(tmp_path / "empty.duckdb") as warehouse:
        rows = warehouse.query(COLUMNS).dicts()
    columns = {row["name"]: row["type"] for row in rows}

    assert {name: KINDS[columns[name]] for name in AXES} == {name: axis.kind for name, axis in AXES.items()}


def test_families_use_exactly_the_axes_of_the_table():
    found = {axis for entry in families.catalog_entries() if not entry.hub for axis in axes_of(entry.name)}

    assert found == {name for name, axis in AXES.items() if not axis.of_every_model}


def axes_of(name):
    workload = resolve(name, weights="random")
    return plugin_of(workload).axes(workload)


def test_every_axis_has_its_flag_and_its_key_in_lists():
    flags = {word for action in _parser()._actions for word in action.option_strings}

    assert {axis.flag for axis in AXES.values()} <= flags
    assert BY_KEY.keys() <= model_list.readers().keys()


def test_axis_names_are_unique():
    for names in ("key", "noun", "heading", "title", "value", "help"):
        assert len({getattr(axis, names) for axis in AXES.values()}) == len(AXES), names
    assert len({AXES[name].letter for name in POINT_FIELDS}) == len(POINT_FIELDS)
    assert sorted(AXIS_FIELDS.values()) == sorted(POINT_FIELDS)


def test_point_labels_omit_implied_values():
    point = Point(batch_size=1, sequence_length=2, new_tokens=3, concurrency=4, axes=dict.fromkeys(FURTHER, 5))

    assert point.label.startswith("b1 s2 n3 c4 ")
    assert all(f"{name}=5" in point.label for name in FURTHER)
    assert Point(batch_size=1).label == "b1"


def test_points_round_trip_through_columns():
    row = {"batch_size": 1, "sequence_length": None, "new_tokens": None, "concurrency": 2, "axes": '{"steps":4}'}

    assert Point.from_columns(row) == Point(batch_size=1, concurrency=2, axes={"steps": 4})


@pytest.mark.parametrize(
    ("name", "value"), [("batch_size", 8), ("sequence_length", None), ("steps", 4), ("top_k", None)]
)
def test_points_have_values_on_every_kind_of_axis(name, value):
    assert Point(batch_size=8, axes={"steps": 4}).value(name) == value


def test_only_audio_lengths_are_fractional():
    assert [name for name in (*AXES, "unknown") if is_fractional(name)] == ["audio_seconds"]

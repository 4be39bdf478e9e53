"""The JSON Schema that ships with the program describes the records."""

from __future__ import annotations

import copy
import json
from importlib import resources

import jsonschema
import pytest

from benchmarking.core.records import to_json
from tests.helpers.run_schema import run_schema


@pytest.fixture
def validator():
    schema = json.loads((resources.files("benchmarking") / "run.schema.json").read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def test_the_file_equals_the_schema_of_the_records():
    assert json.loads((resources.files("benchmarking") / "run.schema.json").read_text()) == run_schema()


def test_a_run_file_is_valid(validator, make_run):
    for run in (make_run(), make_run(family="decoder-only", with_failed=True, with_doubtful=True)):
        assert list(validator.iter_errors(json.loads(json.dumps(to_json(run))))) == []


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("format",), "other"),
        (("format_version",), 99),
        (("status",), "perfect"),
        (("results", 0, "point", "batch_size"), "one"),
        (("results", 0, "samples", 0, "values"), ["fast"]),
        (("colour",), "blue"),
    ],
)
def test_an_invalid_run_does_not_validate(validator, make_run, path, value):
    data = copy.deepcopy(to_json(make_run()))
    place = data
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    with pytest.raises(jsonschema.ValidationError):
        validator.validate(data)


def test_fields_are_described():
    point = run_schema()["$defs"]["Point"]["properties"]
    assert point["concurrency"]["description"] == "Requests in flight."

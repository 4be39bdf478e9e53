import dataclasses

import pytest

from benchmarking.core.records import Point, canonical_hash
from db import rows

POINT = Point(batch_size=1, sequence_length=32)


def series_of(run, point=POINT):
    return rows.series_id(rows.series_keys(run, point))


def changed(run, **fields):
    """The run with fields of its cell or workload changed."""
    workload = {f.name for f in dataclasses.fields(run.cell.workload)}
    cell = {name: value for name, value in fields.items() if name not in workload}
    model = {name: value for name, value in fields.items() if name in workload}
    new = dataclasses.replace(run.cell, workload=dataclasses.replace(run.cell.workload, **model), **cell)
    return dataclasses.replace(run, cell=new)


def test_series_id_is_the_start_of_the_hash_of_its_keys(make_run):
    keys = rows.series_keys(make_run(), POINT)
    assert rows.series_id(keys) == canonical_hash(keys)[:16]
    assert len(rows.series_id(keys)) == 16


def test_two_runs_of_the_same_thing_share_their_series(make_run):
    assert series_of(make_run()) == series_of(make_run(started_at="2027-01-01T00:00:00Z"))


@pytest.mark.parametrize(
    "fields",
    [
        {"model_id": "other"},
        {"revision": "abc"},
        {"weights": "pretrained"},
        {"config_hash": "0" * 64},
        {"task": "fill-mask"},
        {"family": "decoder-only"},
        {"runtime": "compiled"},
        {"runtime_mode": {"attention": "eager"}},
        {"precision": "bfloat16"},
        {"num_threads": 2},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_what_is_measured_differently_is_another_series(make_run, fields):
    run = make_run()
    assert series_of(changed(run, **fields)) != series_of(run)


@pytest.mark.parametrize(
    "fields",
    [
        {"batch_size": 2},
        {"sequence_length": 64},
        {"new_tokens": 8},
        {"concurrency": 2},
        {"axes": {"image_size": 224}},
    ],
    ids=lambda fields: next(iter(fields)),
)
def test_another_point_is_another_series(make_run, fields):
    run = make_run()
    assert series_of(run, dataclasses.replace(POINT, **fields)) != series_of(run)


def test_other_hardware_is_another_series(make_run):
    run = make_run()
    moved = dataclasses.replace(run, hardware=dataclasses.replace(run.hardware, hardware_id="0" * 16))
    assert series_of(moved) != series_of(run)


def test_another_definition_of_the_metrics_is_another_series(make_run):
    run = make_run()
    stated = dataclasses.replace(run, settings={**run.settings, "metric_definition": 2})
    assert rows.metric_definition(run) == 1
    assert series_of(stated) != series_of(run)


def test_software_commit_host_and_selector_stay_out(make_run):
    run = make_run()
    provenance = dataclasses.replace(
        run.provenance, versions={"torch": "9.9"}, git_commit="f" * 40, host="elsewhere", tool_version="7"
    )
    device = dataclasses.replace(run.cell.device, selector="cpu:1", driver="new")
    moved = dataclasses.replace(run, provenance=provenance, cell=dataclasses.replace(run.cell, device=device))
    assert series_of(moved) == series_of(run)

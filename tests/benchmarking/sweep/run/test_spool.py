"""Measurements are on disk, complete, whatever happens next."""

from __future__ import annotations

import errno
import json
import os

import pytest

from benchmarking.core.errors import FormatError, StorageError
from benchmarking.core.records import LaunchLoad, Measurement, Point, Samples, run_from_json
from benchmarking.measure.context import Settings
from benchmarking.sweep.plan.plan import CellPlan
from benchmarking.sweep.run import journal, spool
from benchmarking.sweep.run.spool import PartialRun

POINT = Point(batch_size=1, sequence_length=32)
LOAD = LaunchLoad(launch=0, stages_s={"spawn": 0.1})


@pytest.fixture
def plan(make_run):
    run = make_run()
    return CellPlan(
        session_id="s",
        started_at="2026-01-02T03:04:05.678Z",
        cell=run.cell,
        hardware=run.hardware,
        provenance=run.provenance,
        settings=Settings(),
        timeout_s=60.0,
        points=(POINT,),
    )


def measurement(launch=0):
    samples = Samples(
        launch=launch, phase="measure", metric="latency_wall", unit="ms", started_at="2026-01-02", values=(1.0, 2.0)
    )
    return Measurement(point=POINT, launch=launch, status="ok", started_at="a", finished_at="b", samples=(samples,))


def test_appended_measurements_are_read_back(tmp_path, plan):
    partial = PartialRun.create(tmp_path, plan)
    partial.append(LOAD)
    partial.append(measurement())
    progress = PartialRun(partial.path).read()
    assert (progress.plan, progress.loads, progress.measurements) == (plan, (LOAD,), (measurement(),))


def test_the_file_name_has_model_device_runtime_and_precision(tmp_path, plan):
    path = PartialRun.create(tmp_path, plan).path
    assert path.name == "bert-base-uncased_cpu_eager_float32_20260102T030405Z.partial.jsonl"


def test_runs_of_the_same_second_get_different_names(tmp_path, plan, make_run):
    first = PartialRun.create(tmp_path, plan)
    second = PartialRun.create(tmp_path, plan)
    first.write(make_run())
    first.remove()
    third = PartialRun.create(tmp_path, plan)
    assert len({first.final_path, second.final_path, third.final_path}) == 3


def test_truncated_last_lines_are_ignored_and_repaired(tmp_path, plan):
    partial = PartialRun.create(tmp_path, plan)
    partial.append(measurement())
    whole = partial.path.read_bytes()
    partial.append(measurement(launch=1))
    for cut in (1, 10, 60):
        partial.path.write_bytes(partial.path.read_bytes()[:-cut])
        assert partial.read().measurements == (measurement(),)
    partial.take_over(partial.read())
    assert partial.path.read_bytes().startswith(whole + b'{"Owner":')
    partial.append(measurement(launch=2))
    assert partial.read().measurements == (measurement(), measurement(launch=2))


def test_finishing_leaves_only_the_run_file(tmp_path, plan, make_run):
    partial, run = PartialRun.create(tmp_path, plan), make_run()
    path = partial.write(run)
    partial.remove()
    assert os.listdir(tmp_path) == [path.name]
    assert run_from_json(json.loads(path.read_text()), path.name) == run


def test_unfinished_runs_are_found_oldest_first(tmp_path, plan, make_run):
    first, second, done = (PartialRun.create(tmp_path, plan) for _ in range(3))
    done.write(make_run())
    done.remove()
    os.utime(first.path, ns=(2, 2))
    os.utime(second.path, ns=(1, 1))
    assert [partial.path for partial in spool.unfinished(tmp_path)] == [second.path, first.path]


@pytest.mark.parametrize("content", ["", "{}\n", "nonsense\n", '{"format":"other"}\n', '["a list"]\n'])
def test_a_foreign_file_is_refused(tmp_path, content):
    path = tmp_path / "x.partial.jsonl"
    path.write_text(content)
    with pytest.raises(FormatError, match=r"x\.partial\.jsonl"):
        PartialRun(path).read()


def test_a_file_instead_of_the_output_folder_is_one_clear_error(tmp_path):
    (tmp_path / "taken").write_text("")
    with pytest.raises(StorageError, match=r"cannot write to .*taken: "):
        spool.prepare(tmp_path / "taken")


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs /dev/full")
def test_a_full_disk_is_one_clear_error():
    with pytest.raises(StorageError, match="No space left on device: it holds everything measured so far"):
        PartialRun(spool.Path("/dev/full")).append(LOAD)


def test_a_run_file_that_does_not_fit_on_the_disk_leaves_no_draft(tmp_path, monkeypatch):
    def refuse(descriptor):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "fsync", refuse)
    with pytest.raises(OSError, match="No space left"):
        journal.replace(tmp_path / "a.json", "{}")
    assert list(tmp_path.iterdir()) == []

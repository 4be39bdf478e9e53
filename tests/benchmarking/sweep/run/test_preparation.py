"""Preparation before a cell's launches and its failures, through the command."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from benchmarking.builds.store import RECORD, BuildStore
from benchmarking.core.errors import UnsupportedError
from benchmarking.core.quality import QualitySettings
from benchmarking.core.records import Measurement, Preparation, Readings
from benchmarking.run_hardware_benchmark import main
from benchmarking.runtimes.null import NullOperation
from benchmarking.sweep.run import preparation, spool
from benchmarking.sweep.run.command_session import finish_run
from benchmarking.sweep.run.process import Built, Prepared, QualityReferenced, Referenced
from benchmarking.sweep.run.reference import ReferenceMaker
from benchmarking.sweep.run.supervisor import Observer, Track, run_launch, sweep
from benchmarking.workloads.support import footprint
from db.warehouse import Warehouse

pytestmark = [pytest.mark.forked_children, pytest.mark.usefixtures("in_an_empty_folder")]
REFERENCE = {"logits": [[3.0, 4.0]]}
OFF_BY_A_TENTH = {"float32": REFERENCE, "int8": {"logits": [[3.0, 4.5]]}}
"""||(0, 0.5)|| / ||(3, 4)|| = 0.1, within int8's tolerance."""


def evidence(result, kind):
    return next(doubt["evidence"] for doubt in result["doubts"] if doubt["kind"] == kind)


def test_the_build_is_made_once_and_described_in_columns(null_script, capsys, sweep_arguments):
    null_script(build={"exporter": "scripted"})
    for _ in range(2):
        assert main([*sweep_arguments, "--save"]) == 0
    capsys.readouterr()
    with Warehouse.open("benchmark_db.duckdb") as warehouse:
        columns = "exporter, build_kind, build_is_new, length(build_digest) AS digits"
        rows = warehouse.query(f"SELECT {columns} FROM benchmark_runs ORDER BY started_at").dicts()
        assert [tuple(row.values()) for row in rows] == [
            ("scripted", "null", True, 32),
            ("scripted", "null", False, 32),
        ]
        sizes = warehouse.query("SELECT DISTINCT model_size_mb, memory_weights_mb FROM benchmark_results").dicts()
        assert sizes == [{"model_size_mb": 0.001, "memory_weights_mb": None}]


def test_rebuild_always_and_never_apply_to_builds_and_references(null_script, measured):
    null_script(build={"exporter": "scripted"}, outputs=OFF_BY_A_TENTH)
    code, run = measured("--rebuild", "never")
    assert (code, run["status"]) == (1, "failed")
    assert "--rebuild never does not permit making one" in run["results"][0]["error"]
    assert measured()[1]["preparation"]["build"]["is_new"] is True
    times = {path: path.stat().st_mtime_ns for path in Path("cache").rglob(RECORD)}
    assert len(times) == 3, "the build and two references"
    assert measured("--rebuild", "never")[1]["preparation"]["build"]["is_new"] is False
    assert measured("--rebuild", "always")[1]["preparation"]["build"]["is_new"] is True
    assert all(path.stat().st_mtime_ns > time_ns for path, time_ns in times.items())


def test_a_failed_build_fails_the_points_with_its_reason(null_script, measured):
    null_script(build={"exporter": "scripted"}, faults={"prepare": "raise"})
    code, run = measured()
    assert (code, run["status"], run["loads"]) == (1, "failed", [])
    for result in run["results"]:
        assert result["status"] == "failed"
        assert result["error"] == "null cannot build tiny-bert: RuntimeError: scripted: the call raised"


@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
@pytest.mark.parametrize(
    ("fault", "error"),
    [
        ("kill", "preparation failed: the worker was killed by SIGKILL (out of memory, or killed by a user)"),
        ("exit", "preparation failed: the worker ended with exit code 3"),
        ("hang", "preparation failed: not finished within the time limit of 10 s"),
    ],
)
def test_a_killed_or_hanging_preparation_fails_the_points_without_partial_builds(null_script, measured, fault, error):
    null_script(build={"exporter": "scripted"}, faults={"prepare": fault})
    code, run = measured("--timeout", "10")
    assert (code, [result["error"] for result in run["results"]]) == (1, [error, error])
    assert list(Path("cache").rglob(RECORD)) == []


def test_cells_after_a_failed_preparation_are_measured(null_script, null_track):
    null_script(build={"exporter": "scripted"}, faults={"prepare": "raise"}, outputs=OFF_BY_A_TENTH)
    lost, sound = null_track("int8"), null_track("float32")
    done = []
    sweep([lost, sound], Observer(), done.append)
    assert len(done) == 2
    assert set(done) == {lost, sound}, "in random order; in the second launch at the latest, one follows the failure"
    assert [(one.launch, one.status) for one in lost.measurements] == [(0, "failed")] * 2, "and not tried again"
    assert [(one.launch, one.status) for one in sound.measurements] == [(n, "ok") for n in (0, 0, 1, 1)]


def test_a_failed_preparation_keeps_what_an_earlier_process_measured(null_script, null_track):
    null_script(build={"exporter": "scripted"}, faults={"prepare": "raise"})
    track, at = null_track(), "2026-01-02T03:04:05Z"
    first, second = track.plan.points
    track.begin()
    track.keep(Measurement(point=first, launch=0, status="ok", started_at=at, finished_at=at))
    run_launch(track, 0, Observer(), None)
    assert [(one.point, one.status) for one in track.measurements] == [(first, "ok"), (second, "failed")]


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="POSIX signals")
@pytest.mark.parametrize(
    ("fault", "why"), [("kill", "killed by SIGKILL"), ("hang", "not finished within the time limit")]
)
def test_a_crashing_reference_loses_only_the_comparison(null_script, measured, fault, why, doubts_of):
    null_script(outputs=OFF_BY_A_TENTH, faults={"reference b2 s32": fault})
    code, run = measured("--timeout", "10")
    assert code == 0
    first, second = run["results"]
    assert first["metrics"]["output_error"] == pytest.approx(0.1)
    assert (second["status"], second["validity"]) == ("ok", "valid")
    assert doubts_of(second) == [("not_compared", "info")]
    reason = second["missing"]["output_error"]
    assert reason.startswith("failed: preparing the reference: ")
    assert why in reason
    assert evidence(second, "not_compared")["why"] == reason == run["preparation"]["missing"]["b2 s32"]


def test_a_failed_or_wrong_reference_affects_only_its_point(null_script, measured, doubts_of):
    null_script(outputs=OFF_BY_A_TENTH, faults={"reference b1 s32": "nan", "reference b2 s32": "oom"})
    _, run = measured()
    assert run["preparation"]["missing"] == {
        "b1 s32": "failed: the output of the null float32 reference is invalid: NaN in the output",
        "b2 s32": "failed: scripted: out of memory",
    }
    assert [doubts_of(result) for result in run["results"]] == [[("not_compared", "info")]] * 2


@pytest.mark.parametrize(("fault", "why"), [("lost", "device-side assert triggered"), ("oom", "out of memory")])
def test_a_lost_device_moves_later_references_to_a_fresh_process(null_script, measured, doubts_of, fault, why):
    """A process without its device fails every further call: the second reference would have the first one's reason.
    The build is not made again."""
    null_script(build={"exporter": "scripted"}, outputs=OFF_BY_A_TENTH, faults={"reference b1 s32": fault})
    code, run = measured("--rebuild", "always")
    assert code == 0
    assert list(run["preparation"]["missing"]) == ["b1 s32"]
    assert why in run["preparation"]["missing"]["b1 s32"]
    assert list(run["preparation"]["references"]) == ["b2 s32"]
    assert run["preparation"]["build"]["is_new"] is True
    assert doubts_of(run["results"][0]) == [("not_compared", "info")]
    assert run["results"][1]["metrics"]["output_error"] == pytest.approx(0.1)


def test_the_quality_has_a_reference_although_the_last_point_s_ran_out_of_memory(null_track, monkeypatch):
    """A fresh process makes it, as it makes those of the points that were left."""
    first, last = (point.label for point in null_track().plan.points)
    made, lost = Referenced(label=first, digest="1"), Referenced(label=last, why_not="oom", ends_process=True)
    of_processes = [[Built(build={}), made, lost], [QualityReferenced(digest="q"), Prepared()]]

    class Process:
        def __init__(self, job):
            self.sent = of_processes.pop(0)
            assert [point.label for point in job.points] == ([first, last] if of_processes else [])

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def messages(self, limit_s, ends_s):
            return self.sent

    monkeypatch.setattr(preparation, "WorkerProcess", Process)
    monkeypatch.setattr(preparation, "quality_of", lambda cell, quality: QualitySettings())
    found = preparation.prepare(null_track().plan, lambda what: None)
    assert (found.references, found.missing, found.quality_reference) == ({first: "1"}, {last: "oom"}, "q")


def test_operations_of_references_are_closed(null_script, null_track, monkeypatch):
    null_script(outputs=OFF_BY_A_TENTH)
    closed = []
    monkeypatch.setattr(NullOperation, "close", lambda operation: closed.append(operation))
    plan = null_track().plan
    maker = ReferenceMaker(plan.cell, BuildStore())
    for point in plan.points:
        maker.digest(point)
    assert len(closed) == 2


def test_references_that_exceed_memory_are_not_attempted(null_script, null_track, monkeypatch):
    null_script(outputs=OFF_BY_A_TENTH)
    plan = null_track().plan
    few = Readings(values={"free_memory_bytes": 1_000_000})
    monkeypatch.setattr(footprint, "free_memory", lambda device: few)
    maker = ReferenceMaker(plan.cell, BuildStore())
    with pytest.raises(
        UnsupportedError, match=r"null float32 reference does not fit into memory: .* needs 0.4 GB for weights"
    ):
        maker.digest(plan.points[0])
    assert list(Path("cache").rglob(RECORD)) == []


def test_resumed_runs_are_prepared_again(null_script, null_track, tmp_path):
    null_script(build={"exporter": "scripted"}, outputs=OFF_BY_A_TENTH)
    track = null_track()
    track.begin()
    made = preparation.prepare(track.plan, lambda what: None)
    assert isinstance(made, Preparation)
    assert made.build["is_new"] is True
    track.keep(made)
    progress = track.file.read()
    assert progress.preparation == made
    shutil.rmtree(tmp_path / "cache")
    track.close()
    (file,) = spool.unfinished(tmp_path)
    resumed = Track.resume(file)
    assert (resumed.preparation, resumed.is_prepared) == (made, False)
    sweep([resumed], Observer())
    assert resumed.is_prepared
    assert resumed.preparation.references == made.references
    run = finish_run(resumed).run
    assert run.preparation.build["is_new"] is True, "it was gone from the cache"
    assert [result.metrics["output_error"] for result in run.results] == pytest.approx([0.1, 0.1])


def test_each_step_of_the_preparation_is_reported(null_script, null_track):
    null_script(build={"exporter": "scripted"}, outputs=OFF_BY_A_TENTH)
    messages = []
    preparation.prepare(null_track().plan, messages.append)
    assert messages == ["the null build", "the reference output at b1 s32", "the reference output at b2 s32"]
